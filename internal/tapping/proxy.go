package tapping

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirmesh/weir/internal/telemetry"
)

// maxOrders is how many orders a proxy has from one stream at a time. How many taps may be open is the registry's to say.
const maxOrders = 32

// Serve carries out the orders that come from a stream, until it ends or brings what is no order; then it ends the stream
// by end, closes the taps that it opened, and returns why.
func Serve(s Stream, end func(), registry *telemetry.Registry) error {
	ctx, cancel := context.WithCancel(s.Context())
	p := &proxyEnd{stream: s, registry: registry, sending: make(chan struct{}, 1), taps: map[uint64]*ordered{}}
	defer p.running.Wait()
	defer cancel()
	defer end()
	for {
		b, err := s.Recv()
		if err != nil {
			return err
		}
		o, tap, err := parseOrder(b)
		if err != nil && tap == 0 {
			return err
		}
		if err := p.carryOut(ctx, o, tap, err); err != nil {
			return err
		}
	}
}

// proxyEnd is a proxy's end of a stream.
type proxyEnd struct {
	stream   Stream
	registry *telemetry.Registry
	sending  chan struct{} // has a place for who sends
	running  sync.WaitGroup

	mu   sync.Mutex
	taps map[uint64]*ordered
}

// ordered is an order under way, with its tap; a refused one has none.
type ordered struct {
	id    uint64
	tap   *telemetry.Tap
	sides atomic.Pointer[telemetry.TapSides]
	end   context.CancelFunc
}

var errOrders = errors.New("too many orders at a time")

// carryOut does what an order says. wrong is why it cannot be understood.
func (p *proxyEnd) carryOut(ctx context.Context, o order, tap uint64, wrong error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.taps[tap]
	switch {
	case known != nil && (o.Close || wrong != nil):
		p.drop(known)
		if wrong == nil {
			return nil
		}
	case known != nil:
		sides := o.sides()
		known.sides.Store(&sides)
		return nil
	case o.Close:
		return nil
	}
	if len(p.taps) >= maxOrders {
		return errOrders
	}
	n := &ordered{id: tap}
	if wrong == nil {
		q, sides := o.query(), o.sides()
		n.sides.Store(&sides)
		n.tap, wrong = p.registry.Tap(q.Rate, func(x *telemetry.Tapped) bool { return q.Wants(x, *n.sides.Load()) })
	}
	if wrong == nil {
		ctx, n.end = context.WithTimeout(ctx, o.For)
	} else {
		ctx, n.end = context.WithCancel(ctx)
	}
	p.taps[tap] = n
	p.running.Go(func() {
		if wrong != nil {
			_ = p.send(ctx, line{Tap: tap, Refused: wrong.Error()[:min(len(wrong.Error()), maxRefusal)]})
		} else {
			p.show(ctx, n)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.drop(n)
	})
	return nil
}

// drop ends an order. The tap is closed at once, although a line may still be on its way. p.mu is held.
func (p *proxyEnd) drop(n *ordered) {
	n.end()
	if n.tap != nil {
		p.registry.CloseTap(n.tap)
	}
	if p.taps[n.id] == n {
		delete(p.taps, n.id)
	}
}

// show sends what a tap receives until ctx ends.
func (p *proxyEnd) show(ctx context.Context, n *ordered) {
	counts := func() line { c := n.tap.Counts(); return line{Tap: n.id, Counts: &c} }
	tick := time.NewTicker(telemetry.TapTick)
	defer tick.Stop()
	for err := p.send(ctx, counts()); err == nil; {
		select {
		case x := <-n.tap.Requests():
			err = p.send(ctx, line{Tap: n.id, Request: &x})
		case <-tick.C:
			err = p.send(ctx, counts())
		case <-ctx.Done():
			return
		}
	}
}

func (p *proxyEnd) send(ctx context.Context, l line) error {
	b := encode(l)
	if len(b) > MaxLine {
		return nil // texts are cut to a fraction of that; names of objects are shorter still
	}
	select {
	case p.sending <- struct{}{}:
		defer func() { <-p.sending }()
	case <-ctx.Done():
		return ctx.Err()
	}
	return p.stream.Send(b)
}
