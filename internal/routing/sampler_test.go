package routing

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/test/size"
)

// mirrorOf compiles a configuration with one mirror.
func mirrorOf(t testing.TB, numerator, denominator uint32) *Mirror {
	t.Helper()
	table, err := Compile(&model.Config{Routes: []model.Route{{Rules: []model.Rule{{
		Matches: []model.Match{{Path: model.PathMatch{Type: model.Prefix, Value: "/"}}},
		Filters: model.Filters{Mirrors: []model.Mirror{{Numerator: numerator, Denominator: denominator}}},
	}}}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return table.Mirrors()[0]
}

// ruleOf compiles a configuration with one rule whose backends have the weights.
func ruleOf(t testing.TB, weights ...uint32) *Rule {
	t.Helper()
	rule := model.Rule{Matches: []model.Match{{Path: model.PathMatch{Type: model.Prefix, Value: "/"}}}}
	for _, w := range weights {
		rule.Backends = append(rule.Backends, model.Backend{Weight: w})
	}
	table, err := Compile(&model.Config{Routes: []model.Route{{Rules: []model.Rule{rule}}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return table.Rules()[0]
}

// upTo returns a number from 1 to a million, of every magnitude alike.
func upTo(r *rand.Rand) uint32 {
	limit := 1
	for range 1 + r.IntN(6) {
		limit *= 10
	}
	return uint32(1 + r.IntN(limit))
}

func TestExactlyNumeratorOfEveryDenominatorAreSampled(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	fractions := [][2]uint32{{0, 1}, {1, 1}, {0, 100}, {100, 100}, {1, 2}, {1, 3}, {2, 3}, {42, 100}, {5, 1000}, {1, 1_000_000}, {999_999, 1_000_000}}
	for range size.Of(6, 60) {
		d := upTo(r)
		fractions = append(fractions, [2]uint32{uint32(r.IntN(int(d) + 1)), d})
	}
	for _, f := range fractions {
		n, d := f[0], f[1]
		m := mirrorOf(t, n, d)
		for block := range 1 + min(20, 100_000/d) {
			var hits uint32
			for range d {
				if m.Sample() {
					hits++
				}
			}
			if hits != n {
				t.Errorf("block %d of %d/%d: %d sampled", block, n, d, hits)
			}
		}
	}
}

func TestExactlyTheWeightsAreDrawnInEveryBlock(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	vectors := [][]uint32{{1}, {0, 7, 0}, {1, 1}, {90, 10}, {70, 30, 0}, {1_000_000, 1}, {500_000, 250_000, 250_000}, {1, 1_000_000, 999_999}}
	for range size.Of(3, 25) {
		v := make([]uint32, 1+r.IntN(16))
		for i := range v {
			if r.IntN(6) > 0 {
				v[i] = upTo(r)
			}
		}
		vectors = append(vectors, v)
	}
	if !testing.Short() {
		vectors = append(vectors, []uint32{1_000_000, 999_999, 999_998, 999_997})
	}
	for _, weights := range vectors {
		var sum, divisor uint64
		for _, w := range weights {
			sum += uint64(w)
			divisor = naiveGCD(divisor, uint64(w))
		}
		if sum == 0 {
			continue
		}
		rule := ruleOf(t, weights...)
		for block := range 1 + min(20, 50_000/(sum/divisor)) {
			drawn := make([]uint64, len(weights))
			for range sum / divisor {
				drawn[rule.Pick().ID]++
			}
			for i, w := range weights {
				if drawn[i] != uint64(w)/divisor {
					t.Errorf("block %d of %v: backend %d drawn %d times, want %d", block, weights, i, drawn[i], uint64(w)/divisor)
				}
			}
		}
	}
}

func naiveGCD(a, b uint64) uint64 {
	if b == 0 {
		return a
	}
	return naiveGCD(b, a%b)
}

func TestNothingIsDrawnWithoutWeight(t *testing.T) {
	for _, weights := range [][]uint32{nil, {0}, {0, 0, 0}} {
		if b := ruleOf(t, weights...).Pick(); b != nil {
			t.Errorf("weights %v: drew %+v", weights, b)
		}
	}
}

func TestAllOrNothingNeedsNoCounter(t *testing.T) {
	for _, f := range [][2]uint32{{0, 1}, {1, 1}, {0, 100}, {100, 100}} {
		if mirrorOf(t, f[0], f[1]).fraction.sampler != nil {
			t.Errorf("%d/%d has a counter", f[0], f[1])
		}
	}
	if ruleOf(t, 0, 5).split.sampler != nil {
		t.Error("a sole backend has a counter")
	}
}

func TestSamplingIsExactAcrossGoroutines(t *testing.T) {
	const goroutines, each = 16, 7500
	for _, f := range [][2]uint32{{42, 100}, {5, 1000}, {1, 3}, {11_111, 40_000}} {
		m, rule := mirrorOf(t, f[0], f[1]), ruleOf(t, f[0], f[1]-f[0])
		var mu sync.Mutex
		var sampled, first uint32
		var wg sync.WaitGroup
		for range goroutines {
			wg.Go(func() {
				var hits, picks uint32
				for range each {
					if m.Sample() {
						hits++
					}
					if rule.Pick().ID == 0 {
						picks++
					}
				}
				mu.Lock()
				defer mu.Unlock()
				sampled += hits
				first += picks
			})
		}
		wg.Wait()
		if want := goroutines * each / f[1] * f[0]; sampled != want || first != want {
			t.Errorf("%d/%d: sampled %d, drawn %d, want %d", f[0], f[1], sampled, first, want)
		}
	}
}

func TestEveryBlockIsAPermutation(t *testing.T) {
	for size := uint64(2); size < 300; size++ {
		s := newKeyedSampler(size, [2]uint64{size, 9})
		for block := range uint64(50) {
			seen := make([]bool, size)
			for place := range size {
				x := s.permute(block, place)
				if x >= size || seen[x] {
					t.Fatalf("size %d, block %d: %d twice or out of range", size, block, x)
				}
				seen[x] = true
			}
		}
	}
}

// chiSquare fails the test when the counts are further from uniform than chance explains: mean + 5 standard deviations
// of the chi-square distribution. The keys are fixed, so that the outcome is.
func chiSquare(t *testing.T, what string, counts map[string]int, cells int) {
	t.Helper()
	total := 0
	for _, n := range counts {
		total += n
	}
	expected := float64(total) / float64(cells)
	sum := float64(cells-len(counts)) * expected
	for _, n := range counts {
		sum += (float64(n) - expected) * (float64(n) - expected) / expected
	}
	df := float64(cells - 1)
	if limit := df + 5*math.Sqrt(2*df); sum > limit {
		t.Errorf("%s: chi-square %.0f, limit %.0f", what, sum, limit)
	}
}

func TestOrdersOfSmallBlocksAreEquallyLikely(t *testing.T) {
	for size, orders := range map[uint64]int{2: 2, 3: 6, 4: 24, 5: 120, 6: 720} {
		s := newKeyedSampler(size, [2]uint64{11, 12})
		counts := map[string]int{}
		for block := range uint64(200 * orders) {
			order := ""
			for place := range size {
				order += fmt.Sprint(s.permute(block, place))
			}
			counts[order]++
		}
		chiSquare(t, fmt.Sprint("orders of ", size), counts, orders)
	}
}

func TestPlacesInABlockAreUnpredictable(t *testing.T) {
	const size, blocks = 100, 20_000
	a, b := newKeyedSampler(size, [2]uint64{21, 22}), newKeyedSampler(size, [2]uint64{21, 23})
	// hit is the place at which a fraction of 1/100 samples.
	hit := func(s *sampler, block, x uint64) uint64 {
		for place := range uint64(size) {
			if s.permute(block, place) == x {
				return place
			}
		}
		t.Fatal("not a permutation")
		return 0
	}
	places, steps, gaps, others := map[string]int{}, map[string]int{}, map[string]int{}, map[string]int{}
	var last uint64
	for block := range uint64(blocks) {
		first, second, other := hit(a, block, 0), hit(a, block, 1), hit(b, block, 0)
		places[fmt.Sprint(first)]++
		steps[fmt.Sprint((first+size-last)%size)]++
		gaps[fmt.Sprint((first+size-second)%size)]++
		others[fmt.Sprint((first+size-other)%size)]++
		last = first
	}
	chiSquare(t, "place of a sample", places, size)
	chiSquare(t, "distance from the block before", steps, size)
	chiSquare(t, "distance of two samples in a block", gaps, size-1)
	chiSquare(t, "distance from another sampler's", others, size)
}

func TestSamplersOfEqualFractionsDiffer(t *testing.T) {
	a, b := mirrorOf(t, 1, 2), mirrorOf(t, 1, 2)
	for range 10_000 {
		if a.Sample() != b.Sample() {
			return
		}
	}
	t.Error("two samplers agree on 10,000 requests")
}
