package proxy

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/peertest"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/test/size"
)

// relayed is a connection through the proxy that has passed a byte both ways.
func relayed(t testing.TB, c net.Conn) net.Conn {
	t.Helper()
	if !works(c) {
		t.Fatal("the connection is not relayed")
	}
	return c
}

// works reports whether a byte comes back over a connection to an echo.
func works(c net.Conn) bool {
	if _, err := io.WriteString(c, "x"); err != nil {
		return false
	}
	_, err := io.ReadFull(c, make([]byte, 1))
	return err == nil
}

// accessed is how often the policies of the pod gave a result.
func (s *testServer) accessed(result telemetry.AccessResult, action string) (n int) {
	rec := httptest.NewRecorder()
	s.metrics.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(rec.Body.String()) {
		if strings.HasPrefix(line, "weir_access_decisions_total{") && strings.Contains(line, `action="`+action+`"`) && strings.Contains(line, `reason="`+result.String()+`"`) {
			fmt.Sscan(line[strings.LastIndexByte(line, ' ')+1:], &n)
		}
	}
	return n
}

// upgraded is a tunnel to a backend that switches protocols, over TLS if config is not nil.
func upgraded(t testing.TB, addr string, config *tls.Config) net.Conn {
	return upgradedTo(t, addr, config, "websocket")
}

func upgradedTo(t testing.TB, addr string, config *tls.Config, protocol string) net.Conn {
	c := dial(t, addr)
	if config != nil {
		c = tls.Client(c, config)
	}
	io.WriteString(c, strings.Replace(upgradeRequest, "Upgrade: echo", "Upgrade: "+protocol, 1))
	for got := ""; len(got) < 6 || got[len(got)-6:] != "hello "; {
		b := make([]byte, 1)
		if _, err := io.ReadFull(c, b); err != nil {
			t.Fatalf("%q, %v", got, err)
		}
		got += string(b)
	}
	return c
}

// TestWhatLastsIsJudgedAgainWhenPoliciesChange has relays and tunnels. Each is cut when Apply returns whose policies deny
// it, and lasts through all others.
func TestWhatLastsIsJudgedAgainWhenPoliciesChange(t *testing.T) {
	ca := peertest.NewAuthority(t)
	audited := pod
	audited.Audit = true
	allowed, denied := letting("shop", model.TrafficAny), letting("other", model.TrafficAny)
	path := func(p string) model.Policy {
		x := letting("shop", model.TrafficHTTP)
		x.Paths = []string{p}
		return x
	}
	for name, sort := range map[string]struct {
		cfg  func() *model.Config
		open func(s *testServer, client *tls.Config) net.Conn
		also model.Policy // another one that allows it
	}{
		"TLS relay": {
			func() *model.Config { return toAddresses(echo(t, "")) },
			func(s *testServer, client *tls.Config) net.Conn { return tls.Client(dial(t, s.addr()), client) },
			letting("shop", model.TrafficTCP),
		},
		"tunnel": {
			func() *model.Config { return plain(switching(t, make(chan string, 10))) },
			func(s *testServer, client *tls.Config) net.Conn { return upgraded(t, s.addr(), client) },
			path("/w.*"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := sort.cfg()
			_, with := mutual(t, cfg, ca)
			log, lines := logging(t)
			s := serve(t, guard(cfg, pod, allowed), with, log)
			client := as(ca.Workload(t, shopID, nil))
			c := relayed(t, sort.open(s, client))
			apply := func(w model.Workload, policies ...model.Policy) {
				t.Helper()
				next := *cfg
				next.Workloads, next.Policies = []model.Workload{w}, policies
				if err := s.Apply(&next); err != nil {
					t.Fatal(err)
				}
			}
			apply(pod, denied, sort.also)
			relayed(t, c)
			apply(audited, denied)
			relayed(t, c)
			if n := s.accessed(telemetry.AccessUnknownSource, "audited"); n != 1 {
				t.Errorf("%d were audited, want one", n)
			}
			apply(pod, sort.also)
			relayed(t, c)
			apply(pod, denied)
			if works(c) {
				t.Error("it works although it was denied")
			}
			apply(pod, denied, letting("third", model.TrafficAny)) // it is counted once
			if n := s.accessed(telemetry.AccessUnknownSource, "denied"); n != 1 {
				t.Errorf("%d were denied, want one", n)
			}
			apply(pod, allowed)
			relayed(t, sort.open(s, client)).Close()
			if n := s.failures(telemetry.AccessDenied); n != 1 {
				t.Errorf("access_denied counted %d times, want once", n)
			}
			all := lines()
			if len(all) == 2 && all[1]["reason"] == "access_denied" { // the second may end before the first has noticed
				slices.Reverse(all)
			}
			if len(all) != 2 || all[0]["reason"] != "access_denied" || all[0]["access"] != "unknown_source" || all[0]["source"] != shopID || all[0]["policy"] != nil {
				t.Errorf("logged %v", all)
			}
		})
	}
}

func TestATunnelIsJudgedByTheHeadOfItsRequest(t *testing.T) {
	ca := peertest.NewAuthority(t)
	cfg := plain(switching(t, make(chan string, 10)))
	_, with := mutual(t, cfg, ca)
	s := serve(t, guard(cfg, pod, letting("shop", model.TrafficAny)), with)
	c := relayed(t, upgraded(t, s.addr(), as(ca.Workload(t, shopID, nil))))
	apply := func(change func(*model.Policy)) {
		next, p := *cfg, letting("shop", model.TrafficHTTP)
		change(&p)
		next.Policies = []model.Policy{p}
		if err := s.Apply(&next); err != nil {
			t.Fatal(err)
		}
	}
	apply(func(p *model.Policy) { p.Methods, p.Paths = []string{"GET"}, []string{"/ws"} })
	relayed(t, c)
	apply(func(p *model.Policy) { p.Headers = []model.ValueMatch{{Name: "Sec-WebSocket-Key", Value: "x"}} })
	relayed(t, c)
	apply(func(p *model.Policy) { p.Headers = []model.ValueMatch{{Name: "Sec-WebSocket-Key", Value: "y"}} })
	if works(c) {
		t.Error("the tunnel works")
	}
}

// What follows an upgrade to another protocol than WebSocket is not judged, so it needs the permission of a connection.
func TestATunnelOfAnotherProtocolNeedsThePermissionOfAConnection(t *testing.T) {
	ca := peertest.NewAuthority(t)
	cfg := plain(switching(t, make(chan string, 10)))
	_, with := mutual(t, cfg, ca)
	s := serve(t, guard(cfg, pod, letting("shop", model.TrafficTCP)), with)
	client := as(ca.Workload(t, shopID, nil))
	other, socket := relayed(t, upgradedTo(t, s.addr(), client, "echo")), relayed(t, upgraded(t, s.addr(), client))
	next := *cfg
	requests := letting("shop", model.TrafficHTTP)
	requests.Methods = []string{"GET"}
	next.Policies = []model.Policy{requests}
	if err := s.Apply(&next); err != nil {
		t.Fatal(err)
	}
	relayed(t, socket)
	if works(other) {
		t.Error("a tunnel of another protocol goes on by a rule for requests")
	}
}

func TestARelayEndsWhenItsWorkloadIsGone(t *testing.T) {
	cfg := guard(toAddresses(echo(t, "")), model.Workload{Ref: pod.Ref})
	s := serve(t, cfg)
	c := relayed(t, dial(t, s.addr())) // nothing is denied by default
	next := *cfg
	next.Workloads = nil
	if err := s.Apply(&next); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read: %v, want a reset", err)
	}
	if n := s.failures(telemetry.AccessDenied); n != 1 {
		t.Errorf("access_denied counted %d times, want once", n)
	}
}

// A listener that comes to stand in front of a workload judges what came before.
func TestARelayOfANewWorkloadIsJudged(t *testing.T) {
	cfg := toAddresses(echo(t, ""))
	s := serve(t, cfg)
	c := relayed(t, dial(t, s.addr()))
	if err := s.Apply(guard(toAddresses(), pod, letting("shop", model.TrafficTCP))); err != nil {
		t.Fatal(err)
	}
	if works(c) {
		t.Error("nobody is let in")
	}
}

// An expired identity cuts nothing. It is nobody's when policies change.
func TestAnExpiredIdentityIsNobodyWhenPoliciesChange(t *testing.T) {
	ca := peertest.NewAuthority(t)
	cfg := toAddresses(echo(t, ""))
	_, with := mutual(t, cfg, ca)
	s := serve(t, guard(cfg, pod, letting("shop", model.TrafficTCP)), with)
	c := relayed(t, tls.Client(dial(t, s.addr()), as(ca.Workload(t, shopID, nil))))
	for _, r := range s.binds[0].relays.list() {
		r.Peer.TLS.Verified.NotAfter = time.Now().Add(-time.Second) // time passes
	}
	next := *cfg
	next.Services = append([]model.Service{service("default/another:80", model.HTTP)}, cfg.Services...)
	if err := s.Apply(&next); err != nil {
		t.Fatal(err)
	}
	relayed(t, c)
	next = *cfg
	next.Policies = []model.Policy{letting("shop", model.TrafficTCP), letting("other", model.TrafficTCP)}
	if err := s.Apply(&next); err != nil {
		t.Fatal(err)
	}
	if works(c) {
		t.Error("the relay works")
	}
	if n := s.accessed(telemetry.AccessNoIdentity, "denied"); n != 1 {
		t.Errorf("%d were denied, want one", n)
	}
}

// A request that is no tunnel ends as it began.
func TestARequestInFlightIsNotJudgedAgain(t *testing.T) {
	arrived, looked := make(chan struct{}), make(chan struct{})
	addr := rawBackend(t, func(c net.Conn) {
		c.Read(make([]byte, 4<<10))
		close(arrived)
		<-looked
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	})
	cfg := guard(plain(addr), model.Workload{Ref: pod.Ref})
	s := serve(t, cfg)
	k := newTalk(t, s.addr())
	k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	<-arrived
	next := *cfg
	next.Workloads = nil
	if err := s.Apply(&next); err != nil {
		t.Fatal(err)
	}
	close(looked)
	if resp, _ := k.answer("GET"); resp.StatusCode != 200 {
		t.Errorf("status %d", resp.StatusCode)
	}
}

// Apply cannot see a relay that an earlier configuration is just letting in: the relay looks by itself.
func TestARelayThatWasLetInByTheConfigurationBeforeIsCut(t *testing.T) {
	cfg := guard(toAddresses(echo(t, "")), model.Workload{Ref: pod.Ref})
	s := serve(t, cfg)
	client, other := net.Pipe()
	defer other.Close()
	b := s.binds[0]
	snap, port := b.snapshot()
	denying := *cfg
	denying.Workloads = nil
	if err := s.Apply(&denying); err != nil {
		t.Fatal(err)
	}
	r := &relay{srv: s.Server, bind: b, sock: client, nc: client, limit: time.Minute}
	r.Begin(s.pipe, addressed{client}, 1)
	b.relays.add(r)
	if r.connect(snap, port) {
		t.Error("the relay goes on")
	}
	r.Finish()
	b.relays.remove(r)
	if n := s.failures(telemetry.AccessDenied); n != 1 {
		t.Errorf("access_denied counted %d times, want once", n)
	}
}

// The same of a tunnel, whose request was in flight.
func TestATunnelThatBeginsAfterItsPermissionEndedIsCut(t *testing.T) {
	arrived, looked := make(chan struct{}), make(chan struct{})
	cfg := guard(plain(rawBackend(t, func(c net.Conn) {
		c.Read(make([]byte, 4<<10))
		close(arrived)
		<-looked
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		io.Copy(c, c)
	})), model.Workload{Ref: pod.Ref})
	s := serve(t, cfg)
	c := dial(t, s.addr())
	io.WriteString(c, upgradeRequest)
	<-arrived
	next := *cfg
	next.Workloads = nil
	if err := s.Apply(&next); err != nil {
		t.Fatal(err)
	}
	close(looked)
	io.WriteString(c, "x")
	if got, _ := io.ReadAll(c); strings.HasSuffix(string(got), "x") {
		t.Errorf("the tunnel works: %q", got)
	}
	if n := s.failures(telemetry.AccessDenied); n != 1 {
		t.Errorf("access_denied counted %d times, want once", n)
	}
}

// TestNoRelayOutlivesItsPermission opens connections while policies come and go. Whenever Apply has returned whose
// policies deny them, the open ones are cut, however the two meet.
func TestNoRelayOutlivesItsPermission(t *testing.T) {
	cfg := guard(toAddresses(echo(t, "")), model.Workload{Ref: pod.Ref})
	s := serve(t, cfg)
	denying := *cfg
	denying.Workloads = nil
	n := size.Of(200, 1000)
	var wg sync.WaitGroup
	conns := make([]net.Conn, n)
	gate := make(chan struct{}, 16)
	for i := range n {
		wg.Go(func() {
			gate <- struct{}{}
			defer func() { <-gate }()
			c, err := net.Dial("tcp", s.addr())
			if err != nil {
				return // reset before it was known here
			}
			c.SetDeadline(time.Now().Add(patience))
			conns[i] = c
			works(c)
		})
		if i%(n/10) == 0 {
			next := cfg
			if i/(n/10)%2 == 0 {
				next = &denying
			}
			if err := s.Apply(next); err != nil {
				t.Fatal(err)
			}
		}
	}
	wg.Wait()
	if err := s.Apply(&denying); err != nil {
		t.Fatal(err)
	}
	for _, c := range conns {
		if c == nil {
			continue
		}
		if works(c) {
			t.Fatal("a connection works that is denied")
		}
		c.Close()
	}
	until(t, "not all relays end", func() bool { return len(s.binds[0].relays.list()) == 0 })
}

func TestManyRelaysAreCutWithinOneApply(t *testing.T) {
	cfg := guard(toAddresses(echo(t, "")), model.Workload{Ref: pod.Ref})
	s := serve(t, cfg)
	conns := make([]net.Conn, size.Of(200, 1000))
	for i := range conns {
		conns[i] = relayed(t, dial(t, s.addr()))
	}
	next := *cfg
	next.Workloads = nil
	if err := s.Apply(&next); err != nil {
		t.Fatal(err)
	}
	for _, r := range s.binds[0].relays.list() {
		if !r.Aborted() {
			t.Fatal("Apply has returned, and a relay is not cut")
		}
	}
	for _, c := range conns {
		if works(c) {
			t.Fatal("a relay works")
		}
	}
	if n := s.failures(telemetry.AccessDenied); n != uint64(len(conns)) {
		t.Errorf("access_denied counted %d times for %d", n, len(conns))
	}
}

// BenchmarkApplyWithRelays measures what open relays add to an Apply: nothing where their policies stay.
func BenchmarkApplyWithRelays(b *testing.B) {
	for name, n := range map[string]int{"0": 0, "1000": 1000} {
		for _, change := range []string{"other", "policies"} {
			b.Run(n0(name, change), func(b *testing.B) {
				cfg := guard(toAddresses(echo(b, "")), model.Workload{Ref: pod.Ref})
				s := serve(b, cfg)
				for range n {
					relayed(b, dial(b, s.addr()))
				}
				b.ReportAllocs()
				for b.Loop() {
					next := *cfg
					if change == "policies" {
						next.Policies = []model.Policy{letting("shop", model.TrafficTCP)}
						next.Workloads = []model.Workload{{Ref: pod.Ref, Audit: true}}
					}
					if err := s.Apply(&next); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func n0(relays, change string) string { return "relays=" + relays + "/change=" + change }
