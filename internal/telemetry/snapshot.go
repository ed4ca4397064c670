package telemetry

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Snapshot is the state of all counters at a moment, or what happened between two (Since). It is for programs that
// show or judge traffic; slices are sorted by their labels.
type Snapshot struct {
	Time time.Time
	// Interval is zero for a state, the time between the two for a difference.
	Interval   time.Duration
	Generation uint64
	Exchanges  []ExchangeSnapshot
	Mirrors    []MirrorSnapshot
}

// ExchangeSnapshot is the counts of a series of exchanges.
type ExchangeSnapshot struct {
	ExchangeLabels
	Requests uint64
	// Codes and Reasons are sorted.
	Codes             []CodeCount
	Reasons           []ReasonCount
	Retries           uint64
	BytesIn, BytesOut uint64
	Latency           Latency

	series *Exchange // tells a series from a later one with the same labels
}

// CodeCount is how often a status was answered; Code 0 is no answer.
type CodeCount struct {
	Code  int
	Count uint64
}

// ReasonCount is how often exchanges failed for a reason.
type ReasonCount struct {
	Reason Reason
	Count  uint64
}

// MirrorSnapshot is the counts of a mirror.
type MirrorSnapshot struct {
	MirrorLabels
	// Considered requests met the filter, Selected ones were to be copied.
	Considered, Selected uint64
	// Sent, Dropped and Failed count finished copies by outcome. Copies in flight are in none of them.
	Sent, Dropped, Failed uint64
	// Outcomes are the outcomes that occurred, in the order of the constants.
	Outcomes []OutcomeCount

	series *Mirror
}

// OutcomeCount is how often copies ended in one way.
type OutcomeCount struct {
	Outcome MirrorOutcome
	Count   uint64
}

// Snapshot is the state of all series now. Series without counts are left out.
func (r *Registry) Snapshot() Snapshot {
	all := r.series()
	s := Snapshot{Time: time.Now(), Generation: r.generation.Load()}
	for _, x := range all.exchanges {
		if x.shards.used() {
			s.Exchanges = append(s.Exchanges, x.Snapshot())
		}
	}
	for _, m := range all.mirrors {
		if m.shards.used() {
			s.Mirrors = append(s.Mirrors, m.Snapshot())
		}
	}
	return s
}

// RequestsTo is how many requests a route ("namespace/name"; empty is any) has sent to a service ("namespace/name", on any
// of its ports), by the series that there are now.
func (r *Registry) RequestsTo(route, service string) (n uint64) {
	r.mu.Lock()
	all := r.exchanges.shown(time.Now())
	r.mu.Unlock()
	for _, x := range all {
		rest, ok := strings.CutPrefix(x.labels.Backend, service)
		if !ok || !strings.HasPrefix(rest, ":") || route != "" && x.labels.Route != route {
			continue
		}
		x.shards.each(func(s *exchangeShard) {
			count := func(_ int, m uint64) { n += m }
			s.first.each(count)
			s.codes.each(count)
		})
	}
	return n
}

// Snapshot is the state of the series now.
func (x *Exchange) Snapshot() ExchangeSnapshot {
	out := ExchangeSnapshot{ExchangeLabels: x.labels, series: x}
	codes := map[int]uint64{}
	var failures [len(reasons)]uint64
	var sum LatencySum
	x.shards.each(func(s *exchangeShard) {
		count := func(status int, n uint64) { codes[status] += n }
		s.first.each(count)
		s.codes.each(count)
		s.latency.addTo(&sum)
		sum.nanos += s.nanos.Load()
		out.BytesIn += s.in.Load()
		out.BytesOut += s.out.Load()
		out.Retries += s.retries.Load()
		if f := s.failures.Load(); f != nil {
			for i := range f {
				failures[i] += f[i].Load()
			}
		}
	})
	out.Latency = sum.Latency()
	for code, n := range codes {
		if n > 0 { // a slot may have been claimed and not yet counted
			out.Codes = append(out.Codes, CodeCount{code, n})
			out.Requests += n
		}
	}
	slices.SortFunc(out.Codes, func(a, b CodeCount) int { return cmp.Compare(a.Code, b.Code) })
	for i, n := range failures {
		if n > 0 {
			out.Reasons = append(out.Reasons, ReasonCount{reasons[i].reason, n})
		}
	}
	slices.SortFunc(out.Reasons, func(a, b ReasonCount) int { return cmp.Compare(a.Reason, b.Reason) })
	return out
}

// Snapshot is the state of the series now.
func (m *Mirror) Snapshot() MirrorSnapshot {
	out := MirrorSnapshot{MirrorLabels: m.labels, series: m}
	var outcomes [numMirrorOutcomes]uint64
	// The later events of a copy's life are read first, so that the counts never show more finished copies than
	// selected ones, or more selected ones than considered ones.
	m.shards.each(func(s *mirrorShard) {
		for i := range s.outcomes {
			outcomes[i] += s.outcomes[i].Load()
		}
	})
	m.shards.each(func(s *mirrorShard) { out.Selected += s.selected.Load() })
	m.shards.each(func(s *mirrorShard) { out.Considered += s.considered.Load() })
	for i, n := range outcomes {
		if n > 0 {
			out.Outcomes = append(out.Outcomes, OutcomeCount{MirrorOutcome(i), n})
		}
	}
	out.sum()
	return out
}

// sum fills Sent, Dropped and Failed from Outcomes.
func (m *MirrorSnapshot) sum() {
	m.Sent, m.Dropped, m.Failed = 0, 0, 0
	for _, o := range m.Outcomes {
		switch {
		case o.Outcome == MirrorSent:
			m.Sent += o.Count
		case o.Outcome.Dropped():
			m.Dropped += o.Count
		case o.Outcome.Failed():
			m.Failed += o.Count
		}
	}
}

// Since returns the counts after prev, an earlier snapshot of the same registry. Series without new counts stay in,
// with zeros.
func (s Snapshot) Since(prev Snapshot) Snapshot {
	out := Snapshot{Time: s.Time, Interval: s.Time.Sub(prev.Time), Generation: s.Generation}
	exchanges := make(map[*Exchange]*ExchangeSnapshot, len(prev.Exchanges))
	for i := range prev.Exchanges {
		exchanges[prev.Exchanges[i].series] = &prev.Exchanges[i]
	}
	for _, x := range s.Exchanges {
		if p := exchanges[x.series]; p != nil {
			x = x.Since(*p)
		}
		out.Exchanges = append(out.Exchanges, x)
	}
	mirrors := make(map[*Mirror]*MirrorSnapshot, len(prev.Mirrors))
	for i := range prev.Mirrors {
		mirrors[prev.Mirrors[i].series] = &prev.Mirrors[i]
	}
	for _, m := range s.Mirrors {
		if p := mirrors[m.series]; p != nil {
			m = m.Since(*p)
		}
		out.Mirrors = append(out.Mirrors, m)
	}
	return out
}

// Since returns the counts of the series after prev, an earlier snapshot of it.
func (x ExchangeSnapshot) Since(prev ExchangeSnapshot) ExchangeSnapshot {
	x.Requests -= prev.Requests
	x.Retries -= prev.Retries
	x.BytesIn -= prev.BytesIn
	x.BytesOut -= prev.BytesOut
	x.Latency = x.Latency.Minus(prev.Latency)
	x.Codes = subtract(x.Codes, prev.Codes, func(c *CodeCount) (int, *uint64) { return c.Code, &c.Count })
	x.Reasons = subtract(x.Reasons, prev.Reasons, func(c *ReasonCount) (Reason, *uint64) { return c.Reason, &c.Count })
	return x
}

// Since returns the counts of the series after prev, an earlier snapshot of it.
func (m MirrorSnapshot) Since(prev MirrorSnapshot) MirrorSnapshot {
	m.Considered -= prev.Considered
	m.Selected -= prev.Selected
	m.Outcomes = subtract(m.Outcomes, prev.Outcomes, func(c *OutcomeCount) (MirrorOutcome, *uint64) { return c.Outcome, &c.Count })
	m.sum()
	return m
}

// Total is the sum of all exchanges, without labels.
func (s Snapshot) Total() ExchangeSnapshot {
	var out ExchangeSnapshot
	var sum LatencySum
	for _, x := range s.Exchanges {
		out.Requests += x.Requests
		out.Retries += x.Retries
		out.BytesIn += x.BytesIn
		out.BytesOut += x.BytesOut
		sum.Add(x.Latency)
		out.Codes = add(out.Codes, x.Codes, func(c *CodeCount) (int, *uint64) { return c.Code, &c.Count })
		out.Reasons = add(out.Reasons, x.Reasons, func(c *ReasonCount) (Reason, *uint64) { return c.Reason, &c.Count })
	}
	out.Latency = sum.Latency()
	return out
}

// Success is the part (0..1) of the requests that were not answered with 5xx. Requests without an answer, because the
// client left, are not considered. It is 1 if there are none.
func (x ExchangeSnapshot) Success() float64 {
	var answered, failed uint64
	for _, c := range x.Codes {
		if c.Code == 0 {
			continue
		}
		answered += c.Count
		if c.Code >= 500 {
			failed += c.Count
		}
	}
	if answered == 0 {
		return 1
	}
	return 1 - float64(failed)/float64(answered)
}

// subtract takes b's counts from a's, by key, and leaves out those that become zero.
func subtract[C any, K cmp.Ordered](a, b []C, of func(*C) (K, *uint64)) []C {
	var out []C
	for _, c := range a {
		key, n := of(&c)
		for i := range b {
			if k, m := of(&b[i]); k == key {
				*n -= *m
			}
		}
		if *n > 0 {
			out = append(out, c)
		}
	}
	return out
}

// add adds b's counts to a's, by key, and keeps the order of the keys.
func add[C any, K cmp.Ordered](a, b []C, of func(*C) (K, *uint64)) []C {
	for _, c := range b {
		key, n := of(&c)
		at, found := slices.BinarySearchFunc(a, key, func(e C, key K) int {
			k, _ := of(&e)
			return cmp.Compare(k, key)
		})
		if !found {
			a = slices.Insert(a, at, c)
			continue
		}
		_, m := of(&a[at])
		*m += *n
	}
	return a
}
