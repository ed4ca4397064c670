package pace

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

func TestPaceForgivesNoMoreThanItsGrace(t *testing.T) {
	m := Rule{Rate: 100, Grace: 10 * time.Second}
	type wait struct {
		seconds float64
		bytes   int64
	}
	repeat := func(n int, w wait) (all []wait) {
		for range n {
			all = append(all, w)
		}
		return all
	}
	for name, test := range map[string]struct {
		waits []wait
		left  float64
	}{
		"nothing yet":                      {nil, 10},
		"silence":                          {repeat(1, wait{4, 0}), 6},
		"silence for the grace":            {repeat(5, wait{2, 0}), 0},
		"exactly the rate, for long":       {repeat(1000, wait{1, 100}), 10},
		"half the rate":                    {repeat(10, wait{1, 50}), 5},
		"speed makes up for silence":       {append(repeat(1, wait{8, 0}), wait{0, 800}), 10},
		"in part":                          {append(repeat(1, wait{8, 0}), wait{0, 500}), 7},
		"but earns nothing for later":      {append(repeat(1, wait{0, 1 << 40}), wait{9, 0}), 1},
		"a byte now and then is no pace":   {repeat(3, wait{4, 1}), -1.97},
		"numbers without end do not wrap":  {repeat(3, wait{math.MaxInt64 / 1e9 / 4, math.MaxInt64}), 10},
		"nor does the time that is wasted": {repeat(40, wait{math.MaxInt64 / 1e9 / 4, 0}), 10 - math.MaxInt64/1e9/2},
	} {
		var p Pace
		for _, w := range test.waits {
			p.Waited(m, time.Duration(w.seconds*1e9), w.bytes)
		}
		if got := p.Left(m, time.Hour).Seconds(); math.Abs(got-test.left) > 0.001 {
			t.Errorf("%s: %v s left, want %v", name, got, test.left)
		}
	}
	var p Pace
	scarce := m
	scarce.Scarce = func() bool { return true }
	for wait, left := range map[time.Duration]time.Duration{m.LookAfter() - 1: m.Grace - m.LookAfter() + 1, m.LookAfter(): 0} {
		var p Pace
		if p.Waited(scarce, wait, 0); p.Left(scarce, time.Hour) != left {
			t.Errorf("%s left after %s, want %s", p.Left(scarce, time.Hour), wait, left)
		}
		if p.Left(m, time.Hour) <= m.Grace/2 {
			t.Error("little is left though nobody lacks anything")
		}
	}
	if p.Left(m, time.Second) != time.Second {
		t.Error("more than the most")
	}
	if p.Waited(Rule{}, time.Hour, 0); p.Left(Rule{}, time.Minute) != time.Minute {
		t.Error("a rule though there is none")
	}
}

// However waits and bytes are spread, a client is too slow only if there is a stretch in which it was, by the grace.
func TestPaceIsTheWorstStretch(t *testing.T) {
	m := Rule{Rate: 1000, Grace: time.Second}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var p Pace
		var lag []float64 // of each wait, in ms
		worst := 0.0
		for range 1 + rng.IntN(30) {
			d, n := rng.IntN(400), rng.IntN(500)
			p.Waited(m, time.Duration(d)*time.Millisecond, int64(n))
			lag = append(lag, float64(d-n))
			worst = 0
			sum := 0.0
			for i := len(lag) - 1; i >= 0; i-- {
				sum += lag[i]
				worst = max(worst, sum)
			}
			if got := float64(p.behind) / 1e6; math.Abs(got-worst) > 0.001 {
				t.Fatalf("%v ms behind, want %v", got, worst)
			}
		}
	}
}
