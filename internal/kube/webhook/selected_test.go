package webhook

import (
	"context"
	"encoding/base64"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// selectedCluster has the webhook that is copied, and the configuration of the copies. It counts what is asked of it.
func selectedCluster(t *testing.T, asked, failing *atomic.Int64) client.WithWatch {
	t.Helper()
	const kind = "MutatingWebhookConfiguration"
	gvk := schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: kind}
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, gvk.GroupVersion())
	scheme.AddKnownTypeWithName(gvk, &unstructured.Unstructured{})
	from, to := configurationOf(kind), configurationOf(kind)
	from.SetName("from")
	to.SetName("to")
	original := hook("namespaces", "mesh", "c3RhbGU=")
	original["objectSelector"] = map[string]any{"matchExpressions": []any{requirement("inject", "NotIn", []string{"disabled"})}}
	original["namespaceSelector"] = map[string]any{"matchExpressions": []any{
		requirement(nameLabel, "NotIn", []string{"kube-system"}), requirement("inject", "In", []string{"enabled"}), requirement(nameLabel, "In", []string{"a", "b", "watched"}),
	}}
	from.Object["webhooks"] = []any{hook("pods", "mesh", ""), original}
	return fake.NewClientBuilder().WithScheme(scheme).WithTypeConverters(managedfields.NewDeducedTypeConverter()).WithObjects(from, to).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			if asked.Add(1); failing.Load() != 0 {
				return errors.New("not now")
			}
			return c.Get(ctx, key, o, options...)
		},
	}).Build()
}

func hooksOf(t *testing.T, c client.Client, name string) []any {
	t.Helper()
	o := configurationOf("MutatingWebhookConfiguration")
	if err := c.Get(context.Background(), client.ObjectKey{Name: name}, o); err != nil {
		t.Fatal(err)
	}
	all, _ := o.Object["webhooks"].([]any)
	return all
}

// TestSelectedWebhooksAreCopies of the installation's, with the namespaces that the controller names.
func TestSelectedWebhooksAreCopies(t *testing.T) {
	var asked, failing atomic.Int64
	cluster := selectedCluster(t, &asked, &failing)
	before := hooksOf(t, cluster, "from")
	var log strings.Builder
	s := &Selected{
		Client: cluster, From: "from", Hook: "namespaces", To: "to", Label: "inject", Out: []string{"disabled", "enabled"}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Kinds: map[string][]Copy{"MutatingWebhookConfiguration": {{Name: "one", Path: "/one"}, {Name: "two", Path: "/two", Objects: []string{"disabled"}, Advises: true}}},
		told:  map[string]string{},
	}
	if !s.look(t.Context(), []string{"a", "b"}, "bundle") {
		t.Fatal(log.String())
	}
	bundle := base64.StdEncoding.EncodeToString([]byte("bundle"))
	want := func(name string, edit func(map[string]any)) map[string]any {
		h := hook(name, "mesh", bundle)
		h["objectSelector"] = map[string]any{"matchExpressions": []any{requirement("inject", "NotIn", []string{"disabled"})}}
		h["namespaceSelector"] = map[string]any{"matchExpressions": []any{
			requirement(nameLabel, "In", []string{"a", "b"}), requirement("inject", "NotIn", []string{"disabled", "enabled"}),
			requirement(nameLabel, "NotIn", []string{"kube-system"}), requirement(nameLabel, "In", []string{"a", "b", "watched"}),
		}}
		if edit != nil {
			edit(h)
		}
		return h
	}
	wanted := []any{want("one", nil), want("two", func(h map[string]any) {
		h["failurePolicy"], h["timeoutSeconds"] = "Ignore", int64(1)
		h["objectSelector"] = map[string]any{"matchExpressions": []any{requirement("inject", "In", []string{"disabled"})}}
	})}
	if got := hooksOf(t, cluster, "to"); !reflect.DeepEqual(got, wanted) {
		t.Errorf("copies\n%v, want\n%v", got, wanted)
	}
	if got := hooksOf(t, cluster, "from"); !reflect.DeepEqual(got, before) {
		t.Errorf("the webhook that is copied was changed: %v", got)
	}
	// Without namespaces nobody is asked about anything.
	if !s.look(t.Context(), nil, "bundle") || len(hooksOf(t, cluster, "to")) > 0 {
		t.Errorf("without namespaces: %v\n%s", hooksOf(t, cluster, "to"), log.String())
	}
	s.Hook = "missing"
	if s.look(t.Context(), []string{"a"}, "bundle") || !strings.Contains(log.String(), "from has no webhook missing, of which those of to are copies") {
		t.Errorf("a release without the webhook:\n%s", log.String())
	}
}

// TestSelectedWebhooksFollow what is known: nothing is written before, nor asked of the API server without a reason.
func TestSelectedWebhooksFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked, failing atomic.Int64
		cluster := selectedCluster(t, &asked, &failing)
		var names atomic.Pointer[[]string]
		woken := make(chan struct{}, 1)
		s := &Selected{
			Client: cluster, From: "from", Hook: "namespaces", To: "to", Label: "inject", Out: []string{"disabled"}, Logger: slog.New(slog.DiscardHandler),
			Kinds: map[string][]Copy{"MutatingWebhookConfiguration": {{Name: "one", Path: "/one"}}}, Bundle: func() string { return "bundle" },
			Namespaces: func() ([]string, bool) {
				if n := names.Load(); n != nil {
					return *n, true
				}
				return nil, false
			},
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx, woken) }()
		set := func(all []string) {
			names.Store(&all)
			woken <- struct{}{}
			synctest.Wait()
		}
		copies := func(want int, what string) {
			t.Helper()
			if got := len(hooksOf(t, cluster, "to")); got != want {
				t.Errorf("%s: %d copies, want %d", what, got, want)
			}
		}
		time.Sleep(2 * look)
		if asked.Load() > 0 {
			t.Errorf("%d questions before the namespaces are known", asked.Load())
		}
		set([]string{"a"})
		copies(1, "a namespace")
		before := asked.Load()
		set([]string{"a"})
		if n := asked.Load(); n != before {
			t.Errorf("%d questions without a change", n-before)
		}
		failing.Store(1)
		set(nil)
		failing.Store(0)
		copies(1, "the API server fails")
		time.Sleep(look)
		synctest.Wait()
		copies(0, "it is back")
		set([]string{"a"})
		o := configurationOf("MutatingWebhookConfiguration")
		o.SetName("to")
		if err := cluster.Patch(ctx, o, client.RawPatch("application/merge-patch+json", []byte(`{"webhooks":null}`))); err != nil {
			t.Fatal(err)
		}
		time.Sleep(look)
		synctest.Wait()
		copies(1, "somebody removed them")
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
