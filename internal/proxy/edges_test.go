package proxy

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/identity/claim"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/peertest"
	"github.com/weirmesh/weir/internal/telemetry"
)

// edges ends the server, so that everything is counted, and returns one line for each edge.
func (s *testServer) edges() string {
	s.stop()
	<-s.ended
	var b strings.Builder
	for _, e := range s.metrics.Edges() {
		way := "from"
		if e.Out {
			way = "to"
		}
		fmt.Fprintf(&b, "%s %s %s", e.At, way, e.Peer)
		if e.Route+e.Service+e.Backend != "" {
			fmt.Fprintf(&b, " (%s %s %s)", e.Route, e.Service, e.Backend)
		}
		fmt.Fprintf(&b, ": %d ok, %d failed\n", e.Success, e.Failure)
		if n := e.Latency.Count(); n != e.Success+e.Failure {
			fmt.Fprintf(&b, "  but %d durations\n", n)
		}
	}
	return b.String()
}

// wants fails unless the edges are these lines.
func (s *testServer) wants(t *testing.T, lines ...string) {
	t.Helper()
	if got, want := s.edges(), strings.Join(lines, "\n")+"\n"; got != want {
		t.Errorf("edges\n%swant\n%s", got, want)
	}
}

// moody answers by the request's path: with its status, or with half of an answer, or with none.
func moody(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body)
	switch r.URL.Path {
	case "/cut":
		w.Header().Set("Content-Length", "100")
		io.WriteString(w, "half")
		w.(http.Flusher).Flush()
		hangUp(w)
	case "/none":
		hangUp(w)
	default:
		var status int
		fmt.Sscanf(r.URL.Path, "/%d", &status)
		w.WriteHeader(status)
	}
}

func TestAGatewayCountsWhoItServesAndWhomItAsks(t *testing.T) {
	cfg := plain(backend(t, moody))
	cfg.Listeners[0].Owner = model.GatewayOwner("default", "gw")
	cfg.Services[0].Endpoints[0].Pod = "app-1"
	s := serve(t, cfg)
	for _, path := range []string{"/200", "/200", "/404", "/500", "/503", "/cut", "/none"} {
		k := newTalk(t, s.addr())
		k.send("POST " + path + " HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx")
		if path == "/cut" {
			io.ReadAll(k.r)
			continue
		}
		k.answer("POST")
	}
	k := newTalk(t, s.addr())
	k.send("POST /200 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n") // says nothing about the endpoint
	k.answer("POST")
	s.wants(t,
		"Gateway default/gw from unknown: 4 ok, 4 failed", // the client's mistake is answered 400
		"Gateway default/gw to Pod default/app-1 (default/route default/app:80 default/app:80): 3 ok, 4 failed")
}

func TestRequestsThatNoRuleTakesAreServed(t *testing.T) {
	cfg := plain("127.0.0.1:1")
	cfg.Listeners[0].Owner = model.GatewayOwner("default", "gw")
	cfg.Routes[0].Rules[0].Matches[0].Path.Value = "/a"
	s := serve(t, cfg)
	k := newTalk(t, s.addr())
	k.send("GET /b HTTP/1.1\r\nHost: a\r\n\r\n")
	k.answer("GET")
	s.wants(t, "Gateway default/gw from unknown: 1 ok, 0 failed")
}

// TestEachAttemptIsCountedWhereItWent: the client has one answer, and each endpoint what it gave.
func TestEachAttemptIsCountedWhereItWent(t *testing.T) {
	bad := backend(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) })
	good := backend(t, func(w http.ResponseWriter, _ *http.Request) {})
	cfg := config([]model.Service{service("default/bad:80", model.HTTP, bad, peertest.Refusing(t)), service("default/good:80", model.HTTP, good)}, ruleTo("default/bad:80"), ruleTo("default/good:80"))
	cfg.Listeners[0].Owner = model.GatewayOwner("default", "gw")
	rules := cfg.Routes[0].Rules
	rules[0].Matches[0].Path.Value = "/bad"
	rules[0].Retry = &model.Retry{Attempts: 1, Codes: []int{503}}
	s := serve(t, cfg)
	k := newTalk(t, s.addr())
	for range 4 {
		k.send("GET /bad HTTP/1.1\r\nHost: a\r\n\r\n")
		if resp, _ := k.answer("GET"); resp.StatusCode < 500 {
			t.Fatalf("status %d", resp.StatusCode)
		}
	}
	k.send("GET /good HTTP/1.1\r\nHost: a\r\n\r\n")
	k.answer("GET")
	s.stop()
	<-s.ended
	var in, out uint64
	for _, e := range s.metrics.Edges() {
		switch {
		case !e.Out:
			in = e.Failure
		case e.Service == "default/bad:80":
			out += e.Failure
		}
	}
	var tries uint64
	for _, x := range s.metrics.Snapshot().Exchanges {
		tries += x.Retries
	}
	if in != 4 || out != 4+tries || tries < 4 {
		t.Errorf("%d requests failed, %d attempts after %d retries", in, out, tries)
	}
}

func TestLeavesOfASplitAreToldFromItsRoot(t *testing.T) {
	a := backend(t, func(http.ResponseWriter, *http.Request) {})
	b := backend(t, func(http.ResponseWriter, *http.Request) {})
	cfg := config([]model.Service{service("default/v1:80", model.HTTP, a), service("default/v2:80", model.HTTP, b), service(serviceName, model.HTTP, a, b)}, ruleTo(serviceName))
	cfg.Listeners[0].Owner = model.GatewayOwner("default", "gw")
	cfg.Services[1].Endpoints[0].Pod = "v2-a"
	cfg.Splits = []model.Split{{Ref: model.Ref{Kind: "TrafficSplit", Namespace: "default", Name: "s"}, Root: serviceName,
		Leaves: []model.Leaf{{Service: "default/v1:80", Weight: 3}, {Service: "default/v2:80", Weight: 1}}}}
	s := serve(t, cfg)
	k := newTalk(t, s.addr())
	for range 100 {
		k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		k.answer("GET")
	}
	s.wants(t,
		"Gateway default/gw from unknown: 100 ok, 0 failed",
		"Gateway default/gw to Pod default/v2-a (default/route default/app:80 default/v2:80): 25 ok, 0 failed",
		"Gateway default/gw to Service default/v1 (default/route default/app:80 default/v1:80): 75 ok, 0 failed")
}

func TestAddressesThatMayBePodsAreKept(t *testing.T) {
	cfg := plain(backend(t, func(http.ResponseWriter, *http.Request) {}))
	cfg.Listeners[0].Owner = model.GatewayOwner("default", "gw")
	cfg.Listeners[0].Front = &model.Front{TrustedProxies: []string{"127.0.0.0/8"}, ProxyProtocol: true}
	s := serve(t, cfg)
	for _, address := range []string{"10.1.2.3", "192.0.2.1", "100.64.0.9", "192.0.2.2"} {
		k := newTalk(t, s.addr())
		k.send("PROXY TCP4 " + address + " 10.0.0.1 1000 80\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n")
		k.answer("GET")
		k.answer("GET")
	}
	s.wants(t,
		"Gateway default/gw from unknown: 4 ok, 0 failed",
		"Gateway default/gw from Address 10.1.2.3: 2 ok, 0 failed",
		"Gateway default/gw from Address 100.64.0.9: 2 ok, 0 failed",
		"Gateway default/gw to Service default/app (default/route default/app:80 default/app:80): 8 ok, 0 failed")
}

// TestASidecarCountsWhatItsPodSendsAndReceives, by what the certificates of clients prove.
func TestASidecarCountsWhatItsPodSendsAndReceives(t *testing.T) {
	addr := backend(t, func(http.ResponseWriter, *http.Request) {})
	cfg := plain(addr)
	ca := peertest.NewAuthority(t)
	_, with := mutual(t, cfg, ca)
	owner := model.WorkloadOwner("shop", "cart-1")
	cfg.Listeners[0].Owner, cfg.Listeners[0].Workload, cfg.Listeners[0].WorkloadPort = owner, "shop/Pod/cart-1", 8080
	cfg.Workloads = []model.Workload{{Ref: model.Ref{Kind: "Pod", Namespace: "shop", Name: "cart-1"}}}
	out := cfg.Listeners[0]
	out.Name, out.Port, out.Protocol, out.TLS, out.Workload, out.WorkloadPort = "default/gw/out", 81, model.HTTP, nil, "", 0
	cfg.Listeners = append(cfg.Listeners, out)
	cfg.Routes[0].Attachments = append(cfg.Routes[0].Attachments, model.Attachment{Listener: out.Name, Hostnames: []string{"*"}})
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	s := serve(t, cfg, with)
	extension, err := claim.Claims{Pod: "shop-1"}.Extension()
	if err != nil {
		t.Fatal(err)
	}
	named := func(c *x509.Certificate) { c.ExtraExtensions = append(c.ExtraExtensions, extension) }
	node, _ := url.Parse("spiffe://cluster.test/node/n1")
	for _, chain := range []tls.Certificate{
		ca.Workload(t, shopID, named), ca.Workload(t, shopID, nil), ca.Workload(t, "spiffe://cluster.test/else", nil), ca.Workload(t, shopID, named),
		ca.Workload(t, shopID, func(c *x509.Certificate) { c.URIs = []*url.URL{node} }),
	} {
		if _, err := getOver(t, s.Addr(listenerName).String(), as(chain)); err != nil {
			t.Fatal(err)
		}
	}
	k := newTalk(t, s.Addr(out.Name).String())
	k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	k.answer("GET")
	s.wants(t,
		"Workload shop/cart-1 from Node n1: 1 ok, 0 failed",
		"Workload shop/cart-1 from SPIFFE spiffe://cluster.test/else: 1 ok, 0 failed",
		"Workload shop/cart-1 from Pod shop/shop-1: 2 ok, 0 failed",
		"Workload shop/cart-1 from ServiceAccount shop/shop: 1 ok, 0 failed",
		"Workload shop/cart-1 to Service default/app (default/route default/app:80 default/app:80): 1 ok, 0 failed")
}

func TestAProxyInAPodObservesAtThePod(t *testing.T) {
	cfg := plain(backend(t, func(http.ResponseWriter, *http.Request) {}))
	cfg.Listeners[0].Owner = model.GatewayOwner("default", "gw")
	s := serve(t, cfg, func(o *Options) { o.At = telemetry.Side{Kind: "Pod", Namespace: "default", Name: "gw-x"} })
	k := newTalk(t, s.addr())
	k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	k.answer("GET")
	s.wants(t,
		"Pod default/gw-x from unknown: 1 ok, 0 failed",
		"Pod default/gw-x to Service default/app (default/route default/app:80 default/app:80): 1 ok, 0 failed")
}

// TestANewPodAtAnAddressIsCountedApart: what a connection or a configuration found before does not stay.
func TestANewPodAtAnAddressIsCountedApart(t *testing.T) {
	cfg := plain(backend(t, func(http.ResponseWriter, *http.Request) {}))
	cfg.Services[0].Endpoints[0].Pod = "app-1"
	s := serve(t, cfg)
	k := newTalk(t, s.addr())
	ask := func() {
		k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		k.answer("GET")
	}
	ask()
	next := plain(cfg.Services[0].Endpoints[0].Address)
	next.Services[0].Endpoints[0].Pod = "app-2"
	if err := s.Apply(next); err != nil {
		t.Fatal(err)
	}
	ask()
	ask()
	s.wants(t,
		"Gateway default/gw from unknown: 3 ok, 0 failed",
		"Gateway default/gw to Pod default/app-1 (default/route default/app:80 default/app:80): 1 ok, 0 failed",
		"Gateway default/gw to Pod default/app-2 (default/route default/app:80 default/app:80): 2 ok, 0 failed")
}

func TestATapShowsRequestsWithoutTheirSecrets(t *testing.T) {
	cfg := plain(backend(t, moody))
	cfg.Listeners[0].Owner = model.GatewayOwner("default", "gw")
	cfg.Services[0].Endpoints[0].Pod = "app-1"
	s := serve(t, cfg)
	failed := func(x *telemetry.Tapped) bool { return x.Status >= 500 && x.To.Name == "app-1" }
	tap, err := s.metrics.Tap(100, failed)
	if err != nil {
		t.Fatal(err)
	}
	k := newTalk(t, s.addr())
	for _, path := range []string{"/200", "/503?token=secret", "/404"} {
		k.send("POST " + path + " HTTP/1.1\r\nHost: shop.example\r\nAuthorization: secret\r\nContent-Length: 1\r\n\r\nx")
		k.answer("POST")
	}
	s.stop()
	<-s.ended
	if n := tap.Counts(); n.Matched != 1 {
		t.Fatalf("%+v", n)
	}
	x := <-tap.Requests()
	if text := fmt.Sprintf("%+v", x); strings.Contains(text, "secret") {
		t.Errorf("shown: %s", text)
	}
	got := fmt.Sprintf("%s: %s > %s > %s at %s, %s by %s, %s http://%s%s %d, %d in", x.Protocol, x.From, x.At, x.To, x.Endpoint, x.Backend, x.Route, x.Method, x.Host, x.Path, x.Status, x.BytesIn)
	want := "HTTP/1.1: unknown > Gateway default/gw > Pod default/app-1 at " + cfg.Services[0].Endpoints[0].Address +
		", default/app:80 by default/route, POST http://shop.example/503 503, 1 in"
	if got != want || x.Duration <= 0 {
		t.Errorf("shown\n%s\nwant\n%s", got, want)
	}
}
