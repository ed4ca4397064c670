package rollout

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/weirmesh/weir/api/rollouts"
)

// world is a cluster in small: a workload with its own controller, two Services, routes, and clients that must never meet
// a Service without pods.
type world struct {
	t       *testing.T
	rollout *rollouts.Rollout
	now     time.Time

	// pods of each revision, and how many of the newest the workload may have while it is held.
	pods             map[string]int32
	replicas, target int32
	stable, newest   string
	held, marked     bool
	gone             bool // the workload
	daemon           bool // pods of the newest revision stay what they are, as those of a DaemonSet
	generation       int64

	pinned, canary string // revisions; the canary is "" if there is no such Service
	routed         Want   // for messages, and what it stood for
	routing        *Routing
	settled        time.Time // when proxies have taken over the routes
	served         time.Time // when the canary's Service has endpoints

	shared    func() *Shared // what is counted; nil if nobody counts
	finalizer bool
	trace     []string
	actions   int
	// lost says which statuses and actions get lost on the way.
	lostStatus, lostAction func() bool
}

func ref[T any](v T) *T { return &v }

func newWorld(t *testing.T, r *rollouts.Rollout) *world {
	never := func() bool { return false }
	return &world{
		t: t, rollout: r, now: time.Unix(1_000_000, 0).UTC(), pods: map[string]int32{"v1": 10}, replicas: 10, stable: "v1", newest: "v1",
		lostStatus: never, lostAction: never,
	}
}

// steps are written "20%" for traffic, "x=1" for a match, "-" for neither, with ";20" for pods and "@60" for a pause that
// ends.
func canaryRollout(extra bool, steps ...string) *rollouts.Rollout {
	var plan rollouts.Plan
	for _, text := range steps {
		s := rollouts.Step{Replicas: ref(intstr.FromString("20%"))}
		text, duration, ok := strings.Cut(text, "@")
		if ok {
			s.Pause.Duration = ref(int32(0))
			fmt.Sscan(duration, s.Pause.Duration)
		}
		text, pods, ok := strings.Cut(text, ";")
		if ok {
			s.Replicas = ref(intstr.FromString(pods + "%"))
		}
		switch {
		case strings.HasSuffix(text, "%"):
			s.Traffic = &text
		case text != "-":
			name, value, _ := strings.Cut(text, "=")
			if err := json.Unmarshal([]byte(fmt.Sprintf(`[{"headers":[{"name":%q,"value":%q}]}]`, name, value)), &s.Matches); err != nil {
				panic(err)
			}
		}
		plan.Steps = append(plan.Steps, s)
	}
	plan.TrafficRoutings = []rollouts.TrafficRouting{{Service: "svc", Gateway: &rollouts.GatewayRef{HTTPRouteName: ref("route")}}}
	return &rollouts.Rollout{
		ObjectMeta: metav1.ObjectMeta{Name: "shop", Namespace: "default", Generation: 1, Annotations: map[string]string{}},
		Spec: rollouts.Spec{
			WorkloadRef: rollouts.Ref{APIVersion: "apps/v1", Kind: "Deployment", Name: "shop"},
			Strategy:    rollouts.Strategy{Canary: &rollouts.Canary{Plan: plan, EnableExtraWorkloadForCanary: extra}},
		},
	}
}

func blueGreenRollout(steps ...string) *rollouts.Rollout {
	r := canaryRollout(false, steps...)
	r.Spec.Strategy = rollouts.Strategy{BlueGreen: &rollouts.BlueGreen{Plan: r.Spec.Strategy.Canary.Plan}}
	return r
}

func (w *world) plan() *rollouts.Plan { return w.rollout.Spec.Strategy.Plan() }

// release is a new revision: the workload is held in the same moment, as a webhook does.
func (w *world) release(revision string) {
	if revision == w.newest {
		return
	}
	w.newest, w.target = revision, 0
	w.generation++
	if revision != w.stable {
		w.held = true
	}
}

func (w *world) total(except string) (n int32) {
	for revision, pods := range w.pods {
		if revision != except {
			n += pods
		}
	}
	return n
}

// tick lets a second pass: pods come and go one at a time, new ones before old ones.
func (w *world) tick() {
	w.now = w.now.Add(time.Second)
	if w.gone {
		return
	}
	extra := w.rollout.Spec.Style() != rollouts.Partition
	goal := map[string]int32{w.newest: w.replicas}
	if w.held {
		goal = map[string]int32{w.newest: w.target}
		if w.newest == w.stable {
			goal[w.stable] = w.replicas
		} else if goal[w.stable] = w.replicas - w.target; extra {
			goal[w.stable] = w.replicas
		}
	}
	for revision, n := range goal {
		if w.pods[revision] < n && !(w.daemon && revision != w.newest) {
			w.pods[revision]++
			return
		}
	}
	for revision, n := range w.pods {
		if n > goal[revision] {
			if w.held && revision != w.stable && revision != w.newest {
				continue // nobody told it to
			}
			if w.daemon && revision == w.newest {
				continue
			}
			if w.pods[revision]--; w.pods[revision] == 0 {
				delete(w.pods, revision)
			}
			return
		}
	}
}

func (w *world) facts() Facts {
	f := Facts{Rollout: w.rollout, Now: w.now}
	if !w.gone {
		complete := w.pods[w.newest] == w.replicas && w.total(w.newest) == 0
		if complete && !w.held && !w.marked {
			w.stable = w.newest
		}
		if w.pods[w.stable] == 0 {
			for revision, n := range w.pods {
				if revision != w.newest && n > w.pods[w.stable] {
					w.stable = revision
				}
			}
		}
		updated := w.pods[w.newest]
		f.Workload = &Workload{
			Settled: true, Generation: w.generation, Stable: w.stable, Update: w.newest, StableHash: w.stable, UpdateHash: w.newest, Replicas: w.replicas,
			Updated: updated, Ready: updated, StableReady: w.pods[w.stable], Complete: complete, Held: w.held, Target: w.target, Marked: w.marked, Stays: w.daemon,
		}
	}
	f.Traffic = Traffic{Settled: !w.now.Before(w.settled), Pinned: w.pinned, Canary: w.canary}
	if w.now.Before(w.served) {
		f.Traffic.Unready = "it has no endpoints"
	}
	if w.shared != nil {
		f.Traffic.Shared = w.shared()
	}
	now := w.routing
	for want := WantNew; int(want) <= len(w.plan().Steps); want++ {
		if reflect.DeepEqual(RoutingFor(w.plan(), want), now) {
			f.Traffic.Carried = append(f.Traffic.Carried, want)
		}
	}
	return f
}

// turn decides until something is to be done or awaited, and carries it out, unless it gets lost. The status is stored as
// late as it may be.
func (w *world) turn() Outcome {
	status := w.rollout.Status
	var events []Event
	for range 64 {
		facts := w.facts()
		r := *w.rollout
		r.Status = status
		facts.Rollout = &r
		before := asText(r)
		out := Decide(facts)
		if after := asText(r); after != before {
			w.t.Fatalf("the Rollout was changed:\n%s\n%s", before, after)
		}
		if again := Decide(facts); !reflect.DeepEqual(again, out) {
			w.t.Fatalf("the same facts lead to %+v and to %+v", out, again)
		}
		w.finalizer = out.Finalizer
		changed := !reflect.DeepEqual(out.Status, status)
		status, events = out.Status, append(events, out.Events...)
		if out.Action == nil && changed {
			continue
		}
		if out.Action == nil || !out.Action.Late() {
			if w.lostStatus() {
				return out
			}
			w.rollout.Status = status
			for _, e := range events {
				w.note("event: " + e.Message)
			}
		}
		if out.Action == nil {
			w.check()
			if !out.Finalizer && !w.asItWas() {
				w.t.Fatalf("the Rollout may be gone, and this is left: %+v\n%s", w, strings.Join(w.trace, "\n"))
			}
			return out
		}
		w.actions++
		if w.lostAction() {
			return out
		}
		w.note("action: " + w.describe(*out.Action))
		w.carryOut(*out.Action)
		w.check()
		if !out.Action.Late() {
			return out
		}
	}
	w.t.Fatalf("decisions never end: %s\n%s", asText(status), strings.Join(w.trace, "\n"))
	return Outcome{}
}

func (w *world) note(line string) { w.trace = append(w.trace, line) }

func (w *world) describe(a Action) string {
	switch a.Do {
	case Route:
		return fmt.Sprintf("%s as %d", a.Do, a.Want)
	case Upgrade:
		return fmt.Sprintf("%s to %d", a.Do, a.Pods)
	case Pin, MakeCanary:
		return fmt.Sprintf("%s of %s", a.Do, a.Hash)
	}
	return string(a.Do)
}

func (w *world) carryOut(a Action) {
	switch a.Do {
	case Hold:
		w.held, w.marked = true, true
	case Upgrade:
		w.target = a.Pods
	case Resume:
		w.held = false
	case Release:
		w.held, w.marked = false, false
	case Pin:
		w.pinned = a.Hash
	case Unpin:
		w.pinned = ""
	case MakeCanary:
		if w.canary != a.Hash && !w.toCanary() {
			w.served = w.now.Add(time.Second)
		}
		w.canary = a.Hash
	case RemoveCanary:
		w.canary = ""
	case Route:
		w.route(a.Want)
	default:
		w.t.Fatalf("unknown action %+v", a)
	}
}

func (w *world) route(want Want) {
	w.routed, w.routing, w.settled = want, RoutingFor(w.plan(), want), w.now.Add(2*time.Second)
}

// toCanary reports whether routes send requests to the canary's Service.
func (w *world) toCanary() bool {
	return w.routing != nil && (len(w.routing.Matches) > 0 || w.routing.Percent > 0)
}

// check holds that no request fails, by what routes say now.
func (w *world) check() {
	w.t.Helper()
	if w.gone {
		return
	}
	routing := w.routing
	toStable := routing == nil || len(routing.Matches) > 0 || routing.Percent < 100
	if w.toCanary() && (w.canary == "" || w.pods[w.canary] == 0 || w.now.Before(w.served)) {
		w.t.Fatalf("requests go to the canary's Service of %q, pods are %v\n%s", w.canary, w.pods, strings.Join(w.trace, "\n"))
	}
	if toStable && w.pinned != "" && w.pods[w.pinned] == 0 {
		w.t.Fatalf("requests go to the stable Service of %q, pods are %v\n%s", w.pinned, w.pods, strings.Join(w.trace, "\n"))
	}
}

// run lets the world go on until a condition holds.
func (w *world) run(most int, until func() bool) bool {
	for range most {
		if until() {
			return true
		}
		out := w.turn()
		if out.Again.IsZero() || out.Again.After(w.now) {
			w.tick()
			w.check()
		}
	}
	return until()
}

func (w *world) must(what string, until func() bool) {
	w.t.Helper()
	if !w.run(2000, until) {
		w.t.Fatalf("never: %s; status %s\npods %v held %t target %d marked %t pinned %q canary %q routed %d\n%s", what, asText(w.rollout.Status), w.pods, w.held, w.target, w.marked, w.pinned, w.canary, w.routed, strings.Join(w.trace, "\n"))
	}
}

func asText(v any) string {
	text, _ := json.Marshal(v)
	return string(text)
}

func (w *world) phase(p rollouts.Phase) func() bool {
	return func() bool { return w.rollout.Status.Phase == p }
}

// waits reports whether a step waits for somebody.
func (w *world) waits(step int32) func() bool {
	return func() bool {
		return w.rollout.Status.CurrentStepIndex == step && w.rollout.Status.CurrentStepState == rollouts.StepPaused
	}
}

func (w *world) approve() {
	w.rollout.Status.Release().CurrentStepState, w.rollout.Status.CurrentStepState = rollouts.StepReady, rollouts.StepReady
}

// asItWas reports whether nothing is left of a release.
func (w *world) asItWas() bool {
	return w.routing == nil && w.pinned == "" && w.canary == "" && !w.marked && (!w.held || w.gone)
}

func (w *world) finished() bool {
	return w.rollout.Status.Phase == rollouts.PhaseHealthy && w.asItWas() && w.newest == w.stable && !w.finalizer
}

func (w *world) tracesTo(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(w.trace, want) {
		t.Errorf("it went\n%s\nwant\n%s", strings.Join(w.trace, "\n"), strings.Join(want, "\n"))
	}
}
