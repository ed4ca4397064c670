package workload

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/rollout"
)

// clones is a CloneSet with OpenKruise's controller, which does one thing at a time: it makes a pod that is missing, lets one
// become ready, or replaces one of an older revision, any, as long as more are left than the partition says. With goesBack it
// does the same the other way round, which is the feature CloneSetPartitionRollback of OpenKruise.
type clones struct {
	goesBack        bool
	t               *testing.T
	rnd             *rand.Rand
	object          map[string]any
	record          *Record
	pods            []clone
	made            int
	newest, current string
}

type clone struct {
	name, revision string
	ready          bool
}

func newClones(t *testing.T, rnd *rand.Rand, n int, strategy string) *clones {
	c := &clones{t: t, rnd: rnd, newest: "r1", current: "r1", object: parse(t, fmt.Sprintf(`
apiVersion: apps.kruise.io/v1alpha1
kind: CloneSet
metadata: {name: web, namespace: default, uid: u1, generation: 1}
spec: {replicas: %d, template: {image: r1}, updateStrategy: %s}
`, n, strategy))}
	for range n {
		c.add("r1", true)
	}
	return c
}

func (c *clones) add(revision string, ready bool) {
	c.made++
	c.pods = append(c.pods, clone{fmt.Sprint("web-", c.made), revision, ready})
}

func (c *clones) seen() *Seen {
	c.object["status"] = map[string]any{"observedGeneration": int64(1), "updateRevision": "web-" + c.newest, "currentRevision": "web-" + c.current}
	s := &Seen{Object: c.object, Record: c.record, Style: rollouts.Partition}
	for _, p := range c.pods {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: p.name, Labels: map[string]string{"pod-template-hash": p.revision, revisionLabel: "web-" + p.revision}}}
		if p.ready {
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		}
		s.Pods = append(s.Pods, pod)
	}
	return s
}

func (c *clones) look() *rollout.Workload {
	c.t.Helper()
	w, err := cloneSet.Observe(c.seen())
	if err != nil {
		c.t.Fatal(err)
	}
	return w
}

func (c *clones) carry(changes []Change) {
	for _, change := range changes {
		switch {
		case change.Record != nil:
			if c.record = change.Record; change.Record.UID == "" {
				c.record = nil
			}
		case change.Update != nil:
			c.object = change.Update
		case change.Evict != nil:
			c.pods = slices.DeleteFunc(c.pods, func(p clone) bool { return p.name == change.Evict.Name })
		}
	}
}

func (c *clones) do(a rollout.Action) { c.carry(cloneSet.Do(c.seen(), c.look(), a)) }

// release is what a user does who applies another template, with the admission webhook or without it.
func (c *clones) release(revision string) {
	c.newest = revision
	now := with(c.object, revision)
	if held := cloneSet.Admit(c.object, now, c.record); held != nil {
		now = held
	}
	c.object = now
}

// old is how many pods keep an older revision.
func (c *clones) old() int {
	n := len(c.pods) + 100
	switch v := fieldOf(specOf(c.object), sharedField).(type) {
	case nil:
		return 0
	case int64:
		n = int(v)
	case string:
		share := intstr.FromString(v)
		all := int(specOf(c.object)["replicas"].(int64))
		var err error
		if n, err = intstr.GetScaledValueFromIntOrPercent(&share, all, true); err != nil {
			c.t.Fatal(err)
		}
		if v != "100%" { // one is replaced of whatever is less
			n = min(n, all-1)
		}
	}
	return n
}

func (c *clones) step() bool {
	all := int(specOf(c.object)["replicas"].(int64))
	older := 0
	for _, p := range c.pods {
		if p.revision != c.newest {
			older++
		}
	}
	if len(c.pods) < all {
		revision := c.newest
		if older < c.old() {
			revision = c.current
		}
		c.add(revision, false)
		return true
	}
	for i := range c.pods {
		if !c.pods[i].ready {
			c.pods[i].ready = true
			return true
		}
	}
	if older == 0 {
		c.current = c.newest
	}
	to := c.newest
	switch {
	case fieldOf(specOf(c.object), "updateStrategy.paused") == true:
		return false
	case c.goesBack && c.current != c.newest && older < min(all, c.old()):
		to = c.current
	case older <= c.old():
		return false
	}
	for _, i := range c.rnd.Perm(len(c.pods)) {
		if (c.pods[i].revision == c.newest) == (to != c.newest) {
			c.pods[i].revision, c.pods[i].ready = to, false // in its place
			return true
		}
	}
	return false
}

// run lets time pass until nothing happens any more, and returns how many pods each revision has. Never more than one is
// missing that served.
func (c *clones) run() string {
	c.t.Helper()
	best := 0
	for range 300 {
		changes, err := cloneSet.Tend(c.seen(), c.look())
		if err != nil {
			c.t.Fatal(err)
		}
		c.carry(changes)
		ready := 0
		for _, p := range c.pods {
			if p.ready {
				ready++
			}
		}
		if best = max(best, ready); ready < best-1 {
			c.t.Fatalf("%d of %d pods serve: %v", ready, best, c.pods)
		}
		if !c.step() && len(changes) == 0 {
			n := map[string]int{}
			for _, p := range c.pods {
				n[p.revision]++
			}
			var out []string
			for r, k := range n {
				out = append(out, fmt.Sprint(r, " ", k))
			}
			slices.Sort(out)
			return strings.Join(out, ", ")
		}
	}
	c.t.Fatal("it never ends")
	return ""
}

func TestACloneSetIsHeldSteppedTakenBackAndLetGo(t *testing.T) {
	for _, strategy := range []string{"{type: InPlaceIfPossible}", "{partition: 20%, maxUnavailable: 1}", "{partition: 1, paused: true}"} {
		c := newClones(t, rand.New(rand.NewPCG(1, 1)), 5, strategy)
		before := with(c.object, "r3")
		c.release("r2")
		if got := c.run(); got != "r1 5" {
			t.Errorf("%s: at admission: %s", strategy, got)
		}
		c.do(rollout.Action{Do: rollout.Hold})
		if w := c.look(); !w.Held || !w.Marked || w.Stable != "r1" || w.Update != "r2" || w.StableHash != "r1" || w.UpdateHash != "r2" || w.StableReady != 5 {
			t.Errorf("%s: held: %+v", strategy, w)
		}
		c.do(rollout.Action{Do: rollout.Upgrade, Pods: 3})
		if got, w := c.run(), c.look(); got != "r1 2, r2 3" || w.Target != 3 || w.Ready != 3 || w.Complete {
			t.Errorf("%s: three pods: %s, %+v", strategy, got, w)
		}
		c.do(rollout.Action{Do: rollout.Upgrade, Pods: 1})
		if got := c.run(); got != "r1 4, r2 1" {
			t.Errorf("%s: one pod: %s", strategy, got)
		}
		c.release("r3")
		if got, w := c.run(), c.look(); got != "r1 4, r2 1" || w.Target != 0 || !w.Held {
			t.Errorf("%s: before it is told: %s, %+v", strategy, got, w)
		}
		c.do(rollout.Action{Do: rollout.Upgrade, Pods: 2})
		if got := c.run(); got != "r1 3, r3 2" {
			t.Errorf("%s: another revision: %s", strategy, got)
		}
		specOf(c.object)["replicas"] = int64(7) // by an autoscaler
		if w := c.look(); w.Held {
			t.Errorf("%s: the partition is of fewer pods: %+v", strategy, w)
		}
		c.do(rollout.Action{Do: rollout.Hold})
		if got, w := c.run(), c.look(); got != "r1 5, r3 2" || !w.Held || w.Target != 2 {
			t.Errorf("%s: scaled: %s, %+v", strategy, got, w)
		}
		specOf(c.object)["replicas"] = int64(5)
		c.pods = c.pods[:5]
		c.do(rollout.Action{Do: rollout.Upgrade, Pods: 5})
		if got, w := c.run(), c.look(); got != "r3 5" || !w.Complete || w.Stable != "r1" {
			t.Errorf("%s: all: %s, %+v", strategy, got, w)
		}
		c.do(rollout.Action{Do: rollout.Release})
		delete(c.object, "status")
		delete(before, "status")
		if !reflect.DeepEqual(c.object, before) || c.record != nil {
			t.Errorf("%s: %v, want %v", strategy, c.object, before)
		}
	}
}

func TestAPartitionIsKeptInALabel(t *testing.T) {
	for partition, want := range map[any]any{int64(0): int64(0), int64(7): int64(7), "20%": "20%", "0%": "0%", nil: nil, "x%": int64(0), "5": int64(0), "-1%": int64(0)} {
		if got := sharedValue(sharedLabel(partition)); got != want {
			t.Errorf("%v becomes %v, want %v", partition, got, want)
		}
	}
}

// TestClonesComeToTheirRevisions tells numbers of pods and new revisions at random.
func TestClonesComeToTheirRevisions(t *testing.T) {
	seed := rand.Uint64()
	for walk := range 300 {
		rnd := rand.New(rand.NewPCG(seed, uint64(walk)))
		n := 1 + rnd.IntN(6)
		c := newClones(t, rnd, n, "{type: ReCreate}")
		c.goesBack = rnd.IntN(2) == 0
		revision := 1
		for range 6 {
			if rnd.IntN(3) == 0 || revision == 1 {
				revision++
				c.release(fmt.Sprint("r", revision))
			}
			c.do(rollout.Action{Do: rollout.Hold})
			want := rnd.IntN(n + 1)
			if c.current == c.newest {
				want = n // one that was complete has forgotten what was before
			}
			c.do(rollout.Action{Do: rollout.Upgrade, Pods: int32(want)})
			got := c.run()
			w := c.look()
			if w.Stable != c.current && int(w.Updated) > want { // all pods of the current revision are gone: none comes back to another
				continue
			}
			if int(w.Updated) != want || w.Ready != w.Updated || w.Stable == c.current && want < n && int(w.StableReady) != n-want {
				t.Fatalf("seed %d, walk %d: %s, want %d pods of r%d, %+v", seed, walk, got, want, revision, w)
			}
		}
	}
}
