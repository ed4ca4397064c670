package socket

import (
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// queued are n connections as an Queue takes them, with the clients' sides.
func queued(t *testing.T, n int) (conns []*Conn, clients []net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	q := OpenQueue(ln)
	if q == nil {
		t.Fatal("the socket cannot be used")
	}
	defer q.Close()
	for range n {
		clients = append(clients, dial(t, ln.Addr().String()))
	}
	until(t, "connections that were made did not wait in the queue", func() bool {
		q.raw.Control(func(fd uintptr) {
			_, err := acceptSome(fd, acceptBatch, func(nc net.Conn) {
				conns = append(conns, nc.(*Conn))
				t.Cleanup(func() { nc.Close() })
			})
			if err != nil {
				t.Error(err)
			}
		})
		return len(conns) >= n
	})
	return conns, clients
}

func TestQueueTakesWhatWaits(t *testing.T) {
	conns, clients := queued(t, 5)
	for i, l := range conns {
		if got, want := l.RemoteAddr().String(), clients[i].LocalAddr().String(); got != want {
			t.Errorf("remote address %s, want %s", got, want)
		}
		if got, want := l.LocalAddr().String(), clients[i].RemoteAddr().String(); got != want {
			t.Errorf("local address %s, want %s", got, want)
		}
		l.with(func(fd int) error {
			expectInherited(t, uintptr(fd))
			return nil
		})
	}
}

func TestConnIsPolledOnlyToWait(t *testing.T) {
	conns, clients := queued(t, 1)
	l, raw := conns[0], (*connRaw)(conns[0])
	if _, err := clients[0].Write([]byte("a")); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 10)
	read := func(fd uintptr) bool {
		n, err := Read(fd, b[:cap(b)])
		b = b[:max(n, 0)]
		return err != syscall.EAGAIN
	}
	until(t, "nothing came", func() bool {
		done := false
		if err := raw.Control(func(fd uintptr) { done = read(fd) }); err != nil {
			t.Fatal(err)
		}
		return done
	})
	if string(b) != "a" {
		t.Errorf("read %q", b)
	}
	if err := raw.Write(func(fd uintptr) bool { _, err := Write(fd, []byte("b")); return err == nil }); err != nil {
		t.Fatal(err)
	}
	if l.polled.Load() != nil {
		t.Error("polled without a need")
	}
	l.SetReadDeadline(LongAgo)
	if err := raw.Read(read); !isTimeout(err) {
		t.Errorf("after the deadline: %v", err)
	}
	if l.polled.Load() == nil {
		t.Error("not polled, though it had to wait")
	}
	l.SetDeadline(time.Time{})
	woken := make(chan error, 1)
	go func() { woken <- raw.Read(read) }()
	l.Close()
	if err := <-woken; err == nil {
		t.Error("a read of a closed socket")
	}
}

func TestConnInUseIsNotClosedUnderItsUser(t *testing.T) {
	for _, polled := range []bool{false, true} {
		conns, clients := queued(t, 1)
		l, raw := conns[0], (*connRaw)(conns[0])
		err := raw.Control(func(fd uintptr) {
			if polled {
				if _, err := l.poll(); err != nil {
					t.Fatal(err)
				}
			}
			l.Close()
			if n, err := clients[0].Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("the client read %d, %v", n, err)
			}
			if _, err := unix.Getpeername(int(fd)); errors.Is(err, unix.EBADF) {
				t.Error("closed")
			}
			if _, err := l.Write([]byte("x")); err == nil {
				t.Error("written after the close")
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("closed twice: %v", err)
		}
		if err := raw.Control(func(uintptr) {}); err == nil {
			t.Error("used after its close")
		}
	}
}

// TestCloseWaitsForACallbackThatWaitsForADeadline holds that a close, which waits for the callbacks under way, keeps nobody from setting a deadline.
func TestCloseWaitsForACallbackThatWaitsForADeadline(t *testing.T) {
	conns, _ := queued(t, 1)
	l, raw := conns[0], (*connRaw)(conns[0])
	if _, err := l.poll(); err != nil {
		t.Fatal(err)
	}
	entered, set := make(chan struct{}), make(chan struct{})
	read, closed := make(chan error, 1), make(chan error, 1)
	go func() {
		read <- raw.Read(func(uintptr) bool {
			close(entered)
			select {
			case <-set:
			case <-time.After(10 * time.Second):
				t.Error("no deadline could be set while the socket was closed")
			}
			return true
		})
	}()
	<-entered
	go func() { closed <- l.Close() }()
	until(t, "the close did not begin", func() bool { return raw.Control(func(uintptr) {}) != nil })
	if err := l.SetReadDeadline(LongAgo); err == nil {
		t.Error("a deadline of a closed socket")
	}
	close(set)
	if err := <-read; err != nil {
		t.Errorf("the read that was under way: %v", err)
	}
	if err := <-closed; err != nil {
		t.Errorf("the close: %v", err)
	}
}
