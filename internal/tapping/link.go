package tapping

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/telemetry"
)

const (
	// maxUnsent is how many orders may wait for a proxy; one that does not read them loses its stream.
	maxUnsent = 64
	// spareRate is how many messages a second a proxy may send beside the requests that it was asked for: counts, and what
	// was on its way when a tap closed.
	spareRate = 200
)

// link is the stream of a proxy.
type link struct {
	hub     *Hub
	proxy   string
	sidecar bool
	at      []telemetry.Side // as whom it may speak; the first is its pod
	orders  chan []byte
	over    chan struct{}
	end     func() // closes over
}

// concerns reports whether a proxy is asked for requests of these sides: a Gateway's may have any, a sidecar has those of its
// pod.
func (l *link) concerns(sides telemetry.TapSides) bool { return !l.sidecar || sides[l.at[0]] }

// ServeProxy gives orders to a proxy, "namespace/pod" of an owner, and takes its lines, until the stream ends. A newer
// stream of the same proxy ends this one. The stream must end when it returns.
func (h *Hub) ServeProxy(s Stream, owner model.Owner, proxy string) error {
	namespace, pod := cutName(proxy)
	l := &link{hub: h, proxy: proxy, sidecar: owner.Kind() == model.OwnerWorkload, orders: make(chan []byte, maxUnsent), over: make(chan struct{}), at: []telemetry.Side{
		{Kind: model.KindPod, Namespace: namespace, Name: pod},
		{Kind: string(owner.Kind()), Namespace: owner.Namespace(), Name: owner.Name()},
	}}
	l.end = sync.OnceFunc(func() { close(l.over) })
	h.join(l)
	defer h.leave(l)
	var read chan error // nil before the first order: till then there is nothing to be said
	for {
		select {
		case <-s.Context().Done():
			return s.Context().Err()
		case <-l.over:
			return errReplaced
		case err := <-read:
			h.wrong.Log(h.logger(), slog.LevelDebug, proxy, "the stream of a proxy's taps ended", "proxy", proxy, "error", err)
			return err
		case b := <-l.orders:
			select {
			case <-l.over: // whatever else is queued
				return errReplaced
			default:
			}
			if read == nil {
				read = make(chan error, 1)
				h.readers.Go(func() { read <- l.read(s) })
			}
			if err := s.Send(b); err != nil {
				return err
			}
		}
	}
}

// join adds a proxy, and gives it the orders of the taps that are open.
func (h *Hub) join(l *link) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.links == nil {
		h.links = map[string]*link{}
	}
	if old := h.links[l.proxy]; old != nil {
		h.drop(old)
	}
	h.links[l.proxy] = l
	for _, t := range h.taps {
		if l.concerns(*t.sides.Load()) {
			t.ask(l, rateOf(t.query.Rate, len(t.links)+1))
		}
	}
}

func (h *Hub) leave(l *link) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.drop(l)
}

// drop removes a proxy; what matched there stays counted. h.mu is held.
func (h *Hub) drop(l *link) {
	l.end()
	if h.links[l.proxy] == l {
		delete(h.links, l.proxy)
	}
	for _, t := range h.taps {
		if s := t.links[l]; s != nil {
			t.gone += s.counts.Matched
			delete(t.links, l)
		}
	}
}

// put queues an order.
func (l *link) put(b []byte) {
	select {
	case l.orders <- b:
	default:
		l.end()
	}
}

// read takes lines until the stream ends. A proxy that sends more than it was asked for is read no faster.
func (l *link) read(s Stream) error {
	var pace pacer
	for {
		b, err := s.Recv()
		if err != nil {
			return err
		}
		perSecond, err := l.take(b)
		if err != nil {
			return err
		}
		if wait := pace.next(time.Now(), perSecond, 2*time.Second); wait > 0 {
			select {
			case <-s.Context().Done():
				return s.Context().Err()
			case <-time.After(wait):
			}
		}
	}
}

// take takes a line, and returns how many a second the proxy may send now.
func (l *link) take(message []byte) (perSecond int, err error) {
	said, err := parseLine(message)
	if err != nil {
		return 0, err
	}
	h := l.hub
	h.mu.Lock()
	perSecond = spareRate
	for _, t := range h.taps {
		if t.links[l] != nil {
			perSecond += t.links[l].rate
		}
	}
	t := h.taps[said.Tap]
	var s *share
	if t != nil {
		s = t.links[l]
	}
	h.mu.Unlock()
	if s == nil { // the tap has been closed, or the proxy was not asked
		return perSecond, nil
	}
	if x := said.Request; x != nil && (!slices.Contains(l.at, x.At) || !t.query.Wants(x, *t.sides.Load())) {
		h.counts.rejected.Add(1)
		return perSecond, nil
	}
	if refused := t.say(s, said); refused != "" {
		h.wrong.Log(h.logger(), slog.LevelWarn, l.proxy, "a proxy takes no part in a tap", "proxy", l.proxy, "reason", fmt.Sprintf("%q", refused))
	}
	return perSecond, nil
}

// pacer says how long to wait so that no more come than a rate allows, but for some time's worth at once.
type pacer struct{ free time.Time }

func (p *pacer) next(now time.Time, perSecond int, burst time.Duration) time.Duration {
	if earliest := now.Add(-burst); p.free.Before(earliest) {
		p.free = earliest
	}
	p.free = p.free.Add(time.Second / time.Duration(perSecond))
	return p.free.Sub(now)
}

// allows reports whether one more may come now, and counts it only then.
func (p *pacer) allows(now time.Time, perSecond int, burst time.Duration) bool {
	next := *p
	if next.next(now, perSecond, burst) > 0 {
		return false
	}
	*p = next
	return true
}
