package tapping

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirmesh/weir/internal/telemetry"
)

// peering makes hubs the replicas of one controller: each calls each other by its name. down says which cannot be called.
func (w *world) peering(hubs map[string]*Hub, down func(name string) error) {
	for own, h := range hubs {
		h.Peers = func() (all []Peer) {
			for name, other := range hubs {
				if name != own {
					all = append(all, Peer{Name: name, Address: name, Proxies: other.Connected()})
				}
			}
			return all
		}
		h.Call = func(ctx context.Context, address string) (Stream, error) {
			if err := down(address); err != nil {
				return nil, err
			}
			ours, theirs, cut := streams(ctx)
			w.running.Go(func() {
				defer cut()
				_ = hubs[address].ServePeer(theirs)
			})
			return ours, nil
		}
	}
}

func up(string) error { return nil }

func TestAReplicaShowsWhatProxiesOfOthersObserve(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b, c := w.hub(1), w.hub(2), w.hub(0)
		w.peering(map[string]*Hub{"a": a, "b": b, "c": c}, up)
		here, _ := w.proxy(a, "gw-1")
		there, _ := w.proxy(b, "gw-2")
		r := w.tap(a, query(func(q *telemetry.TapQuery) { q.Lowest, q.Highest = 500, 599 }), sides("web"))
		failed := func(x *telemetry.Tapped) *telemetry.Tapped { x.Status = 503; return x }
		offer(here, failed(request("gw-1", "web", "/1")))
		synctest.Wait()
		offer(there, failed(request("gw-2", "web", "/2")))
		offer(there, request("gw-2", "web", "/fine"))
		offer(there, failed(request("gw-2", "other", "/other")))
		r.shows(2*tick, []string{"/1", "/2"}, telemetry.TapCounts{Matched: 2, Shown: 2, Proxies: 2, Silent: 1})

		r.mu.Lock()
		r.sides = sides("new", "web")
		r.mu.Unlock()
		time.Sleep(6 * time.Second)
		synctest.Wait()
		offer(there, failed(request("gw-2", "new", "/3")))
		r.shows(2*tick, []string{"/1", "/2", "/3"}, telemetry.TapCounts{Matched: 3, Shown: 3, Proxies: 2, Silent: 1})

		r.leave()
		synctest.Wait()
		if there.Taps() != nil || b.Stats().Open != 0 || c.Stats().Open != 0 {
			t.Errorf("the tap stays open at others: %v, %+v, %+v", there.Taps(), b.Stats(), c.Stats())
		}
	})
}

// TestAReplicaThatVanishesOnlyLosesItsLines, and takes part again when it is back.
func TestAReplicaThatVanishesOnlyLosesItsLines(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.hub(1), w.hub(1)
		var down atomic.Bool
		w.peering(map[string]*Hub{"a": a, "b": b}, func(string) error {
			if down.Load() {
				return errors.New("no route to host")
			}
			return nil
		})
		call := a.Call
		var cut context.CancelFunc
		a.Call = func(ctx context.Context, address string) (Stream, error) {
			ctx, cut = context.WithCancel(ctx)
			return call(ctx, address)
		}
		here, _ := w.proxy(a, "gw-1")
		there, _ := w.proxy(b, "gw-2")
		r := w.tap(a, query(func(q *telemetry.TapQuery) { q.Rate = 1 }), sides("web"))
		offer(there, request("gw-2", "web", "/1"))
		offer(there, request("gw-2", "web", "/too much")) // is counted only
		r.shows(2*tick, []string{"/1"}, telemetry.TapCounts{Matched: 2, Shown: 1, Proxies: 2})
		down.Store(true)
		cut()
		synctest.Wait()
		if there.Taps() != nil {
			t.Error("proxies of a replica that lost its asker go on")
		}
		offer(here, request("gw-1", "web", "/2"))
		r.shows(20*time.Second, []string{"/1", "/2"}, telemetry.TapCounts{Matched: 3, Shown: 2, Proxies: 1, Silent: 1})
		down.Store(false)
		time.Sleep(peerRetry + tick)
		synctest.Wait()
		offer(there, request("gw-2", "web", "/3"))
		r.shows(2*tick, []string{"/1", "/2", "/3"}, telemetry.TapCounts{Matched: 4, Shown: 3, Proxies: 2})
	})
}

// TestReplicasThatCannotTakePartAreCounted: of an older release, which has no address on the board; with all taps that it
// may have; silent; and with nonsense to say.
func TestReplicasThatCannotTakePartAreCounted(t *testing.T) {
	inWorld(t, func(w *world) {
		a, full := w.hub(1), w.hub(5)
		for range maxTaps {
			w.tap(full, query(nil), sides("web"))
		}
		here, _ := w.proxy(a, "gw-1")
		gone := atomic.Bool{}
		a.Peers = func() []Peer {
			all := []Peer{{Name: "old", Proxies: 2}, {Name: "full", Address: "full", Proxies: 5}, {Name: "silent", Address: "silent", Proxies: 10}, {Name: "wrong", Address: "wrong", Proxies: 20}}
			if gone.Load() {
				return all[:1]
			}
			return all
		}
		calls := atomic.Int64{}
		a.Call = func(ctx context.Context, address string) (Stream, error) {
			ours, theirs, cut := streams(ctx)
			w.running.Go(func() {
				defer cut()
				switch address {
				case "full":
					_ = full.ServePeer(theirs)
				case "silent":
					calls.Add(1)
					<-ctx.Done()
				case "wrong":
					_ = theirs.Send([]byte("hello"))
					<-ctx.Done()
				}
			})
			return ours, nil
		}
		r := w.tap(a, query(nil), sides("web"))
		offer(here, request("gw-1", "web", "/"))
		r.shows(time.Minute+tick, []string{"/"}, telemetry.TapCounts{Matched: 1, Shown: 1, Proxies: 1, Silent: 37})
		if n := calls.Load(); n < 2 || n > 6 {
			t.Errorf("the silent one was called %d times in a minute", n)
		}
		gone.Store(true)
		r.shows(tick+peersEvery, []string{"/"}, telemetry.TapCounts{Matched: 1, Shown: 1, Proxies: 1, Silent: 2})
	})
}

// TestAnOrderBetweenReplicasGoesNoFurther: a replica that is asked by another asks no third.
func TestAnOrderBetweenReplicasGoesNoFurther(t *testing.T) {
	inWorld(t, func(w *world) {
		b := w.hub(0)
		b.Peers = func() []Peer { t.Error("it looks for others"); return nil }
		ours, theirs, cut := streams(w.ctx)
		w.running.Go(func() { defer cut(); _ = b.ServePeer(theirs) })
		_ = ours.Send(encode(newOrder(relayed, query(func(q *telemetry.TapQuery) { q.For = 10 * time.Second }), sides("web"))))
		for {
			m, err := ours.Recv()
			if err != nil {
				break // after its time
			}
			if l, err := parseLine(m); err != nil || l.Counts == nil || *l.Counts != (telemetry.TapCounts{}) {
				t.Errorf("%s, %v", m, err)
			}
		}
		if b.Stats() != (Stats{Opened: 1}) {
			t.Errorf("%+v", b.Stats())
		}
	})
}

func TestWhatAReplicaCannotOrderIsRefused(t *testing.T) {
	for message, want := range map[string]string{
		`{"tap":1,"close":true}`: "the first order closes",
		`{"tap":1,"header":"x"}`: "unknown field",
		`{}`:                     "without the number",
	} {
		inWorld(t, func(w *world) {
			h := w.hub(0)
			ours, theirs, cut := streams(w.ctx)
			ended := make(chan error, 1)
			w.running.Go(func() { defer cut(); ended <- h.ServePeer(theirs) })
			_ = ours.Send([]byte(message))
			if err := <-ended; err == nil || !strings.Contains(err.Error(), want) || h.Stats().Open != 0 {
				t.Errorf("%s: %v, want %q", message, err, want)
			}
		})
	}
}
