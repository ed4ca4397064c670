package mirror

import (
	"bytes"
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/peertest"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/test/size"
)

func TestLargeCopiesLeaveRoomForSmallOnes(t *testing.T) {
	const most = 8 << 20
	f := newFixture(t, Options{MaxBytes: most, Timeout: time.Minute}, peertest.ToMirror(peertest.Silent(t)))
	s := f.target.service
	piece := make([]byte, 64<<10)
	// Each copy is given up when it has as much as it leaves for others.
	var legs []*Leg
	for n := 1; n <= 4; n++ {
		l, _ := f.Begin(f.target, post("/", lengthBody(64<<20)), 0)
		legs = append(legs, l)
	}
	for full := false; !full; {
		for _, l := range legs {
			l.Write(piece)
			full = full || l.fate.Load() != uint32(telemetry.MirrorPending)
		}
	}
	if q := s.queued.Load(); q > most {
		t.Errorf("%d bytes are queued", q)
	}
	for range 5 {
		l, o := f.Begin(f.target, post("/", lengthBody(200<<10)), 0)
		if l == nil {
			t.Fatal(o)
		}
		for range 4 {
			l.Write(piece[:50<<10])
		}
		if o := telemetry.MirrorOutcome(l.fate.Load()); o != telemetry.MirrorPending {
			t.Errorf("a small copy: %v", o)
		}
		l.End(nil)
		legs = append(legs, l)
	}
	for _, l := range legs {
		l.Abort()
		l.Outcome()
	}
	ctx, cancel := contextCancelled()
	defer cancel()
	f.Close(ctx)
	f.expectIdle(t)
}

func TestCopyQueueGivesWhatItGot(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range size.Of(20, 200) {
		var q copyQueue
		var want, got []byte
		take := func() {
			p, more := q.take()
			got = append(got, p...)
			if len(p) == 0 && len(got) != len(want) || more != (len(got) < len(want)) {
				t.Fatalf("%d of %d bytes taken, more: %t", len(got), len(want), more)
			}
		}
		for range r.IntN(400) {
			if r.IntN(3) == 0 {
				take()
				continue
			}
			p := make([]byte, r.IntN([]int{10, 1000, 100_000}[r.IntN(3)]))
			for i := range p {
				p[i] = byte(r.Uint32())
			}
			q.put(p)
			want = append(want, p...)
		}
		for len(got) < len(want) {
			take()
		}
		if take(); !bytes.Equal(got, want) {
			t.Fatal("other bytes")
		}
		q.put([]byte("rest"))
		q.reset()
		if p, more := q.take(); len(p) > 0 || more {
			t.Fatal("something is left")
		}
	}
}

// TestSmallCopyWaitsForItsPrimary: no worker takes a small copy until its primary was answered, or has taken long.
func TestSmallCopyWaitsForItsPrimary(t *testing.T) {
	handler, got := arrivals(100)
	f := newFixture(t, Options{}, peertest.ToMirror(peertest.Backend(t, handler)))
	whole := func() *Leg {
		l, _ := f.Begin(f.target, post("/", lengthBody(4)), 0)
		l.Write([]byte("body"))
		l.End(nil)
		return l
	}
	carried := &f.target.service.carried
	l := whole()
	if n := carried.Load(); n != 0 {
		t.Errorf("%d copies under way with the primary", n)
	}
	l.Outcome()
	f.wait(t, 1)
	// The primary takes long to answer.
	l = whole()
	f.wait(t, 1)
	if o := l.Outcome(); o != telemetry.MirrorSent {
		t.Errorf("%v", o)
	}
	// Many copies at once do not wait for the clock.
	var all []*Leg
	for range 3 * heldDue {
		all = append(all, whole())
	}
	for _, l := range all {
		l.Outcome()
	}
	f.wait(t, len(all))
	for range 2 + len(all) {
		if a := <-got; a.body != "body" {
			t.Errorf("%q, %v", a.body, a.err)
		}
	}
	f.expect(t, map[telemetry.MirrorOutcome]uint64{telemetry.MirrorSent: uint64(2 + len(all))})
}

// TestHeldCopiesEndInEveryWay: copies that end, abort and are late, in every order, leave nothing behind.
func TestHeldCopiesEndInEveryWay(t *testing.T) {
	f := newFixture(t, Options{MaxInFlight: 4, BreakAfter: -1}, peertest.ToMirror(canned(t)))
	var wg sync.WaitGroup
	for p := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(p), 1))
			for range 100 {
				l, _ := f.Begin(f.target, post("/", chunkedBody), uint32(p))
				if l == nil {
					continue
				}
				l.Write(make([]byte, r.IntN(100)))
				if r.IntN(8) == 0 {
					time.Sleep(time.Duration(r.IntN(100)) * time.Millisecond)
				}
				if r.IntN(4) == 0 {
					l.Abort()
				} else {
					l.End(nil)
				}
				l.Outcome()
			}
		})
	}
	wg.Wait()
	f.Close(context.Background())
	f.expectIdle(t)
	if !f.waiting.empty() || f.target.service.carried.Load() != 0 {
		t.Errorf("%d are carried, all ended: %t", f.target.service.carried.Load(), f.waiting.empty())
	}
}
