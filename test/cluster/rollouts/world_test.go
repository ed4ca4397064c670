package rollouts

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/weirmesh/weir/api/rollouts"
)

// shop is a workload of a kind, with the start of its spec, its Service, a route, and a Rollout with a strategy.
const shop = `
apiVersion: %[4]s
kind: %[1]s
metadata: {name: web, labels: {team: shop}}
spec:
  %[2]s
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {terminationGracePeriodSeconds: 1, containers: [{name: c, image: v1}]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web}
spec:
  parentRefs: [{name: edge}]
  rules: [{backendRefs: [{name: web, port: 80, weight: 7}]}]
---
apiVersion: rollouts.kruise.io/v1beta1
kind: Rollout
metadata: {name: web}
spec:
  workloadRef: {apiVersion: %[4]s, kind: %[1]s, name: web}
  strategy: %[3]s
`

// world is a namespace with a shop.
type world struct {
	*testing.T
	namespace string
	kind      schema.GroupVersionKind
}

// newWorld makes a shop of a kind of apps/v1, or one such as "CloneSet.v1alpha1.apps.kruise.io".
func newWorld(t *testing.T, kind, spec, strategy string) *world {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "shop-"}}
	if err := admin.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, namespace: ns.Name, kind: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: kind}}
	if of, _ := schema.ParseKindArg(kind); of != nil {
		w.kind = *of
	}
	for text := range strings.SplitSeq(fmt.Sprintf(shop, w.kind.Kind, spec, strategy, w.kind.GroupVersion()), "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
			t.Fatal(err)
		}
		u.SetNamespace(w.namespace)
		if err := admin.Create(t.Context(), u); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

var (
	rolloutKind = schema.GroupVersionKind{Group: rollouts.Group, Version: "v1beta1", Kind: "Rollout"}
	routeKind   = schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "HTTPRoute"}
	serviceKind = schema.GroupVersionKind{Version: "v1", Kind: "Service"}
)

func (w *world) get(kind schema.GroupVersionKind) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	return u, admin.Get(w.Context(), types.NamespacedName{Namespace: w.namespace, Name: "web"}, u)
}

func (w *world) patch(kind schema.GroupVersionKind, text string, subresource ...string) {
	w.Helper()
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	u.SetNamespace(w.namespace)
	u.SetName("web")
	var err error
	patchType := types.MergePatchType
	if text[0] == '[' {
		patchType = types.JSONPatchType
	}
	if len(subresource) > 0 {
		err = admin.Status().Patch(w.Context(), u, client.RawPatch(patchType, []byte(text)))
	} else {
		err = admin.Patch(w.Context(), u, client.RawPatch(patchType, []byte(text)))
	}
	if err != nil {
		w.Fatal(err)
	}
}

// release changes the image of the workload.
func (w *world) release(image string) {
	w.Helper()
	if w.kind.Group == kruiseGroup || w.kind.Group == gamesGroup {
		w.releaseHeld(image)
		return
	}
	w.patch(w.kind, `[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"`+image+`"}]`)
}

// status is the Rollout's.
func (w *world) status() (s rollouts.Status, u *unstructured.Unstructured, err error) {
	if u, err = w.get(rolloutKind); err != nil {
		return s, u, err
	}
	text, err := json.Marshal(u.Object["status"])
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	return s, u, err
}

// until waits until the Rollout is in a phase, and if a step is given, waits at it.
func (w *world) until(phase rollouts.Phase, step int32) {
	w.Helper()
	err := within(w.Context(), func() error {
		s, u, err := w.status()
		if err != nil {
			return err
		}
		if s.Phase != phase || step > 0 && (s.CurrentStepIndex != step || s.CurrentStepState != rollouts.StepPaused) || phase == rollouts.PhaseHealthy && s.ObservedGeneration != u.GetGeneration() {
			return fmt.Errorf("the Rollout is %+v, want phase %s, step %d", s, phase, step)
		}
		return nil
	})
	if err != nil {
		w.history()
		w.Fatal(err)
	}
}

// history logs what has become of the workload, and what was told of it.
func (w *world) history() {
	w.Helper()
	var sets appsv1.ReplicaSetList
	var told eventsv1.EventList
	u, err := w.get(w.kind)
	if err == nil {
		w.Logf("the workload: %v, %v", u.Object["metadata"], u.Object["spec"])
	}
	if r, rerr := w.get(rolloutKind); rerr == nil {
		w.Logf("the Rollout: %v", r.GetAnnotations())
	}
	err = errors.Join(err, admin.List(w.Context(), &sets, client.InNamespace(w.namespace)), admin.List(w.Context(), &told, client.InNamespace(w.namespace)))
	for _, rs := range sets.Items {
		w.Logf("%s: %v, made %v, %v of %v pods, %+v", rs.Name, rs.Spec.Template.Spec.Containers[0].Image, rs.CreationTimestamp, rs.Status.Replicas, *rs.Spec.Replicas, rs.Annotations)
	}
	for _, e := range told.Items {
		w.Logf("%v %s %s: %s", e.EventTime, e.ReportingController, e.Reason, e.Note)
	}
	if err != nil {
		w.Log(err)
	}
}

// approve has a step that waits go on.
func (w *world) approve() {
	w.Helper()
	part := "canaryStatus"
	if s, _, err := w.status(); err != nil {
		w.Fatal(err)
	} else if s.BlueGreenStatus != nil {
		part = "blueGreenStatus"
	}
	w.patch(rolloutKind, `{"status":{"currentStepState":"StepReady","`+part+`":{"currentStepState":"StepReady"}}}`, "status")
}

// settled waits until the workload runs an image alone, with as many pods as it is to have, all ready.
func (w *world) settled(image string) {
	w.Helper()
	err := within(w.Context(), func() error {
		u, err := w.get(w.kind)
		if err != nil {
			return err
		}
		want, found, _ := unstructured.NestedInt64(u.Object, "spec", "replicas")
		if w.kind.Kind == "DaemonSet" {
			want, found, _ = unstructured.NestedInt64(u.Object, "status", "desiredNumberScheduled")
		}
		if !found {
			want = 1
		}
		var pods corev1.PodList
		if err := admin.List(w.Context(), &pods, client.InNamespace(w.namespace)); err != nil {
			return err
		}
		var images []string
		ready := int64(0)
		for _, p := range pods.Items {
			images = append(images, p.Spec.Containers[0].Image)
			if p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodRunning && p.Spec.Containers[0].Image == image {
				ready++
			}
		}
		if ready != want || int64(len(images)) != want {
			return fmt.Errorf("the pods run %s, want %d of %s", images, want, image)
		}
		return nil
	})
	if err != nil {
		w.Fatal(err)
	}
}

// written are the objects that a user wrote, as they are, without what an API server and the workload's own controller add.
func (w *world) written() string {
	w.Helper()
	var all []string
	for _, kind := range []schema.GroupVersionKind{w.kind, serviceKind, routeKind} {
		u, err := w.get(kind)
		if err != nil {
			w.Fatal(err)
		}
		delete(u.Object, "status")
		for _, field := range []string{"generation", "resourceVersion", "managedFields"} {
			unstructured.RemoveNestedField(u.Object, "metadata", field)
		}
		annotations := u.GetAnnotations()
		delete(annotations, "deployment.kubernetes.io/revision")
		delete(annotations, "deprecated.daemonset.template.generation")
		u.SetAnnotations(annotations)
		text, err := json.MarshalIndent(u.Object, "", " ")
		if err != nil {
			w.Fatal(err)
		}
		all = append(all, string(text))
	}
	return strings.Join(all, "\n")
}

// same waits until all objects are as they were, but for the image, and nothing that was made is left.
func (w *world) same(before, image string) {
	w.Helper()
	w.settled(image)
	err := within(w.Context(), func() error {
		if after := strings.ReplaceAll(w.written(), `"image": "`+image+`"`, `"image": "v1"`); after != before {
			return fmt.Errorf("it is not as it was:\n%s\nwas\n%s", after, before)
		}
		var services corev1.ServiceList
		if err := admin.List(w.Context(), &services, client.InNamespace(w.namespace)); err != nil {
			return err
		}
		if len(services.Items) != 1 {
			return fmt.Errorf("%d Services are left", len(services.Items))
		}
		u, err := w.get(rolloutKind)
		if err != nil {
			return client.IgnoreNotFound(err)
		}
		if len(u.GetAnnotations()) > 0 {
			return fmt.Errorf("the Rollout has %v", u.GetAnnotations())
		}
		return nil
	})
	if err != nil {
		w.Fatal(err)
	}
}

// passes releases a version by as many steps as wait for approval, begins another one, and takes that back: each time all is
// as it was before.
func (w *world) passes(before string, waiting int32) {
	w.Helper()
	w.until(rollouts.PhaseHealthy, 0)
	w.release("v2")
	for step := range waiting {
		w.until(rollouts.PhaseProgressing, step+1)
		w.approve()
	}
	w.until(rollouts.PhaseHealthy, 0)
	w.same(before, "v2")
	w.takenBack(before, "v2")
}

// takenBack begins to release another version than the one there is, and takes that back: all is as it was before.
func (w *world) takenBack(before, image string) {
	w.Helper()
	w.release("v3")
	w.until(rollouts.PhaseProgressing, 1)
	w.release(image)
	w.until(rollouts.PhaseHealthy, 0)
	w.same(before, image)
}

// remove deletes the Rollout, and waits until all but the image is as it was before.
func (w *world) remove(before, image string) {
	w.Helper()
	u, err := w.get(rolloutKind)
	if err == nil {
		err = admin.Delete(w.Context(), u)
	}
	if err != nil {
		w.Fatal(err)
	}
	w.same(before, image)
}
