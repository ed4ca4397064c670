package telemetry

import "time"

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

// ExchangeSnapshot is what a series of exchanges counted.
type ExchangeSnapshot struct {
	ExchangeLabels
	Requests uint64
	// Codes and Reasons are sorted.
	Codes             []CodeCount
	Reasons           []ReasonCount
	Retries           uint64
	BytesIn, BytesOut uint64
	Latency           Latency
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

// MirrorSnapshot is what a mirror counted.
type MirrorSnapshot struct {
	MirrorLabels
	// Considered requests met the filter, Selected ones were to be copied.
	Considered, Selected uint64
	// Sent, Dropped and Failed are how copies ended; those in flight are in none.
	Sent, Dropped, Failed uint64
	// Outcomes are those that occurred, in the order of the constants.
	Outcomes []OutcomeCount
}

// OutcomeCount is how often copies ended in one way.
type OutcomeCount struct {
	Outcome MirrorOutcome
	Count   uint64
}

// Snapshot is the state of all series now.
func (r *Registry) Snapshot() Snapshot { return Snapshot{Time: time.Now()} }

// Snapshot is the state of the series now.
func (x *Exchange) Snapshot() ExchangeSnapshot { return ExchangeSnapshot{ExchangeLabels: x.labels} }

// Snapshot is the state of the series now.
func (m *Mirror) Snapshot() MirrorSnapshot { return MirrorSnapshot{MirrorLabels: m.labels} }

// Since is what happened after prev, an earlier snapshot of the same registry.
func (s Snapshot) Since(prev Snapshot) Snapshot { return s }

// Total is the sum of all exchanges, without labels.
func (s Snapshot) Total() ExchangeSnapshot { return ExchangeSnapshot{} }

// Success is the part (0..1) of the requests that were not answered with 5xx; those without an answer, because the
// client went away, are left aside. It is 1 when there are none.
func (x ExchangeSnapshot) Success() float64 { return 1 }
