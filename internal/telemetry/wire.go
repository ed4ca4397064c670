package telemetry

import (
	"encoding/json"
	"fmt"
	"math"
	"time"
)

// Report is what a proxy tells of its edges: a state since it began, from which what happened between two reports can be
// told. Its JSON is what proxies and stores exchange.
type Report struct {
	// Began tells one run of the proxy from the next: with another value, all counts began again at zero.
	Began time.Time `json:"began"`
	// Time is when the report was made.
	Time time.Time `json:"time"`
	// Edges are sorted by their labels.
	Edges []EdgeSnapshot `json:"edges"`
}

// latencyWire is a Latency in a report: the buckets that are not empty, as pairs of index and count.
type latencyWire struct {
	Nanos   uint64      `json:"nanos"`
	Buckets [][2]uint64 `json:"buckets"`
}

// MarshalJSON implements json.Marshaler.
func (l Latency) MarshalJSON() ([]byte, error) {
	w := latencyWire{Nanos: l.nanos, Buckets: [][2]uint64{}}
	for i, n := range l.counts {
		if n > 0 {
			w.Buckets = append(w.Buckets, [2]uint64{uint64(i), n})
		}
	}
	return json.Marshal(w)
}

// UnmarshalJSON implements json.Unmarshaler. It refuses buckets that there are not, those that come twice, and counts
// that together are too many to be counted.
func (l *Latency) UnmarshalJSON(b []byte) error {
	var w latencyWire
	if err := json.Unmarshal(b, &w); err != nil {
		return err
	}
	out := Latency{nanos: w.Nanos}
	for _, p := range w.Buckets {
		i, n := p[0], p[1]
		if i >= latencyBuckets {
			return fmt.Errorf("there is no bucket %d of durations", i)
		}
		if out.counts == nil {
			out.counts = make([]uint64, latencyBuckets)
		}
		if out.counts[i] != 0 {
			return fmt.Errorf("bucket %d of durations comes twice", i)
		}
		if n > math.MaxUint64-out.total {
			return fmt.Errorf("the durations are too many to be counted")
		}
		out.counts[i] = n
		out.total += n
	}
	*l = out
	return nil
}

// Plus are the durations of both. Neither changes.
func (l Latency) Plus(m Latency) Latency {
	var out Latency
	out.add(l)
	out.add(m)
	return out
}

// Minus are the durations of l that an earlier state of it did not have. What the other has and l has not, because the two
// are states of different things, is left out.
func (l Latency) Minus(earlier Latency) Latency {
	out := Latency{nanos: l.nanos - min(l.nanos, earlier.nanos)}
	for i, n := range l.counts {
		if earlier.counts != nil {
			n -= min(n, earlier.counts[i])
		}
		if n == 0 {
			continue
		}
		if out.counts == nil {
			out.counts = make([]uint64, latencyBuckets)
		}
		out.counts[i] = n
		out.total += n
	}
	return out
}

// Report is the state of all edges now.
func (r *Registry) Report() Report {
	return Report{Began: r.began, Time: time.Now(), Edges: r.Edges()}
}
