package proxy

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/peertest"
	"github.com/weirmesh/weir/internal/socket"
)

// redirectedConfig has listeners of one redirect, each with a backend that says the listener's name: HTTP at port 8001, at
// port 8002 of one address and of all others, an identity at 8003, connections at 8004, and HTTP at all other ports of the
// pod 10.0.0.7.
func redirectedConfig(t *testing.T) *model.Config {
	cfg := &model.Config{}
	add := func(name, address string, port int32, protocol model.Protocol) {
		at := ""
		l := model.Listener{Name: name, Ref: model.Ref{Kind: "Pod", Namespace: "shop", Name: "cart-1"}, Redirect: model.RedirectInbound, Address: address, Port: port, Protocol: protocol}
		r := model.Route{Ref: model.Ref{Kind: "Pod", Namespace: "shop", Name: "cart-1", Field: name}, Attachments: []model.Attachment{{Listener: name, Hostnames: []string{"*"}}}}
		rule := ruleTo(name)
		if protocol.TLS() {
			l.TLS = &model.ListenerTLS{Certificates: []string{workload}}
		}
		if protocol == model.TCP {
			at, r.Kind, rule.Matches = echo(t, name+" "), model.RouteTCP, nil
		} else {
			at = backend(t, func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprint(w, name, " ", r.Header.Get("X-Forwarded-Port"))
			})
		}
		r.Rules = []model.Rule{rule}
		cfg.Listeners, cfg.Routes, cfg.Services = append(cfg.Listeners, l), append(cfg.Routes, r), append(cfg.Services, service(name, model.HTTP, at))
	}
	add("first", "", 8001, model.HTTP)
	add("here", "10.0.0.7", 8002, model.HTTP)
	add("elsewhere", "", 8002, model.HTTP)
	add("secure", "", 8003, model.HTTPS)
	add("bytes", "", 8004, model.TCP)
	add("rest", "10.0.0.7", 0, model.HTTP)
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// redirected serves a configuration. In place of a redirect, the client means 10.0.0.7:800N when it dials 127.0.0.N, and
// 10.0.0.8:800N when it dials 127.0.1.N.
func redirected(t *testing.T, cfg *model.Config, edit ...func(*Options)) (s *testServer, at func(string) string) {
	t.Helper()
	s = serve(t, cfg, slices.Concat([]func(*Options){func(o *Options) {
		o.Listen = func(network, address string) (socket.Bound, error) {
			if address != "redirect/inbound" && address != "redirect/outbound" {
				return socket.Bound{}, fmt.Errorf("the socket %q is opened", address)
			}
			return socket.Open(network, "0.0.0.0:0")
		}
		o.Original = func(nc net.Conn) (netip.AddrPort, error) {
			dialled := nc.LocalAddr().(*net.TCPAddr).IP.To4()
			if dialled[3] == 99 {
				return netip.AddrPort{}, syscall.ENOENT
			}
			return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, 7 + dialled[2]}), 8000+uint16(dialled[3])), nil
		}
	}}, edit)...)
	return s, func(host string) string {
		return net.JoinHostPort(host, fmt.Sprint(s.Addrs()[0].Bound.(*net.TCPAddr).Port))
	}
}

func TestARedirectBringsConnectionsToThePortsThatWereMeant(t *testing.T) {
	cfg := redirectedConfig(t)
	ca := peertest.NewAuthority(t)
	source := &identities{}
	source.have(t, ca.Workload(t, cartID, nil), ca.Pool())
	s, at := redirected(t, cfg, func(o *Options) { o.Identities = source.of })
	if a := s.Addrs(); len(a) != 1 || fmt.Sprint(a[0].Listeners) != "[rest first elsewhere here secure bytes]" {
		t.Errorf("bound %+v", a)
	}
	for host, want := range map[string]string{
		"127.0.0.1": "first 8001", "127.0.1.1": "first 8001", "127.0.0.2": "here 8002", "127.0.1.2": "elsewhere 8002", "127.0.0.9": "rest 8009",
	} {
		k := newTalk(t, at(host))
		for range 2 {
			k.send("GET / HTTP/1.1\r\nHost: any.example:1\r\n\r\n")
			if resp, body := k.answer("GET"); resp.StatusCode != 200 || body != want {
				t.Errorf("%s: %d %q, want %q", host, resp.StatusCode, body, want)
			}
		}
		resp, err := h2Plain(t, at(host))
		if err != nil {
			t.Fatalf("%s: %v", host, err)
		}
		if body, _ := io.ReadAll(resp.Body); string(body) != want {
			t.Errorf("%s over HTTP/2: %q", host, body)
		}
		resp.Body.Close()
	}
	if _, err := getOver(t, at("127.0.0.3"), as(ca.Workload(t, shopID, nil))); err != nil {
		t.Errorf("with an identity: %v", err)
	}
	if _, err := getOver(t, at("127.0.0.1"), as(ca.Workload(t, shopID, nil))); err == nil {
		t.Error("TLS is served at a port of cleartext")
	}
	if got := say(t, at("127.0.0.4"), "x"); got != "bytes x" {
		t.Errorf("a connection: %q", got)
	}
	for _, host := range []string{"127.0.1.9", "127.0.0.99"} {
		c, err := net.Dial("tcp", at(host))
		if err == nil {
			io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			_, err = io.ReadAll(c)
			c.Close()
		}
		if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
			t.Errorf("%s, which nobody is for: %v", host, err)
		}
	}
}

// TestPortsOfARedirectChange has connections that stay open while the listener of their port goes, comes back, and turns
// into one of another kind. The socket stays.
func TestPortsOfARedirectChange(t *testing.T) {
	cfg := redirectedConfig(t)
	cfg.Listeners, cfg.Routes = slices.Delete(cfg.Listeners, 3, 4), slices.Delete(cfg.Routes, 3, 4) // no identity here
	s, at := redirected(t, cfg)
	bound := s.Addrs()[0].Bound
	without := func(name string) *model.Config {
		c := *cfg
		c.Listeners = slices.DeleteFunc(slices.Clone(cfg.Listeners), func(l model.Listener) bool { return l.Name == name })
		c.Routes = slices.DeleteFunc(slices.Clone(cfg.Routes), func(r model.Route) bool { return r.Ref.Field == name })
		return &c
	}
	elsewhere := newTalk(t, at("127.0.1.2"))
	first := newTalk(t, at("127.0.0.1"))
	asks := func(k *talk, want int) {
		t.Helper()
		k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		if resp, _ := k.answer("GET"); resp.StatusCode != want {
			t.Errorf("status %d, want %d", resp.StatusCode, want)
		}
	}
	asks(first, 200)
	asks(elsewhere, 200)
	if socket.CanPoll {
		until(t, "the connections are not parked", func() bool { return s.withGoroutine() == 0 })
	}
	if err := s.Apply(without("elsewhere")); err != nil {
		t.Fatal(err)
	}
	asks(first, 200)
	asks(elsewhere, 404)
	elsewhere.closed()
	if err := s.Apply(cfg); err != nil {
		t.Fatal(err)
	}
	asks(newTalk(t, at("127.0.1.2")), 200)
	relay := relayed(t, skipping(t, dial(t, at("127.0.0.4")), "bytes "))
	if err := s.Apply(without("first")); err != nil {
		t.Fatal(err)
	}
	if !works(relay) {
		t.Error("a relay ends with the listener of another port")
	}
	asks(first, 200) // the port's number is one of "rest" now
	if s.Addrs()[0].Bound != bound {
		t.Error("the socket was opened anew")
	}
}

// skipping reads what a server says first.
func skipping(t *testing.T, c net.Conn, text string) net.Conn {
	t.Helper()
	got := make([]byte, len(text))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != text {
		t.Fatalf("%q, %v", got, err)
	}
	return c
}

// TestRelaysOfARedirectAreJudgedByTheirPort cuts the relay of the one port whose policy changes.
func TestRelaysOfARedirectAreJudgedByTheirPort(t *testing.T) {
	ca := peertest.NewAuthority(t)
	source := &identities{}
	source.have(t, ca.Workload(t, cartID, nil), ca.Pool())
	cfg := &model.Config{Workloads: []model.Workload{pod}, Services: []model.Service{service("echo", model.HTTP, echo(t, ""))}}
	for _, port := range []int32{8001, 8002} {
		name := fmt.Sprint("port-", port)
		cfg.Listeners = append(cfg.Listeners, model.Listener{Name: name, Ref: pod.Ref, Redirect: model.RedirectInbound, Port: port, Protocol: model.TLS,
			TLS: &model.ListenerTLS{Certificates: []string{workload}}, Workload: pod.Name(), WorkloadPort: port})
		rule := ruleTo("echo")
		rule.Matches = nil
		cfg.Routes = append(cfg.Routes, model.Route{Ref: model.Ref{Kind: "Pod", Namespace: "shop", Name: "cart-1", Field: name}, Kind: model.RouteTCP,
			Attachments: []model.Attachment{{Listener: name, Hostnames: []string{"*"}}}, Rules: []model.Rule{rule}})
	}
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	s, at := redirected(t, cfg, func(o *Options) { o.Identities = source.of })
	open := func(n int) net.Conn {
		return relayed(t, tls.Client(dial(t, at(fmt.Sprint("127.0.0.", n))), as(ca.Workload(t, shopID, nil))))
	}
	one, two := open(1), open(2)
	policy := letting("shop", model.TrafficAny)
	policy.Ports = []int32{8002}
	judged := *cfg
	judged.Policies = []model.Policy{policy}
	if err := s.Apply(&judged); err != nil {
		t.Fatal(err)
	}
	if works(one) || !works(two) {
		t.Error("the wrong relay is cut")
	}
}

func TestListenersOfRedirectsThatAreNotValid(t *testing.T) {
	for want, edit := range map[string]func(*model.Listener){
		`redirect: "sideways" is unknown`: func(l *model.Listener) { l.Redirect = "sideways" },
		"front: is set":                   func(l *model.Listener) { l.Front = &model.Front{} },
		"port: 65536":                     func(l *model.Listener) { l.Port = 65536 },
		"port: -1":                        func(l *model.Listener) { l.Port = -1 },
	} {
		cfg := redirectedConfig(t)
		edit(&cfg.Listeners[0])
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
