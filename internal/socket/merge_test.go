package socket_test

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/socket"
)

// several are listeners at loopback, and one of all of them.
func several(t *testing.T, n int) (all []net.Listener, one net.Listener) {
	t.Helper()
	for range n {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, ln)
	}
	one = socket.Merge(all...)
	t.Cleanup(func() { one.Close() })
	return all, one
}

func TestOneListenerHasTheConnectionsOfSeveral(t *testing.T) {
	all, one := several(t, 3)
	if one.Addr() != all[0].Addr() {
		t.Errorf("its address is %v", one.Addr())
	}
	var accepted atomic.Int64
	go func() {
		for {
			c, err := one.Accept()
			if err != nil {
				return
			}
			accepted.Add(1)
			io.WriteString(c, c.LocalAddr().String())
			c.Close()
		}
	}()
	var clients sync.WaitGroup
	for _, ln := range all {
		for range 20 {
			clients.Go(func() {
				c, err := net.Dial("tcp", ln.Addr().String())
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				if text, err := io.ReadAll(c); err != nil || string(text) != ln.Addr().String() {
					t.Errorf("%q, %v", text, err)
				}
			})
		}
	}
	clients.Wait()
	if n := accepted.Load(); n != 60 {
		t.Errorf("%d connections", n)
	}
}

func TestAMergedListenerThatStopsTakesWhatHasCome(t *testing.T) {
	all, one := several(t, 2)
	failed := make(chan error)
	go func() {
		_, err := one.Accept()
		failed <- err
	}()
	socket.StopAccepting(one)
	if err := <-failed; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v", err)
	}
	c, err := net.Dial("tcp", all[1].Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	n := 0
	for end := time.Now().Add(30 * time.Second); n == 0 && time.Now().Before(end); {
		socket.AcceptLast(one, func(nc net.Conn) {
			n++
			nc.Close()
		})
	}
	if n != 1 {
		t.Errorf("%d connections were taken", n)
	}
}

func TestAMergedListenerClosesAll(t *testing.T) {
	all, one := several(t, 2)
	waiting, err := net.Dial("tcp", all[0].Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer waiting.Close()
	failed := make(chan error)
	go func() {
		for {
			if c, err := one.Accept(); err != nil {
				failed <- err
				return
			} else {
				defer c.Close()
			}
		}
	}()
	if err := one.Close(); err != nil {
		t.Error(err)
	}
	if err := <-failed; !errors.Is(err, net.ErrClosed) {
		t.Errorf("%v", err)
	}
	for _, ln := range all {
		if _, err := ln.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%v: %v", ln.Addr(), err)
		}
	}
	if err := one.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed twice: %v", err)
	}
}

// failing is a listener that fails now and then.
type failing struct {
	net.Listener
	n atomic.Int64
}

var errNow = errors.New("too many files")

func (f *failing) Accept() (net.Conn, error) {
	if f.n.Add(1)%2 == 1 {
		return nil, errNow
	}
	return f.Listener.Accept()
}

func TestAMergedListenerTellsOfErrors(t *testing.T) {
	all, _ := several(t, 1)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	one := socket.Merge(all[0], &failing{Listener: ln})
	defer one.Close()
	if _, err := one.Accept(); err != errNow {
		t.Errorf("%v", err)
	}
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	nc, err := one.Accept()
	if err != nil {
		t.Fatal(err)
	}
	nc.Close()
}
