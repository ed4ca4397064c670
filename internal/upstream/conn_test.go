package upstream

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestFillKeepsUnreadBytesAndFindsRoom(t *testing.T) {
	srv := echoServer(t)
	s := newSet(t, Options{ReadBuffer: 16})
	c, err := one(t, s, srv.address()).Dial(time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.Buffered() != nil {
		t.Fatal("a new connection has buffered bytes")
	}
	io.WriteString(c, "0123456789abcdefghijklmnopqrstuv\n")
	for len(c.Buffered()) < 16 {
		if _, err := c.Fill(); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := c.Fill(); n != 0 || !errors.Is(err, ErrBufferFull) {
		t.Fatalf("Fill of a full buffer: %d, %v", n, err)
	}
	c.Discard(10)
	for len(c.Buffered()) < 16 {
		if _, err := c.Fill(); err != nil {
			t.Fatal(err)
		}
	}
	if got := string(c.Buffered()); got != "abcdefghijklmnop" {
		t.Fatalf("after moving to the front: %q", got)
	}
	if err := c.Grow(24); err != nil {
		t.Fatal(err)
	}
	for len(c.Buffered()) < 23 {
		if _, err := c.Fill(); err != nil {
			t.Fatal(err)
		}
	}
	if got := string(c.Buffered()); got != "abcdefghijklmnopqrstuv\n" {
		t.Fatalf("after growing: %q", got)
	}
	if err := c.Grow(24); !errors.Is(err, ErrBufferFull) {
		t.Fatalf("grew beyond its limit: %v", err)
	}
}

func TestAGrownBufferIsNotKept(t *testing.T) {
	srv := echoServer(t)
	e := one(t, newSet(t, Options{ReadBuffer: 16}), srv.address())
	c := get(t, e, false)
	if err := c.Grow(1 << 10); err != nil {
		t.Fatal(err)
	}
	exchange(t, c, "more than sixteen bytes")
	e.Put(c)
	if c = get(t, e, true); c.buf != nil {
		t.Errorf("kept a buffer of %d bytes", len(c.buf.b))
	}
	exchange(t, c, "short")
	if c.endpoint != e {
		t.Error("leads elsewhere")
	}
	c.Close()
}

func TestReadGivesBufferedBytesFirst(t *testing.T) {
	srv := echoServer(t)
	c, err := one(t, newSet(t, Options{}), srv.address()).Dial(time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "head body\n")
	for len(c.Buffered()) < 10 {
		if _, err := c.Fill(); err != nil {
			t.Fatal(err)
		}
	}
	c.Discard(5)
	io.WriteString(c, "more\n")
	rest := make([]byte, 10)
	if _, err := io.ReadFull(c, rest); err != nil || string(rest) != "body\nmore\n" {
		t.Fatalf("%q, %v", rest, err)
	}
	if len(c.Buffered()) != 0 {
		t.Fatalf("%q is still buffered", c.Buffered())
	}
}

func TestDiscardOfMoreThanIsBufferedPanics(t *testing.T) {
	srv := echoServer(t)
	c, err := one(t, newSet(t, Options{}), srv.address()).Dial(time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	c.Discard(1)
}

// deadlines counts how often a deadline is set.
type deadlines struct {
	net.Conn
	reads, writes []time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error {
	d.reads = append(d.reads, t)
	return nil
}

func (d *deadlines) SetWriteDeadline(t time.Time) error {
	d.writes = append(d.writes, t)
	return nil
}

func TestDeadlinesAreTouchedOnlyWhenTheyMoveByMoreThanTheSlack(t *testing.T) {
	d := &deadlines{}
	c := &Conn{net: d, wire: d}
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	const slack = 100 * time.Millisecond
	steps := []struct {
		t       time.Time
		slack   time.Duration
		touched bool
	}{
		{time.Time{}, slack, false}, // nothing was set
		{at(1000), slack, true},
		{at(1000), slack, false},
		{at(1050), slack, false},
		{at(1100), slack, false}, // exactly what is set
		{at(1101), slack, true},  // would come too early
		{at(1100), slack, true},  // would come 101 ms late
		{at(1000), 0, true},      // exact
		{at(1000), 0, false},
		{time.Time{}, slack, true},
		{time.Time{}, slack, false},
	}
	for i, s := range steps {
		for name, set := range map[string]func(time.Time, time.Duration) error{"read": c.ReadBy, "write": c.WriteBy} {
			list := &d.reads
			if name == "write" {
				list = &d.writes
			}
			before := len(*list)
			if err := set(s.t, s.slack); err != nil {
				t.Fatal(err)
			}
			if touched := len(*list) > before; touched != s.touched {
				t.Errorf("step %d, %s: touched %t, want %t", i, name, touched, s.touched)
			}
			if s.touched && !s.t.IsZero() {
				if got := (*list)[before]; !got.Equal(s.t.Add(s.slack)) {
					t.Errorf("step %d, %s: set to %v, want t+slack", i, name, got)
				}
			}
		}
	}
}

func TestReadFailsBetweenItsTimeAndItsSlack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var network pipes
		s := New(Options{dial: network.dial})
		defer s.Close()
		c, err := one(t, s, "10.0.0.1:80").Dial(time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		start := time.Now()
		for range 10 { // as a busy connection does: always 5 s ahead
			c.ReadBy(time.Now().Add(5*time.Second), time.Second)
			exchange(t, c, "x")
			time.Sleep(300 * time.Millisecond)
		}
		last := time.Now()
		c.ReadBy(last.Add(5*time.Second), time.Second)
		if _, err := c.Fill(); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("read ended with %v", err)
		}
		if late := time.Since(last) - 5*time.Second; late < 0 || late > time.Second {
			t.Errorf("read failed %v after its time (%v after the start), want 0 to 1s", late, time.Since(start))
		}
	})
}

func TestAliveSeesCloseAndUnaskedBytes(t *testing.T) {
	srv := echoServer(t)
	e := one(t, newSet(t, Options{}), srv.address())
	c, err := e.Dial(time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	exchange(t, c, "hello")
	if !c.Alive() {
		t.Fatal("a good idle connection is not alive")
	}
	io.WriteString(c, "unasked\n")
	eventually(t, "unasked bytes are seen", func() bool { return !c.Alive() })
	c.Close()

	if c, err = e.Dial(time.Time{}); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "quit\n")
	eventually(t, "the close is seen", func() bool { return !c.Alive() })
}

func TestLookingAtAnIdleConnectionAllocatesNothing(t *testing.T) {
	srv := echoServer(t)
	c, err := one(t, newSet(t, Options{}), srv.address()).Dial(time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	exchange(t, c, "hello")
	if n := testing.AllocsPerRun(100, func() {
		if !c.Alive() {
			t.Error("not alive")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestAbortEndsAReadUnderWay(t *testing.T) {
	srv := echoServer(t)
	e := one(t, newSet(t, Options{}), srv.address())
	c, err := e.Dial(time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		_, err := c.Fill()
		done <- err
	}()
	c.Abort()
	if err := <-done; !errors.Is(err, net.ErrClosed) {
		t.Fatalf("read ended with %v", err)
	}
	e.Put(c) // too late to be kept
	if st := e.Stats(); st.Idle != 0 || st.Open != 0 || st.InFlight != 0 {
		t.Errorf("after Put of an aborted connection: %+v", st)
	}
	c.Close()
	c.Abort()
	if n := e.InFlight(); n != 0 {
		t.Errorf("in flight after closing twice: %d", n)
	}
}

func TestCloseWriteLeavesTheReadingSideOpen(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		all, _ := io.ReadAll(c)
		io.WriteString(c, strings.ToUpper(string(all)))
	}()
	c, err := one(t, newSet(t, Options{}), l.Addr().String()).Dial(time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.TCP() == nil {
		t.Fatal("a cleartext connection has no TCP connection")
	}
	io.WriteString(c, "tunnel")
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if all, err := io.ReadAll(c); err != nil || string(all) != "TUNNEL" {
		t.Fatalf("%q, %v", all, err)
	}
	<-done
}
