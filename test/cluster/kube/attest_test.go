package kube

import (
	"errors"
	"reflect"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weirmesh/weir/internal/identity/claim"
	"github.com/weirmesh/weir/internal/identity/workload"
	"github.com/weirmesh/weir/internal/kube"
	"github.com/weirmesh/weir/internal/kube/replica"
)

// TestAPodIsWhatTheAPIServerSaysOfIt attests pods of a real API server: what one is comes from the API server at that moment,
// and what it says of its owners counts only if they run it.
func TestAPodIsWhatTheAPIServerSaysOfIt(t *testing.T) {
	t.Parallel()
	const audience = "identities"
	config, err := adminConfig()
	if err != nil {
		t.Fatal(err)
	}
	c, err := kube.NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	ns := namespace(t)
	pods := &replica.Pods{Client: c, Audience: audience}
	account := &corev1.ServiceAccount{ObjectMeta: named(ns, "cart")}
	other := &corev1.ServiceAccount{ObjectMeta: named(ns, "other")}
	create(t, account, other)
	controlledBy := func(apiVersion, kind string, o client.Object) []metav1.OwnerReference {
		yes := true
		return []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: o.GetName(), UID: o.GetUID(), Controller: &yes}}
	}
	cart := map[string]string{"app": "cart"}
	spec := corev1.PodSpec{ServiceAccountName: "cart", Containers: []corev1.Container{{Name: "c", Image: "weir:dev"}}}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: cart}, Spec: spec}
	deployment := &appsv1.Deployment{ObjectMeta: named(ns, "cart"), Spec: appsv1.DeploymentSpec{Replicas: new(int32), Selector: &metav1.LabelSelector{MatchLabels: cart}, Template: template}}
	pay := &appsv1.Deployment{ObjectMeta: named(ns, "pay"), Spec: appsv1.DeploymentSpec{Replicas: new(int32), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "pay"}},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "pay"}}, Spec: spec}}}
	create(t, deployment, pay)
	set := &appsv1.ReplicaSet{ObjectMeta: named(ns, "cart-9f"), Spec: appsv1.ReplicaSetSpec{Replicas: new(int32), Selector: &metav1.LabelSelector{MatchLabels: cart}, Template: template}}
	set.Labels, set.OwnerReferences = cart, controlledBy("apps/v1", "Deployment", deployment)
	create(t, set)
	forged := &appsv1.ReplicaSet{ObjectMeta: named(ns, "pay-9f"), Spec: *set.Spec.DeepCopy()}
	forged.Labels, forged.OwnerReferences = cart, controlledBy("apps/v1", "Deployment", pay) // it selects other pods
	create(t, forged)
	stale := set.DeepCopy()
	stale.UID = "00000000-0000-0000-0000-000000000000"

	token := func(of *corev1.ServiceAccount, pod *corev1.Pod, audiences ...string) string {
		t.Helper()
		r := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
		if pod != nil {
			r.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}
		}
		if err := admin.SubResource("token").Create(t.Context(), of, r); err != nil {
			t.Fatal(err)
		}
		return r.Status.Token
	}
	pod := func(name string, owners []metav1.OwnerReference) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: named(ns, name), Spec: *spec.DeepCopy()}
		p.Labels, p.OwnerReferences = cart, owners
		create(t, p)
		return p
	}
	var first *corev1.Pod
	for name, c := range map[string]struct {
		owners []metav1.OwnerReference
		want   []claim.Owner
	}{
		"of-a-deployment":   {controlledBy("apps/v1", "ReplicaSet", set), []claim.Owner{{Kind: "ReplicaSet", Name: "cart-9f"}, {Kind: "Deployment", Name: "cart"}}},
		"alone":             {nil, nil},
		"of-another-uid":    {controlledBy("apps/v1", "ReplicaSet", stale), nil},
		"of-another-group":  {controlledBy("example.com/v1", "Deployment", deployment), nil},
		"not-selected":      {controlledBy("apps/v1", "Deployment", pay), nil},
		"of-a-forged-chain": {controlledBy("apps/v1", "ReplicaSet", forged), []claim.Owner{{Kind: "ReplicaSet", Name: "pay-9f"}}},
	} {
		p := pod(name, c.owners)
		got, err := pods.Attest(t.Context(), token(account, p, audience))
		want := &workload.Pod{Namespace: ns, Name: name, UID: string(p.UID), Account: "cart", Owners: c.want, Labels: cart}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, want)
		}
		first = p
	}
	for name, token := range map[string]string{
		"none": "", "nonsense": "eyJhbGciOiJub25lIn0.e30.", "of no pod": token(account, nil, audience), "for somebody else": token(account, first, "vault"), "of the API server": token(account, first),
	} {
		if got, err := pods.Attest(t.Context(), token); !errors.Is(err, workload.ErrRefused) {
			t.Errorf("a token %s: %+v, %v", name, got, err)
		}
	}
	// The pod of a name is another one now. The token of the first is good for a while longer.
	again := first.DeepCopy()
	old := token(account, first, audience)
	if err := admin.Delete(t.Context(), first, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	again.ResourceVersion, again.UID = "", ""
	create(t, again)
	if got, err := pods.Attest(t.Context(), old); !errors.Is(err, workload.ErrRefused) {
		t.Errorf("the token of a pod that was replaced: %+v, %v", got, err)
	}
	again.Status.Phase = corev1.PodSucceeded
	if err := admin.Status().Update(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	if got, err := pods.Attest(t.Context(), token(account, again, audience)); !errors.Is(err, workload.ErrRefused) {
		t.Errorf("a pod that has ended: %+v, %v", got, err)
	}
	c.Close()
	config.Host = "127.0.0.1:1"
	gone, err := kube.NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(gone.Close)
	if _, err := (&replica.Pods{Client: gone, Audience: audience}).Attest(t.Context(), old); err == nil || errors.Is(err, workload.ErrRefused) {
		t.Errorf("without an API server: %v, which must say nothing about the pod", err)
	}
}
