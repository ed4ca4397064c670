package kube

import (
	"errors"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weirmesh/weir/internal/kube"
	"github.com/weirmesh/weir/internal/kube/infra"
	"github.com/weirmesh/weir/internal/kube/replica"
	"github.com/weirmesh/weir/internal/model"
)

// TestTokenOfAProxyIsGoodForItsFeedAlone has tokens of a real API server: who has taken a proxy over has one that opens its own
// Gateway's feed, and nothing of the API server.
func TestTokenOfAProxyIsGoodForItsFeedAlone(t *testing.T) {
	t.Parallel() // it waits for what the API server remembers of rights
	policed(t)   // the controller's rights are enough to have tokens reviewed
	c, err := kube.NewClient(asController(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	ns := namespace(t)
	account := &corev1.ServiceAccount{ObjectMeta: named(ns, "edge-weir")}
	other := &corev1.ServiceAccount{ObjectMeta: named(ns, "default")}
	pod := &corev1.Pod{ObjectMeta: named(ns, "edge-weir-1"), Spec: corev1.PodSpec{ServiceAccountName: "edge-weir", Containers: []corev1.Container{{Name: "proxy", Image: "weir:dev"}}}}
	create(t, account, other, pod)
	issue := func(of *corev1.ServiceAccount, bound bool, audiences ...string) string {
		t.Helper()
		r := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
		if bound {
			r.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}
		}
		if err := admin.SubResource("token").Create(t.Context(), of, r); err != nil {
			t.Fatal(err)
		}
		return r.Status.Token
	}
	tokens := &replica.Tokens{Client: c, Audience: infra.Audience, OwnerOf: func(namespace, account string) model.Owner {
		if namespace == ns && account == "edge-weir" {
			return model.GatewayOwner(ns, "edge")
		}
		return ""
	}}
	own := issue(account, true, infra.Audience)
	if gateway, proxy, err := tokens.Authenticate(t.Context(), own); err != nil || gateway != model.GatewayOwner(ns, "edge") || proxy != ns+"/"+pod.Name {
		t.Errorf("a proxy's token is of %q %q, %v", gateway, proxy, err)
	}
	for name, token := range map[string]string{
		"of the API server's audience": issue(account, true),
		"for somebody else":            issue(account, true, "vault"),
		"of no pod":                    issue(account, false, infra.Audience),
		"of another account":           issue(other, false, infra.Audience),
		"with an end that was changed": own[:len(own)-4] + "AAAA",
		"of nobody":                    "eyJhbGciOiJub25lIn0.e30.",
	} {
		if gateway, _, err := tokens.Authenticate(t.Context(), token); !errors.Is(err, replica.ErrToken) {
			t.Errorf("a token %s is of %q, %v, want that it is refused", name, gateway, err)
		}
	}
	// What a proxy has asks the API server nothing.
	config, err := adminConfig()
	if err != nil {
		t.Fatal(err)
	}
	anonymous := rest.AnonymousClientConfig(config)
	anonymous.BearerToken = own
	thief, err := kube.NewClient(anonymous)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(thief.Close)
	if err := thief.List(t.Context(), &corev1.SecretList{}, client.InNamespace(ns)); !apierrors.IsUnauthorized(err) {
		t.Errorf("a proxy's token lists Secrets: %v, want that it is not authenticated", err)
	}
	if err := thief.Create(t.Context(), &authenticationv1.SelfSubjectReview{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("a proxy's token is somebody to the API server: %v", err)
	}
	// With its pod a token ends.
	if err := admin.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	err = within(t.Context(), func() error {
		fresh := &replica.Tokens{Client: c, Audience: infra.Audience, OwnerOf: tokens.OwnerOf}
		if _, _, err := fresh.Authenticate(t.Context(), own); !errors.Is(err, replica.ErrToken) {
			return errors.New("the token of a pod that is gone is good")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
