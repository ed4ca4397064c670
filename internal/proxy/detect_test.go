package proxy

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/identity/spiffe"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/peertest"
	"github.com/weirmesh/weir/internal/telemetry"
)

// detecting is a listener that detects what connections carry: a backend says hello to requests, connections go to address.
func detecting(t testing.TB, address string) *model.Config {
	cfg := plain(backend(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello") }))
	tcp := toAddresses(address)
	cfg.Listeners[0].Detect = true
	tcp.Services[0].Name, tcp.Routes[0].Rules[0].Backends[0].Service = "default/bytes:80", "default/bytes:80"
	cfg.Services, cfg.Routes = append(cfg.Services, tcp.Services...), append(cfg.Routes, tcp.Routes...)
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// greeter greets, and answers each line; at the end of the client's side it says goodbye.
func greeter(t testing.TB) string {
	return rawBackend(t, func(c net.Conn) {
		io.WriteString(c, "220 ready\r\n")
		io.Copy(c, c)
		io.WriteString(c, "bye")
	})
}

// listener is an endpoint that says nothing, and how many connections it has got, and how many of them ended without a byte.
type listener struct{ came, left, said atomic.Int32 }

func (l *listener) start(t testing.TB) string {
	return rawBackend(t, func(c net.Conn) {
		l.came.Add(1)
		first := make([]byte, 1)
		n, err := c.Read(first)
		if n > 0 {
			l.said.Add(1)
			c.Write(first)
			io.Copy(c, c)
		} else if err == io.EOF {
			l.left.Add(1)
		}
	})
}

// passes reports whether a byte that begins no request comes back over a connection to an echo.
func passes(c net.Conn) bool {
	if _, err := io.WriteString(c, "\x00"); err != nil {
		return false
	}
	_, err := io.ReadFull(c, make([]byte, 1))
	return err == nil
}

func getsHello(t *testing.T, k *talk) {
	t.Helper()
	if resp, body := k.answer("GET"); resp.StatusCode != 200 || body != "hello" {
		t.Errorf("%d %q", resp.StatusCode, body)
	}
}

func TestWhatAConnectionCarriesIsDetected(t *testing.T) {
	s := serve(t, detecting(t, greeter(t)))
	k := newTalk(t, s.addr())
	for range 2 {
		k.send(getAndStay)
		getsHello(t, k)
	}
	resp, err := h2Plain(t, s.addr())
	if err != nil {
		t.Fatalf("HTTP/2: %v", err)
	}
	if resp.Body.Close(); resp.StatusCode != 200 || resp.ProtoMajor != 2 {
		t.Errorf("HTTP/2: %s %s", resp.Status, resp.Proto)
	}
	for text, want := range map[string]string{
		"":                      "220 ready\r\nbye", // the client has nothing to say
		"\x00\x01":              "220 ready\r\n\x00\x01bye",
		"GET key\r\n":           "220 ready\r\nGET key\r\nbye",
		"GET":                   "220 ready\r\nGETbye", // it ends before it is anything
		"EHLO a\r\nQUIT\r\n":    "220 ready\r\nEHLO a\r\nQUIT\r\nbye",
		"\x16\x03\x01\x00\x05":  "220 ready\r\n\x16\x03\x01\x00\x05bye",
		strings.Repeat("A", 50): "220 ready\r\n" + strings.Repeat("A", 50) + "bye",
	} {
		if got := say(t, s.addr(), text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	s.stop()
	<-s.ended
	for _, x := range s.metrics.Snapshot().Exchanges {
		if len(x.Reasons) > 0 {
			t.Errorf("%s: failures %+v", x.Backend, x.Reasons)
		}
	}
}

func TestWhoSpeaksFirstDecides(t *testing.T) {
	s := serve(t, detecting(t, greeter(t)))
	c := skipping(t, dial(t, s.addr()), "220 ready\r\n")
	relayed(t, c)
	io.WriteString(c, getAndStay) // it is no request here
	if got, err := io.ReadAll(io.LimitReader(c, int64(len(getAndStay)))); string(got) != getAndStay {
		t.Errorf("%q, %v", got, err)
	}
}

// TestASilentClientMayStillSendRequests holds that the endpoint that was connected for it sees the end, and nobody is told.
func TestASilentClientMayStillSendRequests(t *testing.T) {
	for name, pieces := range map[string][]string{"at once": {getAndStay}, "in pieces": {"G", "ET /", getAndStay[5:10], getAndStay[10:]}} {
		var quiet listener
		log, lines := logging(t)
		s := serve(t, detecting(t, quiet.start(t)), log)
		k := newTalk(t, s.addr())
		until(t, "the endpoint is not connected", func() bool { return quiet.came.Load() == 1 })
		for i, p := range pieces {
			k.send(p)
			if time.Sleep(quietTime); i < len(pieces)-1 && quiet.left.Load() > 0 {
				t.Errorf("%s: the endpoint is left before the request is known", name)
			}
		}
		getsHello(t, k)
		k.send(getAndStay)
		getsHello(t, k)
		until(t, "the endpoint is still connected", func() bool { return quiet.left.Load() == 1 })
		h, err := h2Plain(t, s.addr())
		if err != nil || h.ProtoMajor != 2 {
			t.Fatal(h, err)
		}
		h.Body.Close()
		s.stop()
		<-s.ended
		for _, line := range lines() {
			if line["protocol"] == "TCP" {
				t.Errorf("%s: logged %v", name, line)
			}
		}
		if quiet.said.Load() != 0 {
			t.Errorf("%s: the endpoint got bytes", name)
		}
	}
}

// TestAServerOfHTTP2ThatSpeaksFirst does not say what a client carries.
func TestAServerOfHTTP2ThatSpeaksFirst(t *testing.T) {
	const settings = "\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x64"
	var came, left atomic.Int32
	s := serve(t, detecting(t, rawBackend(t, func(c net.Conn) {
		io.WriteString(c, settings)
		came.Add(1)
		io.Copy(c, c)
		left.Add(1)
	})))
	k := newTalk(t, s.addr())
	until(t, "the endpoint is not connected", func() bool { return came.Load() == 1 })
	time.Sleep(quietTime)
	k.send(getAndStay)
	getsHello(t, k)
	until(t, "the endpoint is still connected", func() bool { return left.Load() == 1 })
	if got := say(t, s.addr(), "\x00"); got != settings+"\x00" { // to a client of another protocol it may be anything
		t.Errorf("%q", got)
	}
}

// TestSlowBytesOfARequest come before the endpoint is connected, and are not taken for anything else.
func TestSlowBytesOfARequest(t *testing.T) {
	var quiet listener
	s := serve(t, detecting(t, quiet.start(t)))
	k := newTalk(t, s.addr())
	for i := range getAndStay {
		k.send(getAndStay[i : i+1])
		if i == 0 {
			time.Sleep(3 * quietTime)
		}
	}
	getsHello(t, k)
	if quiet.said.Load() != 0 {
		t.Error("the endpoint got bytes")
	}
}

// TestBytesThatOnlyBeginLikeARequest are passed on when they have had the time of a head, whether or not the endpoint was connected
// before.
func TestBytesThatOnlyBeginLikeARequest(t *testing.T) {
	for _, pause := range []time.Duration{0, 10 * quietTime} {
		s := serve(t, detecting(t, echo(t, "")), func(o *Options) { o.HeaderTimeout = 50 * time.Millisecond })
		c := dial(t, s.addr())
		time.Sleep(pause)
		for _, text := range []string{"HELO me", " again"} {
			io.WriteString(c, text)
			got := make([]byte, len(text))
			if _, err := io.ReadFull(c, got); err != nil || string(got) != text {
				t.Errorf("%q, %v, want %q", got, err, text)
			}
		}
	}
}

func TestASilentRelayEndsByTheStreamTimeout(t *testing.T) {
	var quiet listener
	log, lines := logging(t)
	s := serve(t, detecting(t, quiet.start(t)), log, func(o *Options) { o.StreamTimeout, o.IdleTimeout = 100*time.Millisecond, time.Millisecond })
	if _, err := dial(t, s.addr()).Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%v, want a reset", err)
	}
	s.stop()
	<-s.ended
	if all := lines(); len(all) != 1 || all[0]["protocol"] != "TCP" || all[0]["reason"] != nil {
		t.Errorf("logged %v", all)
	}
}

// TestAnEndpointIsNotConnectedForSilentClients where only requests may come.
func TestAnEndpointIsNotConnectedForSilentClients(t *testing.T) {
	requests := letting("shop", model.TrafficHTTP)
	elsewhere := letting("shop", model.TrafficHTTP)
	elsewhere.Ports = []int32{9090}
	open := pod
	open.Groups = nil // no policy names it
	for name, test := range map[string]struct {
		edit    func(cfg *model.Config)
		silence bool // the endpoint is not connected
		status  int
		bytes   string // the answer to bytes
	}{
		"no policies":       {func(cfg *model.Config) {}, false, 200, "220 ready\r\n\x00bye"},
		"a workload":        {func(cfg *model.Config) { guard(cfg, open, requests) }, false, 200, "220 ready\r\n\x00bye"},
		"rules of requests": {func(cfg *model.Config) { guard(cfg, pod, requests) }, true, 403, ""},
		"rules of requests that are only told": {func(cfg *model.Config) {
			w := pod
			w.Audit = true
			guard(cfg, w, requests)
		}, true, 200, "220 ready\r\n\x00bye"},
		"rules of connections": {func(cfg *model.Config) { guard(cfg, pod, letting("shop", model.TrafficTCP)) }, true, 403, ""},
		"rules of requests at another port, that are only told": {func(cfg *model.Config) {
			w := pod
			w.Audit = true
			guard(cfg, w, elsewhere)
		}, false, 200, "220 ready\r\n\x00bye"},
		"no route for connections": {func(cfg *model.Config) { cfg.Routes = cfg.Routes[:1] }, true, 200, ""},
		"a fault for connections": {func(cfg *model.Config) {
			cfg.Routes[1].Rules[0] = model.Rule{Ref: cfg.Routes[1].Ref, Fault: &model.Fault{Status: 500, Reason: "x"}}
		}, true, 200, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := detecting(t, greeter(t))
			test.edit(cfg)
			if err := cfg.Validate(); err != nil {
				t.Fatal(err)
			}
			s := serve(t, cfg)
			k := newTalk(t, s.addr())
			k.SetReadDeadline(time.Now().Add(20 * quietTime))
			_, err := k.r.Peek(1)
			var timeout net.Error
			if silent := errors.As(err, &timeout) && timeout.Timeout(); silent != test.silence {
				t.Errorf("silent %t, %v", silent, err)
			}
			if k.SetReadDeadline(time.Now().Add(patience)); !test.silence {
				k = newTalk(t, s.addr())
			}
			k.send(getAndStay)
			if resp, _ := k.answer("GET"); resp.StatusCode != test.status {
				t.Errorf("status %d, want %d", resp.StatusCode, test.status)
			}
			if got := say(t, s.addr(), "\x00"); got != test.bytes && (test.bytes != "" || !strings.Contains(got, "reset")) {
				t.Errorf("bytes get %q, want %q", got, test.bytes)
			}
		})
	}
}

// TestAVerdictCountsOnceItIsKnownWhatAConnectionCarries has a client in the mesh's place: nobody, whom a workload's policies only watch.
func TestAVerdictCountsOnceItIsKnownWhatAConnectionCarries(t *testing.T) {
	var quiet listener
	watched := pod
	watched.Audit = true
	s := serve(t, guard(detecting(t, quiet.start(t)), watched, letting("shop", model.TrafficTCP)))
	k := newTalk(t, s.addr())
	until(t, "the endpoint is not connected", func() bool { return quiet.came.Load() == 1 })
	if n := s.accessed(telemetry.AccessNoIdentity, "audited"); n != 0 {
		t.Errorf("%d verdicts about a silent client", n)
	}
	k.send(getAndStay)
	getsHello(t, k)
	if n := s.accessed(telemetry.AccessNoIdentity, "audited"); n != 1 {
		t.Errorf("%d verdicts about a request", n)
	}
	c := dial(t, s.addr())
	until(t, "the endpoint is not connected", func() bool { return quiet.came.Load() == 2 })
	if !passes(c) {
		t.Error("the connection is not relayed")
	}
	if n := s.accessed(telemetry.AccessNoIdentity, "audited"); n != 2 {
		t.Errorf("%d verdicts about a request and a connection", n)
	}
}

// TestPoliciesComeIntoForceBeforeAnybodyHasSpoken leaves the endpoint, and not the client.
func TestPoliciesComeIntoForceBeforeAnybodyHasSpoken(t *testing.T) {
	var quiet listener
	cfg := guard(detecting(t, quiet.start(t)), pod)
	s := serve(t, cfg)
	k, other := newTalk(t, s.addr()), dial(t, s.addr())
	until(t, "the endpoint is not connected", func() bool { return quiet.came.Load() == 2 })
	judged := *cfg
	audited := pod
	audited.Audit = true
	judged.Workloads, judged.Policies = []model.Workload{audited}, []model.Policy{letting("shop", model.TrafficHTTP)}
	if err := s.Apply(&judged); err != nil {
		t.Fatal(err)
	}
	k.send(getAndStay)
	getsHello(t, k)
	judged.Workloads = []model.Workload{pod}
	if err := s.Apply(&judged); err != nil {
		t.Fatal(err)
	}
	k.send(getAndStay)
	if resp, _ := k.answer("GET"); resp.StatusCode != 403 {
		t.Errorf("status %d", resp.StatusCode)
	}
	if passes(other) {
		t.Error("a connection that is denied is relayed")
	}
}

// TestAnEndpointThatIsNotThereForASilentClient is no reason to refuse the client's requests, unless it is there for nobody.
func TestAnEndpointThatIsNotThereForASilentClient(t *testing.T) {
	for _, name := range []string{"refuses", "none"} {
		cfg := detecting(t, peertest.Refusing(t))
		if name == "none" {
			cfg.Services[1].Endpoints = nil
		}
		s := serve(t, cfg)
		if err := greeting(s.addr()); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: %v, want a reset", name, err)
		}
		k := newTalk(t, s.addr())
		k.send(getAndStay)
		getsHello(t, k)
	}
	var came atomic.Int32
	address := rawBackend(t, func(c net.Conn) {
		if came.Add(1) <= 3 {
			time.Sleep(10 * quietTime)    // a reset of a connection that is not yet made would be another failure
			c.(*net.TCPConn).SetLinger(0) // as another sidecar that lets no connection in
			return
		}
		io.Copy(c, c)
	})
	s := serve(t, detecting(t, address), func(o *Options) { o.HeaderTimeout = 3 * time.Second })
	k, other, silent := newTalk(t, s.addr()), dial(t, s.addr()), dial(t, s.addr())
	until(t, "the endpoint does not leave", func() bool {
		left := 0
		for _, r := range s.binds[0].relays.list() {
			if r.contest.outcome() == contestAlone {
				left++
			}
		}
		return left == 3
	})
	k.send(getAndStay)
	getsHello(t, k)
	io.WriteString(other, "\x00")
	if _, err := io.ReadFull(other, make([]byte, 1)); err != nil {
		t.Errorf("bytes: %v", err)
	}
	if _, err := silent.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a client that stays silent: %v, want a reset", err)
	}
}

// TestASilentClientHasAPlaceAmongRelays and gives it back.
func TestASilentClientHasAPlaceAmongRelays(t *testing.T) {
	var quiet listener
	s := serve(t, detecting(t, quiet.start(t)), func(o *Options) { o.Upstream.MaxRelays = 1 })
	first := newTalk(t, s.addr())
	until(t, "the endpoint is not connected", func() bool { return quiet.came.Load() == 1 })
	second := newTalk(t, s.addr())
	time.Sleep(2 * quietTime)
	second.send("\x00")
	if _, err := second.r.ReadByte(); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a second connection: %v, want a reset", err)
	}
	first.send(getAndStay)
	getsHello(t, first)
	until(t, "there is no place again", func() bool {
		c := dial(t, s.addr())
		defer c.Close()
		return passes(c)
	})
}

// TestASilentConnectionGivesWayToOthers as one without a request does.
func TestASilentConnectionGivesWayToOthers(t *testing.T) {
	var quiet listener
	s := serve(t, detecting(t, quiet.start(t)), func(o *Options) { o.MaxConnections = 1 })
	c := dial(t, s.addr())
	until(t, "the endpoint is not connected", func() bool { return quiet.came.Load() == 1 })
	until(t, "there is no place", func() bool {
		k := dial(t, s.addr())
		defer k.Close()
		io.WriteString(k, getAndStay)
		answer := make([]byte, 12)
		io.ReadFull(k, answer)
		return string(answer) == "HTTP/1.1 200"
	})
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is open")
	}
	until(t, "the endpoint is connected", func() bool { return quiet.left.Load() == 1 })
}

// TestAPanicWhileAnEndpointIsConnectedEndsThatAlone leaves the client to send requests.
func TestAPanicWhileAnEndpointIsConnectedEndsThatAlone(t *testing.T) {
	var came atomic.Int32
	cfg := detecting(t, echo(t, ""))
	cfg.Services[1].TLS = &model.ServiceTLS{Hostname: "cart.shop", CAs: workload, SubjectAltNames: []string{cartID}}
	cfg.Routes[1].ClientCertificate = workload
	s := serve(t, cfg, func(o *Options) {
		o.Identities = func(string) *spiffe.Identity {
			came.Add(1)
			panic("broken")
		}
	})
	k := newTalk(t, s.addr())
	until(t, "the endpoint is not connected", func() bool { return came.Load() > 0 })
	time.Sleep(quietTime)
	k.send(getAndStay)
	getsHello(t, k)
	if got := say(t, s.addr(), "\x00"); !strings.Contains(got, "reset") {
		t.Errorf("bytes get %q", got)
	}
	if n := s.failures(telemetry.Internal); n == 0 {
		t.Error("the panic is not counted")
	}
}

// TestDrainingEndsSilentConnections that nobody would miss.
func TestDrainingEndsSilentConnections(t *testing.T) {
	var quiet listener
	s := serve(t, detecting(t, quiet.start(t)), func(o *Options) { o.DrainTimeout = patience })
	c := dial(t, s.addr())
	until(t, "the endpoint is not connected", func() bool { return quiet.came.Load() == 1 })
	s.stop()
	<-s.ended
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is open")
	}
	// A relay is not silent.
	s = serve(t, detecting(t, greeter(t)), func(o *Options) { o.DrainTimeout = patience })
	c = skipping(t, dial(t, s.addr()), "220 ready\r\n")
	s.stop()
	relayed(t, c)
	c.Close()
	<-s.ended
}

// TestAnApplicationsOwnTLSPasses through a listener in cleartext, and one where connections of the mesh come, too.
func TestAnApplicationsOwnTLSPasses(t *testing.T) {
	ca := peertest.NewAuthority(t)
	chain := ca.Workload(t, shopID, nil)
	address := rawBackend(t, func(nc net.Conn) {
		c := tls.Server(nc, &tls.Config{Certificates: []tls.Certificate{chain}, NextProtos: []string{"h2", "db"}})
		io.Copy(c, c)
		c.CloseWrite()
	})
	in, _, with := permissiveDetecting(t, ca, address)
	log, lines := logging(t)
	for name, s := range map[string]*testServer{"cleartext": serve(t, detecting(t, address)), "the mesh": serve(t, in, with, log)} {
		for _, offers := range [][]string{nil, {"h2"}, {"db"}} {
			config := as()
			config.NextProtos = offers
			c := tls.Client(bytewise{dial(t, s.addr())}, config)
			if !works(c) || string(c.ConnectionState().PeerCertificates[0].Raw) != string(chain.Leaf.Raw) {
				t.Errorf("%s: %q does not reach the application", name, offers)
			}
			c.Close()
		}
		s.stop()
		<-s.ended
	}
	for _, line := range lines() {
		if line["protocol"] != "TCP" || line["source"] != nil || line["access"] != "ungoverned" {
			t.Errorf("logged %v", line)
		}
	}
}

// permissiveDetecting is a listener of an identity in front of the pod, which detects what connections carry and serves clients without
// TLS, too.
func permissiveDetecting(t testing.TB, ca *peertest.Authority, address string) (*model.Config, *identities, func(*Options)) {
	cfg := detecting(t, address)
	source, with := mutual(t, guard(cfg, pod), ca)
	cfg.Listeners[0].TLS.Plain = true
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	return cfg, source, with
}

// TestTheMeshSaysWhatAConnectionCarries has two sidecars: the first detects what connections carry, and the second learns it from the first.
func TestTheMeshSaysWhatAConnectionCarries(t *testing.T) {
	ca := peertest.NewAuthority(t)
	for _, permits := range []bool{true, false} {
		in, _, with := permissiveDetecting(t, ca, greeter(t))
		in.Listeners[0].TLS.Plain = permits
		in.Policies = []model.Policy{letting("shop", model.TrafficAny)}
		log, lines := logging(t)
		second := serve(t, in, with, log)
		out := detecting(t, second.addr())
		out.Services[0].Endpoints = out.Services[1].Endpoints
		for i := range out.Services {
			out.Services[i].TLS = &model.ServiceTLS{Hostname: "cart.shop", CAs: workload, SubjectAltNames: []string{cartID}}
			out.Routes[i].ClientCertificate = workload
		}
		if err := out.Validate(); err != nil {
			t.Fatal(err)
		}
		source := &identities{}
		source.have(t, ca.Workload(t, shopID, nil), ca.Pool())
		first := serve(t, out, func(o *Options) { o.Identities, o.Pseudonym = source.of, "first" })
		for text, want := range map[string]string{"\x00": "220 ready\r\n\x00bye", "": "220 ready\r\nbye"} {
			if got := say(t, first.addr(), text); got != want {
				t.Errorf("%q: %q, want %q", text, got, want)
			}
		}
		relayed(t, skipping(t, dial(t, first.addr()), "220 ready\r\n")).Close()
		k := newTalk(t, first.addr())
		k.send(getAndStay)
		getsHello(t, k)
		resp, err := h2Plain(t, first.addr())
		if err != nil || resp.StatusCode != 200 {
			t.Fatal(resp, err)
		}
		resp.Body.Close()
		// Nobody in cleartext is let in.
		plain := newTalk(t, second.addr())
		plain.send(getAndStay)
		if !permits {
			if b, err := plain.r.ReadByte(); err == nil && b != 21 {
				t.Errorf("cleartext is answered %q", b)
			}
		} else if resp, _ := plain.answer("GET"); resp.StatusCode != 403 {
			t.Errorf("cleartext gets %d", resp.StatusCode)
		}
		if got := say(t, second.addr(), "\x00"); strings.Contains(got, "ready") {
			t.Errorf("bytes in cleartext get %q", got)
		}
		first.stop()
		<-first.ended
		second.stop()
		<-second.ended
		protocols := map[string]int{}
		for _, line := range lines() {
			if line["access"] == "allowed" {
				if protocols[fmt.Sprint(line["protocol"])]++; line["source"] != shopID {
					t.Errorf("logged %v", line)
				}
			}
		}
		if protocols["TCP"] != 3 || protocols["HTTP/1.1"] != 2 {
			t.Errorf("let in %v", protocols)
		}
	}
}

// meshAs is as with the offer of a client of the mesh.
func meshAs(chain tls.Certificate, offers ...string) *tls.Config {
	config := as(chain)
	config.NextProtos = append([]string{model.MeshProtocol}, offers...)
	return config
}

// TestAHelloOfTheMeshMayComeLateAndInPieces holds also that its end is looked for no longer than a head's.
func TestAHelloOfTheMeshMayComeLateAndInPieces(t *testing.T) {
	ca := peertest.NewAuthority(t)
	in, _, with := permissiveDetecting(t, ca, echo(t, ""))
	s := serve(t, in, with)
	chain := ca.Workload(t, shopID, nil)
	for _, late := range []time.Duration{0, 2 * meshQuietTime} {
		nc := dial(t, s.addr())
		time.Sleep(late)
		c := tls.Client(bytewise{nc}, meshAs(chain))
		if !works(c) || c.ConnectionState().NegotiatedProtocol != "" {
			t.Errorf("bytes, %s late: %q", late, c.ConnectionState().NegotiatedProtocol)
		}
		if cs, err := getOver(t, s.addr(), meshAs(chain, "http/1.1")); err != nil || cs.NegotiatedProtocol != "http/1.1" {
			t.Errorf("requests: %q %v", cs.NegotiatedProtocol, err)
		}
	}
	var op *net.OpError
	if _, err := getOver(t, s.addr(), meshAs(peertest.NewAuthority(t).Workload(t, shopID, nil))); !errors.As(err, &op) || op.Op != "remote error" {
		t.Errorf("a foreign authority: %v, want an alert", err)
	}
	s = serve(t, in, with, func(o *Options) { o.HeaderTimeout = 50 * time.Millisecond })
	nc := dial(t, s.addr())
	part := helloOf(t, meshAs(chain))[:40]
	nc.Write(part)
	if got := make([]byte, len(part)); true {
		if _, err := io.ReadFull(nc, got); err != nil || string(got) != string(part) {
			t.Errorf("a hello without an end gets %q, %v", got, err)
		}
	}
}

// TestRequestsInAConnectionAreNoRequests: a client that does not say that it sends requests needs a policy for connections.
func TestRequestsInAConnectionAreNoRequests(t *testing.T) {
	ca := peertest.NewAuthority(t)
	var quiet listener
	for _, permits := range []bool{true, false} {
		in, _, with := permissiveDetecting(t, ca, quiet.start(t))
		in.Listeners[0].TLS.Plain = permits
		in.Policies = []model.Policy{letting("shop", model.TrafficHTTP)}
		s := serve(t, in, with)
		chain := ca.Workload(t, shopID, nil)
		if got, err := sayOver(t, s.addr(), meshAs(chain), getAndStay); got != "" || err == nil {
			t.Errorf("a connection gets %q, %v", got, err)
		}
		if _, err := getOver(t, s.addr(), meshAs(chain, "http/1.1")); err != nil {
			t.Errorf("a request gets %v", err)
		}
	}
	if quiet.came.Load() > 0 {
		t.Error("the endpoint was connected")
	}
}

// TestConnectionsAloneOfTheMeshBesideOthers has a port of connections that serves clients without TLS.
func TestConnectionsAloneOfTheMeshBesideOthers(t *testing.T) {
	ca := peertest.NewAuthority(t)
	cfg, _, with := sidecar(t, ca, greeter(t))
	guard(cfg, pod, letting("shop", model.TrafficTCP))
	cfg.Workloads[0].Audit = true
	cfg.Listeners[0].TLS.Plain = true
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	log, lines := logging(t)
	s := serve(t, cfg, with, log)
	chain := ca.Workload(t, shopID, nil)
	if got, err := sayOver(t, s.addr(), meshAs(chain), "x"); got != "220 ready\r\nxbye" || err != nil {
		t.Errorf("the mesh: %q, %v", got, err)
	}
	for text, want := range map[string]string{"": "220 ready\r\nbye", getAndStay: "220 ready\r\n" + getAndStay + "bye", "\x16": "220 ready\r\n\x16bye"} {
		if got := say(t, s.addr(), text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	relayed(t, skipping(t, dial(t, s.addr()), "220 ready\r\n")).Close()
	s.stop()
	<-s.ended
	found := map[string]int{}
	for _, line := range lines() {
		found[fmt.Sprint(line["access"], " ", line["source"])]++
	}
	if found["allowed "+shopID] != 1 || found["no_identity <nil>"] != 4 {
		t.Errorf("found %v", found)
	}
}

// TestAClientThatKnowsNothingMeetsAPortThatDoes: what it carries is what the port says.
func TestAClientThatKnowsNothingMeetsAPortThatDoes(t *testing.T) {
	cfg, ca, with := permissive(t)
	s := serve(t, cfg, with)
	chain := ca.Workload(t, shopID, nil)
	if cs, err := getOver(t, s.addr(), meshAs(chain)); err != nil || cs.NegotiatedProtocol != "" {
		t.Errorf("requests: %q %v", cs.NegotiatedProtocol, err)
	}
	raw, _, with := sidecar(t, ca, echo(t, ""))
	s = serve(t, raw, with)
	if got, err := sayOver(t, s.addr(), meshAs(chain, "h2"), "x"); got != "x" || err != nil {
		t.Errorf("connections: %q %v", got, err)
	}
}

func TestAListenerThatDetectsIsNotValidEverywhere(t *testing.T) {
	for want, edit := range map[string]func(cfg *model.Config){
		"detect: is set, but the protocol":           func(cfg *model.Config) { cfg.Listeners[0].Protocol, cfg.Routes = model.TCP, cfg.Routes[1:] },
		"detect: is set, but connections that carry": func(cfg *model.Config) { cfg.Listeners[0].Hostname = "a.example" },
		"detect: is set, but with TLS": func(cfg *model.Config) {
			secure(t, cfg, "a.example")
			cfg.Listeners[0].Detect = true
		},
		"clashes": func(cfg *model.Config) {
			second := cfg.Listeners[0]
			second.Name, second.Detect, second.Hostname = "second", false, "a.example"
			cfg.Listeners = append(cfg.Listeners, second)
		},
		"takes no TCP route": func(cfg *model.Config) { cfg.Listeners[0].Detect = false },
	} {
		cfg := detecting(t, "127.0.0.1:1")
		edit(cfg)
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
