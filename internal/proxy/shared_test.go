package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/peertest"
)

// sharing is a proxy with an identity before a sidecar and its application, and counts the connections between the proxies.
type sharing struct {
	*testServer
	conns atomic.Int32
}

// newSharing has the sidecar serve at a listener of server's kind, with the client's side taking it for one of requests.
func newSharing(t *testing.T, app http.HandlerFunc, server func(addresses ...string) *model.Config, opt ...func(*Options)) *sharing {
	t.Helper()
	behind := httptest.NewServer(app)
	t.Cleanup(behind.Close)
	ca := peertest.NewAuthority(t)
	cfg := server(behind.Listener.Addr().String())
	_, with := mutual(t, cfg, ca)
	sidecar := serve(t, cfg, append(opt, with, func(o *Options) { o.Beside, o.Pseudonym = true, "sidecar" })...).addr()
	s := &sharing{}
	between := rawBackend(t, func(c net.Conn) {
		s.conns.Add(1)
		to, err := net.Dial("tcp", sidecar)
		if err != nil {
			t.Error(err)
			return
		}
		var wg sync.WaitGroup
		wg.Go(func() { io.Copy(to, c); to.(*net.TCPConn).CloseWrite() })
		io.Copy(c, to)
		to.Close()
		c.Close()
		wg.Wait()
	})
	cfg = plain(between)
	cfg.Services[0].TLS = &model.ServiceTLS{Hostname: "cart.shop", CAs: workload, SubjectAltNames: []string{cartID}}
	cfg.Routes[0].ClientCertificate = workload
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	source := &identities{}
	source.have(t, ca.Workload(t, shopID, nil), ca.Pool())
	s.testServer = serve(t, cfg, append(opt, func(o *Options) { o.Identities = source.of })...)
	return s
}

// fewer is how many requests at the same time have a connection each between the proxies, before others share one.
const fewer = 4

// ask sends bytes over a connection of its own and returns it, to read the answer from.
func (s *sharing) ask(t *testing.T, request string, args ...any) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", s.addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(30 * time.Second))
	fmt.Fprintf(c, request, args...)
	return c
}

// answer reads an answer, as to a request with the method.
func answer(t *testing.T, c net.Conn, method string) (resp *http.Response, body string) {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(b)
}

func TestRequestsOfAllClientsShareAConnectionToAProxyOfTheMesh(t *testing.T) {
	const n = 50
	var here sync.WaitGroup
	here.Add(n)
	s := newSharing(t, func(w http.ResponseWriter, r *http.Request) {
		here.Done()
		here.Wait() // all are there at the same time
		fmt.Fprint(w, r.Proto, " ", r.URL)
	}, plain)
	var conns [n]net.Conn
	for i := range conns {
		conns[i] = s.ask(t, "GET /%d HTTP/1.1\r\nHost: shop\r\n\r\n", i)
	}
	for i, c := range conns {
		if resp, body := answer(t, c, "GET"); resp.StatusCode != 200 || body != fmt.Sprintf("HTTP/1.1 /%d", i) {
			t.Fatalf("request %d: %s %q", i, resp.Status, body)
		}
	}
	if c := s.conns.Load(); c > 2*fewer { // the first come at the same time
		t.Errorf("%d connections", c)
	}
}

// TestRequestsArriveAsTheyWereSent: what goes on over HTTP/2 arrives as it does over HTTP/1.1, as does what HTTP/2 has no words for. The listener
// that carries connections makes the proxies speak HTTP/1.1.
func TestRequestsArriveAsTheyWereSent(t *testing.T) {
	waits := make(chan struct{})
	app := func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/waits":
			waits <- struct{}{}
			<-r.Context().Done()
			return
		case "/upgrade":
			c, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			io.CopyN(c, rw, 5)
			return
		case "/refused":
			w.WriteHeader(http.StatusExpectationFailed) // without having read the body
			return
		case "/early":
			w.Header().Set("Link", "</a>; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
		}
		body, err := io.ReadAll(r.Body)
		names := make([]string, 0, len(r.Header))
		for name, values := range r.Header {
			switch name {
			case "Cookie": // which HTTP/2 joins (RFC 9113 §8.2.3)
				names = append(names, fmt.Sprintf("%s%q", name, strings.Join(values, "; ")))
			case "Via", "X-Forwarded-For":
			default:
				names = append(names, fmt.Sprintf("%s%q", name, values))
			}
		}
		slices.Sort(names)
		w.Header()["X-Two"] = []string{"a", "b"}
		w.Header().Set("Trailer", "X-End")
		host, _, _ := strings.Cut(r.Host, ":") // the proxy's own if there was none
		fmt.Fprintf(w, "%s %q %s %v %v %d %q %v %q", r.Method, r.RequestURI, host, names, r.TransferEncoding, r.ContentLength, body, err, r.Trailer.Get("X-Sum"))
		w.Header().Set("X-End", "yes")
	}
	over2, over1 := newSharing(t, app, plain), newSharing(t, app, toAddresses)
	for range fewer {
		over2.ask(t, "GET /waits HTTP/1.1\r\nHost: shop\r\n\r\n")
		<-waits
	}
	for _, c := range []struct{ name, method, request string }{
		{"GET", "GET", "GET /a?b=c%20d&e HTTP/1.1\r\nHost: shop\r\nX-Odd: \xff \"\r\nCookie: a=1\r\nCookie: b=2\r\nAccept: x\r\nAccept: y\r\n\r\n"},
		{"HEAD", "HEAD", "HEAD / HTTP/1.1\r\nHost: shop:80\r\n\r\n"},
		{"POST", "POST", "POST / HTTP/1.1\r\nHost: shop\r\nContent-Length: 5\r\n\r\nhello"},
		{"POST of nothing", "POST", "POST / HTTP/1.1\r\nHost: shop\r\nContent-Length: 0\r\n\r\n"},
		{"POST in chunks", "POST", "POST / HTTP/1.1\r\nHost: shop\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 7\r\n\r\n"},
		{"DELETE with a body", "DELETE", "DELETE / HTTP/1.1\r\nHost: shop\r\nContent-Length: 2\r\n\r\nok"},
		{"OPTIONS of all", "OPTIONS", "OPTIONS * HTTP/1.1\r\nHost: shop\r\n\r\n"},
		{"a method of one's own", "PURGE", "PURGE /x HTTP/1.1\r\nHost: shop\r\n\r\n"},
		{"an absolute target", "GET", "GET http://shop/x HTTP/1.1\r\nHost: shop\r\n\r\n"},
		{"HTTP/1.0", "GET", "GET /old HTTP/1.0\r\nHost: shop\r\n\r\n"},
		{"HTTP/1.0 without a host", "GET", "GET /old HTTP/1.0\r\n\r\n"},
		{"early hints", "GET", "GET /early HTTP/1.1\r\nHost: shop\r\n\r\n"},
		{"an upgrade", "GET", "GET /upgrade HTTP/1.1\r\nHost: shop\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nhello"},
		{"an expectation", "POST", "POST / HTTP/1.1\r\nHost: shop\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\nok"},
		{"a refused expectation", "POST", "POST /refused HTTP/1.1\r\nHost: shop\r\nContent-Length: 200000\r\nExpect: 100-continue\r\n\r\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got [2]string
			for i, s := range []*sharing{over2, over1} {
				nc := s.ask(t, "%s", c.request)
				r := bufio.NewReader(nc)
				for status := 0; status < 200 && status != http.StatusSwitchingProtocols; {
					resp, err := http.ReadResponse(r, &http.Request{Method: c.method})
					if err != nil {
						t.Fatalf("%d: %v, behind %s", i, err, got[i])
					}
					status = resp.StatusCode
					body := make([]byte, 5)
					if status == http.StatusSwitchingProtocols {
						_, err = io.ReadFull(r, body)
					} else {
						body, err = io.ReadAll(resp.Body)
					}
					resp.Header.Del("Date")
					resp.Header.Del("Via")
					got[i] += fmt.Sprintf("%s %v %v %q %v %v %v\n", resp.Status, resp.Header, resp.Trailer, body, err, resp.TransferEncoding, resp.ContentLength)
				}
			}
			if got[0] != got[1] {
				t.Errorf("over HTTP/2\n%sover HTTP/1.1\n%s", got[0], got[1])
			}
			if strings.Contains(got[0], " 50") {
				t.Error(got[0])
			}
		})
	}
}

// TestClientsThatLeaveEndNothingOfOthers: resets of streams, as many as no client is allowed by itself.
func TestClientsThatLeaveEndNothingOfOthers(t *testing.T) {
	const leave, some = 150, 30
	came := make(chan string, leave+1)
	stay := make(chan struct{})
	s := newSharing(t, func(w http.ResponseWriter, r *http.Request) {
		came <- r.URL.Path
		if r.URL.Path == "/stays" {
			<-stay
		} else {
			<-r.Context().Done()
		}
	}, plain)
	var stays net.Conn
	for range fewer + 1 {
		stays = s.ask(t, "GET /stays HTTP/1.1\r\nHost: shop\r\n\r\n")
		<-came
	}
	for range leave / some {
		only2 := new(http.Protocols)
		only2.SetUnencryptedHTTP2(true)
		client := &http.Transport{Protocols: only2} // it cancels by a reset, which the proxy hears of at once
		for range some {
			ctx, cancel := context.WithCancel(t.Context())
			r, err := http.NewRequestWithContext(ctx, "GET", "http://"+s.addr()+"/leaves", nil)
			if err != nil {
				t.Fatal(err)
			}
			go func() { <-came; cancel() }()
			if resp, err := client.RoundTrip(r); err == nil {
				t.Error(resp.Status)
			}
		}
		client.CloseIdleConnections()
	}
	close(stay)
	if resp, _ := answer(t, stays, "GET"); resp.StatusCode != 200 {
		t.Error(resp.Status)
	}
	if c := s.conns.Load(); c != fewer+1 {
		t.Errorf("%d connections, want %d and one that others share", c, fewer)
	}
}

// TestBodiesThatAreNotReadHoldNoOthersBack: one more upload arrives while the application does not read all the others that a connection takes.
func TestBodiesThatAreNotReadHoldNoOthersBack(t *testing.T) {
	const streams = 16
	read := make(chan struct{})
	came := make(chan struct{}, fewer+streams)
	s := newSharing(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/read" {
			came <- struct{}{}
			<-read
		}
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n, err)
	}, plain, func(o *Options) { o.MaxStreams = streams })
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(read)
	const size = 8 << 20
	for range fewer + streams - 1 {
		c := s.ask(t, "POST / HTTP/1.1\r\nHost: shop\r\nContent-Length: %d\r\n\r\n", size)
		wg.Go(func() { io.CopyN(c, endless{}, size) })
		<-came
	}
	c := s.ask(t, "POST /read HTTP/1.1\r\nHost: shop\r\nContent-Length: %d\r\n\r\n", size)
	wg.Go(func() { io.CopyN(c, endless{}, size) })
	if _, body := answer(t, c, "POST"); body != fmt.Sprint(size, error(nil)) {
		t.Error(body)
	}
	if c := s.conns.Load(); c != fewer+1 {
		t.Errorf("%d connections, want %d and one that others share", c, fewer)
	}
}

// endless is a body without end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestAnswersThatAreNotReadHoldNoOthersBack is the same in the other direction.
func TestAnswersThatAreNotReadHoldNoOthersBack(t *testing.T) {
	if testing.Short() {
		t.Skip("240 answers that nobody reads take 600 MB of the system's buffers")
	}
	s := newSharing(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/short" {
			io.WriteString(w, "short")
			return
		}
		io.Copy(w, endless{})
	}, plain)
	for range fewer + 240 {
		c := s.ask(t, "GET / HTTP/1.1\r\nHost: shop\r\n\r\n")
		c.(*net.TCPConn).SetReadBuffer(4096)
	}
	time.Sleep(3 * time.Second) // until what can be buffered is
	if _, body := answer(t, s.ask(t, "GET /short HTTP/1.1\r\nHost: shop\r\n\r\n"), "GET"); body != "short" {
		t.Error(body)
	}
	if c := s.conns.Load(); c != fewer+1 {
		t.Errorf("%d connections, want %d and one that others share", c, fewer)
	}
}

// TestAProxyOfTheMeshThatTakesTheRequestsForConnections gets them over HTTP/1.1: of all kinds, from the first on.
func TestAProxyOfTheMeshThatTakesTheRequestsForConnections(t *testing.T) {
	s := newSharing(t, func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, r.Method, " ", n, " ", err)
	}, toAddresses)
	client := newClient(t)
	for _, c := range []struct {
		method  string
		body    int
		chunked bool
	}{{"POST", 9000, true}, {"GET", 0, false}, {"POST", 100, false}, {"POST", 1 << 20, true}} {
		var body io.Reader = io.LimitReader(endless{}, int64(c.body))
		if !c.chunked {
			body = strings.NewReader(strings.Repeat("x", c.body))
		}
		req, err := http.NewRequest(c.method, "http://"+s.addr(), body)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if want := fmt.Sprintf("%s %d <nil>", c.method, c.body); string(got) != want {
			t.Errorf("%s %q, want %q", resp.Status, got, want)
		}
	}
	if n := s.conns.Load(); n > 3 {
		t.Errorf("%d connections for requests one after the other", n)
	}
}

// TestARequestGoesOnToAnEndpointOutsideOfTheMesh: it was laid out for one in the mesh that has ended.
func TestARequestGoesOnToAnEndpointOutsideOfTheMesh(t *testing.T) {
	outside := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n, err)
	}))
	ln, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	outside.Listener.Close()
	outside.Listener = ln
	outside.Start()
	t.Cleanup(outside.Close)
	ca := peertest.NewAuthority(t)
	cfg := plain(peertest.Refusing(t), ln.Addr().String())
	cfg.Services[0].TLS = &model.ServiceTLS{Hostname: "cart.shop", CAs: workload, Pods: []model.PodIdentity{{Address: "127.0.0.1", ID: cartID}}}
	cfg.Routes[0].ClientCertificate = workload
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	source := &identities{}
	source.have(t, ca.Workload(t, shopID, nil), ca.Pool())
	s := serve(t, cfg, shared, func(o *Options) { o.Identities, o.Upstream.EjectAfter = source.of, -1 })
	client := newClient(t)
	for i := range 12 {
		body := io.MultiReader(strings.NewReader(strings.Repeat("x", i*1000))) // in chunks
		resp, err := client.Post("http://"+s.addr(), "", body)
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if want := fmt.Sprint(i*1000, error(nil)); string(got) != want {
			t.Errorf("%s %q, want %q", resp.Status, got, want)
		}
	}
}
