package kube

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/weirmesh/weir/internal/kube"
	"github.com/weirmesh/weir/internal/kube/access"
	"github.com/weirmesh/weir/internal/kube/infra"
	"github.com/weirmesh/weir/internal/resource"
)

const (
	own     = "weir-system"
	account = "system:serviceaccount:weir-system:weir-controller"
)

// apply creates the objects of a file of manifests that keep says, and removes them when the test ends.
func applyManifests(t *testing.T, file string, keep func(*unstructured.Unstructured) bool) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, document := range strings.Split(string(text), "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &u.Object); err != nil {
			t.Fatal(err)
		}
		if len(u.Object) == 0 || !keep(u) {
			continue
		}
		n++
		if err := admin.Create(t.Context(), u); err != nil {
			t.Fatalf("%s %s: %v", u.GetKind(), u.GetName(), err)
		}
		t.Cleanup(func() {
			if err := client.IgnoreNotFound(admin.Delete(context.Background(), u)); err != nil {
				t.Error(err)
			}
		})
	}
	if n == 0 {
		t.Fatalf("%s has nothing of that kind", file)
	}
}

func ensureNamespace(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		err := admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
}

// asController is one who is the controller's ServiceAccount.
func asController(t *testing.T) *rest.Config {
	t.Helper()
	config, err := adminConfig()
	if err != nil {
		t.Fatal(err)
	}
	config.Impersonate = rest.ImpersonationConfig{
		UserName: account, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + own, "system:authenticated"},
	}
	return config
}

// namedNamespaces installs the roles of a controller that watches shop and blog alone, and returns a client that has its rights.
func namedNamespaces(t *testing.T) *kube.Client {
	t.Helper()
	ensureNamespace(t, own, "shop", "blog", "elsewhere")
	applyManifests(t, "deploy/release/manifests/testdata/namespaces.yaml", func(u *unstructured.Unstructured) bool {
		return u.GroupVersionKind().Group == rbacv1.GroupName
	})
	c, err := kube.NewClient(asController(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// TestNamedNamespacesAreReadAlone reads as a controller of two namespaces: all of these, and nothing of others, by right and by wish.
func TestNamedNamespacesAreReadAlone(t *testing.T) {
	c := namedNamespaces(t)
	of := class(t)
	of.Spec.ParametersRef = &gatewayv1.ParametersReference{Kind: "ConfigMap", Name: "weir-proxies", Namespace: ptr(gatewayv1.Namespace(own))}
	if err := objects.Update(t.Context(), of); err != nil {
		t.Fatal(err)
	}
	create(t, &corev1.ConfigMap{ObjectMeta: named(own, "weir-proxies"), Data: map[string]string{infra.ParametersKey: "replicas: 2\n"}})
	for _, ns := range []string{"shop", "blog", "elsewhere"} {
		create(t, gatewayOf(of, ns, "edge", "cert"), routeTo(ns, "cart", "edge"),
			&corev1.Service{ObjectMeta: named(ns, "cart"), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}},
			&corev1.Secret{ObjectMeta: named(ns, "cert"), Data: map[string][]byte{"a": []byte(ns)}})
	}
	borrower := gatewayOf(of, "shop", "borrower")
	borrower.Spec.Listeners = gatewayOf(of, "shop", "borrower", "cert").Spec.Listeners
	borrower.Spec.Listeners[0].TLS.CertificateRefs[0].Namespace = ptr(gatewayv1.Namespace("elsewhere"))
	create(t, borrower)

	s := watchScope(t, c, kube.Scope{Namespaces: []string{"blog", "shop"}, Own: own})
	set := s.until("both Gateways", func(set *resource.Set) bool {
		return set.Gateway("shop", "edge") != nil && set.Gateway("blog", "edge") != nil && set.Secret("shop", "cert") != nil && set.Secret("blog", "cert") != nil
	})
	if set.Gateway("elsewhere", "edge") != nil || set.Secret("elsewhere", "cert") != nil || set.Service("elsewhere", "cart") != nil {
		t.Error("something of another namespace was read")
	}
	if set.ConfigMap(own, "weir-proxies") == nil {
		t.Error("the parameters of the class were not read")
	}
	if set.Service("shop", "cart") == nil || len(set.HTTPRoutes) != 2 || len(set.Namespaces) != 2 || !slices.Equal(set.Watched, []string{"blog", "shop"}) {
		t.Errorf("%d routes, %d namespaces, watched %v", len(set.HTTPRoutes), len(set.Namespaces), set.Watched)
	}
	for _, f := range set.Findings {
		if f.Code == resource.CodeRefused || f.Code == resource.CodeUnread {
			t.Error(f)
		}
	}
	// It follows changes, and what is no longer there goes.
	if err := objects.Delete(t.Context(), routeTo("blog", "cart", "edge")); err != nil {
		t.Fatal(err)
	}
	s.until("one route", func(set *resource.Set) bool { return len(set.HTTPRoutes) == 1 })

	// The rights themselves.
	for what, err := range map[string]error{
		"Secret of another namespace":    c.Get(t.Context(), client.ObjectKey{Namespace: "elsewhere", Name: "cert"}, &corev1.Secret{}),
		"Secrets of all namespaces":      c.List(t.Context(), &corev1.SecretList{}),
		"another Secret of its own":      c.Get(t.Context(), client.ObjectKey{Namespace: own, Name: "other"}, &corev1.Secret{}),
		"namespaces":                     c.List(t.Context(), &corev1.NamespaceList{}),
		"another namespace":              c.Get(t.Context(), client.ObjectKey{Name: "elsewhere"}, &corev1.Namespace{}),
		"Services of another namespace":  c.List(t.Context(), &corev1.ServiceList{}, client.InNamespace("elsewhere")),
		"making a ConfigMap elsewhere":   c.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: named("elsewhere", "x")}),
		"making a ServiceAccount of own": c.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: named(own, "x")}),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v, want that it is forbidden", what, err)
		}
	}
	loaded, err := kube.Load(t.Context(), c, kinds, controller, kube.Scope{Namespaces: []string{"blog", "shop"}, Own: own}, false)
	if err != nil || len(loaded.HTTPRoutes) != 1 || loaded.Gateway("blog", "edge") == nil || loaded.Gateway("elsewhere", "edge") != nil {
		t.Errorf("read once: %d routes, %v", len(loaded.HTTPRoutes), err)
	}
}

// TestNamedNamespaceThatDoesNotExistHoldsUpNoOther starts with one too many, which comes later.
func TestNamedNamespaceThatDoesNotExistHoldsUpNoOther(t *testing.T) {
	c := namedNamespaces(t)
	of := class(t)
	create(t, gatewayOf(of, "shop", "edge"))
	shared := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "weir-later"}}
	for _, v := range access.Shared(kinds, []string{"later", "shop"}) {
		rule := rbacv1.PolicyRule{APIGroups: []string{v.Group}, Resources: []string{v.Resource}, Verbs: []string{v.Verb}}
		if v.Name != "" {
			rule.ResourceNames = []string{v.Name}
		}
		shared.Rules = append(shared.Rules, rule)
	}
	create(t, shared, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "weir-later"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "weir-later"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: own, Name: "weir-controller"}},
	})
	s := watchScope(t, c, kube.Scope{Namespaces: []string{"later", "shop"}, Own: own})
	set := s.until("the Gateway", func(set *resource.Set) bool { return set.Gateway("shop", "edge") != nil })
	for _, f := range set.Findings {
		if f.Code == resource.CodeRefused {
			t.Error(f)
		}
	}
	ensureNamespace(t, "later")
	t.Cleanup(func() {
		_ = admin.Delete(context.Background(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "later"}})
	})
	r := &rbacv1.Role{ObjectMeta: named("later", "weir")}
	for _, v := range access.Each(kinds) {
		r.Rules = append(r.Rules, rbacv1.PolicyRule{APIGroups: []string{v.Group}, Resources: []string{v.Resource}, Verbs: []string{v.Verb}})
	}
	create(t, r, &rbacv1.RoleBinding{
		ObjectMeta: named("later", "weir"), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "weir"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: own, Name: "weir-controller"}},
	}, gatewayOf(of, "later", "edge"))
	s.until("the Gateway of the namespace that came", func(set *resource.Set) bool {
		return set.Gateway("shop", "edge") != nil && set.Gateway("later", "edge") != nil
	})
}

// TestNamedNamespacesGetProxies makes what a Gateway needs with the rights in its namespace alone, while another named namespace is
// missing.
func TestNamedNamespacesGetProxies(t *testing.T) {
	namedNamespaces(t)
	of := class(t)
	g := gatewayOf(of, "blog", "proxies")
	create(t, g)
	a, err := infra.NewApplier(asController(t), []string{"blog", "nowhere", "shop"}, logger(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	a.Set([]infra.Plan{{Gateway: "blog/proxies", Objects: infra.Render(infra.Options{Controller: "c:1", Image: "weir:dev", CA: "x"}, g, infra.Parameters{}, []int32{80}, nil, true)}})
	name := infra.Name(g.Name, of.Name)
	err = within(t.Context(), func() error {
		f, err := a.Found(t.Context(), "blog/proxies")
		if err != nil {
			return err
		}
		if f.Deployment == nil || f.Deployment.Name != name || f.Services[name] == nil {
			return fmt.Errorf("%+v", f)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	for _, o := range everything() {
		o.SetNamespace("blog")
		o.SetName(name)
		if err := admin.Delete(t.Context(), o); err != nil {
			t.Errorf("%T: %v", o, err)
		}
	}
}

// TestCheckKnowsNamedNamespaces looks at a cluster whose controller watches two namespaces.
func TestCheckKnowsNamedNamespaces(t *testing.T) {
	namedNamespaces(t)
	of := class(t)
	labels := map[string]string{"app.kubernetes.io/name": "weir", "app.kubernetes.io/component": "controller"}
	create(t, gatewayOf(of, "shop", "edge"), gatewayOf(of, "elsewhere", "lost"), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: own, Name: "weir-controller", Labels: labels},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{ServiceAccountName: "weir-controller", Containers: []corev1.Container{
				{Name: "controller", Image: "weir:1", Args: []string{"controller", "--namespaces=shop,blog"}}}},
		}},
	})
	said, _ := weir(t, server.Kubeconfig, "check")
	holds(t, said, "Gateway elsewhere/lost", "WR719", "does not watch namespace elsewhere", "Gateway shop/edge", "WR708", "!WR705")
	if err := objects.Delete(t.Context(), &rbacv1.Role{ObjectMeta: named("blog", "weir-controller-watch")}); err != nil {
		t.Fatal(err)
	}
	err := within(t.Context(), func() error {
		if said, _ := weir(t, server.Kubeconfig, "check"); !strings.Contains(said, "may not get, list, watch secrets in namespace blog") {
			return fmt.Errorf("it is not told of:\n%s", said)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
