package exchange

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/weirmesh/weir/internal/clock"
	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/upstream"
)

// silence lists the exchanges that wait for their client to send more of its body. When places are short, those that
// have waited longest end, so that a client cannot hold places with heads alone.
type silence struct {
	shards [silenceShards]struct {
		mu             sync.Mutex
		oldest, newest *silent
		_              [40]byte
	}
	mu   sync.Mutex // held while making room
	vain [2]int64   // when no exchange could be ended last: of any service, of one
}

const (
	silenceShards = 64
	// silentAge is how long a client must have been silent that has sent nothing of its body, pausedAge one that has sent
	// some.
	silentAge, pausedAge = time.Second, 5 * time.Second
	// silentPart is the fraction of all places (1/64) that is freed at once.
	silentPart = 64
	// silentPause is the pause after room could not be made.
	silentPause = 10 * time.Millisecond
)

// silent is an exchange's entry. The shard's lock guards it, except ended once it is off the list.
type silent struct {
	ex         *Exchange // nil: not on the list
	prev, next *silent
	since      int64
	begun      bool // some of the body had come before
	ended      bool // the exchange was told to end
}

// read is the client's Next. It may end early, to make room for others.
func (ex *Exchange) read() ([]byte, error) {
	c := ex.from.Client
	if ex.req.HTTP2 && c.Ready() {
		return c.Next() // does not wait
	}
	s := &ex.pipe.gate.silence
	s.begin(ex)
	p, err := c.Next()
	if s.over(ex) {
		c.Resume()
		return nil, failSilent
	}
	return p, err
}

// begin lists the exchange.
func (s *silence) begin(ex *Exchange) {
	l := &s.shards[ex.from.Shard%silenceShards]
	e := &ex.silent
	l.mu.Lock()
	defer l.mu.Unlock()
	e.ex, e.since, e.begun = ex, clock.Instant(time.Now()), ex.in > 0
	e.prev, e.next = l.newest, nil
	if l.newest != nil {
		l.newest.next = e
	} else {
		l.oldest = e
	}
	l.newest = e
}

// over takes the exchange off the list. It reports whether the exchange was told to end.
func (s *silence) over(ex *Exchange) bool {
	l := &s.shards[ex.from.Shard%silenceShards]
	e := &ex.silent
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		l.oldest = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	} else {
		l.newest = e.prev
	}
	e.ex, e.prev, e.next = nil, nil, nil
	return e.ended
}

// mayEnd reports whether others may have the place of an exchange that is on the list. Those are spared whose client may
// be waiting for the backend: gRPC, and bodies of unknown length once the answer has begun, unless nothing has come at
// all.
func (e *silent) mayEnd(now int64) bool {
	if e.ended {
		return false
	}
	ex := e.ex
	if !e.begun {
		return now-e.since >= int64(silentAge)
	}
	return now-e.since >= int64(pausedAge) && !ex.req.GRPC && (ex.req.Body.Kind == http1.BodyLength || !ex.upload.answering.Load())
}

// makeRoom ends exchanges whose clients are silent, of any service or of one: first those of clients that have more than
// their part, then those that have been silent longest. It reports whether there were any. Their places become free soon;
// until then as many others may enter.
func (g *gate) makeRoom(service *upstream.Service) bool {
	s := &g.silence
	s.mu.Lock()
	defer s.mu.Unlock()
	now := clock.Instant(time.Now())
	vain := &s.vain[0]
	if service != nil {
		vain = &s.vain[1]
	}
	if now-*vain < int64(silentPause) {
		return false
	}
	type victim struct {
		e     *silent
		shard int
		since int64
		begun bool
		over  bool
	}
	var all []victim
	part := g.part()
	for i := range s.shards {
		l := &s.shards[i]
		l.mu.Lock()
		for e := l.oldest; e != nil && now-e.since >= int64(silentAge); e = e.next {
			if e.mayEnd(now) && (service == nil || e.ex.backend.Service == service) {
				over := e.ex.share != nil && int64(e.ex.share.Load()) > part
				all = append(all, victim{e, i, e.since, e.begun, over})
			}
		}
		l.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b victim) int {
		return cmp.Or(order(b.over, a.over), order(a.begun, b.begun), cmp.Compare(a.since, b.since))
	})
	most := int(max(g.max/silentPart, 1))
	ended := 0
	for _, v := range all {
		if ended == most {
			break
		}
		l := &s.shards[v.shard]
		l.mu.Lock()
		if v.e.ex != nil && v.e.since == v.since && !v.e.ended {
			v.e.ended = true
			g.ending.Add(1)
			if share := v.e.ex.share; share != nil {
				share.Add(-1) // leave does not
			}
			v.e.ex.from.Client.Interrupt()
			ended++
		}
		l.mu.Unlock()
	}
	if ended == 0 {
		*vain = now
	}
	g.silenced.Add(uint64(ended))
	return ended > 0
}

// order compares with false first.
func order(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
