package examples_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/dialect"
	"github.com/weirmesh/weir/internal/resource"
)

func TestEveryExampleIsRunAndHasNoComplaints(t *testing.T) {
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	var source []byte
	for _, file := range []string{"canary_loop_test.go", "examples_test.go", "grpc_test.go", "rollout_test.go", "session_test.go", "split_test.go", "tcp_test.go"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		source = append(source, text...)
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		// demo, demo-rollout and mesh are run by the tests of "weir demo".
		if !strings.HasPrefix(e.Name(), "demo") && e.Name() != "mesh" && !strings.Contains(string(source), fmt.Sprintf("%q", e.Name())) {
			t.Errorf("examples/%s is not run by a test", e.Name())
		}
		if e.Name() == "cross-namespace" {
			continue // shows a mistake on purpose
		}
		set, err := resource.Load(dialect.Kinds(), []string{e.Name()}, nil)
		if err != nil {
			t.Fatal(err)
		}
		result, err := control.Options{}.Translate(set)
		if err != nil {
			t.Errorf("examples/%s: %v", e.Name(), err)
		}
		for _, f := range result.Findings {
			t.Errorf("examples/%s: %s", e.Name(), f)
		}
	}
}

func TestCanarySplitsExactly(t *testing.T) {
	s := example(t, "canary", "shop-v1:9001", "shop-v2:9002")
	got := s.count(200, "shop.example", "/")
	if got["shop-v1"] != 180 || got["shop-v2"] != 20 {
		t.Errorf("200 requests went to %v, want 180 and 20", got)
	}
	if a := s.get("other.example", "/"); a.StatusCode != http.StatusNotFound {
		t.Errorf("another host: %d, want 404", a.StatusCode)
	}
	s.weir.Stop()
}

func TestHeaderMatchPicksTheMostSpecificRule(t *testing.T) {
	s := example(t, "header-match", "shop-v1:9001", "shop-v2:9002")
	const host, firefox = "shop.example", "user-agent: Mozilla/5.0 Firefox/140.0"
	s.served(s.get(host, "/"), "shop-v1")
	s.served(s.get(host, "/", "x-beta: yes"), "shop-v2")
	s.served(s.get(host, "/", "x-beta: no"), "shop-v1")
	s.served(s.get(host, "/cart/7", firefox), "shop-v2")
	s.served(s.get(host, "/cartoon", firefox), "shop-v1")
	s.served(s.get(host, "/cart"), "shop-v1")
	s.served(s.get(host, "/?beta=1"), "shop-v2")
	s.served(s.do(http.MethodPost, host, "/?beta=1", ""), "shop-v1")
}

func TestMirrorPercentCopiesExactly(t *testing.T) {
	s := example(t, "mirror-percent", "shop-v1:9001", "shop-v2:9002")
	got := s.count(200, "shop.example", "/cart?x=1")
	if got["shop-v1"] != 200 {
		t.Errorf("200 requests were answered by %v, want shop-v1 alone", got)
	}
	s.services["shop-v2"].wait(t, 84)
	s.weir.Stop()
	copies := s.services["shop-v2"].requests()
	if len(copies) != 84 {
		t.Errorf("%d copies, want 84", len(copies))
	}
	for _, c := range copies {
		if c.target != "/cart?x=1" || c.host != "shop.example" || c.header.Get("weir-mirrored") == "" {
			t.Errorf("copy = %+v, want the same target and host, and the mark", c)
			break
		}
	}
	for _, r := range s.services["shop-v1"].requests() {
		if r.header.Get("weir-mirrored") != "" {
			t.Error("the primary is marked as mirrored")
			break
		}
	}
}

func TestMirrorFractionCopiesFiveOfAThousandWithTheirBodies(t *testing.T) {
	s := example(t, "mirror-fraction", "shop-v1:9001", "shop-v2:9002")
	for i := range 1000 {
		s.served(s.do(http.MethodPost, "shop.example", "/order", fmt.Sprintf("order=%d", i)), "shop-v1")
	}
	s.services["shop-v2"].wait(t, 5)
	s.weir.Stop()
	copies := s.services["shop-v2"].requests()
	if len(copies) != 5 {
		t.Errorf("%d copies, want 5", len(copies))
	}
	seen := map[string]bool{}
	for _, c := range copies {
		if c.method != http.MethodPost || !strings.HasPrefix(c.body, "order=") || seen[c.body] {
			t.Errorf("copy = %+v, want a different order each", c)
		}
		seen[c.body] = true
	}
}

func TestSeveralMirrorsCountEachOnItsOwn(t *testing.T) {
	s := example(t, "mirror-several", "shop-v1:9001", "shop-v2:9002", "audit:9003", "search:9004")
	if got := s.count(80, "shop.example", "/"); got["shop-v1"] != 80 {
		t.Errorf("80 requests were answered by %v, want shop-v1 alone", got)
	}
	want := map[string]int{"audit": 80, "shop-v2": 20, "search": 10}
	for name, n := range want {
		// 25 of 100 are exact per hundred only; of 80 requests at least 5 and at most 25 are copied.
		if name != "shop-v2" {
			s.services[name].wait(t, n)
		}
	}
	s.count(20, "shop.example", "/")
	s.services["audit"].wait(t, 100)
	s.services["shop-v2"].wait(t, 25)
	s.weir.Stop()
	if n := len(s.services["audit"].requests()); n != 100 {
		t.Errorf("audit got %d copies of 100, want 100", n)
	}
	if n := len(s.services["shop-v2"].requests()); n != 25 {
		t.Errorf("shop-v2 got %d copies of 100, want 25", n)
	}
	if n := len(s.services["search"].requests()); n < 12 || n > 13 {
		t.Errorf("search got %d copies of 100, want 12 or 13", n)
	}
}

func TestRedirectsAndRewrites(t *testing.T) {
	s := example(t, "redirect-rewrite", "shop-v1:9001", "shop-v2:9002")
	const host = "shop.example"
	port := s.ports.Of(t, 8080)

	a := s.get(host, "/old/cart?x=1")
	if want := fmt.Sprintf("http://shop.example:%d/shop/cart?x=1", port); a.StatusCode != 301 || a.Header.Get("location") != want {
		t.Errorf("/old: %d to %q, want 301 to %q", a.StatusCode, a.Header.Get("location"), want)
	}
	a = s.get(host, "/docs")
	if a.StatusCode != 302 || a.Header.Get("location") != "https://docs.example/start" {
		t.Errorf("/docs: %d to %q, want 302 to https://docs.example/start", a.StatusCode, a.Header.Get("location"))
	}
	s.served(s.get(host, "/shop/cart?x=1"), "shop-v1")
	s.served(s.get(host, "/shop"), "shop-v1")
	var targets []string
	for _, r := range s.services["shop-v1"].requests() {
		targets = append(targets, r.target)
	}
	if !slices.Equal(targets, []string{"/cart?x=1", "/"}) {
		t.Errorf("shop-v1 got %q, want the paths without /shop", targets)
	}
	s.served(s.get(host, "/legacy/a/b?y=2"), "shop-v2")
	if r := s.services["shop-v2"].requests()[0]; r.target != "/index?y=2" || r.host != "legacy.internal" {
		t.Errorf("shop-v2 got %s on %s, want /index?y=2 on legacy.internal", r.target, r.host)
	}
}

func TestPathPolicyKeepsClientsFromAroundARule(t *testing.T) {
	s := example(t, "path-policy", "shop-v1:9001", "shop-v2:9002")
	const host = "shop.example"
	for _, target := range []string{"/admin;x", "/admin%2Fx", "//admin", "/ADMIN", "/a/../admin", "/admin%20", "/%2561dmin", "/Packages/x"} {
		if a := s.get(host, target, "x-staff: yes"); a.StatusCode != 400 {
			t.Errorf("%s: %d, want 400", target, a.StatusCode)
		}
	}
	if a := s.get(host, "/admin/x"); a.StatusCode != 302 {
		t.Errorf("/admin/x: %d, want 302", a.StatusCode)
	}
	s.served(s.get(host, "/admin/x", "x-staff: yes"), "shop-v1")
	s.served(s.get(host, "/Cart/caf%C3%A9"), "shop-v1")
	s.served(s.get(host, "/packages/@shop%2Fcart;1"), "shop-v2")
}

func TestHeadersAreModified(t *testing.T) {
	s := example(t, "headers", "shop-v1:9001", "shop-v2:9002")
	for range 10 {
		a := s.get("shop.example", "/", "x-debug: 1")
		if a.Header.Get("x-served-by") != "weir" {
			t.Errorf("response of %s: x-served-by is %q, want weir", a.body, a.Header.Get("x-served-by"))
		}
		want := map[string]string{"shop-v1": "", "shop-v2": "v2"}[a.body]
		if got := a.Header.Get("x-variant"); got != want {
			t.Errorf("response of %s: x-variant is %q, want %q", a.body, got, want)
		}
	}
	for name, want := range map[string]string{"shop-v1": "", "shop-v2": "v2"} {
		requests := s.services[name].requests()
		if len(requests) != 5 {
			t.Errorf("%s got %d of 10 requests, want 5", name, len(requests))
		}
		for _, r := range requests {
			if r.header.Get("x-env") != "prod" || r.header.Get("x-debug") != "" || r.header.Get("x-variant") != want {
				t.Errorf("%s got %v, want x-env and x-variant set and x-debug removed", name, r.header)
			}
		}
	}
}

func TestCORSPreflightIsAnsweredByTheGateway(t *testing.T) {
	s := example(t, "cors", "api:9001")
	for origin, allowed := range map[string]bool{
		"https://app.example": true, "https://a.partner.example": true, "https://evil.example": false,
	} {
		a := s.do(http.MethodOptions, "api.example", "/", "", "Origin: "+origin, "Access-Control-Request-Method: PUT")
		want := ""
		if allowed {
			want = origin
		}
		if got := a.Header.Get("access-control-allow-origin"); got != want {
			t.Errorf("preflight from %s: allow-origin is %q, want %q", origin, got, want)
		}
		if allowed && (a.Header.Get("access-control-max-age") != "600" ||
			!strings.Contains(a.Header.Get("access-control-allow-methods"), "PUT")) {
			t.Errorf("preflight from %s: %v, want PUT for 600 s", origin, a.Header)
		}
	}
	if n := len(s.services["api"].requests()); n != 0 {
		t.Errorf("the backend got %d preflight requests, want none", n)
	}
	a := s.get("api.example", "/", "Origin: https://app.example")
	s.served(a, "api")
	if a.Header.Get("access-control-allow-origin") != "https://app.example" ||
		a.Header.Get("access-control-allow-credentials") != "true" ||
		a.Header.Get("access-control-expose-headers") != "x-request-cost" {
		t.Errorf("answer: %v, want it marked for the origin", a.Header)
	}
}

func TestTLSCertificateFollowsTheName(t *testing.T) {
	s := example(t, "tls", "shop-v1:9001", "partner:9002")
	pem, err := os.ReadFile("tls/ca.crt")
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: roots},
		ForceAttemptHTTP2: true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, s.address(8443))
		},
	}}
	defer client.CloseIdleConnections()
	for host, by := range map[string]string{"shop.example": "shop-v1", "a.partner.example": "partner"} {
		req, _ := http.NewRequest(http.MethodGet, "https://"+host+"/", nil)
		a := s.send(client, req)
		s.served(a, by)
		if a.ProtoMajor != 2 {
			t.Errorf("%s: %s, want HTTP/2 by ALPN", host, a.Proto)
		}
	}
	a := s.get("shop.example", "/cart")
	want := fmt.Sprintf("https://shop.example:%d/cart", s.ports.Of(t, 8443))
	if a.StatusCode != 301 || a.Header.Get("location") != want {
		t.Errorf("cleartext: %d to %q, want 301 to %q", a.StatusCode, a.Header.Get("location"), want)
	}
}

func TestBackendTLSIsVerified(t *testing.T) {
	s := newSetup(t)
	s.listen("pay", 9001, serveTLS("backend-tls/pay.crt", "backend-tls/pay.key"))
	s.run("backend-tls")
	s.served(s.get("pay.example", "/"), "pay")
}

func TestBackendTLSRefusesAnotherAuthority(t *testing.T) {
	s := newSetup(t)
	s.listen("pay", 9001) // cleartext
	s.run("backend-tls")
	if a := s.get("pay.example", "/"); a.StatusCode != 502 && a.StatusCode != 503 {
		t.Errorf("a backend without TLS: %d, want 502 or 503", a.StatusCode)
	}
	if n := len(s.services["pay"].requests()); n != 0 {
		t.Errorf("%d requests were sent in clear", n)
	}
}

func TestRetriesHideARefusalOfTheBackend(t *testing.T) {
	s := newSetup(t)
	var n atomic.Int64
	s.listen("shop-v1", 9001, handle(func(w http.ResponseWriter, _ *http.Request) {
		if n.Add(1)%2 == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "shop-v1")
	}))
	s.run("timeouts-retry")
	for range 10 {
		s.served(s.get("shop.example", "/"), "shop-v1")
	}
	if got := len(s.services["shop-v1"].requests()); got <= 10 {
		t.Errorf("the backend got %d requests for 10 of clients, want retries", got)
	}
}

func TestSlowBackendEndsIn504(t *testing.T) {
	s := newSetup(t)
	s.listen("shop-v1", 9001, handle(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	s.run("timeouts-retry")
	if a := s.get("shop.example", "/"); a.StatusCode != http.StatusGatewayTimeout {
		t.Errorf("status %d, want 504", a.StatusCode)
	}
	if got := len(s.services["shop-v1"].requests()); got != 3 {
		t.Errorf("the backend got %d attempts, want 3", got)
	}
}

func TestWebSocketPassesThrough(t *testing.T) {
	s := newSetup(t)
	s.listen("chat", 9001, handle(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("upgrade") != "websocket" {
			_, _ = io.WriteString(w, "chat")
			return
		}
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		rw.Flush()
		_, _ = io.Copy(conn, rw) // echo until the client ends
	}))
	s.run("websocket")
	s.served(s.get("chat.example", "/"), "chat")

	conn, err := net.Dial("tcp", s.address(8080))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET /room HTTP/1.1\r\nHost: chat.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("status %d, want 101", resp.StatusCode)
	}
	for _, message := range []string{"hello", "again"} {
		fmt.Fprint(conn, message)
		echo := make([]byte, len(message))
		if _, err := io.ReadFull(r, echo); err != nil || string(echo) != message {
			t.Fatalf("echo = %q, %v, want %q", echo, err, message)
		}
	}
}

func TestListenerSetsKeepTeamsApart(t *testing.T) {
	s := example(t, "listener-sets", "status:9001", "shop:9002")
	s.served(s.get("status.example", "/"), "status")
	s.served(s.get("shop.example", "/"), "shop")
	if a := s.get("other.example", "/"); a.StatusCode != http.StatusNotFound {
		t.Errorf("another host: %d, want 404", a.StatusCode)
	}
	s.weir.Stop()
}

func TestReferenceGrantDecidesAcrossNamespaces(t *testing.T) {
	s := example(t, "cross-namespace", "pay:9001", "stock:9002")
	s.served(s.get("shop.example", "/pay"), "pay")
	if a := s.get("shop.example", "/stock"); a.StatusCode != http.StatusInternalServerError {
		t.Errorf("/stock: %d, want 500", a.StatusCode)
	}
	resp, err := http.Get(s.weir.Admin() + "status")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	status, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(status), "RefNotPermitted") {
		t.Errorf("/status does not say RefNotPermitted:\n%s", status)
	}
	http.DefaultClient.CloseIdleConnections()
}
