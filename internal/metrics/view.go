package metrics

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	api "github.com/weirmesh/weir/api/metrics"
	"github.com/weirmesh/weir/internal/telemetry"
)

// view is traffic as an index sees it. What was observed at a place is what counts there. Only where nobody observed a
// direction of its traffic, it is made up of what the other sides observed, and so counts once.
type view struct {
	index *Index
	rows  []row
	// observed are the places, by ID, at which traffic was observed: what they received and what they sent.
	observed [2][]bool
}

type row struct {
	*Traffic
	at, peer *place // nil if nothing is known of them
}

// The indexes of view.observed.
const (
	received = 0
	sent     = 1
)

func (t *Traffic) direction() int {
	if t.Out {
		return sent
	}
	return received
}

// newView has what a Store answered.
func (x *Index) newView(all []Traffic) *view {
	v := &view{index: x, rows: make([]row, 0, len(all)), observed: [2][]bool{make([]bool, len(x.places)), make([]bool, len(x.places))}}
	for i := range all {
		t := &all[i]
		if t.Success == 0 && t.Failure == 0 {
			continue
		}
		r := row{t, x.resolve(t.At), x.resolve(t.Peer)}
		if r.at != nil {
			v.observed[t.direction()][r.at.id] = true
		}
		v.rows = append(v.rows, r)
	}
	// Traffic that was observed at a place was observed at those that may be it.
	for _, observed := range v.observed {
		for _, p := range x.places {
			observed[p.id] = observed[p.id] || slices.ContainsFunc(p.either, func(q *place) bool { return observed[q.id] })
		}
	}
	return v
}

// addSent adds what was sent of another answer.
func (v *view) addSent(all []Traffic) {
	for i := range all {
		if t := &all[i]; t.Out {
			v.rows = append(v.rows, row{t, v.index.resolve(t.At), v.index.resolve(t.Peer)})
		}
	}
}

// silent are the sides of objects at which nobody observed what they received.
func (v *view) silent(all []*object) (sides []telemetry.Side) {
	known := make([]bool, len(v.index.places))
	for _, o := range all {
		for _, p := range o.places {
			if !known[p.id] && !v.observed[received][p.id] {
				known[p.id] = true
				sides = append(sides, p.sides...)
			}
		}
	}
	return sides
}

// told reports whether a row says what its Peer received or sent, which nobody observed there. A sidecar says so only of its
// own namespace: whoever may run a pod in another one is not to make up what others' autoscalers go by.
func (v *view) told(r *row) bool {
	return r.peer != nil && !v.observed[1-r.direction()][r.peer.id] && (r.At.Kind != telemetry.KindSidecar || r.At.Namespace == r.peer.namespace)
}

// receivedBy is what each place received, by its ID.
func (v *view) receivedBy() [][]*Traffic {
	out := make([][]*Traffic, len(v.index.places))
	for i := range v.rows {
		r := &v.rows[i]
		if !r.Out && r.at != nil {
			out[r.at.id] = append(out[r.at.id], r.Traffic)
		}
		if r.Out && v.told(r) {
			out[r.peer.id] = append(out[r.peer.id], r.Traffic)
		}
	}
	return out
}

// edge is a direction of an object's traffic, and with whom.
type edge struct {
	direction api.Direction
	reference corev1.ObjectReference
}

func (e edge) compare(f edge) int {
	a, b := e.reference, f.reference
	return cmp.Or(strings.Compare(string(e.direction), string(f.direction)), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Kind, b.Kind),
		strings.Compare(a.Name, b.Name), strings.Compare(a.APIVersion, b.APIVersion))
}

// othersOf are those that an object exchanged traffic with, in terms of objects of a kind, by what they are reported as.
func (v *view) othersOf(o *object, kind int) map[telemetry.Side][]other {
	known := map[telemetry.Side][]other{}
	v.exchanged(o, func(_ api.Direction, s telemetry.Side, _ *Traffic) {
		if _, ok := known[s]; !ok {
			known[s] = v.index.others(s, kind)
		}
	})
	return known
}

// edgesOf is the traffic of an object by the others that it was with.
func (v *view) edgesOf(o *object, others map[telemetry.Side][]other) map[edge][]*Traffic {
	out := map[edge][]*Traffic{}
	v.exchanged(o, func(d api.Direction, s telemetry.Side, t *Traffic) {
		for _, w := range others[s] {
			e := edge{d, w.reference}
			out[e] = append(out[e], t)
		}
	})
	return out
}

// exchanged calls a function for each part of an object's traffic, with its direction and the other side.
func (v *view) exchanged(o *object, each func(api.Direction, telemetry.Side, *Traffic)) {
	member := make([]bool, len(v.index.places))
	for _, p := range o.places {
		member[p.id] = true
	}
	for i := range v.rows {
		r := &v.rows[i]
		own, inverse := api.From, api.To
		if r.Out {
			own, inverse = api.To, api.From
		}
		if r.at != nil && member[r.at.id] {
			each(own, r.Peer, r.Traffic)
		}
		if r.peer != nil && member[r.peer.id] && v.told(r) {
			each(inverse, r.At, r.Traffic)
		}
	}
}

// most bounds counts, so that those of two can be added.
const most = math.MaxInt64

// summing adds traffic up; it is used for one sum after another.
type summing struct {
	success, failure uint64
	durations        uint64
	latency          telemetry.LatencySum
}

func (s *summing) add(all []*Traffic) {
	for _, t := range all {
		s.success = min(s.success+min(t.Success, most), most)
		s.failure = min(s.failure+min(t.Failure, most), most)
		if n := t.Latency.Count(); n <= most-s.durations {
			s.durations += n
			s.latency.Add(t.Latency)
		}
	}
}

// measured is the sum, and timed is whether it has durations, which together took so long. The next one begins at zero.
func (s *summing) measured() (m api.Measured, timed bool, took time.Duration) {
	l := s.latency.Latency()
	m = api.Measured{Success: s.success, Failure: s.failure, P50: l.Quantile(0.5), P90: l.Quantile(0.9), P99: l.Quantile(0.99)}
	timed = s.durations > 0
	s.success, s.failure, s.durations = 0, 0, 0
	return m, timed, l.Sum()
}
