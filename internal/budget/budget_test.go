package budget

import (
	"math"
	"math/rand/v2"
	"sync"
	"testing"
)

func TestEachUseHasItsShare(t *testing.T) {
	b := New(800)
	for u, share := range map[Use]int64{Mirror: 400, Head: 600, Retry: 700, Exchange: 800} {
		if b.Draw(u, share+1) || !b.Draw(u, share) || b.Draw(u, 1) {
			t.Errorf("%v does not have %d", u, share)
		}
		b.Give(share)
	}
	// What others have drawn counts.
	if !b.Draw(Head, 600) || b.Draw(Mirror, 1) || !b.Draw(Exchange, 200) {
		t.Error("shares are not of the whole")
	}
	b.Force(1000)
	if b.Drawn() != 1800 || b.Draw(Exchange, 1) {
		t.Errorf("%d drawn", b.Drawn())
	}
	b.Give(1800)
	if b.Drawn() != 0 || b.Limit() != 800 {
		t.Errorf("%d of %d drawn", b.Drawn(), b.Limit())
	}
	b.Refuse(Retry)
	if b.Refused(Retry) != 1 || b.Refused(Head) != 0 || Retry.String() != "retry" {
		t.Error("refusals are not counted")
	}
}

func TestWithoutABoundAllIsCounted(t *testing.T) {
	b := New(0)
	if !b.Draw(Mirror, math.MaxInt64/4) || b.Limit() != 0 || b.Drawn() != math.MaxInt64/4 {
		t.Errorf("%d of %d drawn", b.Drawn(), b.Limit())
	}
}

// However many draw at the same time, no use ever has more than its share.
func TestTheBoundHoldsForAllAtOnce(t *testing.T) {
	b := New(8000)
	var wg sync.WaitGroup
	for u := range Uses {
		for seed := range 4 {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(uint64(u), uint64(seed)))
				held := []int64{}
				for range 20000 {
					if n := 1 + r.Int64N(900); b.Draw(u, n) {
						held = append(held, n)
					}
					if d := b.Drawn(); d > 8000 || d < 0 {
						t.Errorf("%d drawn", d)
						return
					}
					if len(held) > 0 && r.IntN(2) == 0 {
						i := r.IntN(len(held))
						b.Give(held[i])
						held[i] = held[len(held)-1]
						held = held[:len(held)-1]
					}
				}
				for _, n := range held {
					b.Give(n)
				}
			})
		}
	}
	wg.Wait()
	if b.Drawn() != 0 {
		t.Errorf("%d left", b.Drawn())
	}
}

// A cover never has less than is used, nor much more, and in the end nothing.
func TestACoverFollowsWhatIsUsed(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	c := NewCover(1000, 100)
	for range 100_000 {
		used := r.Int64N(5000)
		c.Drew(c.Lacks(used))
		if c.Lacks(used) != 0 || used > 1000+c.Drawn() {
			t.Fatalf("%d used, %d drawn", used, c.Drawn())
		}
		c.Spare(used)
		if c.Lacks(used) != 0 || used > 0 && c.Drawn() > max(used-1000, 0)+300 {
			t.Fatalf("%d used, %d drawn", used, c.Drawn())
		}
	}
	before := c.Drawn()
	if n := c.Spare(0); n != before || c.Drawn() != 0 {
		t.Errorf("%d of %d given back", n, before)
	}
	if c.Lacks(1000) != 0 || c.Lacks(1001) != 100 {
		t.Error("what is free is drawn for")
	}
}
