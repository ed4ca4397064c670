package rollouts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/kube"
	"github.com/weirmesh/weir/internal/kube/release"
	"github.com/weirmesh/weir/internal/rollout/provider"
)

const kruiseGroup = "apps.kruise.io"

// define installs a definition of a kind of OpenKruise, which takes any fields, and waits until it is served.
func define(t *testing.T, kind schema.GroupVersionKind, plural string) {
	t.Helper()
	yes := true
	any := apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &yes}
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + kind.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: kind.Group, Scope: apiextensionsv1.NamespaceScoped, Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind.Kind, Plural: plural, ListKind: kind.Kind + "List"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: kind.Version, Served: true, Storage: true, Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": any, "status": any}}},
			}},
		},
	}
	if err := admin.Create(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
	err := within(t.Context(), func() error {
		kinds, err := admin.Serves(t.Context(), kind.Group)
		if err == nil && !kinds[kind.Kind] {
			err = errors.New("it is not served yet")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// asked counts the requests of a controller.
type asked struct {
	to       http.RoundTripper
	requests atomic.Int64
}

func (a *asked) RoundTrip(r *http.Request) (*http.Response, error) {
	a.requests.Add(1)
	return a.to.RoundTrip(r)
}

// TestWorkloadsOfOpenKruiseAreReleased: a cluster without their definitions works as before, definitions that come later are
// found, and releases go on where a controller was killed.
func TestWorkloadsOfOpenKruiseAreReleased(t *testing.T) {
	t.Parallel()
	kinds := []struct{ kind, plural, spec string }{
		{"CloneSet.v1alpha1.apps.kruise.io", "clonesets", "replicas: 3\n  updateStrategy: {type: InPlaceIfPossible, maxUnavailable: 1}"},
		{"StatefulSet.v1beta1.apps.kruise.io", "statefulsets", "replicas: 3\n  updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 1}}"},
		{"DaemonSet.v1alpha1.apps.kruise.io", "daemonsets", "updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 1}}"},
	}
	const steps = "{canary: {" + route + ", steps: [{traffic: 30%, replicas: 1}, {traffic: 60%, replicas: 2}]}}"

	defined := func() {
		for _, k := range kinds {
			kind, _ := schema.ParseKindArg(k.kind)
			define(t, *kind, k.plural)
		}
	}
	if testing.Short() {
		kinds = kinds[:1]
		defined()
	} else {
		areFoundLater(t, defined)
	}
	for i, k := range kinds {
		t.Run(k.kind, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, k.kind, k.spec, steps)
			w.runs()
			w.settled("v1")
			before := w.written()
			c := w.start(uint64(i), true)
			defer func() {
				c.stop()
				kills := 0
				for _, n := range c.killed {
					kills += n
				}
				if t.Logf("%d writes, killed: %v", c.writes, c.killed); kills < 5 {
					t.Errorf("%d kills are too few to say anything", kills)
				}
			}()
			if testing.Short() {
				w.until(rollouts.PhaseHealthy, 0)
				w.takenBack(before, "v1")
				return
			}
			w.passes(before, 2)

			w.release("v3")
			w.until(rollouts.PhaseProgressing, 1)
			w.release("v4")
			w.until(rollouts.PhaseProgressing, 1)
			w.remove(before, "v4")
		})
	}
}

// areFoundLater has a cluster without definitions work as before, and a Rollout that names a kind of theirs go on once they are there.
func areFoundLater(t *testing.T, defined func()) {
	t.Helper()
	w := newWorld(t, "Deployment", "replicas: 1", "{canary: {steps: [{replicas: 100%}]}}")
	w.settled("v1")
	early := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "rollouts.kruise.io/v1beta1", "kind": "Rollout", "metadata": map[string]any{"namespace": w.namespace, "name": "early"},
		"spec": map[string]any{
			"workloadRef": map[string]any{"apiVersion": "apps.kruise.io/v1alpha1", "kind": "CloneSet", "name": "early"},
			"strategy":    map[string]any{"canary": map[string]any{"steps": []any{map[string]any{"replicas": int64(1)}}}},
		},
	}}
	if err := admin.Create(t.Context(), early); err != nil {
		t.Fatal(err)
	}
	says := func(want string) {
		t.Helper()
		err := within(t.Context(), func() error {
			if err := admin.Get(t.Context(), client.ObjectKeyFromObject(early), early); err != nil {
				return err
			}
			if got, _, _ := unstructured.NestedString(early.Object, "status", "message"); got != want {
				return fmt.Errorf("the Rollout says %q, want %q", got, want)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	count := &asked{}
	carry := w.carry(count)
	says("There is no CloneSet early.")
	before := count.requests.Load()
	w.until(rollouts.PhaseHealthy, 0)
	w.release("v2")
	w.until(rollouts.PhaseHealthy, 0)
	w.settled("v2")
	if n := count.requests.Load() - before; n > 150 { // a release takes some 40
		t.Errorf("%d requests for one release of a Deployment beside a kind that is not there", n)
	}
	defined()
	set := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps.kruise.io/v1alpha1", "kind": "CloneSet", "metadata": map[string]any{"namespace": w.namespace, "name": "early"},
		"spec": map[string]any{"replicas": int64(0), "template": map[string]any{}, "updateStrategy": map[string]any{}},
	}}
	if err := admin.Create(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	set.Object["status"] = map[string]any{"observedGeneration": int64(1), "updateRevision": "early-a", "currentRevision": "early-a"}
	if err := admin.Status().Update(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	says("There is nothing to release.")
	carry()
}

// carry has one controller carry Rollouts out until the function that it returns is called.
func (w *world) carry(through *asked) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	of := config()
	of.Wrap(func(to http.RoundTripper) http.RoundTripper { through.to = to; return through })
	c, err := kube.NewClient(of)
	if err != nil {
		w.Fatal(err)
	}
	var ended sync.WaitGroup
	carrier := &release.Controller{Client: c, Namespaces: []string{w.namespace}, Providers: provider.All(), Workloads: released, Instance: "test", Logger: slog.New(slog.DiscardHandler)}
	ended.Go(func() {
		if err := carrier.Run(ctx); err != nil {
			w.Error(err)
		}
	})
	end = sync.OnceFunc(func() { cancel(); ended.Wait(); c.Close() })
	w.Cleanup(end)
	return end
}
