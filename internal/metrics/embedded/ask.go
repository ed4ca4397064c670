package embedded

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/weirmesh/weir/internal/metrics"
	"github.com/weirmesh/weir/internal/telemetry"
)

// Ask implements metrics.Store. It answers for Options.Keep if the question's window is longer, or none.
//
// Proxies are read at different times: of each, the answer has what it counted from the reading that is nearest to the
// window's beginning to its last one. The answer's window is the mean of these. That of a proxy that began in the window
// begins with it, and that of one that has gone ends with it, as there was no traffic without them. If all of them began in
// the window, it begins with the first of them.
func (s *Store) Ask(ctx context.Context, q metrics.Question) (metrics.Answer, error) {
	if err := ctx.Err(); err != nil {
		return metrics.Answer{}, err
	}
	w := window{now: time.Now(), length: q.Window}
	if w.length <= 0 || w.length > s.options.Keep {
		w.length = s.options.Keep
	}
	t := table{sum: q.Sum, rows: map[telemetry.EdgeLabels]*row{}}
	if q.At != nil || q.With != nil {
		t.at, t.with = set(q.At), set(q.With)
	}
	if err := s.collect(&t, &w); err != nil {
		return metrics.Answer{}, err
	}
	// What was collected does not change any more, and is added up without the lock.
	rows := slices.SortedFunc(maps.Values(t.rows), func(a, b *row) int { return a.labels.Compare(b.labels) })
	out := metrics.Answer{Traffic: make([]metrics.Traffic, len(rows))}
	out.Time, out.Window = w.measured()
	var sum telemetry.LatencySum
	for i, r := range rows {
		for _, l := range r.latencies {
			sum.AddCompact(l)
		}
		out.Traffic[i] = metrics.Traffic{EdgeLabels: r.labels, Success: r.success, Failure: r.failure, Latency: sum.Latency()}
	}
	return out, nil
}

func set(sides []telemetry.Side) map[telemetry.Side]bool {
	out := make(map[telemetry.Side]bool, len(sides))
	for _, s := range sides {
		out[s] = true
	}
	return out
}

// collect finds the rows of the answer, and measures the window of the proxies that have some, or of all if none has.
func (s *Store) collect(t *table, w *window) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if len(s.sources) == 0 {
		return errors.New("no proxy has reported its traffic: none is running, or none could be read")
	}
	w.first = w.now
	for _, p := range s.sources {
		if w.now.Sub(p.newest()) <= w.length && p.states[0].at.Before(w.first) {
			w.first = p.states[0].at
		}
	}
	for p := range s.asked(t) {
		if base := s.base(p, w); t.take(p, base) {
			s.measure(p, base, w)
		}
	}
	if w.sources > 0 {
		return nil
	}
	for _, p := range s.sources {
		if base := s.base(p, w); base < len(p.states)-1 {
			s.measure(p, base, w)
		}
	}
	if w.sources == 0 {
		return fmt.Errorf("no proxy has reported its traffic twice of late: try again in %v", s.options.Interval)
	}
	return nil
}

// asked are the sources that have edges of the sides that are asked for.
func (s *Store) asked(t *table) iter.Seq[*source] {
	if t.at == nil {
		return maps.Values(s.sources)
	}
	found := map[*source]bool{}
	for _, sides := range []map[telemetry.Side]bool{t.at, t.with} {
		for side := range sides {
			for p := range s.sides[side] {
				found[p] = true
			}
		}
	}
	return maps.Keys(found)
}

// base is the index of the state that the window begins with for a source. As long as a source is read, the window is at
// least what lies between two readings.
func (s *Store) base(p *source, w *window) (at int) {
	begin := w.now.Add(-w.length)
	for i := range p.states {
		if p.states[i].at.Sub(begin).Abs() < p.states[at].at.Sub(begin).Abs() {
			at = i
		}
	}
	if at > 0 && at == len(p.states)-1 && s.live(p, w.now) {
		at--
	}
	return at
}

// live reports whether a source is being read. One that is not has probably gone.
func (s *Store) live(p *source, now time.Time) bool {
	return now.Sub(p.newest()) <= 2*s.options.Interval+s.options.Timeout
}

func (s *Store) measure(p *source, base int, w *window) {
	begin, end := p.states[base].at, w.now
	if p.states[base].zero {
		begin = w.begin()
	}
	if s.live(p, w.now) {
		end = p.newest()
	}
	w.sources++
	w.ends += w.now.Sub(end)
	w.lengths += end.Sub(begin)
}

// window is the one that is asked for, and the sums of what was measured.
type window struct {
	now    time.Time
	length time.Duration
	// first is since when anything is known of the proxies that were there in the window.
	first   time.Time
	sources int
	// ends are how long before now those of the sources are.
	ends, lengths time.Duration
}

// begin is when the window begins for a proxy that began in it.
func (w *window) begin() time.Time {
	if begin := w.now.Add(-w.length); begin.After(w.first) {
		return begin
	}
	return w.first
}

func (w *window) measured() (end time.Time, length time.Duration) {
	n := time.Duration(w.sources)
	return w.now.Add(-w.ends / n), w.lengths / n
}

// table is the answer in the making.
type table struct {
	sum bool
	// at and with are nil if the question does not restrict its answer.
	at, with map[telemetry.Side]bool
	rows     map[telemetry.EdgeLabels]*row
	ofEdge   []*row // of the source at hand, by the index of its edges
}

type row struct {
	labels           telemetry.EdgeLabels
	success, failure uint64
	latencies        [][]byte // compact
}

// unasked marks edges that the answer leaves out.
var unasked = new(row)

// take adds what a source counted since a state, and reports whether there was anything.
func (t *table) take(p *source, since int) (found bool) {
	t.ofEdge = append(t.ofEdge[:0], make([]*row, len(p.edges))...)
	for i := since + 1; i < len(p.states); i++ {
		for at, entry := range p.states[i].entries() {
			r := t.ofEdge[at]
			if r == nil {
				r = t.row(p.edges[at].labels)
				t.ofEdge[at] = r
			}
			if r == unasked {
				continue
			}
			success, failure, latency := counts(entry)
			r.success += success
			r.failure += failure
			r.latencies = append(r.latencies, latency)
			found = true
		}
	}
	return found
}

func (t *table) row(labels telemetry.EdgeLabels) *row {
	if t.at != nil && !t.at[labels.At] && !t.with[labels.Peer] {
		return unasked
	}
	if t.sum {
		labels = telemetry.EdgeLabels{At: labels.At, Out: labels.Out}
	}
	r := t.rows[labels]
	if r == nil {
		r = &row{labels: labels, latencies: make([][]byte, 0, 8)}
		t.rows[labels] = r
	}
	return r
}
