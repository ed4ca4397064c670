package telemetry

import (
	"encoding/binary"
	"math"
	"time"
)

// LatencySum adds up distributions of durations, without allocating. The zero value is none. It takes 4 KB: use one for
// many sums.
type LatencySum struct {
	counts [allBuckets]uint64
	// From low to before high there are counts, of which used are not 0.
	low, high int
	used      int
	nanos     uint64
}

func (s *LatencySum) add(bucket int, n uint64) {
	if s.low == s.high {
		s.low, s.high = bucket, bucket+1
	}
	s.low, s.high = min(s.low, bucket), max(s.high, bucket+1)
	if s.counts[bucket] == 0 && n != 0 {
		s.used++
	}
	s.counts[bucket] += n
}

// Add adds durations.
func (s *LatencySum) Add(l Latency) {
	for _, b := range l.buckets {
		s.add(int(b.bucket), b.n)
	}
	s.nanos += l.nanos
}

// AddCompact adds what AppendCompact wrote at the beginning of b, and returns what follows it.
func (s *LatencySum) AddCompact(b []byte) (rest []byte) {
	next := func() uint64 {
		if b[0] < 0x80 { // nearly all
			v := b[0]
			b = b[1:]
			return uint64(v)
		}
		v, n := binary.Uvarint(b)
		b = b[n:]
		return v
	}
	s.nanos += next()
	bucket := -1
	for range next() {
		bucket += int(next())
		s.add(bucket, next())
	}
	return b
}

// Latency returns the sum, and begins a new one.
func (s *LatencySum) Latency() Latency {
	out := Latency{nanos: s.nanos}
	if s.used > 0 {
		out.buckets = make([]bucketCount, 0, s.used)
	}
	for i := s.low; i < s.high; i++ {
		if n := s.counts[i]; n != 0 {
			out.buckets = append(out.buckets, bucketCount{uint16(i), n})
			out.total += n
			s.counts[i] = 0
		}
	}
	s.low, s.high, s.used, s.nanos = 0, 0, 0, 0
	return out
}

// AppendCompact appends l in a form that takes two or three bytes for each bucket that is not empty, for programs that
// keep many of them. LatencySum reads it.
func (l Latency) AppendCompact(b []byte) []byte {
	b = binary.AppendUvarint(b, l.nanos)
	b = binary.AppendUvarint(b, uint64(len(l.buckets)))
	last := -1
	for _, c := range l.buckets {
		b = binary.AppendUvarint(b, uint64(int(c.bucket)-last))
		b = binary.AppendUvarint(b, c.n)
		last = int(c.bucket)
	}
	return b
}

// Plus are the durations of both. Neither changes.
func (l Latency) Plus(m Latency) Latency {
	out := Latency{total: l.total + m.total, nanos: l.nanos + m.nanos}
	if len(l.buckets)+len(m.buckets) > 0 {
		out.buckets = make([]bucketCount, 0, max(len(l.buckets), len(m.buckets)))
	}
	a, b := l.buckets, m.buckets
	for len(a) > 0 && len(b) > 0 {
		switch x, y := a[0], b[0]; {
		case x.bucket < y.bucket:
			out.buckets, a = append(out.buckets, x), a[1:]
		case x.bucket > y.bucket:
			out.buckets, b = append(out.buckets, y), b[1:]
		default:
			out.buckets, a, b = append(out.buckets, bucketCount{x.bucket, x.n + y.n}), a[1:], b[1:]
		}
	}
	out.buckets = append(append(out.buckets, a...), b...)
	return out
}

// Minus are the durations of l that an earlier state of it did not have. What the other has and l has not, because the two
// are states of different things, is left out.
func (l Latency) Minus(earlier Latency) Latency {
	out := Latency{nanos: l.nanos - min(l.nanos, earlier.nanos)}
	before := earlier.buckets
	for _, c := range l.buckets {
		for len(before) > 0 && before[0].bucket < c.bucket {
			before = before[1:]
		}
		if len(before) > 0 && before[0].bucket == c.bucket {
			c.n -= min(c.n, before[0].n)
		}
		if c.n > 0 {
			out.buckets = append(out.buckets, c)
			out.total += c.n
		}
	}
	return out
}

// ClassicLatency makes durations of a histogram with buckets of the exposition: below maps upper bounds in seconds,
// +Inf among them, to how many durations do not exceed them. It ignores bounds that the exposition has not; durations
// between two of which the exposition has one in between count below the higher one. sum is how long they are together;
// 0 if that is not known.
func ClassicLatency(below map[float64]uint64, sum time.Duration) (out Latency) {
	out.nanos = uint64(max(sum, 0))
	seen := uint64(0)
	take := func(i int, bound float64) {
		if n := below[bound]; n > seen {
			out.buckets = append(out.buckets, bucketCount{uint16(latencyBuckets + i), n - seen})
			seen = n
		}
	}
	for i, bound := range classicBounds {
		take(i, bound.Seconds())
	}
	take(len(classicBounds), math.Inf(1))
	out.total = seen
	return out
}

// coarseQuantile is Quantile for buckets of the exposition among others: it spreads them over the fine ones.
func (l Latency) coarseQuantile(rank float64) time.Duration {
	var counts [latencyBuckets]float64
	highest := time.Duration(0)
	for _, b := range l.buckets {
		coarse := int(b.bucket) - latencyBuckets
		switch {
		case coarse < 0:
			counts[b.bucket] += float64(b.n)
		case coarse == len(classicBounds): // no more is known than that they are above
			highest = classicBounds[coarse-1]
		default:
			low, high := time.Duration(0), classicBounds[coarse]
			if coarse > 0 {
				low = classicBounds[coarse-1]
			}
			for i := bucketOf(low + 1); i <= bucketOf(high); i++ {
				from, to := bucketBounds(i)
				counts[i] += float64(b.n) * float64(to-from) / float64(high-low)
			}
		}
	}
	seen := 0.0
	for i, n := range counts {
		if n == 0 {
			continue
		}
		low, high := bucketBounds(i)
		if seen+n >= rank*rounding { // the parts of a bucket may add up to less than it
			return low + time.Duration(math.Round(max(0, min(1, (rank-seen)/n))*float64(high-low)))
		}
		seen += n
		highest = max(highest, high)
	}
	return highest
}
