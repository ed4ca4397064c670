package intercept_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/intercept"
	"github.com/weirmesh/weir/internal/socket"
)

// open is a divider with a socket. In place of a redirect, a client's destination is the port by the last byte of the
// loopback address that it dials: 127.0.0.N is 10.0.0.1:800N.
func open(t *testing.T, edit ...func(*intercept.Divider)) (*intercept.Divider, func(n int) net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &intercept.Divider{Original: func(nc net.Conn) (netip.AddrPort, error) {
		last := nc.LocalAddr().(*net.TCPAddr).IP.To4()[3]
		if last == 9 {
			return netip.AddrPort{}, errors.New("unknown")
		}
		return netip.AddrPortFrom(netip.MustParseAddr("::ffff:10.0.0.1"), 8000+uint16(last)), nil
	}}
	for _, f := range edit {
		f(d)
	}
	d.Accept(ln)
	t.Cleanup(d.Close)
	port := ln.Addr().(*net.TCPAddr).Port
	return d, func(n int) net.Conn {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.%d:%d", n, port))
		if errors.Is(err, syscall.ECONNRESET) {
			return nil
		}
		if err != nil {
			t.Error(err)
			return nil
		}
		c.SetDeadline(time.Now().Add(30 * time.Second))
		t.Cleanup(func() { c.Close() })
		return c
	}
}

// answering accepts at an address and says its name, until the listener closes.
func answering(t *testing.T, d *intercept.Divider, address string) net.Listener {
	t.Helper()
	b, err := d.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := b.Stream.Accept()
			if err != nil {
				return
			}
			io.WriteString(c, address)
			c.Close()
		}
	}()
	t.Cleanup(func() { b.Close() })
	return b.Stream
}

// said is what comes over a connection; an error for one that is reset.
func said(c net.Conn) string {
	if c == nil {
		return "reset" // already while it was dialled
	}
	text, err := io.ReadAll(c)
	if err != nil {
		return "reset"
	}
	return string(text)
}

func TestConnectionsComeToTheListenerOfTheirPort(t *testing.T) {
	d, dial := open(t)
	answering(t, d, ":8001")
	answering(t, d, "10.0.0.1:8002")
	answering(t, d, "10.0.0.2:8003")
	answering(t, d, ":8004")
	answering(t, d, "10.0.0.1:8004")
	var all sync.WaitGroup
	for range 50 {
		for n, want := range map[int]string{1: ":8001", 2: "10.0.0.1:8002", 3: "reset", 4: "10.0.0.1:8004", 5: "reset", 9: "reset"} {
			all.Go(func() {
				if got := said(dial(n)); got != want {
					t.Errorf("%d: %q, want %q", n, got, want)
				}
			})
		}
	}
	all.Wait()
}

func TestOthersGetWhatHasNoListener(t *testing.T) {
	d, dial := open(t, func(d *intercept.Divider) {
		d.Other = func(nc net.Conn, to netip.AddrPort) {
			io.WriteString(nc, to.String())
			nc.Close()
		}
	})
	ln := answering(t, d, ":8001")
	if got := said(dial(2)); got != "10.0.0.1:8002" {
		t.Errorf("%q", got)
	}
	ln.Close()
	if got := said(dial(1)); got != "10.0.0.1:8001" {
		t.Errorf("after the listener's end: %q", got)
	}
	if err := ln.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed twice: %v", err)
	}
	answering(t, d, ":8001") // the address is free again
	if got := said(dial(1)); got != ":8001" {
		t.Errorf("opened again: %q", got)
	}
}

func TestAListenerThatStopsTakesWhatHasCome(t *testing.T) {
	d, dial := open(t)
	b, err := d.Listen("tcp", ":8001")
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error)
	go func() {
		_, err := b.Stream.Accept()
		failed <- err
	}()
	socket.StopAccepting(b.Stream)
	if err := <-failed; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v", err)
	}
	c := dial(1)
	taken := 0
	for end := time.Now().Add(30 * time.Second); taken == 0 && time.Now().Before(end); {
		socket.AcceptLast(b.Stream, func(nc net.Conn) {
			taken++
			io.WriteString(nc, "late")
			nc.Close()
		})
	}
	if got := said(c); got != "late" || taken != 1 {
		t.Errorf("%q, %d", got, taken)
	}
	c = dial(1)
	b.Close()
	if got := said(c); got != "reset" {
		t.Errorf("after the end: %q", got)
	}
	if _, err := b.Stream.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("%v", err)
	}
}

// TestAStuckListenerCostsItsOwnConnectionsAlone has a listener that nobody accepts from.
func TestAStuckListenerCostsItsOwnConnectionsAlone(t *testing.T) {
	d, dial := open(t)
	if _, err := d.Listen("tcp", ":8001"); err != nil {
		t.Fatal(err)
	}
	answering(t, d, ":8002")
	stuck := dial(1)
	if got := said(dial(2)); got != ":8002" {
		t.Errorf("%q", got)
	}
	if got := said(stuck); got != "reset" {
		t.Errorf("the stuck one: %q", got)
	}
}

func TestWhatCannotBeListenedTo(t *testing.T) {
	d, _ := open(t)
	answering(t, d, ":8001")
	for _, c := range []struct{ network, address string }{{"udp", ":8002"}, {"tcp", ":8001"}, {"tcp", "0.0.0.0:8001"}, {"tcp", "8002"}, {"tcp", ":0"}, {"tcp", ":70000"}, {"tcp", "name:1"}} {
		if _, err := d.Listen(c.network, c.address); err == nil {
			t.Errorf("%s %s is listened to", c.network, c.address)
		}
	}
	d.Close()
	if _, err := d.Listen("tcp", ":8003"); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
	if ln, err := net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	} else if d.Accept(ln); ln.Close() == nil {
		t.Error("a socket that came too late stays open")
	}
}
