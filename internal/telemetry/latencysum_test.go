package telemetry

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"
)

// dense is a Latency as the naive form has it: a count for each bucket.
type dense struct {
	counts [allBuckets]uint64
	nanos  uint64
}

func (d *dense) latency() Latency {
	out := Latency{nanos: d.nanos}
	for i, n := range d.counts {
		if n > 0 {
			out.buckets = append(out.buckets, bucketCount{uint16(i), n})
			out.total += n
		}
	}
	return out
}

func (d dense) with(e dense, f func(a, b uint64) uint64) dense {
	for i := range d.counts {
		d.counts[i] = f(d.counts[i], e.counts[i])
	}
	d.nanos = f(d.nanos, e.nanos)
	return d
}

// randomDense has no, few or all buckets, fine ones or any.
func randomDense(r *rand.Rand) (d dense) {
	buckets := []int{latencyBuckets, allBuckets}[r.IntN(2)]
	for range []int{0, 1, 5, 60, 2000}[r.IntN(5)] {
		d.counts[r.IntN(buckets)] += 1 + r.Uint64N(1<<r.IntN(40))
		d.nanos += r.Uint64N(1 << 40)
	}
	return d
}

// TestDurationsAreThoseOfANaiveForm, whatever is done to them.
func TestDurationsAreThoseOfANaiveForm(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var sum LatencySum
	for range 2000 {
		d, e := randomDense(r), randomDense(r)
		l, m := d.latency(), e.latency()
		plus := d.with(e, func(a, b uint64) uint64 { return a + b })
		minus := d.with(e, func(a, b uint64) uint64 { return a - min(a, b) })
		check := func(what string, got Latency, want Latency) {
			t.Helper()
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("%s:\n%v\n%v:\ngot  %v\nwant %v", what, l, m, got, want)
			}
		}
		check("plus", l.Plus(m), plus.latency())
		check("minus", l.Minus(m), minus.latency())
		sum.Add(l)
		sum.Add(m)
		check("sum", sum.Latency(), plus.latency())
		b := m.AppendCompact(l.AppendCompact(nil))
		if rest := sum.AddCompact(sum.AddCompact(append(b, 7))); len(rest) != 1 || rest[0] != 7 {
			t.Fatalf("%v is left", rest)
		}
		check("sum of compact ones", sum.Latency(), plus.latency())
		wire, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		var read Latency
		if err := json.Unmarshal(wire, &read); err != nil {
			t.Fatal(err)
		}
		check("wire", read, l)
		check("operands", l, d.latency())
	}
}

// histogramQuantile is that of Prometheus, for cumulative counts of upper bounds of which the last is +Inf.
func histogramQuantile(q float64, bounds []float64, below []uint64) float64 {
	rank := q * float64(below[len(below)-1])
	b := slices.IndexFunc(below, func(n uint64) bool { return float64(n) >= rank })
	if b == len(bounds)-1 {
		return bounds[b-1]
	}
	start, n := 0.0, float64(below[b])
	if b > 0 {
		start = bounds[b-1]
		n -= float64(below[b-1])
		rank -= float64(below[b-1])
	}
	return start + (bounds[b]-start)*rank/n
}

// TestQuantilesOfClassicBucketsAreThoseOfPrometheus, also of sums of them.
func TestQuantilesOfClassicBucketsAreThoseOfPrometheus(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var bounds []float64
	for _, b := range classicBounds {
		bounds = append(bounds, b.Seconds())
	}
	bounds = append(bounds, math.Inf(1))
	for range 500 {
		below := make([]uint64, len(bounds))
		var sum Latency
		for range 1 + r.IntN(5) {
			of := map[float64]uint64{}
			n := uint64(0)
			for i, bound := range bounds {
				if r.IntN(3) == 0 {
					n += r.Uint64N(1 << r.IntN(12))
				}
				of[bound] = n
				below[i] += n
			}
			sum = sum.Plus(ClassicLatency(of, 0))
		}
		total := below[len(below)-1]
		if sum.Count() != total {
			t.Fatalf("%d durations, want %d", sum.Count(), total)
		}
		if total == 0 {
			continue
		}
		for _, q := range []float64{0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 1} {
			got, want := sum.Quantile(q).Seconds(), histogramQuantile(q, bounds, below)
			if math.Abs(got-want) > 1e-6*want+2e-9 {
				t.Fatalf("quantile %v of %v is %v, want %v", q, below, got, want)
			}
		}
	}
}

// TestQuantilesAtTheEndOfABucket: it is there, and not in the next one that is not empty.
func TestQuantilesAtTheEndOfABucket(t *testing.T) {
	for i, end := range classicBounds {
		for next := i + 1; next <= len(classicBounds); next++ {
			for n := uint64(1); n < 100; n += 7 {
				l := Latency{buckets: []bucketCount{{uint16(latencyBuckets + i), n}, {uint16(latencyBuckets + next), n}}, total: 2 * n}
				if got := l.Quantile(0.5); got != end {
					t.Fatalf("half of %d up to %v is %v", 2*n, end, got)
				}
			}
		}
	}
}

func TestClassicBucketsOfAnotherVersion(t *testing.T) {
	// 0.003 is not among ours, and 0.005 is missing.
	got := ClassicLatency(map[float64]uint64{0.001: 1, 0.0025: 3, 0.003: 4, 0.01: 10, math.Inf(1): 12}, 0)
	if got.Count() != 12 {
		t.Errorf("%d durations", got.Count())
	}
	if q := got.Quantile(10.0 / 12); q != 10*time.Millisecond {
		t.Errorf("10 of 12 take at most %v", q)
	}
	if q := got.Quantile(1); q != 50*time.Second {
		t.Errorf("all take at most %v", q)
	}
	// What is not cumulative, as no histogram is, counts nothing twice.
	if got := ClassicLatency(map[float64]uint64{0.001: 5, 0.0025: 3, math.Inf(1): 4}, 0); got.Count() != 5 {
		t.Errorf("%d durations", got.Count())
	}
}
