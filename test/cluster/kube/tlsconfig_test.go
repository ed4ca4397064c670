package kube

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weirmesh/weir/internal/inject"
	"github.com/weirmesh/weir/internal/kube"
	"github.com/weirmesh/weir/internal/kube/access"
)

// configOf is a TLSConfig that selects pods of an app.
func configOf(ns, app string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"app": app}}}}}
	u.SetAPIVersion("tls.smi-spec.io/v1beta1")
	u.SetKind("TLSConfig")
	u.SetNamespace(ns)
	u.SetName(app)
	return u
}

// conditionOf is the message of a TLSConfig's condition, its status in front.
func conditionOf(ctx context.Context, ns, name, of string) (string, error) {
	u := configOf(ns, name)
	if err := admin.Get(ctx, client.ObjectKeyFromObject(u), u); err != nil {
		return "", err
	}
	all, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range all {
		if one := c.(map[string]any); one["type"] == of {
			return fmt.Sprintf("%s %s", one["status"], one["message"]), nil
		}
	}
	return "", fmt.Errorf("TLSConfig %s/%s has no condition %s", ns, name, of)
}

// TestPodsGetTheirSidecarsByTLSConfigs has a namespace without the label of the injection.
func TestPodsGetTheirSidecarsByTLSConfigs(t *testing.T) {
	define(t, "tls.smi-spec.io", "tlsconfigs", nil)
	m := injecting(t)
	ctx := t.Context()
	ns, out, plain := m.namespace(""), m.namespace(inject.Disabled), m.namespace("")
	before := podOf(ns, "before", "app: pay")
	if err := m.client.Create(ctx, before); err != nil {
		t.Fatal(err)
	}
	create(t, configOf(ns, "pay"), configOf(out, "pay"), configOf("kube-system", "pay"), configOf(own, "pay"))
	create(t, &corev1.ServiceAccount{ObjectMeta: named("kube-system", "default")}, &corev1.ServiceAccount{ObjectMeta: named(own, "default")})
	err := within(ctx, func() error {
		pod := podOf(ns, "pay", "app: pay")
		if err := m.client.Create(ctx, pod, client.DryRunAll); err != nil {
			return err
		}
		return sidecarOf(pod)
	})
	if err != nil {
		t.Fatalf("one that is selected: %v\n%s", err, m.log.String())
	}
	create(t, configOf(ns, "ship")) // counts at once, since the API server is asked
	next := podOf(ns, "ship", "app: ship")
	if err := m.client.Create(ctx, next); err != nil || sidecarOf(next) != nil {
		t.Errorf("one that the newest TLSConfig selects: %v, %v", err, sidecarOf(next))
	}
	trusts(t, ns, func(c *corev1.ConfigMap) error {
		if c == nil {
			return errors.New("there is no ConfigMap")
		}
		return nil
	})
	m.take()
	stored := func(pod *corev1.Pod) error {
		t.Helper()
		err := m.client.Create(ctx, pod)
		if err != nil {
			t.Errorf("%s: %v", pod.Name, err)
			return err
		}
		return sidecarOf(pod)
	}
	if stored(podOf(ns, "other", "app: web")) == nil || stored(podOf(plain, "plain", "app: pay")) == nil || stored(podOf(out, "out", "app: pay")) == nil {
		t.Error("a pod that nothing selects has a sidecar")
	}
	for _, n := range []string{"kube-system", own} {
		pod := podOf(n, "pay", "app: pay")
		if err := m.client.Create(ctx, pod, client.DryRunAll); err != nil || sidecarOf(pod) == nil {
			t.Errorf("of %s: %v", n, err)
		}
	}
	if w := m.take(); len(w) > 0 {
		t.Errorf("warnings %q", w)
	}
	if stored(podOf(ns, "opted-out", "app: pay, weirmesh.github.io/inject: disabled")) == nil {
		t.Error("a pod that opts out has a sidecar")
	}
	if w := m.take(); len(w) != 1 || !strings.Contains(w[0], "Pod "+ns+"/opted-out gets no sidecar by TLSConfig pay: its label weirmesh.github.io/inject is disabled") {
		t.Errorf("warnings %q", w)
	}
	m.refused("a wrong annotation", m.client.Create(ctx, podOf(ns, "wrong", "app: pay", "weirmesh.github.io/skip-users: root")),
		`admission webhook "pods.tlsconfigs.weirmesh.github.io" denied the request`, `annotation weirmesh.github.io/skip-users "root"`)
	if err := m.client.Create(ctx, podOf(ns, "pay", "app: pay")); err != nil {
		t.Fatal(err)
	}
	err = within(ctx, func() error {
		text, err := conditionOf(ctx, ns, "pay", "Injected")
		if err != nil {
			return err
		}
		for _, want := range []string{"False ", "3 selected, 1 with a sidecar, 0 of these serve", "Pod before", "Pod opted-out (its label opts out)"} {
			if !strings.Contains(text, want) {
				return fmt.Errorf("the condition is %q, want %q in it", text, want)
			}
		}
		if text, err = conditionOf(ctx, out, "pay", "Injected"); err != nil || !strings.Contains(text, "Pod out (the namespace's label opts out)") {
			return fmt.Errorf("of the namespace that opts out: %s %w", text, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}

	// Without the controller nothing starts there that should not; what opts out, and other namespaces, are free.
	m.stop()
	if err := m.client.Create(ctx, podOf(ns, "late", "app: pay"), client.DryRunAll); err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
		t.Errorf("a pod that is selected: %v", err)
	}
	node := podOf(ns, "node", "app: pay")
	node.Spec.HostNetwork, node.Spec.Containers[0].Ports = true, nil
	for what, pod := range map[string]*corev1.Pod{
		"that opts out": podOf(ns, "late", "app: pay, weirmesh.github.io/inject: disabled"), "of the node's network": node, "of a namespace without TLSConfigs": podOf(plain, "late", "app: pay"),
		"of a namespace that opts out": podOf(out, "late", "app: pay"), "of kube-system": podOf("kube-system", "late", "app: pay"),
	} {
		if err := m.client.Create(ctx, pod, client.DryRunAll); err != nil {
			t.Errorf("a pod %s: %v", what, err)
		}
	}
}

// TestTheWebhooksOfTLSConfigsGoWithThem has the last TLSConfig of a cluster removed.
func TestTheWebhooksOfTLSConfigsGoWithThem(t *testing.T) {
	define(t, "tls.smi-spec.io", "tlsconfigs", nil)
	m := injecting(t)
	ctx := t.Context()
	ns := m.namespace("")
	config := configOf(ns, "pay")
	if err := admin.Create(ctx, config); err != nil {
		t.Fatal(err)
	}
	hooks := func(want int) {
		t.Helper()
		err := within(ctx, func() error {
			for kind, n := range map[string]int{"MutatingWebhookConfiguration": min(want, 1), "ValidatingWebhookConfiguration": want} {
				u := hooked(kind, access.SelectedWebhook)
				if err := admin.Get(ctx, client.ObjectKeyFromObject(u), u); err != nil {
					return err
				}
				if got := len(slice(u.Object["webhooks"])); got != n {
					return fmt.Errorf("%s has %d webhooks, want %d", kind, got, n)
				}
			}
			return nil
		})
		if err != nil {
			t.Errorf("%v\n%s", err, m.log.String())
		}
	}
	hooks(2)
	if err := admin.Delete(ctx, config); err != nil {
		t.Fatal(err)
	}
	hooks(0)
	m.stop()
	if err := m.client.Create(ctx, podOf(ns, "pay", "app: pay"), client.DryRunAll); err != nil {
		t.Errorf("a pod: %v", err)
	}
}

// TestPolicyHoldsTheControllerToWebhooksAboutPods has a controller that somebody has taken over.
func TestPolicyHoldsTheControllerToWebhooksAboutPods(t *testing.T) {
	ensureNamespace(t, own)
	applyManifests(t, sidecarsManifests, func(u *unstructured.Unstructured) bool {
		return u.GroupVersionKind().Group == rbacv1.GroupName || strings.HasPrefix(u.GetKind(), "ValidatingAdmissionPolicy") || strings.HasSuffix(u.GetKind(), "WebhookConfiguration")
	})
	m, err := kube.NewClient(asController(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	hook := func(edit func(map[string]any)) *unstructured.Unstructured {
		u := hooked("ValidatingWebhookConfiguration", access.SelectedWebhook)
		requirement := func(operator string, values ...any) any {
			return map[string]any{"key": corev1.LabelMetadataName, "operator": operator, "values": values}
		}
		h := map[string]any{
			"name": "a.example.com", "admissionReviewVersions": []any{"v1"}, "sideEffects": "None", "failurePolicy": "Fail",
			"clientConfig":      map[string]any{"service": map[string]any{"namespace": own, "name": "weir-controller", "path": "/x"}},
			"namespaceSelector": map[string]any{"matchExpressions": []any{requirement("In", "shop"), requirement("NotIn", "kube-node-lease", "kube-public", "kube-system", own)}},
			"rules":             []any{map[string]any{"apiGroups": []any{""}, "apiVersions": []any{"v1"}, "operations": []any{"CREATE"}, "resources": []any{"pods"}}},
		}
		if edit != nil {
			edit(h)
		}
		u.Object["webhooks"] = []any{h}
		return u
	}
	patch := func(u *unstructured.Unstructured) error {
		text, err := u.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		return m.Patch(t.Context(), hooked(u.GetKind(), u.GetName()), merge(string(text)), client.DryRunAll)
	}
	rule := func(field string, value ...any) func(map[string]any) {
		return func(h map[string]any) { h["rules"].([]any)[0].(map[string]any)[field] = value }
	}
	bad := map[string]func(map[string]any){
		"secrets": rule("resources", "secrets"), "all resources": rule("resources", "*"), "changes": rule("operations", "CREATE", "UPDATE"), "other groups": rule("apiGroups", "", "apps"),
		"without rules": func(h map[string]any) { delete(h, "rules") },
		"another Service": func(h map[string]any) {
			h["clientConfig"].(map[string]any)["service"].(map[string]any)["name"] = "other"
		},
		"a URL":           func(h map[string]any) { h["clientConfig"] = map[string]any{"url": "https://a.example"} },
		"all namespaces":  func(h map[string]any) { delete(h, "namespaceSelector") },
		"those not named": func(h map[string]any) { drop(h, 0) }, "those of the cluster": func(h map[string]any) { drop(h, 1) },
		"kube-system": func(h map[string]any) {
			h["namespaceSelector"].(map[string]any)["matchExpressions"].([]any)[1].(map[string]any)["values"] = []any{"kube-public"}
		},
	}
	err = within(t.Context(), func() error { // until the policy is in force
		if err := patch(hook(bad["secrets"])); !denied(err) {
			return fmt.Errorf("about Secrets: %w", errors.Join(err, errors.New("not denied")))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for what, edit := range bad {
		if err := patch(hook(edit)); !denied(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := patch(hook(nil)); err != nil {
		t.Errorf("as it is to be: %v", err)
	}
	named := hook(nil)
	named.SetLabels(map[string]string{"a": "b"})
	if err := patch(named); !denied(err) {
		t.Errorf("with a label: %v", err)
	}
}

func drop(h map[string]any, at int) {
	s := h["namespaceSelector"].(map[string]any)
	all := s["matchExpressions"].([]any)
	s["matchExpressions"] = []any{all[1-at]}
}
