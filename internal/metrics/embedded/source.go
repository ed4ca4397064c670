package embedded

import (
	"bytes"
	"encoding/binary"
	"iter"
	"slices"
	"time"

	"github.com/weirmesh/weir/internal/telemetry"
)

// source is what is known of one proxy. The Store's lock guards it.
type source struct {
	store *Store
	// began and time are of the newest report, by the proxy's own clock.
	began, time time.Time
	// runs are the beginnings of earlier runs; reports of those are late.
	runs []time.Time
	// states are when the counts were known, oldest first.
	states []state
	// edges are the series of the newest report, and those that states speak of; unused places are in free.
	edges    []edge
	byLabels map[telemetry.EdgeLabels]int32 // of the newest report
	free     []int32
	report   uint32 // counts reports
	// partial is that some series of the newest report are left out, so that one that is unknown need not be new, and
	// shifted that there are more of them since.
	partial, shifted bool
}

// state is a moment at which the counts were known.
type state struct {
	at time.Time
	// zero is that all counts were 0, as the proxy began then.
	zero bool
	// deltas are what was counted since the state before, by edge: its index, the size of the rest, successes, failures
	// and a compact Latency. Edges that counted nothing are not there.
	deltas []byte
}

// edge is a series.
type edge struct {
	labels           telemetry.EdgeLabels
	success, failure uint64
	durations        uint64
	latency          []byte // compact
	report           uint32 // the last one that had it
	live             bool   // it is in byLabels
	states           int32  // how many speak of it
}

// scratch is memory that is used again with each report.
type scratch struct {
	deltas, entry []byte
	sum           telemetry.LatencySum
	rest          [2]rest
	newcomers     []*telemetry.EdgeSnapshot
}

// rest is the traffic of one direction that is counted together.
type rest struct {
	series           int
	success, failure uint64
	latency          telemetry.LatencySum
}

func (r *rest) add(e *telemetry.EdgeSnapshot) {
	r.series++
	r.success += e.Success
	r.failure += e.Failure
	r.latency.Add(e.Latency)
}

const (
	maxRuns  = 16
	maxCount = 1 << 44 // of a series, so that sums of a million do not overflow; with more it is left out
)

func (p *source) newest() time.Time {
	if len(p.states) == 0 {
		return time.Time{}
	}
	return p.states[len(p.states)-1].at
}

// relation is what a report is to the newest one of the same proxy.
type relation int

const (
	late     relation = iota // of before, or the same
	next                     // later, of the same run
	anew                     // all that it has was counted since the newest one, or within the window
	baseline                 // it has counted for longer than is known
)

func (p *source) relate(r *telemetry.Report, now time.Time) relation {
	age, keep := r.Time.Sub(r.Began), p.store.options.Keep
	switch {
	case len(p.states) == 0:
		if age >= 0 && age <= keep {
			return anew
		}
		return baseline
	case r.Began.Equal(p.began):
		if r.Time.After(p.time) || r.Time.Before(p.time) && p.grew(r) {
			return next
		}
		return late
	case slices.ContainsFunc(p.runs, r.Began.Equal):
		return late
	case age <= max(keep, now.Sub(p.newest())):
		return anew // a restart
	}
	return baseline // another proxy has got the name
}

// grew reports whether the counts of a report are no less than those known, and not all the same: then it is a later one,
// whatever its time says, because a clock was set back.
func (p *source) grew(r *telemetry.Report) (more bool) {
	found := 0
	for i := range r.Edges {
		e := &r.Edges[i]
		at, ok := p.byLabels[e.EdgeLabels]
		if !ok {
			more = true
			continue
		}
		found++
		known := &p.edges[at]
		if e.Success < known.success || e.Failure < known.failure {
			return false
		}
		more = more || e.Success > known.success || e.Failure > known.failure
	}
	return more && found == len(p.byLabels)
}

// add takes the next report.
func (p *source) add(r telemetry.Report, now time.Time) {
	is := p.relate(&r, now)
	if is == late || is == next && now.Sub(p.newest()) < p.store.options.Interval/10 {
		return
	}
	if is == anew && len(p.states) == 0 {
		p.states = append(p.states, state{at: now.Add(-r.Time.Sub(r.Began)), zero: true})
	}
	if is != next {
		if !p.began.IsZero() {
			if p.runs = append(p.runs, p.began); len(p.runs) > maxRuns {
				p.runs = p.runs[1:]
			}
		}
		for at := range p.edges {
			p.retire(int32(at))
		}
		p.partial, p.shifted = false, false
	}
	p.began, p.time = r.Began, r.Time
	p.states = append(p.states, state{at: now, deltas: p.deltas(&r, is, now)})
	p.prune(now)
}

// deltas are what the report has beyond the state before.
func (p *source) deltas(r *telemetry.Report, is relation, now time.Time) []byte {
	s := &p.store.scratch
	s.deltas, s.newcomers = s.deltas[:0], s.newcomers[:0]
	p.report++
	for i := range r.Edges {
		e := &r.Edges[i]
		at, known := p.byLabels[e.EdgeLabels]
		switch {
		case max(e.Success, e.Failure, e.Latency.Count()) > maxCount:
		case e.EdgeLabels == telemetry.OtherEdge(e.Out):
			s.rest[direction(e.Out)].add(e)
		case !known:
			s.newcomers = append(s.newcomers, e)
		case p.edges[at].report != p.report:
			p.count(at, e, sinceBefore)
		}
	}
	for at := range p.edges {
		if e := &p.edges[at]; e.live && e.report != p.report && e.labels != telemetry.OtherEdge(e.labels.Out) {
			p.retire(int32(at)) // dropped; if it comes again, it counts from zero
		}
	}
	partial, shifted := p.partial, p.shifted
	p.partial, p.shifted = false, false
	admitted := p.store.admit(p, s.newcomers, now)
	how := sinceZero
	if is == baseline || partial { // what was left out is unknown, but not new
		how = notAtAll
	}
	for i, e := range s.newcomers {
		if i >= admitted {
			s.rest[direction(e.Out)].add(e)
		} else if _, twice := p.byLabels[e.EdgeLabels]; !twice {
			p.count(p.place(e.EdgeLabels), e, how)
		}
	}
	p.partial = p.partial || admitted < len(s.newcomers)
	p.countRest(is, shifted || partial && admitted > 0)
	return bytes.Clone(s.deltas)
}

// countRest counts what is counted together, under the labels of the other edge; shifted is that it is the sum of other
// series than before.
func (p *source) countRest(is relation, shifted bool) {
	for i := range p.store.scratch.rest {
		rest, labels := &p.store.scratch.rest[i], telemetry.OtherEdge(i == direction(true))
		at, known := p.byLabels[labels]
		how := sinceZero
		switch {
		case shifted || is == baseline:
			how = notAtAll
		case known:
			how = sinceBefore
		}
		switch {
		case rest.series > 0:
			if !known {
				at = p.place(labels)
			}
			e := telemetry.EdgeSnapshot{EdgeLabels: labels, Success: rest.success, Failure: rest.failure, Latency: rest.latency.Latency()}
			p.count(at, &e, how)
			rest.series, rest.success, rest.failure = 0, 0, 0
		case known:
			p.retire(at)
		}
	}
}

// how is from where an edge counts.
type how int

const (
	sinceBefore how = iota
	sinceZero
	notAtAll
)

// count takes the counts of an edge, and appends what it counted to the deltas.
func (p *source) count(at int32, e *telemetry.EdgeSnapshot, from how) {
	k, s := &p.edges[at], &p.store.scratch
	success, failure, latency := e.Success, e.Failure, e.Latency
	changed := k.success != success || k.failure != failure || k.durations != latency.Count()
	// A series that has less than before was dropped, and began again. The rest has less when some of it was dropped.
	fell := success < k.success || failure < k.failure || latency.Count() < k.durations
	if from == sinceBefore && (!fell || e.EdgeLabels == telemetry.OtherEdge(e.Out)) {
		success -= min(success, k.success)
		failure -= min(failure, k.failure)
		if changed {
			s.sum.AddCompact(k.latency)
			latency = latency.Minus(s.sum.Latency())
		} else {
			latency = telemetry.Latency{}
		}
	}
	if from != notAtAll && (success > 0 || failure > 0 || latency.Count() > 0) {
		s.entry = binary.AppendUvarint(s.entry[:0], success)
		s.entry = binary.AppendUvarint(s.entry, failure)
		s.entry = latency.AppendCompact(s.entry)
		s.deltas = binary.AppendUvarint(s.deltas, uint64(at))
		s.deltas = binary.AppendUvarint(s.deltas, uint64(len(s.entry)))
		s.deltas = append(s.deltas, s.entry...)
		k.states++
	}
	if changed || k.report == 0 {
		s.entry = e.Latency.AppendCompact(s.entry[:0])
		k.latency = append(k.latency[:0], s.entry...)
	}
	k.success, k.failure, k.durations, k.report = e.Success, e.Failure, e.Latency.Count(), p.report
}

// place makes a place for an edge that has none.
func (p *source) place(labels telemetry.EdgeLabels) (at int32) {
	if n := len(p.free); n > 0 {
		at, p.free = p.free[n-1], p.free[:n-1]
	} else {
		at = int32(len(p.edges))
		p.edges = append(p.edges, edge{})
	}
	if p.edges[0].labels.At == labels.At {
		labels.At = p.edges[0].labels.At // the same memory
	}
	p.edges[at] = edge{labels: labels, live: true}
	p.byLabels[labels] = at
	p.store.edges++
	p.store.index(labels.At, p, 1)
	p.store.index(labels.Peer, p, 1)
	return at
}

// retire is that the newest report has no such edge. It keeps its place while states speak of it.
func (p *source) retire(at int32) {
	e := &p.edges[at]
	if !e.live {
		return
	}
	delete(p.byLabels, e.labels)
	e.live, e.latency = false, nil
	p.release(at)
}

// release frees the place of an edge that nothing speaks of.
func (p *source) release(at int32) {
	e := &p.edges[at]
	if e.live || e.states > 0 {
		return
	}
	p.store.edges--
	p.store.index(e.labels.At, p, -1)
	p.store.index(e.labels.Peer, p, -1)
	*e = edge{}
	p.free = append(p.free, at)
}

// prune forgets the states that no window needs: it needs one at its beginning, or before, and the deltas of those after.
func (p *source) prune(now time.Time) {
	begin, most := now.Add(-p.store.options.Keep), 16+int(10*p.store.options.Keep/p.store.options.Interval)
	for len(p.states) > 1 && !p.states[1].at.After(begin) || len(p.states) > most {
		p.states = slices.Delete(p.states, 0, 1)
		p.forget(&p.states[0])
	}
}

// forget forgets the deltas of a state.
func (p *source) forget(s *state) {
	for at := range s.entries() {
		p.edges[at].states--
		p.release(at)
	}
	s.deltas = nil
}

// clear gives all edges back.
func (p *source) clear() {
	for i := range p.states {
		p.forget(&p.states[i])
	}
	for at := range p.edges {
		p.retire(int32(at))
	}
}

// entries are the deltas of a state: the index of the edge, and its entry.
func (s *state) entries() iter.Seq2[int32, []byte] {
	return func(yield func(int32, []byte) bool) {
		for b := s.deltas; len(b) > 0; {
			at, n := binary.Uvarint(b)
			size, m := binary.Uvarint(b[n:])
			b = b[n+m:]
			if !yield(int32(at), b[:size:size]) {
				return
			}
			b = b[size:]
		}
	}
}

// counts reads an entry up to its Latency.
func counts(entry []byte) (success, failure uint64, latency []byte) {
	success, n := binary.Uvarint(entry)
	failure, m := binary.Uvarint(entry[n:])
	return success, failure, entry[n+m:]
}

func direction(out bool) int {
	if out {
		return 1
	}
	return 0
}
