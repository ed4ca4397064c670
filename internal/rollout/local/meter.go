package local

import (
	"reflect"
	"slices"
	"time"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/rollout"
	"github.com/weirmesh/weir/internal/rollout/view"
)

const (
	// measure is how often requests are counted while something is released.
	measure = time.Second
	// window is over how much time they are shown.
	window = 30 * time.Second
)

// meter has counts of the requests that came to the two Services of a Rollout, at moments of the window in which one routing was
// in force, the oldest first.
type meter struct {
	routing *rollout.Routing
	samples []sample
}

type sample struct {
	time           time.Time
	stable, canary uint64
}

// add takes a sample, not sooner than measure after the last one. Counts that fall are those of another configuration, and
// begin anew.
func (m *meter) add(s sample) {
	if n := len(m.samples); n > 0 {
		last := m.samples[n-1]
		if s.time.Sub(last.time) < measure {
			return
		}
		if s.stable < last.stable || s.canary < last.canary {
			m.samples = m.samples[:0]
		}
	}
	m.samples = append(m.samples, s)
	if first := slices.IndexFunc(m.samples, func(old sample) bool { return s.time.Sub(old.time) <= window }); first > 0 {
		m.samples = slices.Delete(m.samples, 0, first)
	}
}

// measured is what came in the window; nil if there is nothing to compare.
func (m *meter) measured() *view.Measured {
	if m == nil || len(m.samples) < 2 {
		return nil
	}
	first, last := m.samples[0], m.samples[len(m.samples)-1]
	return &view.Measured{Stable: last.stable - first.stable, Canary: last.canary - first.canary, Seconds: last.time.Sub(first.time).Seconds()}
}

// measure counts the requests of Rollouts that are releasing something, and reports whether there are any.
func (k *keeper) measure(all []*rollouts.Rollout, now time.Time) (some bool) {
	if k.source.Requests == nil {
		return false
	}
	for _, r := range all {
		st, plan := k.states[id(r)], r.Spec.Strategy.Plan()
		if st == nil || st.Routing == nil || plan == nil || plan.Traffic() == nil || k.emitted == nil || k.source.applied.Load() != k.emitted {
			continue
		}
		some = true
		m := k.meters[id(r)]
		if m == nil {
			m = &meter{}
			k.meters[id(r)] = m
		}
		if !reflect.DeepEqual(m.routing, st.Routing) {
			m.routing, m.samples = st.Routing, nil
		}
		m.add(k.sample(r, plan, now))
	}
	for key := range k.meters {
		if st := k.states[key]; st == nil || st.Routing == nil {
			delete(k.meters, key)
		}
	}
	return some
}

// sample counts what the routes that the Rollout names have sent to its Services. A split counts whichever route led to
// it.
func (k *keeper) sample(r *rollouts.Rollout, plan *rollouts.Plan, now time.Time) sample {
	s := sample{time: now}
	stable, canary := r.Namespace+"/"+plan.Traffic().Service, r.Namespace+"/"+plan.CanaryService()
	for _, t := range rollout.Targets(&r.Spec.Strategy) {
		if k.set.Object(resource.Key{Group: t.Group, Kind: t.Kind, Namespace: r.Namespace, Name: t.Name}) == nil {
			continue
		}
		route := r.Namespace + "/" + t.Name
		if t.Kind == "TrafficSplit" {
			s.stable, s.canary = k.source.Requests("", stable), k.source.Requests("", canary)
			break
		}
		s.stable += k.source.Requests(route, stable)
		s.canary += k.source.Requests(route, canary)
	}
	return s
}
