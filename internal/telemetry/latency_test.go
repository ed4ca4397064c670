package telemetry

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestEveryDurationLiesInTheBucketThatCountsIt(t *testing.T) {
	check := func(d time.Duration) {
		i := bucketOf(d)
		low, high := bucketBounds(i)
		if i == latencyBuckets-1 {
			if d <= low {
				t.Fatalf("%d ns is counted above %d ns", d, low)
			}
			return
		}
		if d <= low && d > 0 || d > high {
			t.Fatalf("%d ns is counted in bucket %d, (%d, %d]", d, i, low, high)
		}
	}
	for i := range latencyBuckets {
		low, high := bucketBounds(i)
		for _, d := range []time.Duration{low, low + 1, high - 1, high, high + 1} {
			check(d)
		}
	}
	for range 100_000 {
		check(time.Duration(math.Exp(rand.Float64() * math.Log(5e12))))
	}
	for _, d := range []time.Duration{0, -1, math.MinInt64, math.MaxInt64} {
		bucketOf(d)
	}
}

func TestBucketsFollowEachOtherWithoutGaps(t *testing.T) {
	last := time.Duration(0)
	for i := range latencyBuckets - 1 {
		low, high := bucketBounds(i)
		if low != last || high <= low {
			t.Fatalf("bucket %d is (%d, %d], the one before ends at %d", i, low, high, last)
		}
		if low >= firstSegment && float64(high-low) > 0.0626*float64(low) {
			t.Fatalf("bucket %d, (%d, %d], is too wide", i, low, high)
		}
		last = high
	}
	if want := 1000 * time.Second; last != want {
		t.Fatalf("the buckets end at %v, want %v", last, want)
	}
}

func TestClassicBoundsAreEdgesOfFineBuckets(t *testing.T) {
	for _, bound := range classicBounds {
		if _, high := bucketBounds(bucketOf(bound)); high != bound {
			t.Errorf("%v lies inside a bucket that ends at %v", bound, high)
		}
	}
}

func TestQuantilesAgreeWithTheSortedDurations(t *testing.T) {
	distributions := map[string]func() float64{
		"uniform":     func() float64 { return 1e5 + rand.Float64()*1e7 },
		"exponential": func() float64 { return 1e5 + rand.ExpFloat64()*1e6 },
		"log-normal":  func() float64 { return math.Exp(math.Log(3e5) + rand.NormFloat64()) },
		"bimodal": func() float64 {
			if rand.IntN(50) == 0 {
				return 2e8 + rand.Float64()*1e7
			}
			return 2e5 + rand.Float64()*1e5
		},
	}
	for name, draw := range distributions {
		t.Run(name, func(t *testing.T) {
			x := New().Exchange(ExchangeLabels{Route: "a/b"})
			var all []time.Duration
			for i := range 20_000 {
				d := time.Duration(draw())
				all = append(all, d)
				x.Observe(uint32(i), 200, d, 0, 0)
			}
			slices.Sort(all)
			l := x.Snapshot().Latency
			for _, q := range []float64{0, 0.01, 0.25, 0.5, 0.9, 0.99, 0.999, 1} {
				want := all[max(0, int(math.Ceil(q*float64(len(all))))-1)]
				got := l.Quantile(q)
				if low, high := bucketBounds(bucketOf(want)); got < low || got > high {
					t.Errorf("quantile %v = %v, want %v (in %v to %v)", q, got, want, low, high)
				}
			}
		})
	}
}

func TestQuantileOfNothingIsZero(t *testing.T) {
	if q := (Latency{}).Quantile(0.99); q != 0 {
		t.Fatalf("quantile = %v", q)
	}
}
