package telemetry

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// Latencies are counted in fine buckets that nest exactly into the coarse ones of the exposition. A segment lies
// between two of 1, 2.5 and 5 times a power of ten and is cut into equal buckets of at most a sixteenth of its lower
// end, so a quantile is known within about 3 %. Buckets include their upper bound, as Prometheus' "le" does.
const (
	firstSegment   = 10 * time.Microsecond
	startBuckets   = 16 // the linear start
	decades        = 8  // to 1000 s
	decadeBuckets  = 24 + 20 + 16
	latencyBuckets = startBuckets + decades*decadeBuckets + 1 // and the durations above
)

// segment is a range of equal buckets: first + (v-low)/width, for low <= v < high, v being a duration less 1 ns.
type segment struct {
	low, high, width uint64
	first            uint32
}

// segments is the start and three a decade; segmentOf is the first one that may hold a value of so many bits.
var segments, segmentOf = func() (s []segment, of [65]uint8) {
	next := uint32(0)
	add := func(low, high, buckets uint64) {
		s = append(s, segment{low: low, high: high, width: (high - low) / buckets, first: next})
		next += uint32(buckets)
	}
	unit := uint64(firstSegment)
	add(0, unit, startBuckets)
	for range decades {
		add(unit, unit*5/2, 24)
		add(unit*5/2, unit*5, 20)
		add(unit*5, unit*10, 16)
		unit *= 10
	}
	for n := range of {
		smallest := uint64(0)
		if n > 0 {
			smallest = 1 << (n - 1)
		}
		for int(of[n]) < len(s)-1 && s[of[n]].high <= smallest {
			of[n]++
		}
	}
	return s, of
}()

// bucketOf is the index of the bucket that holds d.
func bucketOf(d time.Duration) int {
	if d <= 0 {
		return 0
	}
	v := uint64(d) - 1
	for at := int(segmentOf[bits.Len64(v)]); at < len(segments); at++ {
		if s := &segments[at]; v < s.high {
			return int(s.first) + int((v-s.low)/s.width)
		}
	}
	return latencyBuckets - 1
}

// bucketBounds is the range (low, high] of a bucket; the last has no upper bound and high is its lower one.
func bucketBounds(i int) (low, high time.Duration) {
	if i >= latencyBuckets-1 {
		last := segments[len(segments)-1].high
		return time.Duration(last), time.Duration(last)
	}
	at := len(segments) - 1
	for int(segments[at].first) > i {
		at--
	}
	s := segments[at]
	l := s.low + (uint64(i)-uint64(s.first))*s.width
	return time.Duration(l), time.Duration(l + s.width)
}

// latencyPage is the counts of a decade, or of the durations below the first or above the last decade. A series only
// has the pages that it needs, which are few.
type latencyPage [64]atomic.Uint64

// commonDecade is the page of 100 us to 1 ms, from where on most latencies are. Its pointer comes first.
const commonDecade = 2

// pageOf is the index in latencyCounts of the page of a bucket, and its place there.
func pageOf(bucket int) (page, at int) {
	switch {
	case bucket < startBuckets:
		at = bucket
	case bucket == latencyBuckets-1:
		at = startBuckets
	default:
		bucket -= startBuckets
		page, at = 1+bucket/decadeBuckets, bucket%decadeBuckets
	}
	if page -= commonDecade; page < 0 {
		page += 1 + decades
	}
	return page, at
}

// latencyCounts counts durations.
type latencyCounts [1 + decades]atomic.Pointer[latencyPage]

// bucket is the counter that d belongs to.
func (c *latencyCounts) bucket(d time.Duration) *atomic.Uint64 {
	page, at := pageOf(bucketOf(d))
	return &load(&c[page])[at]
}

// addTo adds the counts to l, but not their sum.
func (c *latencyCounts) addTo(l *Latency) {
	if l.counts == nil {
		l.counts = make([]uint64, latencyBuckets)
	}
	for i := range l.counts {
		page, at := pageOf(i)
		p := c[page].Load()
		if p == nil {
			continue
		}
		if n := p[at].Load(); n != 0 {
			l.counts[i] += n
			l.total += n
		}
	}
}

// Latency is a distribution of durations that were counted.
type Latency struct {
	counts []uint64 // by bucket; nil if all are 0
	total  uint64
	nanos  uint64
}

// Count is how many durations there are.
func (l Latency) Count() uint64 { return l.total }

// Quantile is the duration that a part q (0..1) of them does not exceed, within about 3 %; 0 when there are none.
// Durations above 1000 s count as 1000 s.
func (l Latency) Quantile(q float64) time.Duration {
	if l.total == 0 {
		return 0
	}
	rank := max(0, min(1, q)) * float64(l.total)
	seen := uint64(0)
	for i, n := range l.counts {
		if n == 0 {
			continue
		}
		if float64(seen+n) >= rank {
			low, high := bucketBounds(i)
			part := max(0, (rank-float64(seen))/float64(n))
			return low + time.Duration(part*float64(high-low))
		}
		seen += n
	}
	low, _ := bucketBounds(latencyBuckets - 1)
	return low
}

// add adds the durations of m.
func (l *Latency) add(m Latency) {
	if m.counts == nil {
		return
	}
	if l.counts == nil {
		l.counts = make([]uint64, latencyBuckets)
	}
	for i, n := range m.counts {
		l.counts[i] += n
	}
	l.total += m.total
	l.nanos += m.nanos
}

// since is l without the durations of an earlier state.
func (l Latency) since(prev Latency) Latency {
	if prev.counts == nil || l.counts == nil {
		return l
	}
	out := Latency{counts: make([]uint64, latencyBuckets), nanos: l.nanos - prev.nanos}
	for i, n := range l.counts {
		out.counts[i] = n - prev.counts[i]
		out.total += out.counts[i]
	}
	return out
}
