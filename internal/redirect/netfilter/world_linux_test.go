package netfilter

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/weirmesh/weir/internal/redirect"
	"github.com/weirmesh/weir/internal/socket"
)

// wait bounds what should take no time at all.
const wait = 20 * time.Second

// namespace is a network namespace of the test.
type namespace struct{ fd int }

// do runs f on a thread of its own in the namespace, as a user of files and sockets, which is whose the sockets are that
// it makes.
func (n namespace) do(user int, f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if err := unix.Setns(n.fd, unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		if _, err := unix.SetfsuidRetUid(user); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	return <-done
}

func newNamespace(t *testing.T) namespace {
	t.Helper()
	fd, failed := -1, make(chan error)
	go func() {
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			fd, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		}
		failed <- err
	}()
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	n := namespace{fd}
	n.must(t, func() error { return link(unix.RTM_SETLINK, 1, 0, nil) })
	return n
}

func (n namespace) must(t *testing.T, f func() error) {
	t.Helper()
	if err := n.do(0, f); err != nil {
		t.Fatal(err)
	}
}

// rtnetlink sends one message of the kernel's routing and waits for its answer.
func rtnetlink(kind uint16, flags netlink.HeaderFlags, data []byte) error {
	c, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Execute(netlink.Message{Header: netlink.Header{Type: netlink.HeaderType(kind), Flags: netlink.Request | netlink.Acknowledge | flags}, Data: data})
	return err
}

// link brings an interface up, and makes it first if it has attributes.
func link(kind uint16, index int32, flags netlink.HeaderFlags, attributes []byte) error {
	header := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(header[4:], uint32(index))
	binary.NativeEndian.PutUint32(header[8:], unix.IFF_UP)
	binary.NativeEndian.PutUint32(header[12:], unix.IFF_UP)
	return rtnetlink(kind, flags, append(header, attributes...))
}

func addAddress(name, address string) error {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return err
	}
	p := netip.MustParsePrefix(address)
	header := []byte{unix.AF_INET, byte(p.Bits()), unix.IFA_F_NODAD, 0, 0, 0, 0, 0}
	if p.Addr().Is6() {
		header[0] = unix.AF_INET6
	}
	binary.NativeEndian.PutUint32(header[4:], uint32(i.Index))
	e := netlink.NewAttributeEncoder()
	e.Bytes(unix.IFA_LOCAL, p.Addr().AsSlice())
	e.Bytes(unix.IFA_ADDRESS, p.Addr().AsSlice())
	data, err := e.Encode()
	if err != nil {
		return err
	}
	return rtnetlink(unix.RTM_NEWADDR, netlink.Create|netlink.Excl, append(header, data...))
}

// The addresses of the pod and of the client beside it, and two of the pod's users.
const (
	podIPv4, podIPv6, clientIPv4, clientIPv6 = "10.77.0.2", "fd77::2", "10.77.0.1", "fd77::1"

	app, sidecar = 1000, 15000

	fixedPort = ":30000" // of clients that choose their port, which the system gives to no other; the sidecar says whether it saw it
)

// world is a pod, with a sidecar's listeners, and a client, joined by a link.
type world struct{ pod, client namespace }

func newWorld(t *testing.T) world {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root may make network namespaces")
	}
	w := world{newNamespace(t), newNamespace(t)}
	w.client.must(t, func() error {
		peer := netlink.NewAttributeEncoder()
		peer.String(unix.IFLA_IFNAME, "eth0")
		peer.Uint32(unix.IFLA_NET_NS_FD, uint32(w.pod.fd))
		there, err := peer.Encode()
		if err != nil {
			return err
		}
		e := netlink.NewAttributeEncoder()
		e.String(unix.IFLA_IFNAME, "eth0")
		e.Nested(unix.IFLA_LINKINFO, func(e *netlink.AttributeEncoder) error {
			e.String(unix.IFLA_INFO_KIND, "veth")
			e.Nested(unix.IFLA_INFO_DATA, func(e *netlink.AttributeEncoder) error {
				e.Bytes(1, append(make([]byte, unix.SizeofIfInfomsg), there...)) // VETH_INFO_PEER
				return nil
			})
			return nil
		})
		data, err := e.Encode()
		if err != nil {
			return err
		}
		return link(unix.RTM_NEWLINK, 0, netlink.Create|netlink.Excl, data)
	})
	for _, end := range []struct {
		in        namespace
		addresses []string
	}{{w.client, []string{clientIPv4 + "/24", clientIPv6 + "/64"}}, {w.pod, []string{podIPv4 + "/24", podIPv6 + "/64"}}} {
		end.in.must(t, func() error {
			i, err := net.InterfaceByName("eth0")
			if err != nil {
				return err
			}
			if err := link(unix.RTM_SETLINK, int32(i.Index), 0, nil); err != nil {
				return err
			}
			for _, a := range end.addresses {
				if err := addAddress("eth0", a); err != nil {
					return fmt.Errorf("%s: %w", a, err)
				}
			}
			return nil
		})
	}
	return w
}

// set sets a plan's redirect in the pod.
func (w world) set(t *testing.T, p redirect.Plan) {
	t.Helper()
	w.pod.must(t, func() error { _, err := Set(&p); return err })
}

// serve answers each connection with a name and, for a sidecar, its original destination.
func serve(t *testing.T, in namespace, name string, original bool, addresses ...string) {
	t.Helper()
	for _, address := range addresses {
		var l net.Listener
		in.must(t, func() (err error) { l, err = net.Listen("tcp", address); return err })
		var all sync.WaitGroup
		all.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				all.Go(func() { answer(c.(*net.TCPConn), name, original) })
			}
		})
		t.Cleanup(func() { l.Close(); all.Wait() })
	}
}

func answer(c *net.TCPConn, name string, original bool) {
	defer c.Close()
	if original {
		raw, _ := c.SyscallConn()
		_ = raw.Control(func(fd uintptr) {
			to, err := socket.OriginalDestination(fd)
			name = fmt.Sprintf("%s %v %v", name, to, err)
			if strings.HasSuffix(c.RemoteAddr().String(), fixedPort) {
				name += " from" + fixedPort
			}
		})
	}
	_ = c.SetDeadline(time.Now().Add(wait))
	_, _ = io.WriteString(c, name)
	_ = c.CloseWrite()
	_, _ = io.Copy(io.Discard, c)
}

// serveSidecar listens where the sidecar of a plan does.
func (w world) serveSidecar(t *testing.T, p redirect.Plan) {
	t.Helper()
	for n := p.Inbound.First; n <= p.Inbound.Last; n++ {
		serve(t, w.pod, "in", true, fmt.Sprintf("[::]:%d", n))
	}
	for n := p.Outbound.First; n <= p.Outbound.Last; n++ {
		serve(t, w.pod, "out", true, fmt.Sprintf("127.0.0.1:%d", n), fmt.Sprintf("[::1]:%d", n))
	}
}

// dial connects, and returns the connection.
func dial(in namespace, user int, to string, d net.Dialer) (c net.Conn, err error) {
	d.Timeout = wait
	err = in.do(user, func() (err error) { c, err = d.Dial("tcp", to); return err })
	return c, err
}

// ask connects and returns what it hears, or the error.
func ask(in namespace, user int, to string) string {
	c, err := dial(in, user, to, net.Dialer{})
	if err != nil {
		return "error " + err.Error()
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(wait))
	b, err := io.ReadAll(c)
	if err != nil {
		return "error " + err.Error()
	}
	return strings.TrimSuffix(string(b), " <nil>")
}
