package upstream

import (
	"context"
	"errors"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirmesh/weir/internal/model"
)

func TestAFullEndpointIsNotPicked(t *testing.T) {
	s := newSet(t, Options{})
	limit := func(m *model.Service) { m.Limits = &model.Limits{EndpointRequests: 5} }
	for _, n := range []int{1, 2, 3, 7} {
		svc := apply(t, s, with(limit, hosts(n)...))
		for range 5 * n {
			e := svc.Pick(nil)
			if e == nil {
				t.Fatal("none though there is room")
			}
			e.inFlight.Add(1)
		}
		if e := svc.Pick(nil); e != nil || !svc.Stats().Full {
			t.Errorf("picked %v of %d full ones", e, n)
		}
		for _, e := range svc.Endpoints() {
			if e.InFlight() != 5 {
				t.Errorf("%d in flight, want 5", e.InFlight())
			}
		}
		last := svc.Endpoints()[n-1]
		last.inFlight.Add(-1)
		if e := svc.Pick(nil); e != last || svc.Stats().Full {
			t.Errorf("picked %v, want the one with room", e)
		}
		if n > 1 {
			// Requests beyond the limits of the healthy ones do not go to a bad one.
			sicken(last)
			if e := svc.Pick(nil); e != nil {
				t.Errorf("picked the sick %v", e)
			}
			last.health.failing.Store(false)
		}
		for _, e := range svc.Endpoints() {
			e.inFlight.Store(0)
		}
	}
}

func TestRequestsToAServiceAreBounded(t *testing.T) {
	s := newSet(t, Options{})
	svc := apply(t, s, with(func(m *model.Service) { m.Limits = &model.Limits{Requests: 100} }, hosts(2)...))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				if svc.Begin() {
					if n := svc.use.active.Load(); n > 100+8 { // those that are being refused count for a moment
						t.Errorf("%d in flight", n)
					}
					svc.End()
				}
			}
		})
	}
	wg.Wait()
	for range 100 {
		if !svc.Begin() {
			t.Fatal("refused though there is room")
		}
	}
	if svc.Begin() || !svc.Stats().Full {
		t.Error("the hundred and first was let in")
	}
	// A change of the configuration loses no count.
	again := apply(t, s, with(func(m *model.Service) { m.Limits = &model.Limits{Requests: 100} }, hosts(3)...))
	if again.Begin() {
		t.Error("let in after a change of the configuration")
	}
	svc.End()
	if !again.Begin() {
		t.Error("refused though there is room")
	}
}

// TestAnEndpointsLimitIsExact has many begin at the same instant at an endpoint that has room for some.
func TestAnEndpointsLimitIsExact(t *testing.T) {
	const limit, asked = 50, 200
	s := New(Options{dial: func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		far.Close()
		return near, nil
	}})
	defer s.Close()
	svc := apply(t, s, with(func(m *model.Service) { m.Limits = &model.Limits{EndpointRequests: limit} }, hosts(1)...))
	e := svc.Endpoints()[0]
	for round := range 20 {
		conns := make(chan *Conn, asked)
		var refused atomic.Int64
		begin := make(chan struct{})
		var wg sync.WaitGroup
		for range asked {
			wg.Go(func() {
				<-begin
				if svc.Pick(nil) == nil {
					refused.Add(1)
					return
				}
				runtime.Gosched() // others take what Pick saw
				switch c, _, err := e.Get(time.Time{}); {
				case IsFull(err):
					refused.Add(1)
				case err != nil:
					t.Error(err)
				default:
					conns <- c
				}
			})
		}
		close(begin)
		wg.Wait()
		if n := len(conns); n != limit || refused.Load() != asked-limit || e.InFlight() != limit {
			t.Fatalf("round %d: %d began, %d were refused, %d in flight", round, n, refused.Load(), e.InFlight())
		}
		if svc.Pick(nil) != nil {
			t.Fatalf("round %d: a full endpoint is chosen", round)
		}
		for i := range limit {
			if c := <-conns; i%2 == 0 {
				c.Close()
			} else {
				e.Put(c)
			}
		}
		if n := e.InFlight(); n != 0 {
			t.Fatalf("round %d: %d in flight at the end", round, n)
		}
	}
	if st := e.Stats(); st.Failures != 0 {
		t.Errorf("%+v", st)
	}
}

func TestConnectsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		s := New(Options{dial: func(context.Context, string, string) (net.Conn, error) {
			<-answer
			near, far := net.Pipe()
			far.Close()
			return near, nil
		}})
		defer s.Close()
		e := apply(t, s, with(func(m *model.Service) { m.Limits = &model.Limits{Connecting: 3} }, hosts(2)...)).Endpoints()[0]
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if c, err := e.Dial(time.Time{}); err != nil {
					t.Error(err)
				} else {
					c.Close()
				}
			})
		}
		synctest.Wait()
		var ce *ConnectError
		if _, err := e.Dial(time.Time{}); !errors.As(err, &ce) || ce.Reason != ConnectBusy {
			t.Errorf("the fourth: %v", err)
		}
		close(answer)
		wg.Wait()
		if c, err := e.Dial(time.Time{}); err != nil {
			t.Errorf("with room again: %v", err)
		} else {
			c.Close()
		}
		if st := e.Stats(); st.Failures != 0 || st.InFlight != 0 {
			t.Errorf("%+v", st)
		}
	})
}

func TestOpenConnectionsAreBoundedAndIdleOnesMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var network pipes
		s := New(Options{dial: network.dial, MaxConnections: 4})
		defer s.Close()
		svc := apply(t, s, config(hosts(2)...))
		a, b := svc.Endpoints()[0], svc.Endpoints()[1]
		open := func(e *Endpoint) *Conn {
			c, err := e.Dial(time.Time{})
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		used := []*Conn{open(a), open(a)}
		idle := []*Conn{open(a), open(a)}
		var ce *ConnectError
		if _, err := b.Dial(time.Time{}); !errors.As(err, &ce) || ce.Reason != ConnectLocal {
			t.Errorf("the fifth: %v", err)
		}
		for _, c := range idle {
			a.Put(c)
		}
		used = append(used, open(b))
		if n := s.open.Load(); n > 4 || a.Stats().Idle != 0 {
			t.Errorf("%d open, %+v", n, a.Stats())
		}
		for _, c := range used {
			c.Close()
		}
		if n := s.open.Load(); n != 0 {
			t.Errorf("%d open after all are closed", n)
		}
		if st := b.Stats(); st.Failures != 0 {
			t.Errorf("%+v", st)
		}
	})
}

func TestRetriesAreAShareOfTheRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{})
		defer s.Close()
		run := func(svc *Service, seconds, rate int) (retries int) {
			for range seconds {
				for range rate {
					svc.Retryable()
					for range 3 { // each request would be tried three times more
						if svc.Retry() {
							retries++
						}
					}
				}
				time.Sleep(time.Second)
			}
			return retries
		}
		for name, x := range map[string]struct {
			percent     *int
			rate        int
			least, most float64 // retries of a request
		}{
			"20 % by default":          {nil, 1000, 0.15, 0.25},
			"half":                     {to(50), 1000, 0.4, 0.6},
			"none":                     {to(0), 1000, 0, 0},
			"ten a second in any case": {to(1), 20, 0.4, 1.3},
			"those of a quiet service": {nil, 1, 3, 3},
		} {
			svc := apply(t, s, with(func(m *model.Service) {
				m.Name = "ns/svc:80"
				m.Limits = &model.Limits{RetryPercent: x.percent}
			}, hosts(1)...))
			svc.use.tried.Store(0)
			svc.use.retried.Store(0)
			before := svc.Stats().Rejected[LimitRetries]
			n := run(svc, 60, x.rate)
			share := float64(n) / float64(60*x.rate)
			if share < x.least || share > x.most {
				t.Errorf("%s: %.2f retries a request", name, share)
			}
			if rejected := svc.Stats().Rejected[LimitRetries] - before; rejected != uint64(3*60*x.rate-n) {
				t.Errorf("%s: %d retries rejected of %d", name, rejected, 3*60*x.rate-n)
			}
		}
	})
}
