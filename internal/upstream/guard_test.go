package upstream

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/weirmesh/weir/internal/http2"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/reach"
)

// nameServer answers queries for addresses by answer, and returns a resolver that only asks it.
func nameServer(t testing.TB, answer func(name string) []netip.Addr) *net.Resolver {
	t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { pc.Close(); <-done })
	go func() {
		defer close(done)
		buf := make([]byte, 1500)
		for {
			n, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			q := m.Questions[0]
			m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
			for _, a := range answer(strings.TrimSuffix(q.Name.String(), ".")) {
				h := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class}
				switch {
				case a.Is4() && q.Type == dnsmessage.TypeA:
					m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: a.As4()}})
				case a.Is6() && q.Type == dnsmessage.TypeAAAA:
					m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
				}
			}
			if out, err := m.Pack(); err == nil {
				pc.WriteTo(out, from)
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", pc.LocalAddr().String())
	}}
}

// inetAton reads what inet_aton(3) does, as the resolvers of some systems do: one to four numbers, decimal, octal or hex.
func inetAton(text string) (netip.Addr, bool) {
	parts := strings.Split(text, ".")
	if len(parts) > 4 {
		return netip.Addr{}, false
	}
	var value uint64
	for i, p := range parts {
		n, err := strconv.ParseUint(p, 0, 32)
		if err != nil || strings.ContainsRune(p, '_') {
			return netip.Addr{}, false
		}
		if i == len(parts)-1 {
			if n >= 1<<(8*(5-len(parts))) {
				return netip.Addr{}, false
			}
			value = value<<(8*(5-len(parts))) | n
		} else if n > 255 {
			return netip.Addr{}, false
		} else {
			value = value<<8 | n
		}
	}
	return netip.AddrFrom4([4]byte{byte(value >> 24), byte(value >> 16), byte(value >> 8), byte(value)}), true
}

// spellings are ways to write an IPv4 address as a host: numbers of all bases and lengths, and IPv6 addresses that stand for it.
func spellings(r *rand.Rand, a netip.Addr) []string {
	b := a.As4()
	number := func(n uint32) string {
		return fmt.Sprintf([]string{"%d", "0%o", "0x%x", "0X%X", "0x%08x"}[r.IntN(5)], n)
	}
	all := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
	return []string{
		a.String(), number(all), number(uint32(b[0])) + "." + number(all&0xffffff),
		number(uint32(b[0])) + "." + number(uint32(b[1])) + "." + number(all&0xffff),
		number(uint32(b[0])) + "." + number(uint32(b[1])) + "." + number(uint32(b[2])) + "." + number(uint32(b[3])),
		"::ffff:" + a.String(), fmt.Sprintf("::FFFF:%x:%x", all>>16, all&0xffff), "64:ff9b::" + a.String(),
		fmt.Sprintf("2002:%x:%x::1", all>>16, all&0xffff), fmt.Sprintf("2002:%x:%x::", all>>16, all&0xffff), "::" + a.String(),
	}
}

// TestNoSpellingOfAForbiddenAddressIsConnectedTo dials every spelling of addresses of this machine, at a port where somebody listens,
// whatever the resolver makes of it.
func TestNoSpellingOfAForbiddenAddressIsConnectedTo(t *testing.T) {
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	var came atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			came.Add(1)
			nc.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)

	addresses := []netip.Addr{
		netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.200.3.4"), netip.MustParseAddr("0.0.0.0"), netip.MustParseAddr("169.254.169.254"),
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	hosts := []string{"::1", "::", "fe80::1%lo", "ff02::1%lo", "localhost", "LOCALHOST."}
	for _, a := range own {
		if ip, ok := netip.AddrFromSlice(a.(*net.IPNet).IP); ok && ip.Unmap().Is4() {
			addresses = append(addresses, ip.Unmap())
		} else if !ip.IsLinkLocalUnicast() {
			hosts = append(hosts, ip.String())
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		for _, a := range addresses {
			hosts = append(hosts, spellings(r, a)...)
		}
	}
	resolver := nameServer(t, func(name string) []netip.Addr {
		if strings.EqualFold(name, "localhost") {
			return []netip.Addr{netip.MustParseAddr("::1"), netip.MustParseAddr("127.0.0.1")}
		}
		a, _ := inetAton(name)
		return []netip.Addr{a}
	})
	guard := &reach.Guard{Cluster: true}
	s := newSet(t, Options{Refuse: guard.Refuse, Isolated: true, EjectAfter: -1, resolver: resolver})
	for _, host := range hosts {
		e := one(t, s, net.JoinHostPort(host, port))
		c, err := e.Dial(time.Time{})
		if err == nil {
			c.Close()
			t.Fatalf("%s is connected to", host)
		}
		// Go's own resolver does not look up what holds nothing but digits and dots.
		var ce *ConnectError
		if !errors.As(err, &ce) || ce.Reason != ConnectForbidden && (ce.Reason != ConnectUnresolved || strings.Trim(host, "0123456789.") != "") {
			t.Errorf("%s: %v, want %s", host, err, ConnectForbidden)
		}
	}
	if n := came.Load(); n > 0 {
		t.Errorf("%d connections came", n)
	}
}

// TestARebindingNameServerIsCaught lets a name lead to a good address first and to a forbidden one later.
func TestARebindingNameServerIsCaught(t *testing.T) {
	good, bad := netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("127.0.0.3")
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := serveEcho(t, l)
	var rebound atomic.Bool
	resolver := nameServer(t, func(string) []netip.Addr {
		if rebound.Load() {
			return []netip.Addr{bad}
		}
		return []netip.Addr{good}
	})
	s := newSet(t, Options{resolver: resolver, Refuse: func(to netip.AddrPort) string {
		if to.Addr().Unmap() == bad {
			return "is bad"
		}
		return ""
	}})
	e := one(t, s, net.JoinHostPort("rebound.example", strconv.Itoa(srv.Addr().(*net.TCPAddr).Port)))
	c, err := e.Dial(time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	exchange(t, c, "hello\n")
	c.Close()
	rebound.Store(true)
	var ce *ConnectError
	if _, err := e.Dial(time.Time{}); !errors.As(err, &ce) || ce.Reason != ConnectForbidden {
		t.Errorf("got %v", err)
	}
}

// TestEveryKindOfConnectionIsGuarded has a listener that nothing may reach, by requests of both protocols or by checks.
func TestEveryKindOfConnectionIsGuarded(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := serveEcho(t, l)
	s := newSet(t, Options{Refuse: (&reach.Guard{Cluster: true}).Refuse, EjectAfter: -1})
	for _, check := range []model.HealthCheckType{model.CheckTCP, model.CheckHTTP, model.CheckGRPC} {
		for _, protocol := range []model.Protocol{model.HTTP, model.H2C} {
			svc := service("ns/svc:80", srv.address())
			svc.Protocol = protocol
			svc.HealthCheck = &model.HealthCheck{
				Type: check, Path: "/", Interval: model.Duration(10 * time.Millisecond), Timeout: model.Duration(time.Second), Healthy: 1, Unhealthy: 1,
			}
			e := apply(t, s, &model.Config{Services: []model.Service{svc}}).Endpoints()[0]
			var ce *ConnectError
			if protocol == model.H2C {
				_, _, err = e.Open(&http2.Head{Method: "GET", Path: "/", Scheme: "http", Authority: "a.test"}, nil, true, &Waiting{})
			} else {
				_, err = e.Dial(time.Time{})
			}
			if !errors.As(err, &ce) || ce.Reason != ConnectForbidden {
				t.Errorf("%s: got %v", protocol, err)
			}
			eventually(t, "the check fails", func() bool { return strings.Contains(e.Stats().CheckErr, "is loopback") })
			if _, err := s.Apply(&model.Config{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	srv.mu.Lock()
	defer srv.mu.Unlock()
	if n := len(srv.conns); n > 0 {
		t.Errorf("%d connections came", n)
	}
}

// TestAnIsolatedSetClosesConnectionsToItself holds where no list of addresses is known.
func TestAnIsolatedSetClosesConnectionsToItself(t *testing.T) {
	srv := echoServer(t)
	s := newSet(t, Options{Isolated: true})
	var ce *ConnectError
	if _, err := one(t, s, srv.address()).Dial(time.Time{}); !errors.As(err, &ce) || ce.Reason != ConnectForbidden {
		t.Errorf("got %v", err)
	}
}

func TestAnIsolatedSetLooksNamesUpAsTheyAre(t *testing.T) {
	for address, want := range map[string]string{
		"api.example:80": "api.example.:80", "api.example.:80": "api.example.:80", "10.0.0.1:80": "10.0.0.1:80", "[fd00::1]:80": "[fd00::1]:80",
		"[fe80::1%lo]:80": "[fe80::1%lo]:80", ":80": ":80", "nothing": "nothing",
	} {
		if got := absolute(address); got != want {
			t.Errorf("%s becomes %s, want %s", address, got, want)
		}
	}
}
