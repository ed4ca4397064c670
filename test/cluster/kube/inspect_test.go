package kube

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/cli"
	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/kube"
	"github.com/weirmesh/weir/internal/kube/access"
	"github.com/weirmesh/weir/internal/kube/inspect"
	"github.com/weirmesh/weir/internal/resource"
)

// weir runs a command line with a kubeconfig and returns what it says and its exit code.
func weir(t *testing.T, kubeconfig string, args ...string) (string, int) {
	t.Helper()
	var out, err bytes.Buffer
	at := len(args)
	for i, a := range args {
		if a == "--" {
			at = i
			break
		}
	}
	line := append(append(append([]string(nil), args[:at]...), "--kubeconfig", kubeconfig), args[at:]...)
	code := cli.Main(line, strings.NewReader(""), &out, &err)
	return out.String() + err.String(), code
}

func holds(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		wanted := true
		if rest, ok := strings.CutPrefix(p, "!"); ok {
			wanted, p = false, rest
		}
		if strings.Contains(text, p) != wanted {
			t.Errorf("%q is there: %v, want %v, in:\n%s", p, !wanted, wanted, text)
		}
	}
}

// shop makes a Gateway with an address, a route to a Service with an endpoint, and a controller's Deployment, which nobody
// acts on.
func shop(t *testing.T) (ns string, of *gatewayv1.GatewayClass) {
	t.Helper()
	ns, of = namespace(t), class(t)
	g := gatewayOf(of, ns, "edge")
	route := routeTo(ns, "shop", "edge")
	port := gatewayv1.PortNumber(80)
	route.Spec.Hostnames = []gatewayv1.Hostname{"shop.example"}
	route.Spec.Rules = []gatewayv1.HTTPRouteRule{{BackendRefs: []gatewayv1.HTTPBackendRef{{BackendRef: gatewayv1.BackendRef{
		BackendObjectReference: gatewayv1.BackendObjectReference{Name: "shop", Port: &port},
	}}}}}
	labels := map[string]string{"app.kubernetes.io/name": "weir", "app.kubernetes.io/component": "controller"}
	create(t, g, route,
		&corev1.Service{ObjectMeta: named(ns, "shop"), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}},
		&appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "weir-controller", Labels: labels},
			Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{ServiceAccountName: "weir-controller", Containers: []corev1.Container{{Name: "controller", Image: "weir:1", Args: []string{"controller"}}}},
			}},
		})
	g.Status.Addresses = []gatewayv1.GatewayStatusAddress{{Value: "10.0.0.7"}}
	if err := objects.Status().Update(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	return ns, of
}

// TestCommandsReadACluster runs those that look against an API server on which nobody acts.
func TestCommandsReadACluster(t *testing.T) {
	ns, _ := shop(t)
	said, code := weir(t, server.Kubeconfig, "check", "-n", ns)
	if code != 1 {
		t.Errorf("check: exit code %d, want 1", code)
	}
	holds(t, said, "8 of 8 kinds", "controller   "+ns+"/weir-controller, 0 of 1 ready", "WR703",
		"Gateway "+ns+"/edge", "WR708", "missing:", "Deployment edge-", "WR705", "may not ", "secrets", "!WR712")

	said, code = weir(t, server.Kubeconfig, "status", "-n", ns)
	if code != 0 {
		t.Errorf("status: exit code %d, want 0", code)
	}
	holds(t, said, ns+"/edge", "10.0.0.7", "0/0 ready", ns+"/shop", "shop.example")

	said, code = weir(t, server.Kubeconfig, "explain", "--", "http://10.0.0.7/cart", "-H", "Host: shop.example")
	if code != 0 {
		t.Errorf("explain: exit code %d, want 0", code)
	}
	holds(t, said, "gateway     "+ns+"/edge  (it has the address 10.0.0.7)", "HTTPRoute "+ns+"/shop")

	said, code = weir(t, server.Kubeconfig, "dump", "--gateway", ns+"/edge")
	if code != 0 {
		t.Errorf("dump: exit code %d, want 0", code)
	}
	holds(t, said, `"gateway": "`+ns+`/edge"`, `"shop.example"`)
	said, code = weir(t, server.Kubeconfig, "dump", "--gateway", ns+"/none")
	if code != 2 {
		t.Errorf("dump of what is not there: exit code %d, want 2", code)
	}
	holds(t, said, ns+"/edge at 10.0.0.7: 80")
}

// TestStatusShowsSplitsOfACluster has a split whose status is written, and shown.
func TestStatusShowsSplitsOfACluster(t *testing.T) {
	ns := namespace(t)
	defineSplits(t, nil)
	create(t, splitOf(ns, "canary", []any{
		map[string]any{"service": "web-v1", "weight": int64(3)}, map[string]any{"service": "web-v2", "weight": int64(1)},
	}))
	for _, name := range []string{"web", "web-v1"} {
		create(t, &corev1.Service{ObjectMeta: named(ns, name), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}})
	}
	said, code := weir(t, server.Kubeconfig, "status", "-n", ns)
	if code != 0 {
		t.Errorf("status: exit code %d, want 0", code)
	}
	holds(t, said, "TRAFFICSPLIT", ns+"/canary  web", "1 split:")
	s, w := writing(t)
	report := func(generation int64) {
		t.Helper()
		set := s.until(fmt.Sprintf("generation %d of the split", generation), func(set *resource.Set) bool {
			return len(set.TrafficSplits) == 1 && set.TrafficSplits[0].Generation == generation && set.Service(ns, "web") != nil && set.Service(ns, "web-v1") != nil
		})
		result, err := control.Options{ProxyPerGateway: true, Serve: []string{"none"}}.Translate(set)
		if err != nil {
			t.Fatal(err)
		}
		w.Set(result.Statuses)
	}
	report(1)
	split := splitOf(ns, "canary", nil)
	conditions := func(o *unstructured.Unstructured) string {
		var all []string
		list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
		for _, c := range list {
			c := c.(map[string]any)
			all = append(all, fmt.Sprint(c["type"], "=", c["status"], " of ", c["observedGeneration"]))
		}
		return strings.Join(all, ", ")
	}
	const want = "Accepted=True of 1, ResolvedRefs=False of 1, PortsMatched=True of 1, Conflicted=False of 1"
	current(t, split, "status", func(o *unstructured.Unstructured) bool { return conditions(o) == want })
	// What others write stays, and is no reason to write.
	list, _, _ := unstructured.NestedSlice(split.Object, "status", "conditions")
	list = append(list, map[string]any{"type": "Example", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"})
	if err := unstructured.SetNestedSlice(split.Object, list, "status", "conditions"); err != nil {
		t.Fatal(err)
	}
	if err := admin.Status().Update(t.Context(), split); err != nil {
		t.Fatal(err)
	}
	split.Object["spec"].(map[string]any)["backends"] = []any{map[string]any{"service": "web-v1", "weight": int64(1)}}
	if err := admin.Update(t.Context(), split); err != nil {
		t.Fatal(err)
	}
	report(2)
	const after = "Accepted=True of 2, ResolvedRefs=True of 2, PortsMatched=True of 2, Conflicted=False of 2, Example=True of <nil>"
	current(t, split, "new status", func(o *unstructured.Unstructured) bool { return conditions(o) == after })
	split.Object["spec"].(map[string]any)["backends"] = []any{
		map[string]any{"service": "web-v1", "weight": int64(3)}, map[string]any{"service": "web-v2", "weight": int64(1)},
	}
	if err := admin.Update(t.Context(), split); err != nil {
		t.Fatal(err)
	}
	report(3)
	current(t, split, "last status", func(o *unstructured.Unstructured) bool { return strings.HasPrefix(conditions(o), "Accepted=True of 3") })

	said, _ = weir(t, server.Kubeconfig, "status", "-n", ns)
	holds(t, said, "TRAFFICSPLIT", ns+"/canary  web", "web-v1 3 (75 %), web-v2 1 (25 %)  any      yes       no", "WR604", "Service "+ns+"/web-v2 does not exist", "1 split:")
	said, _ = weir(t, server.Kubeconfig, "status", "-n", ns, "-o", "json")
	holds(t, said, `"kind": "TrafficSplit"`, `"accepted": "True"`, `"resolved": "False"`, `"root": "web"`, `"share": 0.75`)
}

// TestCommandsWorkWithFewRights reads as one who may read Gateway API alone.
func TestCommandsWorkWithFewRights(t *testing.T) {
	ns, _ := shop(t)
	read := []string{"get", "list"}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: "looker-"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{gatewayv1.GroupName, "split.smi-spec.io", "specs.smi-spec.io", "discovery.k8s.io"}, Resources: []string{"*"}, Verbs: read},
		{APIGroups: []string{""}, Resources: []string{"services", "namespaces"}, Verbs: read},
	}}
	create(t, role)
	create(t, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{GenerateName: "looker-"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "looker-" + ns}},
	})
	config, err := clientcmd.LoadFromFile(server.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range config.AuthInfos {
		user.Impersonate = "looker-" + ns
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	err = within(t.Context(), func() error { // rights come a moment later
		_, err := load(t, "looker-"+ns)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	said, _ := weir(t, file, "check", "-n", ns)
	holds(t, said, "WR712", "you may not read", "Deployments of Gateways", "; Roles (their rules about Traffic Metrics); ClusterRoles (", "proxies not seen", "!WR703", "!WR708", "!WR711")
	said, code := weir(t, file, "explain", "--gateway", ns+"/edge", "--", "http://shop.example/")
	if code != 0 {
		t.Errorf("explain: exit code %d, want 0", code)
	}
	holds(t, said, "HTTPRoute "+ns+"/shop")
}

func load(t *testing.T, user string) (*resource.Set, error) {
	t.Helper()
	config := rest.CopyConfig(admin.Config)
	config.Impersonate.UserName = user
	c, err := kube.NewClient(config)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	var review authorizationv1.SelfSubjectAccessReview
	review.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{Group: gatewayv1.GroupName, Resource: "gateways", Verb: "list"}
	if err := within(t.Context(), func() error { return c.Create(t.Context(), review.DeepCopy()) }); err != nil {
		return nil, err
	}
	return kube.Load(t.Context(), c, kinds, controller, kube.Scope{}, false)
}

// TestRightsOfTheControllerAreAskedAboutIt grants the roles' verbs one by one to nobody, and all to a controller.
func TestRightsOfTheControllerAreAskedAboutIt(t *testing.T) {
	ns, _ := shop(t)
	look := func() *inspect.Cluster {
		t.Helper()
		set, err := kube.Load(t.Context(), admin, kinds, controller, kube.Scope{}, false)
		if err != nil {
			t.Fatal(err)
		}
		result, err := control.Options{ProxyPerGateway: true}.Translate(set)
		if err != nil {
			t.Fatal(err)
		}
		c, err := inspect.Read(t.Context(), admin, inspect.Input{Set: set, Config: result.Config, Statuses: result.Statuses, Complete: true},
			inspect.Options{Kinds: kinds, ControllerName: controller, Namespace: ns, Access: true})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	update := func(group, resource string) inspect.Missing {
		return inspect.Missing{Verb: access.Verb{Group: group, Resource: resource, Verb: "update"}}
	}
	if c := look(); len(c.Missing) < 50 || slices.Contains(c.Missing, update("apps", "deployments")) {
		t.Errorf("%d rights are missing, want all but those for Rollouts: %v", len(c.Missing), c.Missing)
	}
	rollouts := client.RawPatch(types.JSONPatchType, []byte(`[{"op":"replace","path":"/spec/template/spec/containers/0/args",
		"value":["controller","--rollouts","--rollout-workloads=GameStatefulSet:gamestatefulsets.apps.example.com"]}]`))
	if err := objects.Patch(t.Context(), &appsv1.Deployment{ObjectMeta: named(ns, "weir-controller")}, rollouts); err != nil {
		t.Fatal(err)
	}
	times := map[inspect.Missing]int{}
	for _, m := range look().Missing {
		if times[m]++; times[m] > 1 {
			t.Errorf("%v is told %d times", m, times[m])
		}
	}
	for _, want := range []inspect.Missing{update("apps", "deployments"), update("apps.example.com", "gamestatefulsets"), update("rollouts.kruise.io", "rollouts/status")} {
		if times[want] == 0 {
			t.Errorf("%v is not missing, with Rollouts: %v", want, times)
		}
	}
	create(t, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{GenerateName: "controller-"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: ns, Name: "weir-controller"}},
	})
	err := within(t.Context(), func() error {
		if c := look(); len(c.Missing) > 0 {
			return fmt.Errorf("missing: %v", c.Missing)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestCheckReadsTheRolesOfTheCluster tells of rules about Traffic Metrics that permit nothing.
func TestCheckReadsTheRolesOfTheCluster(t *testing.T) {
	ns := namespace(t)
	rules := []rbacv1.PolicyRule{edgesNothing}
	create(t, &rbacv1.Role{ObjectMeta: named(ns, "of-namespaces"), Rules: rules}, &rbacv1.Role{ObjectMeta: named(ns, "right"), Rules: append(rules, edgesOfAll)},
		&rbacv1.ClusterRole{ObjectMeta: named("", "of-namespaces-"+ns), Rules: rules},
		&rbacv1.ClusterRole{ObjectMeta: named("", "made-"+ns), Rules: rules, AggregationRule: &rbacv1.AggregationRule{
			ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{"none": ns}}},
		}})
	said, _ := weir(t, server.Kubeconfig, "check", "-n", ns)
	holds(t, said, "Role "+ns+"/of-namespaces", "WR1201  rules[0].resources[0]", "ClusterRole of-namespaces-"+ns, "!"+ns+"/right", "!made-"+ns)
}
