package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirmesh/weir/internal/model"
)

func get(t testing.TB, e *Endpoint, wantReused bool) *Conn {
	t.Helper()
	c, reused, err := e.Get(time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	if reused != wantReused {
		t.Fatalf("reused is %t, want %t", reused, wantReused)
	}
	return c
}

func TestIdleConnectionsAreReused(t *testing.T) {
	srv := echoServer(t)
	e := one(t, newSet(t, Options{}), srv.address())
	a, b := get(t, e, false), get(t, e, false)
	exchange(t, a, "a")
	exchange(t, b, "b")
	if n := e.InFlight(); n != 2 {
		t.Errorf("in flight with two connections out: %d", n)
	}
	e.Put(a)
	e.Put(b)
	if st := e.Stats(); st.InFlight != 0 || st.Idle != 2 || st.Open != 2 || st.Dials != 2 {
		t.Errorf("after Put: %+v", st)
	}
	if c := get(t, e, true); c != a {
		t.Error("not the connection that has rested")
	} else {
		exchange(t, c, "again")
		c.Close()
	}
	if c := get(t, e, true); c != b {
		t.Error("not the other connection")
	} else {
		c.Close()
	}
	if st := e.Stats(); st.InFlight != 0 || st.Idle != 0 || st.Open != 0 || st.Reuses != 2 {
		t.Errorf("after Close: %+v", st)
	}
}

// The connection that is taken has rested longest among the eight put last, unless it was put too long ago.
func TestAConnectionThatHasRestedIsPreferred(t *testing.T) {
	srv := echoServer(t)
	s := newSet(t, Options{})
	e := one(t, s, srv.address())
	var all []*Conn
	for range restedOf + 2 {
		all = append(all, get(t, e, false))
	}
	put := func(conns ...*Conn) {
		for _, c := range conns {
			e.Put(c)
		}
	}
	want := func(what string, conns ...*Conn) {
		t.Helper()
		for i, c := range conns {
			if got := get(t, e, true); got != c {
				t.Fatalf("%s: connection %d taken is number %d, want %d", what, i, slices.Index(all, got), slices.Index(all, c))
			}
		}
	}
	put(all...)
	want("of ten", all[2], all[1], all[0], all[3], all[4])
	put(all[2], all[1], all[0], all[3], all[4])
	want("after they were put", all[7], all[6])
	put(all[7], all[6])
	s.epoch.Add(2) // as the sweep does, once a second
	want("of those put long ago", all[6], all[7])
	put(all[7], all[6])
	want("of two put just now and others", all[7], all[6], all[4])
	for _, c := range all {
		c.Close()
	}
}

func TestAReusedConnectionCostsNoAllocation(t *testing.T) {
	srv := echoServer(t)
	e := one(t, newSet(t, Options{}), srv.address())
	e.Put(get(t, e, false))
	if n := testing.AllocsPerRun(100, func() {
		c, _, err := e.Get(time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		e.Put(c)
		e.set.epoch.Add(2) // it is checked then
		if c, _, err = e.Get(time.Time{}); err != nil {
			t.Fatal(err)
		}
		e.Put(c)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestAConnectionWithUnreadBytesIsNotReused(t *testing.T) {
	srv := echoServer(t)
	e := one(t, newSet(t, Options{}), srv.address())
	c := get(t, e, false)
	io.WriteString(c, "more than asked\n")
	c.Fill()
	c.Discard(1)
	e.Put(c)
	if st := e.Stats(); st.Open != 0 || st.InFlight != 0 {
		t.Errorf("%+v", st)
	}
}

func TestIdleConnectionsAreBounded(t *testing.T) {
	srv := echoServer(t)
	e := one(t, newSet(t, Options{MaxIdlePerEndpoint: 2}), srv.address())
	var conns []*Conn
	for range 5 {
		conns = append(conns, get(t, e, false))
	}
	for _, c := range conns {
		e.Put(c)
	}
	if st := e.Stats(); st.Idle != 2 || st.Open != 2 || st.InFlight != 0 {
		t.Errorf("%+v", st)
	}
	none := one(t, newSet(t, Options{MaxIdlePerEndpoint: -1}), srv.address())
	none.Put(get(t, none, false))
	if st := none.Stats(); st.Open != 0 {
		t.Errorf("kept a connection though none is allowed: %+v", st)
	}
}

func TestGetSkipsConnectionsThatWentStaleWhileIdle(t *testing.T) {
	srv := echoServer(t)
	e := one(t, newSet(t, Options{}), srv.address())
	a, b := get(t, e, false), get(t, e, false)
	for _, c := range []*Conn{a, b} {
		io.WriteString(c, "quit\n")
		awaitClosed(t, c)
		e.Put(c)
	}
	e.set.epoch.Add(2)
	c, reused, err := e.Get(time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if reused {
		t.Error("a stale connection was given out")
	}
	exchange(t, c, "fresh")
	if st := e.Stats(); st.Open != 1 || st.InFlight != 1 || !st.Healthy || st.Failures != 0 {
		t.Errorf("%+v", st)
	}
}

func TestGetReturnsAJustClosedConnectionAsReusedAndDialIsFresh(t *testing.T) {
	srv := echoServer(t)
	e := one(t, newSet(t, Options{}), srv.address())
	c := get(t, e, false)
	io.WriteString(c, "quit\n")
	awaitClosed(t, c)
	e.Put(c)
	c = get(t, e, true)
	io.WriteString(c, "x\n")
	if _, err := c.Fill(); err == nil {
		t.Error("read from a closed connection")
	}
	c.Close()
	c, err := e.Dial(time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	exchange(t, c, "x")
	c.Close()
}

func TestIdleConnectionsExpireAndLoseTheirBuffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var network pipes
		s := New(Options{IdleTimeout: 20 * time.Second, dial: network.dial})
		defer s.Close()
		e := one(t, s, "10.0.0.1:80")
		old, young := get(t, e, false), get(t, e, false)
		exchange(t, old, "x")
		exchange(t, young, "x")
		e.Put(old)
		e.mu.Lock()
		if old.buf == nil {
			t.Error("a busy connection lost its buffer")
		}
		e.mu.Unlock()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		e.mu.Lock()
		if old.buf != nil {
			t.Error("an idle connection keeps its buffer")
		}
		e.mu.Unlock()
		e.Put(young)
		time.Sleep(9 * time.Second)
		synctest.Wait()
		if st := e.Stats(); st.Idle != 2 {
			t.Errorf("closed before its time: %+v", st)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if st := e.Stats(); st.Idle != 1 || st.Open != 1 {
			t.Errorf("the older connection did not expire alone: %+v", st)
		}
		c := get(t, e, true)
		if c != young {
			t.Error("not the younger connection")
		}
		exchange(t, c, "with a new buffer")
		e.Put(c)
		time.Sleep(22 * time.Second)
		synctest.Wait()
		if st := e.Stats(); st.Idle != 0 || st.Open != 0 {
			t.Errorf("did not expire: %+v", st)
		}
	})
}

func TestAConnectionThatWasIdleForSecondsIsChecked(t *testing.T) {
	srv := echoServer(t)
	s := newSet(t, Options{})
	e := one(t, s, srv.address())
	c := get(t, e, false)
	io.WriteString(c, "quit\n")
	awaitClosed(t, c)
	e.Put(c)
	s.epoch.Add(2) // as the sweep does, once a second
	c = get(t, e, false)
	defer c.Close()
	exchange(t, c, "fresh")
}

func TestConnectFailuresAreNamed(t *testing.T) {
	t.Run("refused", func(t *testing.T) {
		address := refused(t)
		e := one(t, newSet(t, Options{}), address)
		_, _, err := e.Get(time.Time{})
		var ce *ConnectError
		if !errors.As(err, &ce) || ce.Reason != ConnectRefused || ce.Timeout || ce.Address != address {
			t.Fatalf("%#v", err)
		}
		if st := e.Stats(); st.Dials != 1 || st.DialFails != 1 || st.Failures != 1 || st.InFlight != 0 {
			t.Errorf("%+v", st)
		}
	})
	t.Run("unresolved", func(t *testing.T) {
		s := newSet(t, Options{dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "gone.test", IsNotFound: true}}
		}})
		_, err := one(t, s, "gone.test:80").Dial(time.Time{})
		var ce *ConnectError
		if !errors.As(err, &ce) || ce.Reason != ConnectUnresolved || ce.Timeout {
			t.Fatalf("%#v", err)
		}
	})
	t.Run("local shortage does not count", func(t *testing.T) {
		s := newSet(t, Options{dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Err: syscall.EMFILE}
		}})
		e := one(t, s, "10.0.0.1:80")
		_, err := e.Dial(time.Time{})
		var ce *ConnectError
		if !errors.As(err, &ce) || ce.Reason != ConnectLocal {
			t.Fatalf("%#v", err)
		}
		if st := e.Stats(); st.Failures != 0 || st.DialFails != 1 {
			t.Errorf("%+v", st)
		}
	})
}

func TestDialIsBoundedByConnectTimeoutAndDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blackHole := func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		s := New(Options{ConnectTimeout: 3 * time.Second, EjectAfter: -1, dial: blackHole})
		defer s.Close()
		e := one(t, s, "10.0.0.1:80")
		for _, c := range []struct{ deadline, want time.Duration }{{0, 3}, {10, 3}, {2, 2}, {-1, 0}} {
			start := time.Now()
			var deadline time.Time
			if c.deadline != 0 {
				deadline = start.Add(c.deadline * time.Second)
			}
			_, _, err := e.Get(deadline)
			var ce *ConnectError
			if !errors.As(err, &ce) || ce.Reason != ConnectTimedOut || !ce.Timeout {
				t.Fatalf("%#v", err)
			}
			if d := time.Since(start); d != c.want*time.Second {
				t.Errorf("deadline in %d s: took %v, want %d s", c.deadline, d, c.want)
			}
		}
		if st := e.Stats(); st.Failures != 3 || st.InFlight != 0 {
			t.Errorf("a deadline that had passed before the dial must not count: %+v", st)
		}
	})
}

func TestHostNamesAreResolvedAtDialTime(t *testing.T) {
	srv := echoServer(t)
	_, port, _ := net.SplitHostPort(srv.address())
	e := one(t, newSet(t, Options{}), net.JoinHostPort("localhost", port))
	c := get(t, e, false)
	exchange(t, c, "by name")
	e.Put(c)
}

func TestParallelExchangesShareThePool(t *testing.T) {
	srv := echoServer(t)
	s := newSet(t, Options{})
	e := one(t, s, srv.address())
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 50 {
				c, _, err := e.Get(time.Time{})
				if err != nil {
					t.Error(err)
					return
				}
				line := fmt.Sprint(w, " ", i)
				c.ReadBy(time.Now().Add(time.Minute), time.Second)
				io.WriteString(c, line+"\n")
				for len(c.Buffered()) <= len(line) {
					if _, err := c.Fill(); err != nil {
						t.Error(err)
						c.Close()
						return
					}
				}
				if string(c.Buffered()) != line+"\n" {
					t.Errorf("read %q, want %q", c.Buffered(), line)
				}
				c.Discard(len(c.Buffered()))
				if i%10 == 9 {
					c.Close()
				} else {
					e.Put(c)
				}
			}
		})
	}
	for range 20 {
		s.sweep()
	}
	wg.Wait()
	if st := e.Stats(); st.InFlight != 0 || st.Idle != st.Open {
		t.Errorf("%+v", st)
	}
}

func TestCloseEndsUsedConnectionsAndFurtherOnesAreRefused(t *testing.T) {
	srv := echoServer(t)
	s := New(Options{})
	svc := apply(t, s, config(srv.address()))
	e := svc.Endpoints()[0]
	e.Put(get(t, e, false))
	used := get(t, e, true)
	idle := get(t, e, false)
	e.Put(idle)
	done := make(chan error)
	go func() {
		_, err := used.Fill()
		done <- err
	}()
	s.Close()
	if err := <-done; err == nil {
		t.Error("a read survived Close")
	}
	used.Close()
	if st := e.Stats(); st.Open != 0 || st.InFlight != 0 {
		t.Errorf("%+v", st)
	}
	var ce *ConnectError
	if _, _, err := e.Get(time.Time{}); !errors.Is(err, ErrClosed) || !errors.As(err, &ce) || ce.Reason != ConnectClosed {
		t.Errorf("Get after Close: %v", err)
	}
	if _, err := s.Apply(&model.Config{}); !errors.Is(err, ErrClosed) {
		t.Errorf("Apply after Close: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}
