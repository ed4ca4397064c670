package workload

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/rollout"
)

// podset is a StatefulSet or a DaemonSet of n pods, of Kubernetes or of OpenKruise, with its own controller, which does one
// thing at a time.
type podset struct {
	t      *testing.T
	kind   *Kind
	object map[string]any
	record *Record
	// revisions are those of pods, by their number; empty is none. ready says which serve.
	revisions []string
	ready     []bool
	// numbers are the ordinals of pods.
	numbers []int
	// any has the own controller of a custom kind replace any pods, and not the last ones; letters are names without numbers;
	// prefix is what names of revisions begin with that labels of pods do not have.
	any     *rand.Rand
	letters bool
	prefix  string
	// newest is the revision of the template, current that of a StatefulSet's pods below the partition.
	newest, current string
	history         []string
}

func newPodset(t *testing.T, kind *Kind, n int) *podset {
	object := map[string]any{
		"metadata": map[string]any{"name": "db", "namespace": "default", "uid": "u1", "generation": int64(1)},
		"spec":     map[string]any{"replicas": int64(n), "template": map[string]any{"image": "r1"}, "updateStrategy": map[string]any{"type": "RollingUpdate", "rollingUpdate": map[string]any{"partition": int64(0)}}},
	}
	if kind.Name == "DaemonSet" {
		spec := specOf(object)
		delete(spec, "replicas")
		setField(spec, partitionField, nil)
		setField(spec, "updateStrategy.rollingUpdate.maxUnavailable", int64(2))
	}
	p := &podset{t: t, kind: kind, object: object, newest: "r1", current: "r1", history: []string{"r1"}}
	for i := range n {
		p.revisions, p.ready, p.numbers = append(p.revisions, "r1"), append(p.ready, true), append(p.numbers, i)
	}
	return p
}

func (p *podset) release(revision string) {
	p.newest = revision
	p.object = with(p.object, revision)
	p.history = append(p.history, revision)
}

func (p *podset) seen() *Seen {
	status := map[string]any{"observedGeneration": int64(1), "updateRevision": p.prefix + p.newest, "currentRevision": p.prefix + p.current, "desiredNumberScheduled": int64(len(p.revisions))}
	p.object["status"] = status
	s := &Seen{Object: p.object, Record: p.record, Style: rollouts.Partition}
	for i, r := range p.revisions {
		if r == "" {
			continue
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: p.name(i), Labels: map[string]string{p.kind.Label: r}}}
		if p.ready[i] {
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		}
		s.Pods = append(s.Pods, pod)
	}
	for i, r := range p.history {
		s.Revisions = append(s.Revisions, &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{revisionLabel: r}}, Revision: int64(i)})
	}
	return s
}

// name is that of the pod at a place.
func (p *podset) name(i int) string {
	if p.letters {
		return fmt.Sprint("db-x", p.numbers[i])
	}
	return fmt.Sprint("db-", p.numbers[i])
}

func (p *podset) look() *rollout.Workload {
	p.t.Helper()
	w, err := p.kind.Observe(p.seen())
	if err != nil {
		p.t.Fatal(err)
	}
	return w
}

func (p *podset) carry(changes []Change) {
	p.t.Helper()
	for _, c := range changes {
		switch {
		case c.Record != nil:
			if p.record = c.Record; c.Record.UID == "" {
				p.record = nil
			}
		case c.Update != nil:
			p.object = c.Update
		case c.Evict != nil:
			n := slices.IndexFunc(p.numbers, func(n int) bool { return p.name(slices.Index(p.numbers, n)) == c.Evict.Name })
			p.revisions[n], p.ready[n] = "", false
		}
	}
}

func (p *podset) do(a rollout.Action) { p.carry(p.kind.Do(p.seen(), p.look(), a)) }

// step lets the workload's own controller do one thing; false if there is nothing to do.
func (p *podset) step() bool {
	spec := specOf(p.object)
	from, _ := fieldOf(spec, partitionField).(int64)
	for i := range p.revisions {
		switch {
		case p.revisions[i] == "":
			p.revisions[i] = p.newest
			if p.kind.Name != "DaemonSet" && p.older(i) < from {
				p.revisions[i] = p.current
			}
			return true
		case !p.ready[i]:
			p.ready[i] = true
			return true
		}
	}
	if fieldOf(spec, typeField) == "OnDelete" {
		return false
	}
	order := make([]int, len(p.revisions))
	for i := range order {
		order[i] = len(order) - 1 - i
	}
	if p.any != nil {
		order = p.any.Perm(len(order))
	}
	for _, i := range order {
		if p.revisions[i] != p.newest && p.older(i) >= from {
			p.revisions[i], p.ready[i] = "", false
			return true
		}
	}
	if from == 0 {
		p.current = p.newest
	}
	return false
}

// older is what a partition has to be above so that the pod at a place keeps its revision: its place, or how many others keep
// theirs where the order does not count.
func (p *podset) older(i int) int64 {
	if p.any == nil && p.kind != &advancedDaemonSet && fieldOf(specOf(p.object), unorderedField) == nil {
		return int64(i)
	}
	n := int64(0)
	for j, r := range p.revisions {
		if j != i && r != "" && r != p.newest {
			n++
		}
	}
	return n
}

// run lets time pass until nothing happens any more. Never more pods are missing than may be.
func (p *podset) run(most int) string {
	p.t.Helper()
	for range 200 {
		changes, err := p.kind.Tend(p.seen(), p.look())
		if err != nil {
			p.t.Fatal(err)
		}
		p.carry(changes)
		missing := 0
		for _, ready := range p.ready {
			if !ready {
				missing++
			}
		}
		if missing > most {
			p.t.Fatalf("%d pods are missing: %v", missing, p.revisions)
		}
		if !p.step() && len(changes) == 0 {
			return strings.Join(p.revisions, " ")
		}
	}
	p.t.Fatal("it never ends")
	return ""
}

func TestAStatefulSetIsHeldSteppedTakenBackAndLetGo(t *testing.T) {
	p := newPodset(t, &statefulSet, 5)
	held := statefulSet.Admit(p.object, with(p.object, "r2"), nil)
	if fieldOf(specOf(held), partitionField) != int64(all) {
		t.Fatalf("at admission: %v", held)
	}
	p.object = held
	p.release("r2")
	if got := p.run(0); got != "r1 r1 r1 r1 r1" {
		t.Errorf("held: %s", got)
	}
	if w := p.look(); !w.Held || w.Marked || w.Stable != "r1" || w.Update != "r2" || w.StableReady != 5 {
		t.Errorf("%+v", w)
	}
	p.do(rollout.Action{Do: rollout.Hold})
	if p.record.Was[partitionField] != int64(0) {
		t.Errorf("what admission set counts as the user's: %+v", p.record)
	}
	p.do(rollout.Action{Do: rollout.Upgrade, Pods: 2})
	if got := p.run(1); got != "r1 r1 r1 r2 r2" {
		t.Errorf("two pods: %s", got)
	}
	if w := p.look(); w.Target != 2 || w.Ready != 2 || w.StableReady != 3 || w.Complete {
		t.Errorf("%+v", w)
	}
	p.do(rollout.Action{Do: rollout.Upgrade, Pods: 1})
	if got := p.run(1); got != "r1 r1 r1 r1 r2" {
		t.Errorf("one pod: %s", got)
	}
	p.object = statefulSet.Admit(p.object, with(p.object, "r3"), p.record) // another one midway
	p.release("r3")
	if got, w := p.run(1), p.look(); got != "r1 r1 r1 r1 r2" || w.Target != 0 || !w.Held {
		t.Errorf("before it is told: %s, %+v", got, w)
	}
	p.do(rollout.Action{Do: rollout.Upgrade, Pods: 1})
	if got := p.run(1); got != "r1 r1 r1 r1 r3" {
		t.Errorf("another revision: %s", got)
	}
	p.do(rollout.Action{Do: rollout.Upgrade, Pods: 5})
	if got, w := p.run(1), p.look(); got != "r3 r3 r3 r3 r3" || w.Stable != "r1" || w.Update != "r3" || !w.Complete {
		t.Errorf("all: %s, %+v", got, w)
	}
	p.do(rollout.Action{Do: rollout.Resume})
	p.do(rollout.Action{Do: rollout.Release})
	if w := p.look(); w.Held || w.Marked || w.Stable != "r3" || p.record != nil || fieldOf(specOf(p.object), partitionField) != int64(0) {
		t.Errorf("%+v, %v", w, p.object)
	}
}

func with(object map[string]any, image string) map[string]any {
	out := map[string]any{}
	for k, v := range object {
		out[k] = v
	}
	spec := map[string]any{}
	for k, v := range specOf(object) {
		spec[k] = v
	}
	spec["template"] = map[string]any{"image": image}
	out["spec"] = spec
	return out
}

func TestADaemonSetIsHeldSteppedAndLetGo(t *testing.T) {
	p := newPodset(t, &daemonSet, 6)
	before := with(p.object, "r2")
	p.release("r2")
	p.do(rollout.Action{Do: rollout.Hold})
	if got, w := p.run(0), p.look(); got != "r1 r1 r1 r1 r1 r1" || !w.Held || w.Stable != "r1" || w.Update != "r2" || w.Replicas != 6 {
		t.Errorf("held: %s, %+v", got, w)
	}
	p.do(rollout.Action{Do: rollout.Upgrade, Pods: 3})
	if got := p.run(2); got != "r2 r2 r2 r1 r1 r1" {
		t.Errorf("three pods: %s", got)
	}
	p.ready[4] = false // one that does not serve goes first
	changes, err := daemonSet.Tend(p.seen(), p.look())
	if err != nil || len(changes) > 0 {
		t.Errorf("%+v, %v", changes, err)
	}
	p.do(rollout.Action{Do: rollout.Upgrade, Pods: 4})
	if got := p.run(2); got != "r2 r2 r2 r1 r2 r1" {
		t.Errorf("four pods: %s", got)
	}
	p.do(rollout.Action{Do: rollout.Upgrade, Pods: 6})
	if got, w := p.run(2), p.look(); got != "r2 r2 r2 r2 r2 r2" || !w.Complete || w.Stable != "r1" {
		t.Errorf("all: %s, %+v", got, w)
	}
	p.do(rollout.Action{Do: rollout.Release})
	delete(p.object, "status")
	delete(before, "status")
	if !reflect.DeepEqual(p.object, before) || p.record != nil {
		t.Errorf("%v, want %v", p.object, before)
	}
}

// TestPodsComeToTheirRevisions tells numbers of pods and new revisions at random, of either kind.
func TestPodsComeToTheirRevisions(t *testing.T) {
	seed := rand.Uint64()
	for walk := range 300 {
		rnd := rand.New(rand.NewPCG(seed, uint64(walk)))
		kind, most := &statefulSet, 1
		switch rnd.IntN(6) {
		case 0:
			kind, most = &daemonSet, 2
		case 1:
			kind = &advancedStatefulSet
		case 2:
			kind = &advancedDaemonSet
		case 3, 4:
			kind = custom("apps.example.com", "GameSet", "gamesets", "example.com/revision")
		}
		stays := kind.Name == "DaemonSet"
		n := 1 + rnd.IntN(6)
		p := newPodset(t, kind, n)
		if kind == &advancedStatefulSet && rnd.IntN(2) == 0 {
			setField(specOf(p.object), unorderedField, map[string]any{})
		}
		if kind.custom {
			if p.letters = rnd.IntN(2) == 0; p.letters || rnd.IntN(2) == 0 {
				p.any = rnd
			}
			p.prefix = []string{"", "db-"}[rnd.IntN(2)]
		}
		for i := range p.numbers { // ordinals.start, and reserveOrdinals
			if p.numbers[i] += 8; !stays && i > n/2 {
				p.numbers[i] += 2
			}
		}
		revision, want := 1, 0
		for range 6 {
			if rnd.IntN(3) == 0 || revision == 1 {
				revision++
				if held := kind.Admit(p.object, with(p.object, fmt.Sprint("r", revision)), p.record); held != nil {
					p.object = held
				}
				p.release(fmt.Sprint("r", revision))
				want = 0
			}
			p.do(rollout.Action{Do: rollout.Hold})
			to := rnd.IntN(n + 1)
			switch {
			case stays:
				to = max(to, want) // none comes back
			case p.current == p.newest:
				to = n // a StatefulSet that was complete has forgotten what was before
			}
			want = to
			p.do(rollout.Action{Do: rollout.Upgrade, Pods: int32(want)})
			got := p.run(most)
			if w := p.look(); kind.custom && w.Stable != p.prefix+p.current && int(w.Updated) > want { // none comes back to another one
				continue
			}
			if c := strings.Count(got+" ", fmt.Sprint("r", revision, " ")); c != want {
				t.Fatalf("seed %d, walk %d: %s has %d pods of r%d, want %d", seed, walk, got, c, revision, want)
			}
			if w := p.look(); !stays && w.Stable == p.prefix+p.current && want < n && strings.Count(got+" ", p.current+" ") != n-want {
				t.Fatalf("seed %d, walk %d: %s, want %d pods of %s", seed, walk, got, n-want, w.Stable)
			}
		}
	}
}

// TestAnAdvancedStatefulSetGetsBackThePartitionThatItHad, be it none, whoever lets it go that was held at admission.
func TestAnAdvancedStatefulSetGetsBackThePartitionThatItHad(t *testing.T) {
	for _, partition := range []any{nil, int64(0), int64(3)} {
		for _, known := range []bool{true, false} {
			p := newPodset(t, &advancedStatefulSet, 5)
			setField(specOf(p.object), partitionField, partition)
			before := with(p.object, "r2")
			p.object = advancedStatefulSet.Admit(p.object, with(p.object, "r2"), nil)
			if p.release("r2"); known {
				p.do(rollout.Action{Do: rollout.Hold})
			}
			p.do(rollout.Action{Do: rollout.Release})
			delete(p.object, "status")
			delete(before, "status")
			if !reflect.DeepEqual(p.object, before) {
				t.Errorf("partition %v, known %t: %v, want %v", partition, known, p.object, before)
			}
		}
	}
}

func TestAnAdvancedStatefulSetWhoseOrderDoesNotCountIsSteppedAndLetGo(t *testing.T) {
	p := newPodset(t, &advancedStatefulSet, 5)
	setField(specOf(p.object), unorderedField, map[string]any{})
	setField(specOf(p.object), partitionField, int64(1))
	before := with(p.object, "r2")
	held := advancedStatefulSet.Admit(p.object, with(p.object, "r2"), nil)
	if fieldOf(specOf(held), partitionField) != int64(all) {
		t.Fatalf("at admission: %v", held)
	}
	p.object = held
	p.release("r2")
	p.do(rollout.Action{Do: rollout.Hold})
	if got, w := p.run(0), p.look(); got != "r1 r1 r1 r1 r1" || !w.Held || !w.Marked || w.Stable != "r1" || w.Update != "r2" {
		t.Errorf("held: %s, %+v", got, w)
	}
	p.do(rollout.Action{Do: rollout.Upgrade, Pods: 2})
	p.revisions[1], p.ready[1] = "", false // whichever it is
	if got := p.run(1); strings.Count(got, "r2") != 2 {
		t.Errorf("two pods: %s", got)
	}
	p.do(rollout.Action{Do: rollout.Upgrade, Pods: 1})
	if got := p.run(1); strings.Count(got, "r2") != 1 {
		t.Errorf("one pod: %s", got)
	}
	p.do(rollout.Action{Do: rollout.Release})
	delete(p.object, "status")
	delete(before, "status")
	if !reflect.DeepEqual(p.object, before) || p.record != nil {
		t.Errorf("%v, want %v", p.object, before)
	}
}

func TestAnAdvancedDaemonSetIsHeldSteppedAndLetGo(t *testing.T) {
	for _, user := range []fields{{partitionField: nil, pausedField: nil}, {partitionField: "20%", pausedField: true}, {typeField: "OnDelete"}} {
		p := newPodset(t, &advancedDaemonSet, 6)
		user.into(specOf(p.object))
		before := with(p.object, "r2")
		held := advancedDaemonSet.Admit(p.object, with(p.object, "r2"), nil)
		if free := user[pausedField] == nil && user[typeField] == nil; (held != nil) != free {
			t.Fatalf("%v at admission: %v", user, held)
		}
		if held != nil {
			p.object = held
		}
		p.release("r2")
		p.do(rollout.Action{Do: rollout.Hold})
		if got, w := p.run(0), p.look(); got != "r1 r1 r1 r1 r1 r1" || !w.Held || w.Stable != "r1" || w.Update != "r2" || !w.Stays {
			t.Errorf("%v held: %s, %+v", user, got, w)
		}
		p.do(rollout.Action{Do: rollout.Upgrade, Pods: 2})
		if got, w := p.run(1), p.look(); strings.Count(got, "r2") != 2 || w.Target != 2 {
			t.Errorf("%v two pods: %s, %+v", user, got, w)
		}
		// Another node: its pod comes with the newest revision, and the partition is of fewer pods than there are.
		p.revisions, p.ready, p.numbers = append(p.revisions, ""), append(p.ready, false), append(p.numbers, 6)
		if w := p.look(); w.Held {
			t.Errorf("%v, a node more: %+v", user, w)
		}
		p.do(rollout.Action{Do: rollout.Hold})
		if got, w := p.run(1), p.look(); strings.Count(got, "r2") != 3 || !w.Held || w.Target != 2 {
			t.Errorf("%v, a node more: %s, %+v", user, got, w)
		}
		whole := with(p.object, "r2") // sent without its status, and with the user's own fields
		delete(whole, "status")
		whole["spec"].(map[string]any)["updateStrategy"] = map[string]any{"type": "RollingUpdate"}
		if out := advancedDaemonSet.Admit(p.object, whole, p.record); fieldOf(specOf(out), partitionField) != int64(5) {
			t.Errorf("%v: applied again: %v", user, out)
		}
		p.do(rollout.Action{Do: rollout.Upgrade, Pods: 7})
		if got, w := p.run(1), p.look(); strings.Count(got, "r2") != 7 || !w.Complete || w.Gone {
			t.Errorf("%v all: %s, %+v", user, got, w)
		}
		p.do(rollout.Action{Do: rollout.Release})
		delete(p.object, "status")
		delete(before, "status")
		if !reflect.DeepEqual(p.object, before) || p.record != nil {
			t.Errorf("%v: %v, want %v", user, p.object, before)
		}
	}
}

// TestWhoGoesBackIsAtTheStableRevision: pods of the version in between do not make that the stable one.
func TestWhoGoesBackIsAtTheStableRevision(t *testing.T) {
	for _, kind := range []*Kind{&statefulSet, &daemonSet, &advancedStatefulSet, &advancedDaemonSet, custom("apps.example.com", "GameSet", "gamesets", revisionLabel)} {
		p := newPodset(t, kind, 3)
		p.release("r2")
		p.do(rollout.Action{Do: rollout.Hold})
		p.do(rollout.Action{Do: rollout.Upgrade, Pods: 1})
		p.run(2)
		p.release("r1")
		if w := p.look(); w.Stable != "r1" || w.Update != "r1" || w.StableReady != 2 || w.Complete {
			t.Errorf("%s of %s: %+v", kind.Name, kind.Group, w)
		}
	}
}

// TestPodsThatWereAllReplacedBeforeTheyWereHeldAreGone: a release that nobody held is none that was taken back.
func TestPodsThatWereAllReplacedBeforeTheyWereHeldAreGone(t *testing.T) {
	for _, kind := range []*Kind{&statefulSet, &daemonSet, &advancedStatefulSet, &advancedDaemonSet, custom("apps.example.com", "GameSet", "gamesets", revisionLabel)} {
		p := newPodset(t, kind, 2)
		p.release("r2")
		seen := func(stable string) *rollout.Workload {
			s := p.seen()
			s.Stable = stable
			w, err := kind.Observe(s)
			if err != nil {
				t.Fatal(err)
			}
			return w
		}
		p.revisions[1] = "r2"
		if w := seen("r1"); w.Gone || w.Stable != "r1" || w.Update != "r2" {
			t.Errorf("%s of %s, one pod is left: %+v", kind.Name, kind.Group, w)
		}
		p.revisions[0], p.current = "r2", "r2"
		if w := seen("r1"); !w.Gone || w.Stable != "r1" || w.Update != "r2" || !w.Complete {
			t.Errorf("%s of %s: %+v", kind.Name, kind.Group, w)
		}
		// The controller was cut off before it held the workload, and after.
		p.record = &Record{UID: "u1", Stable: "r1", Revision: "r2"}
		if w := seen(""); !w.Gone || w.Stable != "r1" {
			t.Errorf("%s of %s, remembered: %+v", kind.Name, kind.Group, w)
		}
		if p.record.Pods = 1; seen("").Gone {
			t.Errorf("%s of %s: it was told to have a pod", kind.Name, kind.Group)
		}
		p.record = nil
		if w := seen(""); w.Gone || w.Stable != "r2" {
			t.Errorf("%s of %s, nobody knows what was: %+v", kind.Name, kind.Group, w)
		}
	}
}

// TestABrokenPodOfAVersionThatWasTakenBackIsEvicted, which a StatefulSet's own controller waits for: none that serves, none of the
// stable version, none that goes already, and none while the workload is held or no release is under way.
func TestABrokenPodOfAVersionThatWasTakenBackIsEvicted(t *testing.T) {
	for _, kind := range []*Kind{&statefulSet, &advancedStatefulSet} {
		p := newPodset(t, kind, 3)
		p.history = append(p.history, "r2")
		p.record = &Record{UID: "u1", Stable: "r1", Revision: "r2", Pods: 2}
		evicted := func(change func(*Seen)) string {
			s := p.seen()
			if change != nil {
				change(s)
			}
			w, err := kind.Observe(s)
			if err != nil {
				t.Fatal(err)
			}
			changes, err := kind.Tend(s, w)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, c := range changes {
				names = append(names, c.Evict.Name)
			}
			return strings.Join(names, " ")
		}
		expect := func(what, want string, change func(*Seen)) {
			t.Helper()
			if got := evicted(change); got != want {
				t.Errorf("%s, %s: %q is evicted, want %q", kind.Group, what, got, want)
			}
		}
		p.revisions, p.ready = []string{"r1", "r2", "r2"}, []bool{false, true, true}
		expect("the pods of the version serve", "", nil)
		p.ready = []bool{true, false, false}
		expect("none serves", p.name(2), nil)
		expect("one goes already", p.name(1), func(s *Seen) { s.Pods[2].DeletionTimestamp = &metav1.Time{} })
		expect("there is no release", "", func(s *Seen) { s.Record = nil })
		p.record.Revision = "r1"
		expect("the release is of this version", "", nil)
	}
}
