package feed

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

const (
	// maxKept bounds the destinations that a client keeps, maxUnknown those of which it remembers that nothing is known, and
	// maxQuestions the questions under way: together no more than a server lets a stream have.
	maxKept, maxUnknown, maxQuestions = 768, 1024, 128
	// unknownTime is how long it is remembered that nothing is known of a destination, while a control plane can be asked.
	unknownTime = 10 * time.Second
	// unusedTime is how long a destination is kept without use.
	unusedTime = 5 * time.Minute
	// answerTime is how long Find waits.
	answerTime = 5 * time.Second
)

// ErrUnanswered is why a destination is not known: nobody could be asked, which says nothing about the destination.
var ErrUnanswered = errors.New("the control plane did not answer in time what is at this address")

// Destinations are those that a Client's proxy connects to, of which it asks for what it needs. The zero value is ready for
// use. Its methods may be called from any goroutine.
type Destinations struct {
	// Used, if set, are the destinations in use. It is asked when the control plane sent everything before and may not any more.
	Used func() map[netip.AddrPort]bool

	mu        sync.Mutex
	init      sync.Once
	woken     chan struct{}
	whole     bool                         // the control plane sends everything
	connected bool                         // the control plane answers
	kept      map[netip.AddrPort]time.Time // by use
	unknown   map[netip.AddrPort]time.Time // until
	questions map[netip.AddrPort]*asking
	// To be sent.
	subscribe, unsubscribe []string
}

// asking is a question under way.
type asking struct {
	done    chan struct{}
	waiting int
}

func (d *Destinations) begin() {
	d.init.Do(func() {
		d.woken = make(chan struct{}, 1)
		d.kept, d.unknown, d.questions = map[netip.AddrPort]time.Time{}, map[netip.AddrPort]time.Time{}, map[netip.AddrPort]*asking{}
	})
}

// Find returns when the applied configuration has what connections to an address and port need, or when the control plane
// knows nothing of it. Connections that ask for the same share one question. It fails with ErrUnanswered after 5 s, at once if
// too many questions are under way or too many destinations in use, and with the error of ctx.
func (d *Destinations) Find(ctx context.Context, to netip.AddrPort) error {
	d.begin()
	now := time.Now()
	d.mu.Lock()
	if d.whole {
		d.mu.Unlock()
		return nil
	}
	if _, kept := d.kept[to]; kept {
		d.kept[to] = now
		d.mu.Unlock()
		return nil
	}
	if until, ok := d.unknown[to]; ok && (now.Before(until) || !d.connected) {
		d.mu.Unlock()
		return nil
	}
	q := d.questions[to]
	if q == nil {
		if len(d.questions) >= maxQuestions || len(d.kept)+len(d.questions) >= maxKept+maxQuestions {
			d.mu.Unlock()
			return ErrUnanswered
		}
		q = &asking{done: make(chan struct{})}
		d.questions[to] = q
		d.subscribe = append(d.subscribe, destinationName(to))
		d.wake()
	}
	q.waiting++
	d.mu.Unlock()
	t := time.NewTimer(answerTime)
	defer t.Stop()
	var err error
	select {
	case <-q.done:
		return nil
	case <-t.C:
		err = ErrUnanswered
	case <-ctx.Done():
		err = ctx.Err()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if q.waiting--; q.waiting == 0 && d.questions[to] == q {
		delete(d.questions, to) // an answer that still comes is given back
	}
	return err
}

// Forget gives up what is used no more: neither in used nor asked for in the last minutes, and only if release agrees, which
// has connections that begin afterwards call Find again; release may not call other methods. Nothing is given up while no control
// plane could be asked for it again.
func (d *Destinations) Forget(used map[netip.AddrPort]bool, release func(netip.AddrPort) bool) {
	d.begin()
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	for to, at := range d.kept {
		switch {
		case used[to]:
			d.kept[to] = now
		case d.connected && now.Sub(at) >= unusedTime && release(to):
			delete(d.kept, to)
			d.giveBack(to)
		}
	}
	for to, until := range d.unknown {
		if d.connected && !now.Before(until) {
			delete(d.unknown, to)
		}
	}
}

// Kept is how many destinations are known.
func (d *Destinations) Kept() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.kept)
}

// restore has what was known before the process was started again be known, in place of anything else. It does nothing to a nil d.
func (d *Destinations) restore(before []question) {
	if d == nil {
		return
	}
	d.begin()
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.kept)
	for _, q := range before {
		if q.known && len(d.kept) < maxKept {
			d.kept[q.to] = now
		}
	}
}

// names are the destinations that are known, in order; none of a nil d, nor while the control plane sends everything.
func (d *Destinations) names() []netip.AddrPort {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.SortedFunc(maps.Keys(d.kept), netip.AddrPort.Compare)
}

// wake has the receiver send. d.mu is held.
func (d *Destinations) wake() {
	select {
	case d.woken <- struct{}{}:
	default:
	}
}

// giveBack ends the subscription to a destination. d.mu is held.
func (d *Destinations) giveBack(to netip.AddrPort) {
	if d.connected {
		d.unsubscribe = append(d.unsubscribe, destinationName(to))
		d.wake()
	}
}

// news fires when there is something to send. It is nil for a nil d.
func (d *Destinations) news() <-chan struct{} {
	if d == nil {
		return nil
	}
	d.begin()
	return d.woken
}

// all are the names of what a new stream asks for: all that is kept, and all questions.
func (d *Destinations) all() []string {
	d.begin()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.whole && d.Used != nil {
		clear(d.kept)
		now := time.Now()
		for to := range d.Used() {
			if len(d.kept) < maxKept {
				d.kept[to] = now
			}
		}
	}
	out := make([]string, 0, len(d.kept)+len(d.questions))
	for to := range d.kept {
		out = append(out, destinationName(to))
	}
	for to := range d.questions {
		out = append(out, destinationName(to))
	}
	d.subscribe, d.unsubscribe = nil, nil
	return out
}

// request is what to send, nil if that is nothing.
func (d *Destinations) request() *discovery.DeltaDiscoveryRequest {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.connected || len(d.subscribe)+len(d.unsubscribe) == 0 {
		return nil
	}
	r := &discovery.DeltaDiscoveryRequest{TypeUrl: typeURL, ResourceNamesSubscribe: d.subscribe, ResourceNamesUnsubscribe: d.unsubscribe}
	d.subscribe, d.unsubscribe = nil, nil
	return r
}

// heard is called with the first response of a stream: whether the control plane answers.
func (d *Destinations) heard(answers bool) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.connected = answers
	if answers {
		d.whole = false
	}
	d.wake() // what was asked since the stream began
}

// lost is called when a stream has ended.
func (d *Destinations) lost() {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.connected = false
}

// applied is called when a configuration is applied, with the answers that are true with it.
func (d *Destinations) applied(answers []question) {
	if d == nil {
		return
	}
	d.begin()
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.connected { // everything is there
		d.whole = true
		clear(d.kept)
		clear(d.unknown)
		for to, q := range d.questions {
			delete(d.questions, to)
			close(q.done)
		}
		return
	}
	for _, a := range answers {
		q := d.questions[a.to]
		_, kept := d.kept[a.to]
		switch {
		case a.known && q == nil && !kept:
			d.giveBack(a.to)
		case a.known && !kept:
			d.kept[a.to] = now
			delete(d.unknown, a.to)
		case !a.known:
			delete(d.kept, a.to)
			d.remember(a.to, now)
		}
		if q != nil {
			delete(d.questions, a.to)
			close(q.done)
		}
	}
}

// remember notes that nothing is known of a destination. d.mu is held.
func (d *Destinations) remember(to netip.AddrPort, now time.Time) {
	if len(d.unknown) >= maxUnknown {
		for other := range d.unknown { // any
			delete(d.unknown, other)
			break
		}
	}
	d.unknown[to] = now.Add(unknownTime)
}

// takeAnswers takes the answers out of a response.
func takeAnswers(d *discovery.DeltaDiscoveryResponse) (all []question) {
	parts := d.Resources[:0]
	for _, r := range d.Resources {
		if r.GetResource().GetTypeUrl() != destinationURL {
			parts = append(parts, r)
			continue
		}
		if to, err := parseDestination(r.Name); err == nil && (r.Version == answerKnown || r.Version == answerUnknown) {
			all = append(all, question{to, r.Version == answerKnown})
		}
	}
	d.Resources = parts
	return all
}
