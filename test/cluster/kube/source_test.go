package kube

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/kube"
	"github.com/weirmesh/weir/internal/resource"
)

func secret(namespace, name, text string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: named(namespace, name), Data: map[string][]byte{"a": []byte(text)}}
}

func TestSecretsAreReadOnlyWhereReferredTo(t *testing.T) {
	ns, c := namespace(t), class(t)
	used := secret(ns, "used", "1")
	create(t, used, secret(ns, "other", "1"))
	s := watch(t, admin)
	if set := s.until("the class", func(set *resource.Set) bool { return set.GatewayClass(c.Name) != nil }); len(set.Secrets) != 0 {
		t.Errorf("%d Secrets are known without a reference", len(set.Secrets))
	}
	gw := gatewayOf(c, ns, "edge", "used", "later")
	create(t, gw)
	set := s.until("the Gateway", func(set *resource.Set) bool { return set.Gateway(ns, "edge") != nil })
	if got := set.Secret(ns, "used"); got == nil || string(got.Data["a"]) != "1" {
		t.Errorf("the first set with the Gateway has the Secret as %v", got)
	}
	used.Data["a"] = []byte("2")
	if err := admin.Update(t.Context(), used); err != nil {
		t.Fatal(err)
	}
	s.until("the new Secret", func(set *resource.Set) bool { return string(set.Secret(ns, "used").Data["a"]) == "2" })
	later := secret(ns, "later", "3")
	create(t, later)
	s.until("the later Secret", func(set *resource.Set) bool { return set.Secret(ns, "later") != nil })
	if err := admin.Delete(t.Context(), later); err != nil {
		t.Fatal(err)
	}
	s.until("no later Secret", func(set *resource.Set) bool { return set.Secret(ns, "later") == nil })
	if err := admin.Delete(t.Context(), gw); err != nil {
		t.Fatal(err)
	}
	s.until("no Secret", func(set *resource.Set) bool { return len(set.Secrets) == 0 })
	for _, set := range s.all() {
		if set.Secret(ns, "other") != nil {
			t.Fatal("a Secret that nothing refers to was read")
		}
	}
}

func TestSetsHoldWhatTheServerHolds(t *testing.T) {
	ns, c := namespace(t), class(t)
	create(t, gatewayOf(c, ns, "edge"), routeTo(ns, "b", "edge"), routeTo(ns, "a", "edge"),
		&corev1.Service{ObjectMeta: named(ns, "web"), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromString("http")}}}})
	s := watch(t, admin)
	set := s.until("the routes", func(set *resource.Set) bool { return len(set.HTTPRoutes) == 2 && set.Service(ns, "web") != nil })
	if set.HTTPRoutes[0].Name != "a" || set.HTTPRoutes[1].Name != "b" {
		t.Error("the routes are not sorted")
	}
	if set.HTTPRoutes[0].ManagedFields != nil || set.Service(ns, "web").ManagedFields != nil {
		t.Error("managed fields are kept")
	}
	if set.HTTPRoutes[0].Spec.ParentRefs[0].Kind == nil || set.HTTPRoutes[0].Generation != 1 || set.HTTPRoutes[0].CreationTimestamp.IsZero() {
		t.Errorf("the route is not as the API server has it: %+v", set.HTTPRoutes[0])
	}
	loaded, err := kube.Load(t.Context(), admin, kinds, controller, kube.Scope{}, false)
	if err != nil {
		t.Fatal(err)
	}
	if len(loaded.HTTPRoutes) != 2 || loaded.Service(ns, "web") == nil || loaded.Namespace(ns) == nil || len(loaded.Findings) != 0 {
		t.Errorf("loaded: %d routes, findings %v", len(loaded.HTTPRoutes), loaded.Findings)
	}
}

func TestARevokedGrantIsGoneFromTheNextSet(t *testing.T) {
	ns := namespace(t)
	grant := &gatewayv1.ReferenceGrant{ObjectMeta: named(ns, "grant"), Spec: gatewayv1.ReferenceGrantSpec{
		From: []gatewayv1.ReferenceGrantFrom{{Group: gatewayv1.GroupName, Kind: "HTTPRoute", Namespace: "default"}},
		To:   []gatewayv1.ReferenceGrantTo{{Kind: "Service"}},
	}}
	create(t, grant)
	s := watch(t, admin)
	s.until("the grant", func(set *resource.Set) bool { return len(set.ReferenceGrants) == 1 })
	if err := admin.Delete(t.Context(), grant); err != nil {
		t.Fatal(err)
	}
	s.until("no grant", func(set *resource.Set) bool { return len(set.ReferenceGrants) == 0 })
}

func TestAStatusAloneMakesNoSet(t *testing.T) {
	ns, c := namespace(t), class(t)
	create(t, gatewayOf(c, ns, "edge"))
	route := routeTo(ns, "a", "edge")
	create(t, route)
	s := watch(t, admin)
	s.until("the route", func(set *resource.Set) bool { return len(set.HTTPRoutes) == 1 })
	before := len(s.all())
	route.Status.Parents = []gatewayv1.RouteParentStatus{{ParentRef: gatewayv1.ParentReference{Name: "edge"}, ControllerName: "example.com/other",
		Conditions: []metav1.Condition{{Type: "Accepted", Status: "True", Reason: "Accepted", LastTransitionTime: metav1.Now()}}}}
	if err := admin.Status().Update(t.Context(), route); err != nil {
		t.Fatal(err)
	}
	create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns + "-mark"}})
	s.until("the mark", func(set *resource.Set) bool { return set.Namespace(ns+"-mark") != nil })
	if n := len(s.all()) - before; n != 1 {
		t.Errorf("%d sets after the status and the mark", n)
	}
}

// defineSplits installs the definition of TrafficSplits, changed by edit if that is not nil, until the test ends or deletes it.
func defineSplits(t *testing.T, edit func(*apiextensionsv1.CustomResourceDefinition)) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	return define(t, "split.smi-spec.io", "trafficsplits", edit)
}

// define does so with one of SMI's kinds.
func define(t *testing.T, group, plural string, edit func(*apiextensionsv1.CustomResourceDefinition)) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group}}
	t.Cleanup(func() {
		// Its objects are deleted with it, which nobody is there to convert any more.
		none := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"conversion":{"strategy":"None","webhook":null}}}`))
		_ = admin.Patch(context.Background(), definition, none)
		_ = admin.Delete(context.Background(), definition)
		if err := within(context.Background(), func() error {
			err := admin.Get(context.Background(), client.ObjectKeyFromObject(definition), definition)
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("the definition of %s is still there: %v", plural, err)
		}); err != nil {
			t.Error(err)
		}
	})
	if err := install(t.Context(), root+"/deploy/crds/"+group+"_"+plural+".yaml", edit); err != nil {
		t.Fatal(err)
	}
	return definition
}

// splitOf is a TrafficSplit of the Service web.
func splitOf(ns, name string, backends any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "split.smi-spec.io/v1alpha4", "kind": "TrafficSplit", "metadata": map[string]any{"namespace": ns, "name": name},
		"spec": map[string]any{"service": "web", "backends": backends},
	}}
}

func TestKindsComeAndGo(t *testing.T) {
	ns := namespace(t)
	s := watch(t, admin)
	// Its own versions would keep what is broken out.
	loose := func(crd *apiextensionsv1.CustomResourceDefinition) {
		yes := true
		for i := range crd.Spec.Versions {
			crd.Spec.Versions[i].Schema.OpenAPIV3Schema = &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &yes}
			crd.Spec.Versions[i].AdditionalPrinterColumns = nil
		}
	}
	definition := defineSplits(t, loose)
	good := []any{map[string]any{"service": "v1", "weight": int64(1)}}
	create(t, splitOf(ns, "broken", "none"), splitOf(ns, "good", good))
	set := s.until("the good split and a finding", func(set *resource.Set) bool { return len(set.TrafficSplits) == 1 && len(set.Findings) > 0 })
	if got := set.TrafficSplits[0]; got.Name != "good" || got.Spec.Backends[0].Service != "v1" {
		t.Errorf("split %+v", got)
	}
	if f := set.Findings[0]; f.Ref.Name != "broken" || f.Ref.Kind != "TrafficSplit" || f.Ref.Field == "" {
		t.Errorf("finding %s", f)
	}
	now := splitOf(ns, "good", "none")
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(now), now); err != nil {
		t.Fatal(err)
	}
	now.Object["spec"] = map[string]any{"service": "web", "backends": "none"}
	if err := admin.Update(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	set = s.until("the last good split", func(set *resource.Set) bool {
		return slices.ContainsFunc(set.Findings, func(f resource.Finding) bool { return f.Code == resource.CodeLastGood && f.Ref.Name == "good" })
	})
	if len(set.TrafficSplits) != 1 {
		t.Error("the last good split is not kept")
	}
	if err := admin.Delete(t.Context(), definition); err != nil {
		t.Fatal(err)
	}
	s.until("no splits", func(set *resource.Set) bool { return len(set.TrafficSplits) == 0 && len(set.Findings) == 0 })
}

// user returns a client of someone who may read the resources.
func user(t *testing.T, name string, rules ...rbacv1.PolicyRule) (*kube.Client, *rbacv1.ClusterRole) {
	t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
	create(t, role, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: name}},
	})
	config, err := adminConfig()
	if err != nil {
		t.Fatal(err)
	}
	pair, err := server.Authority().Issue(name, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	config = rest.AnonymousClientConfig(config)
	config.QPS, config.CertData, config.KeyData = -1, pair.Public, pair.Private
	c, err := kube.NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, role
}

func TestARefusedKindIsNamedAndTheRestIsRead(t *testing.T) {
	t.Parallel() // it waits for what the API server remembers of rights
	ns, c := namespace(t), class(t)
	create(t, gatewayOf(c, ns, "edge", "cert"), routeTo(ns, "a", "edge"), secret(ns, "cert", "1"))
	read := []string{"get", "list", "watch"}
	limited, role := user(t, "limited",
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"services", "namespaces", "configmaps", "secrets"}, Verbs: []string{"list", "watch"}},
		rbacv1.PolicyRule{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: read},
		rbacv1.PolicyRule{APIGroups: []string{gatewayv1.GroupName}, Resources: []string{"gateways", "gatewayclasses", "grpcroutes", "tcproutes", "listenersets", "backendtlspolicies", "referencegrants"}, Verbs: read},
	)
	s := watch(t, limited)
	has := func(code, text string) func(*resource.Set) bool {
		return func(set *resource.Set) bool {
			return slices.ContainsFunc(set.Findings, func(f resource.Finding) bool { return f.Code == code && f.Fix == text })
		}
	}
	set := s.until("a finding", has(resource.CodeRefused, `grant the verbs get, list, watch on the resource httproutes of the API group "gateway.networking.k8s.io"`))
	if set.Gateway(ns, "edge") == nil || len(set.HTTPRoutes) != 0 {
		t.Error("the rest is not read")
	}
	if !has(resource.CodeUnread, "grant the verb get on secrets in the namespace "+ns+", if the API server refuses it")(set) {
		t.Errorf("no finding about the Secret: %v", set.Findings)
	}
	role.Rules = append(role.Rules,
		rbacv1.PolicyRule{APIGroups: []string{gatewayv1.GroupName}, Resources: []string{"httproutes"}, Verbs: read},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}})
	if err := objects.Update(t.Context(), role); err != nil {
		t.Fatal(err)
	}
	s.until("everything", func(set *resource.Set) bool {
		return len(set.HTTPRoutes) == 1 && set.Secret(ns, "cert") != nil && len(set.Findings) == 0
	})
}

func TestWhatIsKnownOutlivesTheServer(t *testing.T) {
	ns, c := namespace(t), class(t)
	create(t, gatewayOf(c, ns, "edge"), routeTo(ns, "a", "edge"))
	s := watch(t, admin)
	s.until("the route", func(set *resource.Set) bool { return len(set.HTTPRoutes) == 1 })
	before := len(s.all())
	if err := server.Restart(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	create(t, routeTo(ns, "b", "edge"))
	s.until("another route", func(set *resource.Set) bool { return len(set.HTTPRoutes) == 2 })
	for _, set := range s.all()[before:] {
		if set.Gateway(ns, "edge") == nil || len(set.HTTPRoutes) == 0 || set.GatewayClass(c.Name) == nil || set.Namespace(ns) == nil {
			t.Errorf("a set without what was known: %d routes", len(set.HTTPRoutes))
		}
	}
}
