package netfilter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirmesh/weir/internal/redirect"
)

// readAll is read in the network namespace of the calling thread.
func readAll() ([]redirect.Chain, error) {
	c, err := open(patience)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.CloseLasting() }()
	return read(c)
}

func parse(t *testing.T, annotations map[string]string) redirect.Plan {
	t.Helper()
	full := map[string]string{}
	for k, v := range annotations {
		full[redirect.Prefix+k] = v
	}
	p, err := redirect.Parse(full, redirect.Default())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestConnectionsAreRedirectedBothWays(t *testing.T) {
	w := newWorld(t)
	p := parse(t, map[string]string{
		redirect.SkipInboundPorts: "9000,9100-9200", redirect.SkipOutbound: "5432", redirect.SkipUsers: "1001",
		redirect.SkipNetworks: "10.77.1.0/24,fd77:0:0:1::/64",
	})
	w.client.must(t, func() error { return addAddress("eth0", "10.77.1.1/24") })
	w.client.must(t, func() error { return addAddress("eth0", "fd77:0:0:1::1/64") })
	w.pod.must(t, func() error { return addAddress("eth0", "10.77.1.2/24") })
	w.pod.must(t, func() error { return addAddress("eth0", "fd77:0:0:1::2/64") })
	serve(t, w.pod, "app", false, ":80", ":9000", ":9150", "127.0.0.1:7000")
	serve(t, w.client, "peer", false, ":80", ":5432", ":53")
	w.serveSidecar(t, p)
	w.set(t, p)
	for _, x := range []struct {
		in       namespace
		user     int
		to, want string
	}{
		{w.client, 0, podIPv4 + ":80", "in " + podIPv4 + ":80"}, // v4-mapped: the listener's socket is of IPv6
		{w.client, 0, "[" + podIPv6 + "]:80", "in [" + podIPv6 + "]:80"},
		{w.client, 0, podIPv4 + ":1", "in " + podIPv4 + ":1"}, // no Service, no container has it
		{w.client, 0, podIPv4 + ":9000", "app"},
		{w.client, 0, "[" + podIPv6 + "]:9150", "app"},
		{w.client, 0, podIPv4 + ":9201", "in " + podIPv4 + ":9201"},
		{w.pod, app, clientIPv4 + ":80", "out " + clientIPv4 + ":80"},
		{w.pod, app, "[" + clientIPv6 + "]:80", "out [" + clientIPv6 + "]:80"},
		{w.pod, 0, clientIPv4 + ":80", "out " + clientIPv4 + ":80"},
		{w.pod, sidecar, clientIPv4 + ":80", "peer"},
		{w.pod, sidecar, "[" + clientIPv6 + "]:80", "peer"},
		{w.pod, 1001, clientIPv4 + ":80", "peer"},
		{w.pod, app, clientIPv4 + ":5432", "peer"},
		{w.pod, app, clientIPv4 + ":53", "peer"},
		{w.pod, app, "10.77.1.1:80", "peer"},
		{w.pod, app, "[fd77:0:0:1::1]:80", "peer"},
		{w.pod, app, "127.0.0.1:7000", "app"},
		{w.pod, app, podIPv4 + ":80", "out " + podIPv4 + ":80"}, // to itself: the sidecar serves that in process
		{w.pod, sidecar, podIPv4 + ":80", "app"},                // as the sidecar dials the application
	} {
		if got := ask(x.in, x.user, x.to); got != x.want {
			t.Errorf("user %d to %s: %q, want %q", x.user, x.to, got, x.want)
		}
	}
	// What comes directly to the sidecar's port is not redirected, and either never arrives or is refused as its own.
	to := netip.MustParseAddrPort(podIPv4 + ":15012")
	if !p.Own(to, func(a netip.Addr) bool { return a == to.Addr() }) {
		t.Error("the sidecar's own port is not refused")
	}
	got := ask(w.pod, app, to.String())
	if want := "out " + to.String(); got != want {
		t.Errorf("the application to the sidecar's own port: %q, want %q, by which the sidecar knows it", got, want)
	}
}

func TestLinkLocalAddressesAreNoWayAround(t *testing.T) {
	w := newWorld(t)
	p := redirect.Default()
	w.pod.must(t, func() error { return addAddress("eth0", "fe80::77/64") })
	w.client.must(t, func() error { return addAddress("eth0", "fe80::66/64") })
	serve(t, w.pod, "app", false, "[::]:80")
	w.serveSidecar(t, p)
	w.set(t, p)
	if got := ask(w.client, 0, "[fe80::77%eth0]:80"); !strings.HasPrefix(got, "in [fe80::77") {
		t.Errorf("from another pod: %q, want the sidecar", got)
	}
	serve(t, w.client, "peer", false, "[::]:80")
	if got := ask(w.pod, app, "[fe80::66%eth0]:80"); got != "peer" {
		t.Errorf("to a link-local address: %q, want it to be left alone", got)
	}
}

// TestOneClientPortReachesManyPorts holds that connections from one address and port to several ports of the pod, or from the pod to
// several destinations, do not clash in conntrack, at once and one after the other: their SYNs are answered without being sent again.
func TestOneClientPortReachesManyPorts(t *testing.T) {
	w := newWorld(t)
	p := redirect.Default()
	w.serveSidecar(t, p)
	w.set(t, p)
	w.client.must(t, func() error { return addAddress("eth0", "10.77.0.3/24") })
	from := func(address string) net.Dialer {
		return net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.MustParseAddrPort(address)), Control: func(_, _ string, c syscall.RawConn) (err error) {
			e := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
			if e != nil {
				return e
			}
			return err
		}}
	}
	for _, x := range []struct {
		in         namespace
		from, name string
		to         []string
		again      bool // the ports are all taken by connections that are closed, and still known
	}{
		{w.client, clientIPv4 + fixedPort, "in", []string{podIPv4 + ":80", podIPv4 + ":81", podIPv4 + ":82", podIPv4 + ":83"}, false},
		{w.client, clientIPv4 + fixedPort, "in", []string{podIPv4 + ":84", podIPv4 + ":85", podIPv4 + ":86", podIPv4 + ":87"}, true},
		{w.client, "[" + clientIPv6 + "]" + fixedPort, "in", []string{"[" + podIPv6 + "]:80", "[" + podIPv6 + "]:81", "[" + podIPv6 + "]:82", "[" + podIPv6 + "]:83"}, false},
		{w.pod, podIPv4 + fixedPort, "out", []string{clientIPv4 + ":80", clientIPv4 + ":81", "10.77.0.3:80", "10.77.0.3:81"}, false},
	} {
		var open []net.Conn
		for _, to := range x.to {
			c, err := dial(x.in, app, to, from(x.from))
			if err != nil {
				t.Fatalf("%s to %s: %v", x.from, to, err)
			}
			open = append(open, c)
			answer := make([]byte, 100)
			_ = c.SetDeadline(time.Now().Add(wait))
			n, err := c.Read(answer)
			want := x.name + " " + to + " <nil>"
			if !x.again { // with one port for all, the kernel would change the client's
				want += " from" + fixedPort
			}
			if err != nil || !strings.HasPrefix(string(answer[:n]), want) {
				t.Errorf("%s to %s: %q, %v, want %q", x.from, to, answer[:n], err, want)
			}
			if again := retransmissions(t, c); again != 0 {
				t.Errorf("%s to %s: %d packets were sent again", x.from, to, again)
			}
		}
		for _, c := range open {
			c.Close()
		}
	}
}

func retransmissions(t *testing.T, c net.Conn) (n uint32) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	_ = raw.Control(func(fd uintptr) {
		info, e := unix.GetsockoptTCPInfo(int(fd), unix.SOL_TCP, unix.TCP_INFO)
		if err = e; e == nil {
			n = info.Total_retrans
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestConnectionsWaitForASidecarThatIsStartedAgain holds that what the pod dials is not refused while nothing listens, and what comes
// to the pod is, at once.
func TestConnectionsWaitForASidecarThatIsStartedAgain(t *testing.T) {
	w := newWorld(t)
	p := redirect.Default()
	w.set(t, p)
	for _, to := range []string{podIPv4 + ":80", "[" + podIPv6 + "]:80"} {
		if c, err := dial(w.client, 0, to, net.Dialer{}); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("to the pod at %s: %v, %v, want it refused", to, c, err)
		}
	}
	dialled := make(chan string)
	ways := []string{clientIPv4 + ":80", "[" + clientIPv6 + "]:80"}
	for _, to := range ways {
		go func() { dialled <- ask(w.pod, app, to) }()
	}
	select {
	case got := <-dialled:
		t.Fatalf("while there is no sidecar: %q, want the connection to wait", got)
	case <-time.After(500 * time.Millisecond):
	}
	w.serveSidecar(t, p)
	for range ways {
		if got := <-dialled; !strings.HasPrefix(got, "out ") {
			t.Errorf("when the sidecar is there: %q", got)
		}
	}
}

// TestTableIsReplacedWholeAndWithoutAGap sets one plan after the other while a client connects: each connection reaches the sidecar.
func TestTableIsReplacedWholeAndWithoutAGap(t *testing.T) {
	w := newWorld(t)
	one, other := redirect.Default(), parse(t, map[string]string{redirect.SkipInboundPorts: "9000"})
	serve(t, w.pod, "app", false, ":80", ":9000")
	w.serveSidecar(t, one)
	text := func() (out string) {
		w.pod.must(t, func() error {
			chains, err := readAll()
			out = redirect.Text(chains)
			return err
		})
		return out
	}
	if got := text(); got != redirect.Text(nil) {
		t.Errorf("before anything is set: %s", got)
	}
	w.set(t, one)
	first := text()
	w.set(t, one)
	if text() != first || first != redirect.Text(one.Rules()) {
		t.Errorf("set twice:\n%s", text())
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if got := ask(w.client, 0, podIPv4+":80"); got != "in "+podIPv4+":80" {
				t.Errorf("while the table changes: %q", got)
				return
			}
		}
	}()
	for i := range 60 {
		w.set(t, []redirect.Plan{one, other}[i%2])
	}
	close(stop)
	<-done
	if got := ask(w.client, 0, podIPv4+":9000"); got != "app" {
		t.Errorf("after the change: %q, want app", got)
	}
	if text() != redirect.Text(other.Rules()) {
		t.Errorf("after the change:\n%s", text())
	}
}

// TestInvalidPacketsAreDropped sends segments that belong to no connection. The application's end would answer them by a reset, as it does at a
// port that is left alone; that answer is also what says that all before it were heard.
func TestInvalidPacketsAreDropped(t *testing.T) {
	w := newWorld(t)
	p := parse(t, map[string]string{redirect.SkipInboundPorts: "9000"})
	serve(t, w.pod, "app", false, ":80", ":9000")
	w.set(t, p)
	w.client.must(t, func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: int64(wait / time.Second)}); err != nil {
			return err
		}
		for _, x := range []struct {
			port  uint16
			flags byte
		}{{80, 0x10 | 0x02 | 0x01}, {9000, 0x10}} { // ACK, SYN and FIN, which conntrack takes for invalid; ACK
			if err := unix.Sendto(fd, tcpSegment(40001, x.port, x.flags), 0, &unix.SockaddrInet4{Addr: netip.MustParseAddr(podIPv4).As4()}); err != nil {
				return err
			}
		}
		for {
			b := make([]byte, 1500)
			n, err := unix.Read(fd, b)
			if err != nil {
				return fmt.Errorf("nothing came from the port that is left alone: %w", err)
			}
			segment := b[int(b[0]&15)*4 : n]
			from := binary.BigEndian.Uint16(segment)
			if from == 9000 && segment[13]&4 != 0 {
				return nil
			}
			if from == 80 {
				return fmt.Errorf("the packet reached the application's port, which answered with flags %#x", segment[13])
			}
		}
	})
}

// TestInvalidPacketsDoNotLeave sends segments of the pod that belong to no connection: NAT passes over them, so that they would leave with the
// addresses of the wrong connection. Those that are left alone say that all before them have come.
func TestInvalidPacketsDoNotLeave(t *testing.T) {
	w := newWorld(t)
	p := parse(t, map[string]string{redirect.SkipOutbound: "5432", redirect.SkipUsers: "1001"})
	w.set(t, p)
	var client int
	w.client.must(t, func() (err error) {
		if client, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP); err != nil {
			return err
		}
		return unix.SetsockoptTimeval(client, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: int64(wait / time.Second)})
	})
	defer unix.Close(client)
	send := func(user int, from, to uint16) {
		t.Helper()
		err := w.pod.do(user, func() error {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			// ACK, SYN and FIN, which conntrack takes for invalid. A packet that a rule drops is no permission to send (EPERM).
			err = unix.Sendto(fd, tcpSegment(from, to, 0x10|0x02|0x01), 0, &unix.SockaddrInet4{Addr: netip.MustParseAddr(clientIPv4).As4()})
			if errors.Is(err, unix.EPERM) {
				err = nil
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	came := func() (from, to uint16) {
		t.Helper()
		b := make([]byte, 1500)
		n, err := unix.Read(client, b)
		if err != nil {
			t.Fatalf("nothing came of what is left alone: %v", err)
		}
		segment := b[int(b[0]&15)*4 : n]
		return binary.BigEndian.Uint16(segment), binary.BigEndian.Uint16(segment[2:])
	}
	for _, x := range []struct {
		user     int
		from, to uint16
		leaves   bool
	}{
		{app, 40001, 80, false},
		{0, 40002, 80, false},
		{sidecar, p.Inbound.First, 80, false}, // as answers of the sidecar, which have the addresses of before NAT
		{sidecar, p.Outbound.Last, 80, false},
		{sidecar, 40003, 80, true},
		{1001, 40004, 80, true},
		{app, 40005, 5432, true},
	} {
		send(x.user, x.from, x.to)
		if !x.leaves {
			x.user, x.from, x.to = app, x.from+1000, 5432
			send(x.user, x.from, x.to)
		}
		if from, to := came(); from != x.from || to != x.to {
			t.Fatalf("a packet of port %d to port %d has left, which should not; want that of %d to %d", from, to, x.from, x.to)
		}
	}
}

func TestAKernelThatDoesNotAnswerIsNotWaitedFor(t *testing.T) {
	w := newWorld(t)
	p := redirect.Default()
	w.pod.must(t, func() error {
		if _, err := set(&p, -time.Second); !errors.Is(err, os.ErrDeadlineExceeded) || !strings.Contains(err.Error(), "did not answer") {
			return fmt.Errorf("set: %w", err)
		}
		c, err := open(-time.Second)
		if err != nil {
			return err
		}
		defer c.CloseLasting()
		if _, err := read(c); !errors.Is(err, os.ErrDeadlineExceeded) || !strings.Contains(err.Error(), "did not answer") {
			return fmt.Errorf("read: %w", err)
		}
		return nil
	})
}

// tcpSegment is one without payload, between the client and the pod.
func tcpSegment(from, to uint16, flags byte) []byte {
	b := make([]byte, 20)
	binary.BigEndian.PutUint16(b, from)
	binary.BigEndian.PutUint16(b[2:], to)
	binary.BigEndian.PutUint32(b[4:], 1)
	binary.BigEndian.PutUint32(b[8:], 1)
	b[12], b[13] = 5<<4, flags
	binary.BigEndian.PutUint16(b[14:], 1024)
	sum := uint32(unix.IPPROTO_TCP + len(b))
	for _, part := range [][]byte{netip.MustParseAddr(clientIPv4).AsSlice(), netip.MustParseAddr(podIPv4).AsSlice(), b} {
		for i := 0; i < len(part); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(part[i:]))
		}
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	binary.BigEndian.PutUint16(b[16:], ^uint16(sum))
	return b
}

func TestErrorNamesTheCapabilityThatIsMissing(t *testing.T) {
	w := newWorld(t)
	p := redirect.Default()
	err := w.pod.do(0, func() error {
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		if err := unix.Capget(&header, &data[0]); err != nil {
			return err
		}
		data[0].Effective &^= 1 << unix.CAP_NET_ADMIN
		if err := unix.Capset(&header, &data[0]); err != nil {
			return err
		}
		_, err := Set(&p)
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "capability NET_ADMIN") {
		t.Errorf("without NET_ADMIN: %v", err)
	}
	w.pod.must(t, func() error {
		chains, err := readAll()
		if len(chains) != 0 {
			t.Error("there are rules")
		}
		return err
	})
}

// TestLargestPlanIsSetAndReadBack holds that the kernel takes what the bounds allow.
func TestLargestPlanIsSetAndReadBack(t *testing.T) {
	w := newWorld(t)
	p := redirect.Default()
	for i := range redirect.MaxListed {
		ports := redirect.Ports{First: uint16(20000 + 3*i), Last: uint16(20001 + 3*i)}
		p.SkipInbound, p.SkipOutbound = append(p.SkipInbound, ports), append(p.SkipOutbound, ports)
		p.SkipUsers = append(p.SkipUsers, uint32(2000+i))
		p.SkipNetworks = append(p.SkipNetworks, netip.PrefixFrom(netip.AddrFrom4([4]byte{172, byte(i)}), 16))
	}
	w.pod.must(t, func() error {
		n, err := Set(&p)
		if want := 4*redirect.MaxListed + 22; err == nil && n < want {
			err = fmt.Errorf("%d rules, want %d or more", n, want)
		}
		return err
	})
}
