package webhook

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/weirmesh/weir/internal/identity"
)

func definition(name string, c *apiextensionsv1.WebhookClientConfig) *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: apiextensionsv1.CustomResourceDefinitionSpec{
		Group: "example.com", Conversion: &apiextensionsv1.CustomResourceConversion{
			Strategy: apiextensionsv1.WebhookConverter, Webhook: &apiextensionsv1.WebhookConversion{ConversionReviewVersions: []string{"v1"}, ClientConfig: c},
		},
	}}
}

// path is where conversions are asked for.
const path = "/convert"

func service(namespace, name string) *apiextensionsv1.ServiceReference {
	return &apiextensionsv1.ServiceReference{Namespace: namespace, Name: name}
}

func root(t *testing.T) string {
	t.Helper()
	a, err := identity.New(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return string(a.Bundle())
}

func TestBundlesAreKeptWhereTheWebhookIsOurs(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	mine, next, stranger := root(t), root(t), root(t)
	url := "https://elsewhere.example/convert"
	none := definition("none", nil)
	none.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
	patches := 0
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		definition("as-installed", &apiextensionsv1.WebhookClientConfig{Service: service("weir-system", "weir-controller")}),
		definition("blank", &apiextensionsv1.WebhookClientConfig{URL: &url, CABundle: []byte("\n")}),
		definition("broken", &apiextensionsv1.WebhookClientConfig{Service: service("mesh", "weir-controller"), CABundle: []byte("broken")}),
		definition("of-a-root-of-ours", &apiextensionsv1.WebhookClientConfig{URL: &url, CABundle: []byte(stranger + mine)}),
		definition("strangers", &apiextensionsv1.WebhookClientConfig{Service: service("other", "other"), CABundle: []byte(stranger)}),
		none,
	).WithInterceptorFuncs(interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
		patches++
		return c.Patch(ctx, o, p, options...)
	}}).Build()
	var log strings.Builder
	now := ""
	b := &Bundles{Client: c, Service: Service{"mesh", "weir-controller"}, Path: path, Bundle: func() string { return now }, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	names := []string{"as-installed", "blank", "broken", "of-a-root-of-ours", "strangers", "none", "missing"}
	b.Definitions = names
	pass := func() { b.look(t.Context()) }
	expect := func(bundle string, n int) {
		t.Helper()
		for _, name := range names[:4] {
			var d apiextensionsv1.CustomResourceDefinition
			if err := c.Get(t.Context(), client.ObjectKey{Name: name}, &d); err != nil {
				t.Fatal(err)
			}
			got := d.Spec.Conversion.Webhook.ClientConfig
			if string(got.CABundle) != bundle || got.URL != nil || got.Service == nil || got.Service.Namespace != "mesh" || *got.Service.Path != path || *got.Service.Port != 443 {
				t.Errorf("%s: %+v", name, got)
			}
		}
		if patches != n {
			t.Errorf("%d patches, want %d", patches, n)
		}
		patches = 0
	}
	pass()
	if patches != 0 {
		t.Error("written without certificates")
	}
	now = mine
	pass()
	expect(mine, 4)
	pass()
	expect(mine, 0) // each write ends all watches of the kind
	now = mine + next
	pass()
	expect(mine+next, 4)
	var d apiextensionsv1.CustomResourceDefinition
	if err := c.Get(t.Context(), client.ObjectKey{Name: "strangers"}, &d); err != nil || string(d.Spec.Conversion.Webhook.ClientConfig.CABundle) != stranger {
		t.Errorf("%v: another's was changed", err)
	}
	if n := strings.Count(log.String(), "level=ERROR"); n != 2 {
		t.Errorf("%d errors logged, want each of two once:\n%s", n, log.String())
	}
	for _, want := range []string{"another webhook's", "is not Webhook"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, log.String())
		}
	}
}
