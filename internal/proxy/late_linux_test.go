package proxy

import (
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirmesh/weir/internal/socket"
)

// lateListener makes a lateSocket of every connection, where otherwise it is chance which are.
type lateListener struct{ *net.TCPListener }

func lateListen(network, address string) (net.Listener, error) {
	ln, err := net.Listen(network, address)
	if err != nil {
		return nil, err
	}
	return lateListener{ln.(*net.TCPListener)}, nil
}

func (l lateListener) Accept() (net.Conn, error) {
	nc, err := l.AcceptTCP()
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	raw, err := nc.SyscallConn()
	if err != nil {
		return nil, err
	}
	late := &lateSocket{remote: nc.RemoteAddr().(*net.TCPAddr)}
	var dupErr error
	err = raw.Control(func(fd uintptr) { late.fd, dupErr = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) })
	return late, errors.Join(err, dupErr)
}

func TestConnectionsThatWereNotPolled(t *testing.T) {
	listen = lateListen
	defer func() { listen = Listen }()
	for name, test := range map[string]func(*testing.T){
		"fragments":           TestFragmentedAndPipelinedRequestsAreAllAnswered,
		"end with request":    TestEndThatComesWithALaterRequestIsNoticed,
		"slow reader":         TestSlowReaderGetsTheWholeAnswer,
		"large bodies":        TestLargeBodiesPassBothWays,
		"streams":             TestStreamsBothWaysAtOnce,
		"expect":              TestExpectContinueIsPassedOn,
		"early answer":        TestEarlyAnswerEndsTheUpload,
		"slow head":           TestSlowHeadIsAnsweredWith408,
		"idle":                TestIdleConnectionIsClosedSilently,
		"refused":             TestConnectionsBeyondTheLimitAreRefused,
		"no goroutine":        TestIdleConnectionsNeedNoGoroutine,
		"silent":              TestSilentConnectionsNeedNoGoroutine,
		"end of parked":       TestParkedConnectionsEndWithTheirTime,
		"parked drain":        TestParkedConnectionsAreServedWhileTheServerDrains,
		"upgrade":             TestUpgradeIsTunnelledWithHalfClose,
		"prior knowledge":     TestHTTP2IsServedWithPriorKnowledge,
		"ALPN":                TestHTTP2ByALPN,
		"drain of HTTP/2":     TestDrainEndsHTTP2ConnectionsAfterTheirStreams,
		"slow body":           TestSlowBodyIsTheClientsFault,
		"client takes little": TestClientThatTakesLittleIsServed,
		"TCP, reset":          TestABrokenEndpointBreaksTheClientsConnection,
		"TCP, silent":         TestASilentConnectionIsClosed,
	} {
		t.Run(name, test)
	}
}

// queued are n connections as an acceptQueue takes them, with the clients' sides.
func queued(t *testing.T, n int) (late []*lateSocket, clients []net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	q := openQueue(ln)
	if q == nil {
		t.Fatal("the socket cannot be used")
	}
	defer q.close()
	for range n {
		clients = append(clients, dial(t, ln.Addr().String()))
	}
	until(t, "connections that were made did not wait in the queue", func() bool {
		q.raw.Control(func(fd uintptr) {
			_, err := acceptSome(fd, acceptBatch, func(nc net.Conn) {
				late = append(late, nc.(*lateSocket))
				t.Cleanup(func() { nc.Close() })
			})
			if err != nil {
				t.Error(err)
			}
		})
		return len(late) >= n
	})
	return late, clients
}

func TestAcceptQueueTakesWhatWaits(t *testing.T) {
	late, clients := queued(t, 5)
	for i, l := range late {
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

func TestLateSocketIsPolledOnlyToWait(t *testing.T) {
	late, clients := queued(t, 1)
	l, raw := late[0], (*lateRaw)(late[0])
	if _, err := clients[0].Write([]byte("a")); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 10)
	read := func(fd uintptr) bool {
		n, err := socket.Read(fd, b[:cap(b)])
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
	if err := raw.Write(func(fd uintptr) bool { _, err := socket.Write(fd, []byte("b")); return err == nil }); err != nil {
		t.Fatal(err)
	}
	if l.polled.Load() != nil {
		t.Error("polled without a need")
	}
	l.SetReadDeadline(longAgo)
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

func TestLateSocketInUseIsNotClosedUnderItsUser(t *testing.T) {
	for _, polled := range []bool{false, true} {
		late, clients := queued(t, 1)
		l, raw := late[0], (*lateRaw)(late[0])
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
