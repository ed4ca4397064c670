package local

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirmesh/weir/api/rollouts"
	dialect "github.com/weirmesh/weir/internal/dialect/rollouts"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/rollout"
	"github.com/weirmesh/weir/internal/rollout/view"
)

// Source is a resource.Source that carries out the Rollouts in the Sets of another one. Use New.
type Source struct {
	under     resource.Source
	providers rollout.Providers
	store     *Store
	log       *slog.Logger

	// Requests, if set, returns how many requests a route ("namespace/name"; empty: any) has sent to a Service
	// ("namespace/name") since the process began. It is set before Run.
	Requests func(route, service string) uint64

	commands chan request
	wake     chan struct{}
	applied  atomic.Pointer[resource.Set]

	mu    sync.Mutex
	views []view.Rollout
}

// New returns a Source over another one. A nil store keeps nothing over a restart.
func New(under resource.Source, providers rollout.Providers, store *Store, log *slog.Logger) *Source {
	return &Source{under: under, providers: providers, store: store, log: log, commands: make(chan request), wake: make(chan struct{}, 1)}
}

// Applied says that proxies route by a Set. The release of a step waits for it.
func (s *Source) Applied(set *resource.Set) {
	s.applied.Store(set)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// follow is how often a process that may not decide looks whether it may, and what the one decided that may.
const follow = time.Second

// decisions bounds how many decisions on one Rollout follow each other without a pause. A release takes a handful at a
// time; more would mean that it goes round in circles.
const decisions = 64

// Run implements resource.Source.
func (s *Source) Run(ctx context.Context, emit func(*resource.Set)) error {
	ctx, cancel := context.WithCancel(ctx)
	sets := make(chan *resource.Set) // without a buffer: Dir waits until a Set is taken
	ended := make(chan error, 1)
	go func() {
		ended <- s.under.Run(ctx, func(set *resource.Set) {
			select {
			case sets <- set:
			case <-ctx.Done():
			}
		})
	}()
	k := &keeper{source: s, emit: emit, states: map[string]*state{}, meters: map[string]*meter{}}
	err, over := k.run(ctx, sets, ended)
	cancel()
	if !over {
		err = errors.Join(err, <-ended)
	}
	if s.store != nil {
		s.store.release()
	}
	return err
}

// keeper is what one Run knows.
type keeper struct {
	source *Source
	emit   func(*resource.Set)
	// set is the newest of the files, emitted what became of it; nil if that has to be made anew.
	set, emitted *resource.Set
	states       map[string]*state
	meters       map[string]*meter
	// refused are the objects that Rollouts would make invalid.
	refused map[string]refusal
	// short is what objects cannot express of the routings that are laid over them.
	short map[string][]rollout.Told
	// loaded says that states are the file's; leads that this process may decide.
	loaded, leads bool
	// mute keeps an error of the file from being told again and again.
	mute string
}

func (k *keeper) run(ctx context.Context, sets <-chan *resource.Set, ended <-chan error) (err error, over bool) {
	timer := time.NewTimer(0)
	timer.Stop()
	defer timer.Stop()
	for {
		var reply func()
		select {
		case <-ctx.Done():
			return nil, over
		case err := <-ended:
			if err != nil {
				return err, true
			}
			over, ended = true, nil // what it gave is still served
			continue
		case k.set = <-sets:
			k.emitted = nil
		case <-k.source.wake:
		case <-timer.C:
		case r := <-k.source.commands:
			err := k.carryOut(r.Command)
			reply = func() { r.done <- err } // after the decisions, so that who asked sees them
		}
		if k.set != nil {
			again := k.turn(time.Now())
			if timer.Stop(); again > 0 {
				timer.Reset(again)
			}
		}
		if reply != nil {
			reply()
		}
	}
}

// turn decides on all Rollouts and gives the Set on, if it changed. It returns after which time to do it again; zero is
// not before something happens.
func (k *keeper) turn(now time.Time) (again time.Duration) {
	all := dialect.List.In(k.set)
	if len(all) == 0 && !k.loaded {
		if k.emitted == nil {
			k.emitted = k.set
			k.emit(k.set)
		}
		return 0
	}
	if !k.lead() {
		again = follow
	} else {
		next := time.Time{}
		for _, r := range all {
			if t := k.decide(r, now); !t.IsZero() && (next.IsZero() || t.Before(next)) {
				next = t
			}
		}
		k.forget(all)
		if !next.IsZero() {
			again = max(next.Sub(now), time.Millisecond)
		}
		k.save() // before what was decided takes effect
	}
	if k.emitted == nil {
		k.show(all) // before the set is served, so that whoever sees it served finds them
		k.lay(all, now)
	}
	if k.measure(all, now) && (again == 0 || again > measure) {
		again = measure
	}
	k.show(all)
	return again
}

// lead reports whether this process decides. One that does not takes over what the other one has written.
func (k *keeper) lead() bool {
	store := k.source.store
	if k.leads {
		return true
	}
	if store == nil {
		k.leads, k.loaded = true, true
		return true
	}
	ok, err := store.acquire()
	if err != nil {
		k.complain("what is known of Rollouts is not kept over a restart", err)
		k.leads, k.loaded = true, true
		k.source.store = nil
		return true
	}
	before := routings(k.states)
	states, err := store.load()
	if err != nil {
		k.complain("what was known of Rollouts is lost", err)
	}
	k.states = states
	if !k.loaded || before != routings(states) {
		k.emitted = nil
	}
	k.loaded, k.leads = true, ok
	return ok
}

func routings(states map[string]*state) string {
	all := make(map[string]*rollout.Routing, len(states))
	for key, st := range states {
		all[key] = st.Routing
	}
	text, _ := json.Marshal(all)
	return string(text)
}

func (k *keeper) complain(message string, err error) {
	if k.mute != err.Error() {
		k.mute = err.Error()
		k.source.log.Warn(message, "error", err, "fix", "name a file that can be written with --rollout-state")
	}
}

func (k *keeper) save() {
	store := k.source.store
	if store == nil {
		return
	}
	if err := store.save(k.states); err != nil {
		k.complain("what is known of Rollouts is not kept over a restart", err)
		return
	}
	k.mute = ""
}

func id(r *rollouts.Rollout) string { return r.Namespace + "/" + r.Name }

// forget drops what is known of Rollouts that are gone: what they laid over objects goes with them. Of
// one that is not valid, and was not since the process began, it waits.
func (k *keeper) forget(all []*rollouts.Rollout) {
	for key, st := range k.states {
		namespace, name, _ := strings.Cut(key, "/")
		if _, invalid := k.set.Rejected[resource.Key{Group: rollouts.Group, Kind: "Rollout", Namespace: namespace, Name: name}]; invalid {
			continue
		}
		if !slices.ContainsFunc(all, func(r *rollouts.Rollout) bool { return id(r) == key }) {
			if st.Routing != nil {
				k.emitted = nil
			}
			delete(k.states, key)
		}
	}
}

// decide goes on with one Rollout, as far as it goes without waiting. It returns when to go on.
func (k *keeper) decide(r *rollouts.Rollout, now time.Time) time.Time {
	st := k.states[id(r)]
	if st == nil {
		st = &state{}
		k.states[id(r)] = st
	}
	if why := rollout.LeftAlone(r); why != "" {
		var event *rollout.Event
		if st.Status, event = rollout.Leave(&st.Status, why); event != nil {
			k.tell(r, st, now, *event)
		}
		return time.Time{}
	}
	for range decisions {
		facts, stable := k.observe(r, st, now)
		before := st.Status
		out := rollout.Decide(facts)
		st.Status = out.Status
		if no, refused := k.refused[id(r)]; refused {
			no.obstruct(&st.Status)
		}
		st.record(&before, now)
		k.tell(r, st, now, out.Events...)
		if a := out.Action; a != nil && a.Do == rollout.Route {
			plan := r.Spec.Strategy.Plan()
			st.Routing = rollout.RoutingFor(plan, a.Want)
			k.emitted = nil
			delete(k.refused, id(r)) // of the step before
			delete(k.short, id(r))
			delete(k.meters, id(r)) // what came before says nothing of this step
			if a.Want > 0 {
				k.tell(r, st, now, rollout.ShortEvents(newOverlay(k.set, k.source.providers).lay(r, st.Routing), a.Want)...)
			}
		}
		if c := st.Status.Condition(rollouts.ConditionSucceeded); st.active() && st.Status.Phase == rollouts.PhaseHealthy && c != nil && c.Status == "True" && st.Status.Revision() == st.Update.Name {
			st.settle(stable)
			continue
		}
		if soon := !out.Again.IsZero() && !out.Again.After(now); !soon && reflect.DeepEqual(before, st.Status) {
			return out.Again
		}
	}
	k.tell(r, st, now, rollout.Event{Reason: "Stuck", Warning: true, Message: "The release makes no progress. This is a defect of Weir."})
	return now.Add(time.Minute)
}

// observe gathers the facts of a Rollout.
func (k *keeper) observe(r *rollouts.Rollout, st *state, now time.Time) (f rollout.Facts, stable []string) {
	copied := *r
	copied.Status = st.Status
	copied.Spec.Strategy.Paused = r.Spec.Strategy.Paused || st.Paused
	f = rollout.Facts{Rollout: &copied, Now: now}
	f.Workload = &rollout.Workload{Settled: true, Given: true, Generation: r.Generation}
	f.Traffic = rollout.Traffic{Given: true}
	plan := r.Spec.Strategy.Plan()
	if plan == nil || plan.Traffic() == nil {
		return f, nil
	}
	stable, stableReady := endpoints(k.set, r.Namespace, plan.Traffic().Service)
	var canary []string
	var ready int32
	if plan.CanaryService() != plan.Traffic().Service {
		canary, ready = endpoints(k.set, r.Namespace, plan.CanaryService())
	}
	complete := st.observe(stable, canary)
	if st.Abort != "" { // it may have been forgotten just now
		copied.Annotations = maps.Clone(r.Annotations)
		if copied.Annotations == nil {
			copied.Annotations = map[string]string{}
		}
		copied.Annotations[rollout.AbortAnnotation] = st.Abort
	}
	w := f.Workload
	w.Stable, w.Update = st.Stable.Name, st.Stable.Name
	if st.Update != nil {
		w.Update = st.Update.Name
	}
	w.Replicas, w.Updated, w.Ready, w.StableReady = int32(max(len(stable), len(canary))), int32(len(canary)), ready, stableReady
	w.Complete = complete || !st.active()
	if complete {
		st.skip(plan)
		copied.Status = st.Status
	}
	t := &f.Traffic
	t.Missing = newOverlay(k.set, k.source.providers).missing(r)
	for want := rollout.WantNew; int(want) <= len(plan.Steps); want++ {
		if equal(rollout.RoutingFor(plan, want), st.Routing) {
			t.Carried = append(t.Carried, want)
		}
	}
	if rel := copied.Status.Release(); rel != nil && slices.Contains(t.Carried, rollout.Want(rel.CurrentStepIndex)) {
		t.Short, t.ShortOf = k.short[id(r)], rollout.Want(rel.CurrentStepIndex)
	}
	_, refused := k.refused[id(r)]
	t.Settled = k.emitted != nil && k.source.applied.Load() == k.emitted && !refused
	return f, stable
}

// equal compares routings by their meaning: what was stored has lost the difference between empty and missing.
func equal(a, b *rollout.Routing) bool {
	if a == nil || b == nil {
		return a == b
	}
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}

// lay gives the Set on with what Rollouts lay over it.
func (k *keeper) lay(all []*rollouts.Rollout, now time.Time) {
	o := newOverlay(k.set, k.source.providers)
	k.short = map[string][]rollout.Told{}
	for _, r := range all {
		st := k.states[id(r)]
		if st == nil || st.Routing == nil {
			continue
		}
		plan := r.Spec.Strategy.Plan()
		if plan == nil || plan.Traffic() == nil {
			continue
		}
		if canary, _ := endpoints(k.set, r.Namespace, plan.CanaryService()); len(canary) == 0 {
			continue // nobody would answer there
		}
		k.short[id(r)] = rollout.Short(o.lay(r, st.Routing))
	}
	set, refused := o.laid()
	before := k.refused
	k.refused = refused
	for _, r := range all {
		if no, is := refused[id(r)]; is && no != before[id(r)] && k.leads {
			st := k.states[id(r)]
			st.Status = rollout.CopyStatus(st.Status) // Views have the one before
			k.tell(r, st, now, rollout.Event{Reason: "ChangeRefused", Warning: true, Message: no.obstruct(&st.Status)})
		}
	}
	k.emitted = set
	k.emit(set)
}

func (k *keeper) tell(r *rollouts.Rollout, st *state, now time.Time, events ...rollout.Event) {
	st.tell(now, events...)
	for _, e := range events {
		level := slog.LevelInfo
		if e.Warning {
			level = slog.LevelWarn
		}
		k.source.log.Log(context.Background(), level, "rollout", "object", id(r), "event", e.Message)
	}
}
