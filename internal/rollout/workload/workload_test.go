package workload

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/rollout"
)

func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	asJSON, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	u := map[string]any{}
	if err := json.Unmarshal(asJSON, &u); err != nil {
		t.Fatal(err)
	}
	return whole(u).(map[string]any)
}

// whole makes numbers what an API server's are.
func whole(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = whole(v[k])
		}
	case []any:
		for i := range v {
			v[i] = whole(v[i])
		}
	case float64:
		return int64(v)
	}
	return v
}

// shop is a Deployment as an API server has it.
const shop = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop, namespace: default, uid: u1, generation: 1, labels: {team: a}}
spec:
  replicas: 4
  selector: {matchLabels: {app: shop}}
  strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 1, maxUnavailable: 25%}}
  template:
    metadata: {labels: {app: shop}}
    spec: {containers: [{name: c, image: v1}]}
status: {observedGeneration: 1}
`

// cluster is a Deployment with ReplicaSets whose pods are ready at once.
type cluster struct {
	t      *testing.T
	object map[string]any
	record *Record
	sets   []*appsv1.ReplicaSet
	style  rollouts.Style
	extra  *rollouts.PodTemplateMetadata
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{t: t, object: parse(t, shop), style: rollouts.Partition}
	c.sets = []*appsv1.ReplicaSet{c.set("stable", "v1", 4)}
	return c
}

func (c *cluster) set(hash, image string, pods int32) *appsv1.ReplicaSet {
	text := fmt.Sprintf(`{"metadata":{"name":"shop-%[1]s","labels":{"pod-template-hash":"%[1]s"}},"spec":{"replicas":%[3]d,"template":{"metadata":{"labels":{"app":"shop","pod-template-hash":"%[1]s"}},"spec":{"containers":[{"name":"c","image":"%[2]s"}]}}},
		"status":{"replicas":%[3]d,"readyReplicas":%[3]d,"availableReplicas":%[3]d}}`, hash, image, pods)
	rs := &appsv1.ReplicaSet{}
	if err := json.Unmarshal([]byte(text), rs); err != nil {
		c.t.Fatal(err)
	}
	return rs
}

func (c *cluster) seen() *Seen {
	return &Seen{Object: c.object, Record: c.record, Style: c.style, Metadata: c.extra, Sets: c.sets}
}

func (c *cluster) look() *rollout.Workload {
	c.t.Helper()
	before := runtime.DeepCopyJSON(c.object)
	w, err := deployment.Observe(c.seen())
	if err != nil {
		c.t.Fatal(err)
	}
	if !reflect.DeepEqual(before, c.object) {
		c.t.Fatal("the object was changed")
	}
	return w
}

// make carries changes out; cut, if not zero, is after how many of them somebody was cut off.
func (c *cluster) make(changes []Change, cut int) {
	c.t.Helper()
	for i, change := range changes {
		if cut > 0 && i == cut {
			return
		}
		switch {
		case change.Record != nil:
			text, err := change.Record.Text()
			if err != nil {
				c.t.Fatal(err)
			}
			if c.record = nil; change.Record.UID != "" {
				if c.record, err = ReadRecord(text); err != nil {
					c.t.Fatal(err)
				}
			}
		case change.Update != nil:
			c.object = change.Update
		case change.Create != nil:
			rs := &appsv1.ReplicaSet{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(change.Create, rs); err != nil {
				c.t.Fatal(err)
			}
			rs.Status.Replicas, rs.Status.AvailableReplicas = *rs.Spec.Replicas, *rs.Spec.Replicas
			c.sets = append(c.sets, rs)
		case change.Scale != nil:
			n := change.Scale.Replicas
			for _, rs := range c.sets {
				if rs == change.Scale.Set {
					rs.Spec.Replicas, rs.Status.Replicas, rs.Status.AvailableReplicas = &n, n, n
				}
			}
		}
	}
}

func (c *cluster) do(a rollout.Action) {
	c.t.Helper()
	c.make(deployment.Do(c.seen(), c.look(), a), 0)
}

// tend does what has to be done until nothing has, and returns how many pods each ReplicaSet has.
func (c *cluster) tend() string {
	c.t.Helper()
	for range 50 {
		changes, err := deployment.Tend(c.seen(), c.look())
		if err != nil {
			c.t.Fatal(err)
		}
		if len(changes) == 0 {
			var all []string
			for _, rs := range c.sets {
				all = append(all, fmt.Sprintf("%s %d", strings.TrimPrefix(rs.Name, "shop-"), *rs.Spec.Replicas))
			}
			return strings.Join(all, ", ")
		}
		c.make(changes, 0)
	}
	c.t.Fatal("it never ends")
	return ""
}

func (c *cluster) release(image string) {
	c.object = runtime.DeepCopyJSON(c.object)
	containers := specOf(c.object)["template"].(map[string]any)["spec"].(map[string]any)["containers"].([]any)
	containers[0].(map[string]any)["image"] = image
}

func (c *cluster) written() map[string]any {
	out := runtime.DeepCopyJSON(c.object)
	return out
}

func TestADeploymentIsHeldSteppedAndLetGo(t *testing.T) {
	for _, style := range []rollouts.Style{rollouts.Partition, rollouts.ExtraPods, rollouts.BlueGreenStyle} {
		c := newCluster(t)
		c.style = style
		c.release("v2")
		before := c.written()
		w := c.look()
		if w.Held || w.Marked || w.Stable != "stable" || w.Update == "stable" || w.Replicas != 4 || w.StableReady != 4 {
			t.Fatalf("%+v", w)
		}
		update := w.Update
		c.do(rollout.Action{Do: rollout.Hold})
		if w := c.look(); !w.Held || !w.Marked || w.Target != 0 || w.Update != update {
			t.Errorf("held: %+v", w)
		}
		if s := specOf(c.object); s["paused"] != true || fieldOf(s, "strategy.type") != "Recreate" || fieldOf(s, "strategy.rollingUpdate") != nil {
			t.Errorf("held: %v", s)
		}
		if got := c.tend(); got != "stable 4" {
			t.Errorf("before any step: %s", got)
		}
		left := map[rollouts.Style]string{rollouts.Partition: "stable 3, "}[style]
		if left == "" {
			left = "stable 4, "
		}
		c.do(rollout.Action{Do: rollout.Upgrade, Pods: 1})
		if got, w := c.tend(), c.look(); got != left+update+" 1" || w.Target != 1 || w.Ready != 1 || w.Updated != 1 || w.Update != update || w.UpdateHash != update {
			t.Errorf("%s: step 1: %s, %+v", style, got, w)
		}
		c.do(rollout.Action{Do: rollout.Upgrade, Pods: 0}) // taken back
		if got := c.tend(); got != "stable 4, "+update+" 0" {
			t.Errorf("%s: taken back: %s", style, got)
		}
		c.do(rollout.Action{Do: rollout.Resume})
		if w := c.look(); w.Held || !w.Marked {
			t.Errorf("resumed: %+v", w)
		}
		c.do(rollout.Action{Do: rollout.Release})
		if w := c.look(); w.Held || w.Marked || c.record != nil || !reflect.DeepEqual(c.object, before) {
			t.Errorf("at the end: %+v, %v, want %v", w, c.object, before)
		}
	}
}

// TestAVersionThatIsGoneComesBack: a Deployment's controller may have replaced all pods before it stands still.
func TestAVersionThatIsGoneComesBack(t *testing.T) {
	c := newCluster(t)
	c.release("v2")
	c.sets = append(c.sets, c.set("next", "v2", 0))
	c.do(rollout.Action{Do: rollout.Hold})
	none, all := int32(0), int32(4)
	for i, n := range []*int32{&none, &all} {
		c.sets[i].Spec.Replicas, c.sets[i].Status.Replicas, c.sets[i].Status.AvailableReplicas = n, *n, *n
	}
	if w := c.look(); w.Stable != "stable" || w.StableReady != 0 || w.Update != "next" {
		t.Errorf("%+v", w)
	}
	c.do(rollout.Action{Do: rollout.Upgrade, Pods: 1})
	c.sets[1].Annotations = map[string]string{DesiredAnnotation: "4"}
	if changes, err := deployment.Tend(c.seen(), c.look()); err != nil || len(changes) != 2 || changes[1].Scale.Set != c.sets[1] {
		t.Errorf("the Deployment's controller would take the stable version's pods away again: %+v, %v", changes, err)
	}
	c.sets[1].Annotations = nil
	if got, w := c.tend(), c.look(); got != "stable 3, next 1" || w.StableReady != 3 {
		t.Errorf("%s, %+v", got, w)
	}

	// Before it was held, and so before there was a Record.
	for i, n := range []*int32{&none, &all} {
		c.sets[i].Spec.Replicas, c.sets[i].Status.AvailableReplicas = n, *n
	}
	seen := c.seen()
	seen.Record, seen.Stable = nil, "stable"
	if w, err := deployment.Observe(seen); err != nil || w.Stable != "stable" || w.Update != "next" {
		t.Errorf("%+v, %v", w, err)
	}
	seen.Sets = seen.Sets[1:] // with a history of none
	if w, err := deployment.Observe(seen); err != nil || w.Stable != "stable" || w.StableReady != 0 {
		t.Errorf("%+v, %v", w, err)
	}
	seen.Stable = ""
	if w, err := deployment.Observe(seen); err != nil || w.Stable != "next" {
		t.Errorf("%+v, %v", w, err)
	}
}

func TestWhoIsCutOffBetweenTwoChangesLosesNothing(t *testing.T) {
	for cut := 1; cut < 3; cut++ {
		c := newCluster(t)
		c.release("v2")
		before := c.written()
		for _, a := range []rollout.Action{{Do: rollout.Hold}, {Do: rollout.Upgrade, Pods: 1}, {Do: rollout.Resume}, {Do: rollout.Release}} {
			c.make(deployment.Do(c.seen(), c.look(), a), cut)
			if w := c.look(); a.Do == rollout.Upgrade && w.Target == 1 && !w.Held {
				t.Errorf("cut off after %d: %+v", cut, w)
			}
			c.do(a) // again
		}
		if c.record != nil || !reflect.DeepEqual(c.object, before) {
			t.Errorf("cut off after %d: %v, want %v", cut, c.object, before)
		}
	}
}

func TestWhatTheUserEditsMidwayIsKept(t *testing.T) {
	c := newCluster(t)
	c.release("v2")
	c.do(rollout.Action{Do: rollout.Hold})
	setField(specOf(c.object), "strategy.type", "RollingUpdate")
	setField(specOf(c.object), "strategy.rollingUpdate", map[string]any{"maxSurge": int64(0), "maxUnavailable": int64(2)})
	setField(specOf(c.object), "minReadySeconds", int64(9))
	if w := c.look(); w.Held {
		t.Errorf("it counts as held: %+v", w)
	}
	c.do(rollout.Action{Do: rollout.Hold})
	if w := c.look(); !w.Held {
		t.Errorf("it is not held again: %+v", w)
	}
	c.do(rollout.Action{Do: rollout.Release})
	s := specOf(c.object)
	if fieldOf(s, "strategy.rollingUpdate.maxUnavailable") != int64(2) || fieldOf(s, "strategy.type") != "RollingUpdate" || s["minReadySeconds"] != int64(9) || s["paused"] != nil {
		t.Errorf("%v", s)
	}
}

func TestWithoutARecordADeploymentIsLetGoAllTheSame(t *testing.T) {
	c := newCluster(t)
	c.release("v2")
	c.do(rollout.Action{Do: rollout.Hold})
	c.record = nil
	c.do(rollout.Action{Do: rollout.Release})
	s := specOf(c.object)
	if _, held := labelOf(c.object); held || s["paused"] != nil || fieldOf(s, "strategy.type") != "RollingUpdate" {
		t.Errorf("%v", c.object)
	}
}

func TestAnotherRevisionMidwayWaitsUntilItIsTold(t *testing.T) {
	c := newCluster(t)
	c.release("v2")
	c.do(rollout.Action{Do: rollout.Hold})
	c.do(rollout.Action{Do: rollout.Upgrade, Pods: 2})
	second := c.look().Update
	c.tend()
	c.release("v3")
	w := c.look()
	if w.Target != 0 || !w.Held || w.Update == second || w.Stable != "stable" {
		t.Errorf("%+v", w)
	}
	if got := c.tend(); got != "stable 2, "+second+" 2" {
		t.Errorf("before it is told: %s", got)
	}
	c.do(rollout.Action{Do: rollout.Upgrade, Pods: 1})
	if got := c.tend(); got != "stable 3, "+second+" 0, "+w.Update+" 1" {
		t.Errorf("%s", got)
	}
	c.release("v1") // back: nothing happens before it is let go
	if w := c.look(); w.Update != w.Stable || !w.Held || w.Target != 0 {
		t.Errorf("%+v", w)
	}
	if got := c.tend(); got != "stable 3, "+second+" 0, "+w.Update+" 1" {
		t.Errorf("%s", got)
	}
}

func TestAtAdmissionANewVersionIsHeld(t *testing.T) {
	c := newCluster(t)
	before, plain := c.object, c.written()
	c.release("v2")
	if got := deployment.Admit(before, before, nil); got != nil {
		t.Errorf("without a new version: %v", got)
	}
	held := deployment.Admit(before, c.object, nil)
	if value, there := labelOf(held); !there || value == ByController || specOf(held)["paused"] != true {
		t.Fatalf("%v", held)
	}
	c.object = held
	if w := c.look(); !w.Held || w.Marked {
		t.Errorf("%+v", w)
	}
	// The user goes back before anybody took it over.
	c.do(rollout.Action{Do: rollout.Resume})
	c.release("v1")
	if !reflect.DeepEqual(c.object, plain) {
		t.Errorf("%v, want %v", c.object, plain)
	}

	c.object = held
	c.do(rollout.Action{Do: rollout.Hold})
	if c.record.Was["paused"] != nil {
		t.Errorf("what admission set counts as the user's: %+v", c.record)
	}
	now := runtime.DeepCopyJSON(c.object)
	specOf(now)["paused"] = false
	setField(specOf(now), "strategy.type", "RollingUpdate")
	setField(specOf(now), "strategy.rollingUpdate", map[string]any{"maxSurge": int64(1), "maxUnavailable": "25%"})
	setLabel(now, "", false)
	if got := deployment.Admit(c.object, now, c.record); !reflect.DeepEqual(got, c.object) {
		t.Errorf("the user's file, applied again, becomes %v", got)
	}
	setField(specOf(now), "strategy.rollingUpdate", map[string]any{"maxSurge": int64(2)})
	got := deployment.Admit(c.object, now, c.record)
	if specOf(got)["paused"] != true || fieldOf(specOf(got), "strategy.rollingUpdate.maxSurge") != int64(2) {
		t.Errorf("another strategy: %v", got)
	}
	user := parse(t, shop)
	specOf(user)["paused"] = true
	paused := runtime.DeepCopyJSON(user)
	setField(specOf(paused), "template.spec.x", "y")
	if got := deployment.Admit(user, paused, nil); got != nil {
		t.Errorf("one that its user paused becomes %v", got)
	}
}

func FuzzRecord(f *testing.F) {
	f.Add(`{"uid":"u","stable":"a","pods":2,"was":{"paused":null,"strategy.type":"RollingUpdate"}}`)
	f.Add(`{"uid":"u","pods":-1}`)
	f.Add(`{"was":{"":{}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ReadRecord(text)
		if err != nil || r == nil {
			return
		}
		again, err := r.Text()
		if err != nil {
			return // longer than what was read, for escapes
		}
		back, err := ReadRecord(again)
		if err != nil || !reflect.DeepEqual(r, back) && len(r.Was) > 0 {
			t.Errorf("%q becomes %q: %+v, %+v, %v", text, again, r, back, err)
		}
		c := newCluster(t)
		c.record = r
		c.record.UID = "u1"
		c.release("v2")
		for _, do := range []rollout.Doing{rollout.Hold, rollout.Upgrade, rollout.Resume, rollout.Release} {
			c.do(rollout.Action{Do: do, Pods: 1})
		}
		if _, held := labelOf(c.object); held {
			t.Errorf("%q: it is never let go", text)
		}
	})
}
