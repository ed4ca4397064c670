package tapping

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/weirmesh/weir/internal/telemetry"
)

const (
	// peersEvery is how often it is looked which replicas there are, and the pause before one is asked again that failed;
	// it doubles with each further failure, up to peerRetry.
	peersEvery, peerRetry = 2 * time.Second, 15 * time.Second
	// relayed is the number of the only tap on a stream between replicas.
	relayed = 1
)

// Peer is another replica of the controller.
type Peer struct {
	// Name tells it from others. Address is where it is called, and empty if that is not known.
	Name, Address string
	// Proxies is how many proxies are connected to it.
	Proxies int
}

// ServeTap answers with requests at all proxies of all replicas, as telemetry.WriteTap does. It returns an error before it
// has answered: that of of, telemetry.ErrTaps, or telemetry.ErrTapSides.
func (h *Hub) ServeTap(w http.ResponseWriter, r *http.Request, q telemetry.TapQuery, of telemetry.TapOf) error {
	sides, err := of(r.Context())
	if err != nil {
		return err
	}
	by := ""
	if h.Who != nil {
		by = h.Who(r.Context())
	}
	t, err := h.open(by, q, sides)
	if err != nil {
		return err
	}
	defer t.close()
	ctx, cancel := context.WithCancel(r.Context())
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	if h.Peers != nil {
		asking.Go(func() { t.askPeers(ctx) })
	}
	telemetry.WriteTap(w, r, q.For, t, func(ctx context.Context) error {
		sides, err := of(ctx)
		if err == nil {
			err = t.follow(sides)
		}
		return err
	})
	return nil
}

// askPeers has all other replicas take part until ctx ends.
func (t *tap) askPeers(ctx context.Context) {
	type asked struct {
		address string
		end     context.CancelFunc
	}
	running := map[string]asked{}
	var all sync.WaitGroup
	defer all.Wait()
	again := time.NewTicker(peersEvery)
	defer again.Stop()
	for {
		there := map[string]Peer{}
		for _, p := range t.hub.Peers() {
			there[p.Name] = p
		}
		for name, a := range running {
			if there[name].Address != a.address {
				a.end()
				delete(running, name)
			}
		}
		t.know(there)
		for name, p := range there {
			if _, ok := running[name]; ok || p.Address == "" {
				continue
			}
			ctx, end := context.WithCancel(ctx)
			running[name] = asked{p.Address, end}
			s := t.peers[name] // this goroutine alone changes the map
			all.Go(func() {
				defer end()
				t.askPeer(ctx, p, s)
			})
		}
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
	}
}

// know takes note of which replicas there are.
func (t *tap) know(there map[string]Peer) {
	t.hub.mu.Lock()
	defer t.hub.mu.Unlock()
	for name, s := range t.peers {
		if _, ok := there[name]; !ok {
			t.gone += s.counts.Matched
			delete(t.peers, name)
		}
	}
	for name, p := range there {
		if t.peers[name] == nil {
			t.peers[name] = &share{}
		}
		t.peers[name].proxies = p.Proxies
	}
}

// askPeer has a replica take part, again and again, until ctx ends.
func (t *tap) askPeer(ctx context.Context, p Peer, s *share) {
	pause := peersEvery
	for ctx.Err() == nil {
		heard, err := t.relay(ctx, p.Address, s)
		if ctx.Err() != nil {
			return
		}
		t.hub.wrong.Log(t.hub.logger(), slog.LevelWarn, p.Name, "another replica takes no part in a tap; asking again", "replica", p.Name, "address", p.Address, "error", err)
		t.hub.mu.Lock()
		t.gone += s.counts.Matched // it counts anew
		s.seen, s.counts = time.Time{}, telemetry.TapCounts{}
		t.hub.mu.Unlock()
		if heard {
			pause = peersEvery
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, peerRetry)
	}
}

// relay asks a replica once, and takes what it says until that ends. heard is that it said something.
func (t *tap) relay(ctx context.Context, address string, s *share) (heard bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	silent := time.AfterFunc(silence, func() { cancel(fmt.Errorf("it said nothing for %s", silence)) })
	defer silent.Stop()
	stream, err := t.hub.Call(ctx, address)
	if err != nil {
		cancel(nil)
		return false, err
	}
	var sending sync.WaitGroup
	defer sending.Wait()
	defer cancel(nil)
	sending.Go(func() {
		for {
			t.hub.mu.Lock()
			changed, o := t.changed, t.newOrder(relayed, t.query.Rate)
			t.hub.mu.Unlock()
			o.By = t.by
			if err := stream.Send(encode(o)); err != nil {
				return // Recv says why
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	})
	for {
		b, err := stream.Recv()
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return heard, err
		}
		silent.Reset(silence)
		l, err := parseLine(b)
		if err != nil {
			return heard, err
		}
		heard = true
		if refused := t.say(s, l); refused != "" {
			return heard, fmt.Errorf("it refuses: %q", refused)
		}
	}
}

// ServePeer lets another replica take part in what the proxies of this one show, never in what those of others do. The
// stream must end when it returns.
func (h *Hub) ServePeer(s Stream) error {
	b, err := s.Recv()
	if err != nil {
		return err
	}
	o, _, err := parseOrder(b)
	if err == nil && o.Close {
		err = errors.New("the first order closes")
	}
	if err != nil {
		return err
	}
	t, err := h.open(o.By, o.query(), o.sides())
	if err != nil {
		return s.Send(encode(line{Tap: o.Tap, Refused: err.Error()}))
	}
	defer t.close()
	read := make(chan error, 1)
	h.readers.Go(func() { read <- t.obey(s) })
	tick := time.NewTicker(telemetry.TapTick)
	defer tick.Stop()
	end := time.NewTimer(o.For)
	defer end.Stop()
	counts := func() line { c := t.Counts(); return line{Tap: o.Tap, Counts: &c} }
	for err = s.Send(encode(counts())); err == nil; {
		select {
		case x := <-t.Requests():
			err = s.Send(encode(line{Tap: o.Tap, Request: &x}))
		case <-tick.C:
			err = s.Send(encode(counts()))
		case err = <-read:
		case <-s.Context().Done():
			err = s.Context().Err()
		case <-end.C:
			return nil
		}
	}
	return err
}

// obey takes further orders of the tap that another replica opened.
func (t *tap) obey(s Stream) error {
	for {
		b, err := s.Recv()
		if err != nil {
			return err
		}
		o, _, err := parseOrder(b)
		if err != nil {
			return err
		}
		if err := t.follow(o.sides()); err != nil {
			return err
		}
	}
}

// cutName takes "namespace/pod" apart.
func cutName(proxy string) (namespace, pod string) {
	namespace, pod, _ = strings.Cut(proxy, "/")
	return namespace, pod
}
