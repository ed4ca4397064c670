package release

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/kube/edit"
	"github.com/weirmesh/weir/internal/rollout"
	"github.com/weirmesh/weir/internal/rollout/provider"
	"github.com/weirmesh/weir/internal/rollout/workload"
)

var (
	errKilled      = errors.New("the controller was killed")
	deploymentKind = appsv1.SchemeGroupVersion.WithKind("Deployment")
	setKind        = appsv1.SchemeGroupVersion.WithKind("ReplicaSet")
	name           = types.NamespacedName{Namespace: "default", Name: "web"}
)

const shop = `
apiVersion: apps/v1
kind: KIND
metadata: {name: web, uid: d, labels: {team: shop}}
spec:
  SPEC
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: v1}]}}
---
apiVersion: v1
kind: Service
metadata: {name: web, uid: s}
spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web, uid: h}
spec: {parentRefs: [{name: edge}], rules: [{backendRefs: [{name: web, port: 80, weight: 7}]}]}
---
apiVersion: rollouts.kruise.io/v1beta1
kind: Rollout
metadata: {name: web, uid: r}
spec:
  workloadRef: {apiVersion: apps/v1, kind: KIND, name: web}
  strategy: {STYLE trafficRoutings: [{service: web, gateway: {httpRouteName: web}, gracePeriodSeconds: 1}], steps: [STEPS]}}
`

// toy is a cluster in memory: workloads and ReplicaSets have the pods that they are to have, ReplicaSets one each slow, and
// Services their endpoints.
type toy struct {
	*testing.T
	kind    schema.GroupVersionKind // of the workload
	objects map[edit.Key]*unstructured.Unstructured
	version int64
	slow    time.Duration
	tended  time.Time
	// writes tells of each, in their order.
	writes []string
	// left is how many writes there are until the controller is killed at one: before it, or after.
	left  int
	after bool
	// killed are the states in which it was.
	killed map[string]bool
	// counted counts requests for each controller; nil if nobody does.
	counted func(context.Context, Count) (*rollout.Shared, error)
	// refuse is the error of a write, as writes names it; nil if it is accepted.
	refuse func(what string) error

	*Controller
	told []string // Events
}

// newToy is a cluster with a shop, whose versions are released as a canary. It has to be within a bubble of synctest.
func newToy(t *testing.T, steps string) *toy { return newToyOf(t, "canary: {", steps) }

// newToyOf has a Deployment, and a strategy that begins in this way.
func newToyOf(t *testing.T, style, steps string) *toy {
	return newToyFor(t, "Deployment", style, steps)
}

func newToyFor(t *testing.T, kind, style, steps string) *toy {
	c := &toy{T: t, kind: appsv1.SchemeGroupVersion.WithKind(kind), objects: map[edit.Key]*unstructured.Unstructured{}, left: -1, killed: map[string]bool{}, tended: time.Now()}
	for text := range strings.SplitSeq(strings.NewReplacer("STYLE", style, "STEPS", steps, "KIND", kind, "SPEC", specs[kind]).Replace(shop), "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
			t.Fatal(err)
		}
		text, err := u.MarshalJSON() // numbers as an API server has them
		if err == nil {
			err = u.UnmarshalJSON(text)
		}
		if err != nil {
			t.Fatal(err)
		}
		u.SetNamespace("default")
		u.SetGeneration(1)
		c.put(u)
	}
	c.tend()
	c.start()
	return c
}

// start has a new controller, which knows nothing.
func (c *toy) start() {
	c.Controller = &Controller{Providers: provider.All(), Workloads: workload.Fixed(), Logger: slog.New(slog.DiscardHandler), objects: named{c}, Counted: c.counted}
	c.Controller.events = newEvents(c.Controller, func(e *eventsv1.Event) bool {
		c.told = append(c.told, e.Reason)
		return true
	})
	c.Controller.forget()
}

// run has the controller go on until a condition holds.
func (c *toy) run(until func() bool) {
	c.Helper()
	for range 500 {
		if until() {
			return
		}
		again, err := c.reconcile(c.Context(), name)
		switch {
		case errors.Is(err, errKilled):
			c.start()
			continue
		case err != nil && !apierrors.IsConflict(err) && c.refuse == nil:
			c.Fatal(err)
		}
		if again == 0 || again > 100*time.Millisecond { // something may change earlier
			again = 100 * time.Millisecond
		}
		time.Sleep(again)
		c.tend()
	}
	c.Fatalf("never: %+v\nwrites: %s", c.status(), strings.Join(c.writes, ", "))
}

func (c *toy) status() (s rollouts.Status) {
	u := c.objects[c.key(rolloutKind)]
	if u == nil {
		return s
	}
	if status, ok := u.Object["status"].(map[string]any); ok {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(status, &s); err != nil {
			c.Fatal(err)
		}
	}
	return s
}

func (c *toy) healthy() bool { return c.status().Phase == rollouts.PhaseHealthy }

func (c *toy) waits(step int32) func() bool {
	return func() bool {
		s := c.status()
		return s.Phase == rollouts.PhaseProgressing && s.CurrentStepIndex == step && s.CurrentStepState == rollouts.StepPaused
	}
}

// edit is what a user does.
func (c *toy) edit(kind schema.GroupVersionKind, do func(u *unstructured.Unstructured)) {
	u := c.objects[c.key(kind)].DeepCopy()
	before := u.DeepCopy()
	do(u)
	c.replace(before, u)
	c.tend()
}

func (c *toy) approve() {
	c.edit(rolloutKind, func(u *unstructured.Unstructured) {
		_ = unstructured.SetNestedField(u.Object, string(rollouts.StepReady), "status", "currentStepState")
		for _, part := range []string{"canaryStatus", "blueGreenStatus"} {
			if _, there, _ := unstructured.NestedMap(u.Object, "status", part); there {
				_ = unstructured.SetNestedField(u.Object, string(rollouts.StepReady), "status", part, "currentStepState")
			}
		}
	})
}

// written is what users wrote, as it is.
func (c *toy) written() string {
	var all []string
	for _, k := range slices.SortedFunc(maps.Keys(c.objects), func(a, b edit.Key) int { return compare(a.String(), b.String()) }) {
		if slices.Contains([]string{"ReplicaSet", "Rollout", "Pod", "ControllerRevision"}, k.Kind) {
			continue
		}
		u := c.objects[k].DeepCopy()
		delete(u.Object, "status")
		u.SetResourceVersion("")
		u.SetGeneration(0)
		text, err := u.MarshalJSON()
		if err != nil {
			c.Fatal(err)
		}
		all = append(all, string(text))
	}
	return strings.Join(all, "\n")
}

func (c *toy) put(u *unstructured.Unstructured) {
	c.version++
	u.SetResourceVersion(strconv.FormatInt(c.version, 10))
	c.objects[keyOfObject(u)] = u
}

func (c *toy) replace(old, u *unstructured.Unstructured) {
	if !reflect.DeepEqual(old.Object["spec"], u.Object["spec"]) {
		u.SetGeneration(old.GetGeneration() + 1)
	}
	c.put(u)
}

// tend is what Kubernetes' controllers do.
func (c *toy) tend() {
	ready := int64(1 << 20)
	if c.slow > 0 {
		ready = int64(time.Since(c.tended) / c.slow)
		c.tended = c.tended.Add(time.Duration(ready) * c.slow)
	}
	for _, k := range slices.Collect(maps.Keys(c.objects)) {
		u := c.objects[k]
		if k.Kind == "StatefulSet" || k.Kind == "DaemonSet" {
			c.replacePods(u)
		}
		if k.Kind != "Deployment" {
			continue
		}
		if paused, _, _ := unstructured.NestedBool(u.Object, "spec", "paused"); !paused {
			c.roll(u)
		}
		c.observed(u)
	}
	for _, k := range slices.Collect(maps.Keys(c.objects)) {
		u := c.objects[k]
		if k.Kind != "ReplicaSet" {
			continue
		}
		want, _, _ := unstructured.NestedInt64(u.Object, "spec", "replicas")
		have, _, _ := unstructured.NestedInt64(u.Object, "status", "availableReplicas")
		now := min(want, have+ready)
		if status := u.Object["status"]; have == now && status != nil {
			c.observed(u)
			continue
		}
		u = u.DeepCopy()
		u.Object["status"] = map[string]any{"replicas": now, "readyReplicas": now, "availableReplicas": now, "observedGeneration": u.GetGeneration()}
		c.put(u)
	}
}

func (c *toy) observed(u *unstructured.Unstructured) {
	if at, _, _ := unstructured.NestedInt64(u.Object, "status", "observedGeneration"); at == u.GetGeneration() {
		return
	}
	u = u.DeepCopy()
	_ = unstructured.SetNestedField(u.Object, u.GetGeneration(), "status", "observedGeneration")
	c.put(u)
}

// roll gives the newest ReplicaSet of a Deployment all pods.
func (c *toy) roll(d *unstructured.Unstructured) {
	image := imageOf(d)
	found := false
	for _, k := range slices.Collect(maps.Keys(c.objects)) {
		if k.Kind != "ReplicaSet" {
			continue
		}
		rs := c.objects[k].DeepCopy()
		n := int64(0)
		if imageOf(rs) == image {
			found = true
			n, _, _ = unstructured.NestedInt64(d.Object, "spec", "replicas")
		}
		_ = unstructured.SetNestedField(rs.Object, n, "spec", "replicas")
		c.replace(c.objects[k], rs)
	}
	if found {
		return
	}
	rs := &unstructured.Unstructured{Object: map[string]any{"spec": runtime.DeepCopyJSON(d.Object["spec"].(map[string]any))}}
	rs.SetGroupVersionKind(setKind)
	rs.SetNamespace("default")
	rs.SetName("web-" + image)
	rs.SetUID(types.UID("rs-" + image))
	rs.SetGeneration(1)
	rs.SetLabels(map[string]string{"app": "web", appsv1.DefaultDeploymentUniqueLabelKey: image})
	_ = unstructured.SetNestedStringMap(rs.Object, rs.GetLabels(), "spec", "template", "metadata", "labels")
	_ = unstructured.SetNestedStringMap(rs.Object, rs.GetLabels(), "spec", "selector", "matchLabels")
	yes := true
	rs.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: d.GetUID(), Controller: &yes}})
	c.put(rs)
}

func imageOf(u *unstructured.Unstructured) string {
	containers, _, _ := unstructured.NestedSlice(u.Object, "spec", "template", "spec", "containers")
	image, _ := containers[0].(map[string]any)["image"].(string)
	return image
}

func setImage(u *unstructured.Unstructured, image string) {
	containers, _, _ := unstructured.NestedSlice(u.Object, "spec", "template", "spec", "containers")
	containers[0].(map[string]any)["image"] = image
	_ = unstructured.SetNestedSlice(u.Object, containers, "spec", "template", "spec", "containers")
}

func (c *toy) key(kind schema.GroupVersionKind) edit.Key {
	return edit.Key{GroupVersionKind: kind, Namespace: "default", Name: "web"}
}

// write does one, unless the controller is killed at it.
func (c *toy) write(what string, do func() error) error {
	if c.left--; c.left == 0 {
		c.killed[stateOf(c.status())] = true
	}
	if c.left == 0 && !c.after {
		return errKilled
	}
	if c.refuse != nil {
		if err := c.refuse(what); err != nil {
			return err
		}
	}
	if err := do(); err != nil {
		return err
	}
	c.writes = append(c.writes, what)
	if c.slow == 0 {
		c.tend()
	}
	if c.left == 0 {
		return errKilled
	}
	return nil
}

func (c *toy) Get(_ context.Context, k edit.Key) (*unstructured.Unstructured, error) {
	return c.objects[k], nil
}

func (c *toy) Newest(o client.Object) client.Object { return o }

func (c *toy) List(_ context.Context, exemplar client.Object, _ string, into client.ObjectList, options ...client.ListOption) error {
	switch into := into.(type) {
	case *unstructured.UnstructuredList:
		if u := c.objects[c.key(rolloutKind)]; u != nil {
			into.Items = append(into.Items, *u)
		}
		return nil
	case *discoveryv1.EndpointSliceList:
		var o client.ListOptions
		o.ApplyOptions(options)
		for k, u := range c.objects {
			if k.Kind == "Service" && o.LabelSelector.Matches(labels.Set{discoveryv1.LabelServiceName: k.Name}) {
				into.Items = append(into.Items, c.endpoints(u))
			}
		}
		return nil
	}
	return fmt.Errorf("no lists of %T", exemplar)
}

// current is the object in whose place another version comes, if that was made of it.
func (c *toy) current(u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	k := keyOfObject(u)
	old := c.objects[k]
	switch {
	case old == nil:
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: k.Kind}, k.Name)
	case old.GetResourceVersion() != u.GetResourceVersion():
		return nil, apierrors.NewConflict(schema.GroupResource{Resource: k.Kind}, k.Name, errors.New("it has changed"))
	}
	return old, nil
}

func (c *toy) Update(_ context.Context, u *unstructured.Unstructured) (out *unstructured.Unstructured, err error) {
	return out, c.write(u.GetKind(), func() error {
		old, err := c.current(u)
		if err != nil {
			return err
		}
		out = u.DeepCopy()
		if delete(out.Object, "status"); old.Object["status"] != nil {
			out.Object["status"] = old.Object["status"]
		}
		if c.replace(old, out); out.GetDeletionTimestamp() != nil && len(out.GetFinalizers()) == 0 {
			delete(c.objects, keyOfObject(out))
		}
		return nil
	})
}

func (c *toy) UpdateStatus(_ context.Context, u *unstructured.Unstructured) (out *unstructured.Unstructured, err error) {
	return out, c.write("status", func() error {
		old, err := c.current(u)
		if err != nil {
			return err
		}
		out = old.DeepCopy()
		out.Object["status"] = u.DeepCopy().Object["status"]
		c.put(out)
		return nil
	})
}

func (c *toy) Create(_ context.Context, u *unstructured.Unstructured) (out *unstructured.Unstructured, err error) {
	return out, c.write("+"+u.GetKind(), func() error {
		out = u.DeepCopy()
		if c.objects[keyOfObject(out)] != nil {
			return apierrors.NewAlreadyExists(schema.GroupResource{Resource: out.GetKind()}, out.GetName())
		}
		out.SetUID(types.UID(fmt.Sprint(c.version)))
		out.SetGeneration(1)
		c.put(out)
		return nil
	})
}

func (c *toy) Delete(_ context.Context, u *unstructured.Unstructured) error {
	return c.write("-"+u.GetKind(), func() error { delete(c.objects, keyOfObject(u)); return nil })
}

func (c *toy) Scale(_ context.Context, rs *appsv1.ReplicaSet, replicas int32, _ string) error {
	return c.write("ReplicaSet", func() error {
		old := c.objects[edit.Key{GroupVersionKind: setKind, Namespace: rs.Namespace, Name: rs.Name}]
		u := old.DeepCopy()
		if err := unstructured.SetNestedField(u.Object, int64(replicas), "spec", "replicas"); err != nil {
			return err
		}
		c.replace(old, u)
		return nil
	})
}
