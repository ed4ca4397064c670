package proxy

import (
	"errors"
	"net"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weirmesh/weir/internal/socket"
)

// unpolledListener makes every connection a socket.Conn. Without it, chance decides which connections are.
type unpolledListener struct{ *net.TCPListener }

func unpolledListen(network, address string) (net.Listener, error) {
	ln, err := net.Listen(network, address)
	if err != nil {
		return nil, err
	}
	return unpolledListener{ln.(*net.TCPListener)}, nil
}

func (l unpolledListener) Accept() (net.Conn, error) {
	nc, err := l.AcceptTCP()
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	raw, err := nc.SyscallConn()
	if err != nil {
		return nil, err
	}
	var fd int
	var dupErr error
	err = raw.Control(func(of uintptr) { fd, dupErr = unix.FcntlInt(of, unix.F_DUPFD_CLOEXEC, 0) })
	if err = errors.Join(err, dupErr); err != nil {
		return nil, err
	}
	return socket.NewConn(fd, nc.RemoteAddr().(*net.TCPAddr)), nil
}

func init() {
	listen = func(t testing.TB) func(network, address string) (net.Listener, error) {
		if strings.HasPrefix(t.Name(), "TestConnectionsThatWereNotPolled/") {
			return unpolledListen
		}
		return socket.Listen
	}
}

func TestConnectionsThatWereNotPolled(t *testing.T) {
	t.Parallel()
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
