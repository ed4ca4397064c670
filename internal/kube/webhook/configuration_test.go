package webhook

import (
	"encoding/base64"
	"log/slog"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// hook is one webhook of a configuration; the field "later" is one that this code does not know.
func hook(name, namespace, bundle string) map[string]any {
	config := map[string]any{"service": map[string]any{"namespace": namespace, "name": "weir-controller", "path": "/" + name, "port": int64(443)}}
	if bundle != "" {
		config["caBundle"] = bundle
	}
	return map[string]any{"name": name, "failurePolicy": "Fail", "clientConfig": config, "later": map[string]any{"a": "b"}}
}

func TestConfigurationsOfTheOwnServiceGetTheCertificates(t *testing.T) {
	gvk := func(kind string) schema.GroupVersionKind {
		return schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: kind}
	}
	const validating, mutating = "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, gvk("").GroupVersion())
	builder := fake.NewClientBuilder()
	all := map[Configuration][]any{
		{validating, "as-installed"}: {hook("a", "mesh", ""), hook("b", "mesh", "")},
		{mutating, "as-installed"}:   {hook("a", "mesh", "c3RhbGU=")},
		{validating, "mixed"}:        {hook("theirs", "other", "dGhlaXJz"), hook("ours", "mesh", ""), map[string]any{"name": "url", "clientConfig": map[string]any{"url": "https://a.example"}}},
		{validating, "strangers"}:    {hook("a", "other", "dGhlaXJz")},
		{validating, "empty"}:        nil,
		{validating, "broken"}:       {"x", map[string]any{"clientConfig": "y"}, map[string]any{"clientConfig": map[string]any{"service": 7.5}}},
	}
	for _, kind := range []string{validating, mutating} {
		scheme.AddKnownTypeWithName(gvk(kind), &unstructured.Unstructured{})
	}
	for c, hooks := range all {
		o := &unstructured.Unstructured{Object: map[string]any{"webhooks": runtime.DeepCopyJSONValue(hooks)}}
		o.SetGroupVersionKind(gvk(c.Kind))
		o.SetName(c.Name)
		builder = builder.WithObjects(o)
	}
	cluster := builder.WithScheme(scheme).Build()
	var log strings.Builder
	now := ""
	b := &Bundles{Client: cluster, Service: Service{"mesh", "weir-controller"}, Bundle: func() string { return now }, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	for c := range all {
		b.Configurations = append(b.Configurations, c)
	}
	b.Configurations = append(b.Configurations, Configuration{validating, "missing"})
	versions := map[Configuration]string{}
	// expect has a look, and holds what changed.
	expect := func(changed ...Configuration) {
		t.Helper()
		b.look(t.Context())
		for c, hooks := range all {
			got := &unstructured.Unstructured{}
			got.SetGroupVersionKind(gvk(c.Kind))
			if err := cluster.Get(t.Context(), client.ObjectKey{Name: c.Name}, got); err != nil {
				t.Fatal(err)
			}
			for _, h := range hooks {
				config, _ := h.(map[string]any)["clientConfig"].(map[string]any)
				service, _ := config["service"].(map[string]any)
				if service["namespace"] == "mesh" && now != "" {
					config["caBundle"] = base64.StdEncoding.EncodeToString([]byte(now))
				}
			}
			if have, _ := got.Object["webhooks"].([]any); !reflect.DeepEqual(have, hooks) {
				t.Errorf("%s: %v, want %v", c, have, hooks)
			}
			is := false
			for _, one := range changed {
				is = is || one == c
			}
			if did := got.GetResourceVersion() != versions[c]; did != is && versions[c] != "" {
				t.Errorf("%s: changed is %t", c, did)
			}
			versions[c] = got.GetResourceVersion()
		}
	}
	ours := []Configuration{{validating, "as-installed"}, {mutating, "as-installed"}, {validating, "mixed"}}
	delete(all, Configuration{validating, "broken"})
	expect() // without certificates
	now = root(t)
	expect(ours...)
	expect()
	now += root(t)
	expect(ours...)
	if n := strings.Count(log.String(), "level=ERROR"); n != 2 {
		t.Errorf("%d errors logged, want one of the stranger's and one of the broken:\n%s", n, log.String())
	}
	if !strings.Contains(log.String(), "none has Service mesh/weir-controller") {
		t.Errorf("the log is\n%s", log.String())
	}
}
