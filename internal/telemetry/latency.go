package telemetry

import (
	"math"
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

// addTo adds the counts to sum, but not the sum of the durations.
func (c *latencyCounts) addTo(sum *LatencySum) {
	for i := range latencyBuckets {
		page, at := pageOf(i)
		p := c[page].Load()
		if p == nil {
			continue
		}
		if n := p[at].Load(); n != 0 {
			sum.add(i, n)
		}
	}
}

// Latency is a distribution of durations that were counted. It takes 16 bytes for each bucket that is not empty.
type Latency struct {
	buckets []bucketCount // sorted by bucket, none is empty
	total   uint64
	nanos   uint64
}

// bucketCount is how many durations lie in a fine bucket, or, from latencyBuckets on, in one of the exposition.
type bucketCount struct {
	bucket uint16
	n      uint64
}

// allBuckets are the fine buckets, those of the exposition, which stand for durations of which no more is known, and the
// durations above the last of those.
const allBuckets = latencyBuckets + len(classicBounds) + 1

// rounding allows for that of floats, so that a rank at the end of a bucket is not looked for in the next one.
const rounding = 1 - 1e-9

// Count is how many durations there are.
func (l Latency) Count() uint64 { return l.total }

// Sum is how long they are together; less if a sum of them was not known.
func (l Latency) Sum() time.Duration { return time.Duration(min(l.nanos, math.MaxInt64)) }

// Quantile is the duration that a part q (0..1) of them does not exceed, within about 3 %; 0 when there are none.
// Durations above 1000 s count as 1000 s. In a bucket, durations count as evenly spread, as in Prometheus'
// histogram_quantile.
func (l Latency) Quantile(q float64) time.Duration {
	if l.total == 0 {
		return 0
	}
	rank := max(0, min(1, q)) * float64(l.total)
	if last := l.buckets[len(l.buckets)-1].bucket; last >= latencyBuckets {
		return l.coarseQuantile(rank)
	}
	seen := uint64(0)
	for _, b := range l.buckets {
		if float64(seen+b.n) >= rank*rounding {
			low, high := bucketBounds(int(b.bucket))
			return low + time.Duration(max(0, min(1, (rank-float64(seen))/float64(b.n)))*float64(high-low))
		}
		seen += b.n
	}
	low, _ := bucketBounds(latencyBuckets - 1)
	return low
}
