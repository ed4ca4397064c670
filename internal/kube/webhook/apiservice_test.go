package webhook

import (
	"context"
	"encoding/base64"
	"log/slog"
	"maps"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// apiService is one as the chart makes it, with some fields of its spec.
func apiService(name string, fields map[string]any) *unstructured.Unstructured {
	spec := map[string]any{
		"group": "g", "version": "v1", "groupPriorityMinimum": int64(100), "versionPriority": int64(15),
		"service": map[string]any{"namespace": "mesh", "name": "weir-controller", "port": int64(443)},
	}
	maps.Copy(spec, fields)
	maps.DeleteFunc(spec, func(_ string, v any) bool { return v == nil })
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetGroupVersionKind(apiServiceKind)
	o.SetName(name)
	return o
}

func TestAPIServicesOfTheOwnServiceGetTheCertificates(t *testing.T) {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(apiServiceKind, &unstructured.Unstructured{})
	metav1.AddToGroupVersion(scheme, apiServiceKind.GroupVersion())
	mine, next := root(t), root(t)
	encoded := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	all := map[string]*unstructured.Unstructured{
		"as-installed": apiService("as-installed", nil),
		"stale":        apiService("stale", map[string]any{"caBundle": encoded(root(t))}),
		"strangers":    apiService("strangers", map[string]any{"service": map[string]any{"namespace": "other", "name": "other", "port": int64(443)}, "caBundle": encoded(mine)}),
		"local":        apiService("local", map[string]any{"service": nil}),
		"insecure":     apiService("insecure", map[string]any{"insecureSkipTLSVerify": true}),
		"broken":       apiService("broken", map[string]any{"service": "x"}),
	}
	builder := fake.NewClientBuilder().WithScheme(scheme)
	for _, o := range all {
		builder = builder.WithObjects(o)
	}
	patches := 0
	c := builder.WithInterceptorFuncs(interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
		patches++
		return c.Patch(ctx, o, p, options...)
	}}).Build()
	var log strings.Builder
	now := ""
	b := &Bundles{
		Client: c, APIServices: []string{"as-installed", "stale", "strangers", "local", "insecure", "broken", "missing"}, Service: Service{"mesh", "weir-controller"},
		Bundle: func() string { return now }, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	}
	expect := func(n int) {
		t.Helper()
		b.look(t.Context())
		for name, o := range all {
			got := &unstructured.Unstructured{}
			got.SetGroupVersionKind(apiServiceKind)
			if err := c.Get(t.Context(), client.ObjectKey{Name: name}, got); err != nil {
				t.Fatal(err)
			}
			want := maps.Clone(o.Object["spec"].(map[string]any))
			if ours := name == "as-installed" || name == "stale"; ours && now != "" {
				want["caBundle"] = encoded(now)
			}
			if !reflect.DeepEqual(got.Object["spec"], want) {
				t.Errorf("%s: %v, want %v", name, got.Object["spec"], want)
			}
		}
		if patches != n {
			t.Errorf("%d patches, want %d", patches, n)
		}
		patches = 0
	}
	expect(0) // without certificates
	now = mine
	expect(2)
	expect(0)
	now = mine + next
	expect(2)
	if n := strings.Count(log.String(), "level=ERROR"); n != 4 {
		t.Errorf("%d errors logged, want each of four once:\n%s", n, log.String())
	}
	for _, want := range []string{"is other/other, so another program serves this group", "serves this group itself", "insecureSkipTLSVerify"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, log.String())
		}
	}
}
