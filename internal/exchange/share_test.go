package exchange

import (
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestAClientIsAnAddressOrANetwork(t *testing.T) {
	s := new(Shares)
	s.Init()
	slot := func(text string) *atomic.Int32 { return s.Slot(netip.MustParseAddr(text)) }
	for _, same := range [][2]string{
		{"192.0.2.1", "::ffff:192.0.2.1"},
		{"2001:db8:0:100::1", "2001:db8:0:1ff:ffff::9"},
		{"fe80::1%eth0", "fe80::2"},
	} {
		if slot(same[0]) != slot(same[1]) {
			t.Errorf("%s and %s are not one client", same[0], same[1])
		}
	}
	for _, all := range []string{"192.0.2.%d", "::ffff:192.0.2.%d", "2001:db8:0:%d00::"} {
		slots := map[*atomic.Int32]bool{}
		for i := range 64 {
			slots[slot(fmt.Sprintf(all, i))] = true
		}
		if len(slots) < 48 { // of 16,384
			t.Errorf("64 clients such as %s have %d slots", all, len(slots))
		}
	}
}

func TestAPartIsWhatOneOfAllClientsMayHave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gate
		g.bound(3200)
		for clients, want := range map[int]int64{0: 3200, 1: 3200, 2: 1500, 5: 600, 32: 100, 100: 100} {
			for i := range g.shares.slots {
				g.shares.slots[i].Store(0)
			}
			for i := range clients {
				g.shares.slots[i*7].Store(int32(1 + i))
			}
			time.Sleep(shareEvery)
			if got := g.part(); got != want {
				t.Errorf("the part of one of %d clients is %d, want %d", clients, got, want)
			}
		}
	})
}

func TestClaimingAPlaceAllocatesNothing(t *testing.T) {
	p := NewPipeline(Options{MaxInFlight: 100}, Around{})
	ex := &Exchange{pipe: p, from: Origin{Peer: &Peer{Address: netip.MustParseAddr("2001:db8::1")}}, req: Request{HTTP2: true}}
	if n := testing.AllocsPerRun(100, func() {
		if err := ex.claim(); err != nil {
			t.Fatal(err)
		}
		ex.unclaim()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if n := p.gate.shares.count(); n != 0 || ex.from.Peer.streams.Load() != 0 {
		t.Errorf("%d clients are left, %d streams", n, ex.from.Peer.streams.Load())
	}
}

// TestClientsThatComeAtOnceLeaveRoomForAnother: in one moment, in which no time passes, eight clients ask for more than
// all places.
func TestClientsThatComeAtOnceLeaveRoomForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const places, clients = 128, 8
		p := NewPipeline(Options{MaxInFlight: places}, Around{})
		taken := 0
		claim := func(client int) error {
			peer := &Peer{Address: netip.AddrFrom4([4]byte{192, 0, 2, byte(client)})}
			ex := &Exchange{pipe: p, from: Origin{Peer: peer}}
			ex.crowded = taken >= places/4*3
			err := ex.claim()
			if err != nil {
				ex.unclaim()
			} else {
				taken++
			}
			return err
		}
		for i := range places * clients {
			if claim(i%clients+1) == nil && taken == places {
				t.Fatalf("after %d requests of %d clients there is no place left", i+1, clients)
			}
		}
		if err := claim(100); err != nil {
			t.Errorf("another client is refused: %v", err)
		}
	})
}

func TestPlacesAreScarceForAWhileAfterOneLacked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPipeline(Options{MaxInFlight: 1}, Around{})
		enter := func() (*Exchange, error) {
			ex := &Exchange{pipe: p, from: Origin{Peer: &Peer{}}}
			return ex, ex.enter()
		}
		ex, err := enter()
		if err != nil || p.Scarce() {
			t.Fatalf("%v, scarce %v", err, p.Scarce())
		}
		for range 2 {
			if _, err := enter(); err != failOverload || !p.Scarce() {
				t.Fatalf("%v, scarce %v", err, p.Scarce())
			}
			time.Sleep(scarceFor - 1)
			if !p.Scarce() {
				t.Fatal("not scarce any more")
			}
			if time.Sleep(time.Nanosecond); p.Scarce() {
				t.Fatal("still scarce")
			}
		}
		ex.leave()
		if _, err := enter(); err != nil || p.Scarce() {
			t.Errorf("%v, scarce %v", err, p.Scarce())
		}
	})
}
