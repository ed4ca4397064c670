package rollouts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/cli"
	"github.com/weirmesh/weir/internal/kube"
	"github.com/weirmesh/weir/internal/kube/inspect"
	"github.com/weirmesh/weir/internal/kube/release"
	"github.com/weirmesh/weir/internal/rollout/provider"
)

// batchRelease is the kind by which OpenKruise's controller of Rollouts is recognised.
const batchRelease = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: batchreleases.rollouts.kruise.io}
spec:
  group: rollouts.kruise.io
  scope: Namespaced
  names: {kind: BatchRelease, plural: batchreleases, singular: batchrelease, listKind: BatchReleaseList}
  versions: [{name: v1beta1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`

// openKruise has its definition served, or not any more.
func openKruise(ctx context.Context, installed bool) error {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal([]byte(batchRelease), crd); err != nil {
		return err
	}
	var err error
	if installed {
		err = admin.Create(ctx, crd)
	} else {
		err = client.IgnoreNotFound(admin.Delete(ctx, crd))
	}
	if err != nil {
		return err
	}
	return within(ctx, func() error {
		if kinds, err := admin.Serves(ctx, rollouts.Group); err != nil || kinds["BatchRelease"] != installed {
			return fmt.Errorf("the API server has %v, %v", kinds, err)
		}
		return nil
	})
}

// versions are those of all objects that a release may change.
func (w *world) versions() map[string]string {
	w.Helper()
	out := map[string]string{}
	for _, list := range []client.ObjectList{
		&appsv1.ReplicaSetList{}, &appsv1.DeploymentList{}, &corev1.ServiceList{}, &corev1.PodList{},
		&metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: routeKind.GroupVersion().String(), Kind: "HTTPRouteList"}},
		&metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: rolloutKind.GroupVersion().String(), Kind: "RolloutList"}},
	} {
		if err := admin.List(w.Context(), list, client.InNamespace(w.namespace)); err != nil {
			w.Fatal(err)
		}
		add := func(name, version string) { out[fmt.Sprintf("%T %s", list, name)] = version }
		switch list := list.(type) {
		case *appsv1.ReplicaSetList:
			for _, o := range list.Items {
				add(o.Name, o.ResourceVersion)
			}
		case *appsv1.DeploymentList:
			for _, o := range list.Items {
				add(o.Name, o.ResourceVersion)
			}
		case *corev1.ServiceList:
			for _, o := range list.Items {
				add(o.Name, o.ResourceVersion)
			}
		case *corev1.PodList:
			for _, o := range list.Items {
				add(o.Name, o.ResourceVersion)
			}
		case *metav1.PartialObjectMetadataList:
			for _, o := range list.Items {
				add(list.Kind+o.Name, o.ResourceVersion)
			}
		}
	}
	return out
}

// TestAControllerStandsBackFromOpenKruise has OpenKruise's definition appear in the middle of a release: Weir writes nothing any
// more, whatever happens, says why, and goes on from where it was when the definition is gone. It is no parallel test: the
// controllers of all others would stand back, too.
func TestAControllerStandsBackFromOpenKruise(t *testing.T) {
	w := newWorld(t, "Deployment", "replicas: 3", "{canary: {"+route+", steps: [{traffic: 20%, replicas: 1}, {traffic: 50%, replicas: 2}]}}")
	w.settled("v1")
	before := w.written()
	m := &mortal{left: -1, die: func() {}} // it lives, and its writes are counted
	of := config()
	of.Wrap(func(to http.RoundTripper) http.RoundTripper { m.to = to; return m })
	c, err := kube.NewClient(of)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const look = 200 * time.Millisecond
	carrier := &release.Controller{Client: c, Namespaces: []string{w.namespace}, Providers: provider.All(), Workloads: released, Look: look, Instance: "test", Logger: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- carrier.Run(ctx) }()
	defer func() {
		cancel()
		if err := errors.Join(<-ended, openKruise(context.Background(), false)); err != nil {
			t.Error(err)
		}
		if s := carrier.Stats(); s.Carrying || s.Away != "" {
			t.Errorf("a controller that has ended says %+v", s)
		}
	}()
	writes := func() int { m.mu.Lock(); defer m.mu.Unlock(); return m.writes }
	away := func(why release.Obstacle) {
		t.Helper()
		began := time.Now()
		if err := within(t.Context(), func() error {
			if s := carrier.Stats(); s.Away != why || s.Carrying != (why == "") {
				return fmt.Errorf("it says %+v, want %q", s, why)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		t.Logf("%q after %v", why, time.Since(began).Round(time.Millisecond))
	}
	w.until(rollouts.PhaseHealthy, 0)
	w.release("v2")
	w.until(rollouts.PhaseProgressing, 1)
	says := w.operators()
	say := func(all ...func()) {
		var ended sync.WaitGroup
		for _, one := range all {
			ended.Go(one)
		}
		ended.Wait()
	}
	say(says("rollouts     carried out by the leader", true, "status"), says("WR725", false, "check"))

	if err := openKruise(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	away(release.OpenKruise)
	count := writes()
	// What Weir would act upon: somebody approves the step, and puts the route back.
	w.approve()
	w.patch(routeKind, `[{"op":"replace","path":"/spec/rules/0/backendRefs","value":[{"name":"web","port":80,"weight":7}]}]`)
	were := w.versions()
	say(says("rollouts     not carried out: OpenKruise Rollouts is installed", true, "status"), says("WR725", true, "check"),
		says("abort works only where Weir's controller carries Rollouts out (OpenKruise Rollouts is installed", true, "rollout", "abort", "web", "-n", w.namespace))
	time.Sleep(10 * look)
	if n := writes(); n != count {
		t.Errorf("it wrote %d times though OpenKruise is there", n-count)
	}
	if are := w.versions(); !maps.Equal(are, were) {
		t.Errorf("objects are %v, and were %v", are, were)
	}

	if err := openKruise(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	away("")
	w.until(rollouts.PhaseProgressing, 2)
	say(says("rollouts     carried out by the leader", true, "status"))
	w.approve()
	w.until(rollouts.PhaseHealthy, 0)
	w.same(before, "v2")
}

// operators returns what makes a function that runs a command of weir in a cluster with a controller that is to carry Rollouts out, and
// holds that it says something, or does not.
func (w *world) operators() (says func(text string, want bool, args ...string) func()) {
	w.Helper()
	none := int32(0)
	labels := map[string]string{"app.kubernetes.io/name": "weir", "app.kubernetes.io/component": "controller"}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: inspect.DefaultNamespace, Name: inspect.DefaultName, Labels: labels},
		Spec: appsv1.DeploymentSpec{Replicas: &none, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "controller", Image: "weir:1", Args: []string{"controller", "--rollouts"}}}},
		}},
	}
	for _, o := range []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: inspect.DefaultNamespace}}, d} {
		if err := admin.Create(w.Context(), o); err != nil {
			w.Fatal(err)
		}
	}
	w.Cleanup(func() { _ = admin.Delete(context.Background(), d) })
	return func(text string, want bool, args ...string) func() {
		return func() {
			var out, err bytes.Buffer
			cli.Main(append(args, "--kubeconfig", server.Kubeconfig), nil, &out, &err)
			if strings.Contains(out.String()+err.String(), text) != want {
				w.Errorf("weir %s: want %q: %t, got\n%s\n%s", strings.Join(args, " "), text, want, &out, &err)
			}
		}
	}
}
