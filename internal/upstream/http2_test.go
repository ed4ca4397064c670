package upstream

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/weirmesh/weir/internal/model"
)

// http2Server serves HTTP/2: over TLS with a certificate, else h2c.
func http2Server(t testing.TB, cert *model.Certificate, streams int, h http.HandlerFunc) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: h, DisableGeneralOptionsHandler: true, ErrorLog: log.New(io.Discard, "", 0),
		Protocols: new(http.Protocols), HTTP2: &http.HTTP2Config{MaxConcurrentStreams: streams}}
	srv.Protocols.SetUnencryptedHTTP2(true)
	if cert != nil {
		srv.Protocols.SetHTTP2(true)
		srv.TLSConfig = serverConfig(t, cert)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if cert != nil {
			srv.ServeTLS(l, "", "")
		} else {
			srv.Serve(l)
		}
	}()
	t.Cleanup(func() {
		srv.Close()
		<-done
	})
	return l.Addr().String()
}

func request(t testing.TB, method, target string, body io.Reader) *http.Request {
	t.Helper()
	path, query, has := strings.Cut(target, "?")
	req, err := http.NewRequestWithContext(t.Context(), method, "http://x", body)
	if err != nil {
		t.Fatal(err)
	}
	req.URL = Target("http", "shop.test", path, query, has)
	req.Host = "shop.test"
	req.GetBody = nil
	return req
}

func roundTrip(t testing.TB, e *Endpoint, req *http.Request) (*http.Response, string) {
	t.Helper()
	resp, err := e.HTTP2().RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

func TestHTTP2CarriesTheWholeRequestAndTrailersBothWays(t *testing.T) {
	ca := newAuthority(t, "ca")
	for _, over := range []string{"h2c", "TLS"} {
		t.Run(over, func(t *testing.T) {
			var cert *model.Certificate
			if over == "TLS" {
				cert = ca.issue(t, "", 0, x509.ExtKeyUsageServerAuth, []string{"a.test"})
			}
			address := http2Server(t, cert, 0, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				h := w.Header()
				h.Set("Got", strings.Join([]string{r.Proto, r.Method, r.Host, r.RequestURI, string(body), r.Trailer.Get("Sum")}, " | "))
				h.Set("Got-Fields", strings.Join(append(r.Header["User-Agent"], r.Header["Accept-Encoding"]...), ","))
				h.Set("Trailer", "Declared")
				w.WriteHeader(201)
				io.WriteString(w, "answer")
				h.Set("Declared", "one")
				h.Set(http.TrailerPrefix+"Undeclared", "two")
			})
			s := newSet(t, Options{})
			var e *Endpoint
			if cert != nil {
				e = overTLS(t, s, address, model.ServiceTLS{Hostname: "a.test", CAs: ca.pem})
			} else {
				e = one(t, s, address)
			}
			req := request(t, "POST", "//a/%2e%2F/b?x=1&;y", nil)
			req.Trailer = http.Header{"Sum": nil}
			req.Body = io.NopCloser(readers(strings.NewReader("some "), strings.NewReader("body"), func() { req.Trailer.Set("Sum", "42") }))
			req.ContentLength = -1
			resp, body := roundTrip(t, e, req)
			if want := "HTTP/2.0 | POST | shop.test | //a/%2e%2F/b?x=1&;y | some body | 42"; resp.Header.Get("Got") != want {
				t.Errorf("got  %s\nwant %s", resp.Header.Get("Got"), want)
			}
			if got := resp.Header.Get("Got-Fields"); got != "" {
				t.Errorf("fields were added: %s", got)
			}
			if resp.StatusCode != 201 || body != "answer" || resp.Trailer.Get("Declared") != "one" || resp.Trailer.Get("Undeclared") != "two" {
				t.Errorf("%d, %q, trailers %v", resp.StatusCode, body, resp.Trailer)
			}
			for _, target := range []string{"/?", "*", "/a?", "/a//b", "//", "/a?b?c"} {
				resp, _ := roundTrip(t, e, request(t, "OPTIONS", target, nil))
				if got := strings.Split(resp.Header.Get("Got"), " | ")[3]; got != target {
					t.Errorf("target %s arrived as %s", target, got)
				}
			}
			if st := e.Stats(); st.InFlight != 0 || st.HTTP2 != 1 || st.Dials != 1 || !st.Healthy {
				t.Errorf("%+v", st)
			}
		})
	}
}

// readers reads a, then b, then calls end.
func readers(a, b io.Reader, end func()) io.Reader {
	return io.MultiReader(a, b, readerFunc(func([]byte) (int, error) {
		end()
		return 0, io.EOF
	}))
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestHTTP2StreamsBothWays(t *testing.T) {
	address := http2Server(t, nil, 0, func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		rc.Flush() // the answer's head before the request's body
		b := make([]byte, 16)
		for {
			n, err := r.Body.Read(b)
			w.Write(bytes.ToUpper(b[:n]))
			rc.Flush()
			if err != nil {
				return
			}
		}
	})
	e := one(t, newSet(t, Options{}), address)
	pr, pw := io.Pipe()
	req := request(t, "POST", "/", pr)
	resp, err := e.HTTP2().RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		io.WriteString(pw, "ping")
		b := make([]byte, 4)
		if _, err := io.ReadFull(resp.Body, b); err != nil || string(b) != "PING" {
			t.Fatalf("%q, %v", b, err)
		}
	}
	if n := e.InFlight(); n != 1 {
		t.Errorf("in flight while streaming: %d", n)
	}
	pw.Close()
	if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) != 0 {
		t.Errorf("%q, %v", rest, err)
	}
	if n := e.InFlight(); n != 0 {
		t.Errorf("in flight after the end: %d", n)
	}
	resp.Body.Close()
	if n := e.InFlight(); n != 0 {
		t.Errorf("in flight after Close: %d", n)
	}
}

func TestHTTP2PassesOnInterimResponses(t *testing.T) {
	address := http2Server(t, nil, 0, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</style.css>")
		w.WriteHeader(103)
		w.WriteHeader(204)
	})
	e := one(t, newSet(t, Options{}), address)
	var interim []int
	req := request(t, "GET", "/", nil)
	resp, _ := roundTrip(t, e, req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(code int, _ textproto.MIMEHeader) error { interim = append(interim, code); return nil },
	})))
	if resp.StatusCode != 204 || len(interim) != 1 || interim[0] != 103 {
		t.Errorf("%d, interim %v", resp.StatusCode, interim)
	}
	if n := e.InFlight(); n != 0 {
		t.Errorf("in flight after an answer without body: %d", n)
	}
}

func TestHTTP2RespectsTheEndpointsStreamLimit(t *testing.T) {
	const streams, conns, requests = 2, 3, 12
	var mu sync.Mutex
	now, most := map[string]int{}, 0
	release := make(chan struct{})
	arrived := make(chan struct{}, requests)
	address := http2Server(t, nil, streams, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		now[r.RemoteAddr]++
		most = max(most, now[r.RemoteAddr])
		mu.Unlock()
		arrived <- struct{}{}
		<-release
		mu.Lock()
		now[r.RemoteAddr]--
		mu.Unlock()
	})
	e := one(t, newSet(t, Options{MaxHTTP2Connections: conns}), address)
	var wg sync.WaitGroup
	for range requests {
		wg.Go(func() { roundTrip(t, e, request(t, "GET", "/", nil)) })
	}
	for range streams * conns {
		<-arrived
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := e.HTTP2().RoundTrip(request(t, "GET", "/", nil).WithContext(ctx)); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting for a stream ended with %v", err)
	}
	if st := e.Stats(); st.HTTP2 != conns || st.InFlight != requests {
		t.Errorf("%+v", st)
	}
	close(release)
	wg.Wait()
	if most > streams {
		t.Errorf("%d streams at once on a connection, limit %d", most, streams)
	}
	if st := e.Stats(); st.HTTP2 > conns || st.InFlight != 0 || st.Failures != 0 {
		t.Errorf("%+v", st)
	}
}

func TestConcurrentExchangesShareOneHTTP2Dial(t *testing.T) {
	address := http2Server(t, nil, 0, func(w http.ResponseWriter, r *http.Request) {})
	e := one(t, newSet(t, Options{}), address)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() { roundTrip(t, e, request(t, "GET", "/", nil)) })
	}
	wg.Wait()
	if st := e.Stats(); st.Dials != 1 || st.InFlight != 0 {
		t.Errorf("%+v", st)
	}
}

func TestHTTP2ConnectionsAreDrained(t *testing.T) {
	release := make(chan struct{})
	address := http2Server(t, nil, 0, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			http.NewResponseController(w).Flush()
			<-release
			io.WriteString(w, "whole")
		}
	})
	s := newSet(t, Options{})
	e := one(t, s, address)
	roundTrip(t, e, request(t, "GET", "/", nil))
	apply(t, s, config("10.0.0.1:80"))
	eventually(t, "the idle connection is closed", func() bool { return e.Stats().HTTP2 == 0 })

	e = one(t, s, address)
	resp, err := e.HTTP2().RoundTrip(request(t, "GET", "/slow", nil))
	if err != nil {
		t.Fatal(err)
	}
	apply(t, s, config("10.0.0.1:80"))
	roundTrip(t, e, request(t, "GET", "/late", nil)) // with the old snapshot
	close(release)
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "whole" {
		t.Errorf("%q, %v", body, err)
	}
	resp.Body.Close()
	if st := e.Stats(); st.HTTP2 != 0 || st.InFlight != 0 {
		t.Errorf("%+v", st)
	}
	s.sweep()
	if len(s.drained) != 0 {
		t.Error("a finished endpoint is not forgotten")
	}
	roundTrip(t, e, request(t, "GET", "/later", nil))
	if st := e.Stats(); st.HTTP2 != 0 || st.InFlight != 0 {
		t.Errorf("after an exchange with a drained endpoint: %+v", st)
	}
}

func TestCloseEndsHTTP2Exchanges(t *testing.T) {
	e := func() *Endpoint {
		s := New(Options{})
		arrived := make(chan struct{})
		e := one(t, s, framed(t, func(*http2.Framer, int, uint32) bool { close(arrived); return true }))
		done := make(chan error)
		go func() {
			_, err := e.HTTP2().RoundTrip(request(t, "GET", "/", nil))
			done <- err
		}()
		<-arrived
		s.Close()
		if err := <-done; err == nil {
			t.Error("answered")
		}
		return e
	}()
	if _, err := e.HTTP2().RoundTrip(request(t, "GET", "/", nil)); !errors.Is(err, ErrClosed) {
		t.Errorf("%v", err)
	}
	if st := e.Stats(); st.Failures != 0 || st.InFlight != 0 {
		t.Errorf("%+v", st)
	}
}

func TestIdleHTTP2ConnectionsExpire(t *testing.T) {
	address := http2Server(t, nil, 0, func(w http.ResponseWriter, r *http.Request) {})
	e := one(t, newSet(t, Options{IdleTimeout: 20 * time.Millisecond}), address)
	roundTrip(t, e, request(t, "GET", "/", nil))
	eventually(t, "the connection is closed", func() bool { return e.Stats().HTTP2 == 0 })
	roundTrip(t, e, request(t, "GET", "/", nil))
	if st := e.Stats(); st.Dials != 2 || st.Failures != 0 {
		t.Errorf("%+v", st)
	}
}

func TestEndpointsThatDoNotAgreeToHTTP2AreNamed(t *testing.T) {
	ca := newAuthority(t, "ca")
	for _, protocols := range [][]string{nil, {"http/1.1"}} {
		sc := serverConfig(t, ca.issue(t, "", 0, x509.ExtKeyUsageServerAuth, []string{"a.test"}))
		sc.NextProtos = protocols
		srv := tlsEcho(t, sc)
		e := overTLS(t, newSet(t, Options{}), srv.address(), model.ServiceTLS{Hostname: "a.test", CAs: ca.pem})
		_, err := e.HTTP2().RoundTrip(request(t, "GET", "/", nil))
		var te *TLSError
		if !errors.As(err, &te) || te.Reason != TLSNoHTTP2 {
			t.Errorf("server with %q: %v", protocols, err)
		}
		if st := e.Stats(); st.Failures != 1 || st.InFlight != 0 {
			t.Errorf("server with %q: %+v", protocols, st)
		}
	}
}

func TestHTTP2IsVerifiedAsHTTP1Is(t *testing.T) {
	ca := newAuthority(t, "ca")
	address := http2Server(t, ca.issue(t, "", 0, x509.ExtKeyUsageServerAuth, []string{"a.test"}), 0,
		func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, tls.VersionName(r.TLS.Version)) })
	s := newSet(t, Options{})
	if _, body := roundTrip(t, overTLS(t, s, address, model.ServiceTLS{Hostname: "x.test", CAs: ca.pem, SubjectAltNames: []string{"a.test"}}), request(t, "GET", "/", nil)); body != "TLS 1.3" {
		t.Errorf("%q", body)
	}
	_, err := overTLS(t, s, address, model.ServiceTLS{Hostname: "x.test", CAs: ca.pem}).HTTP2().RoundTrip(request(t, "GET", "/", nil))
	var te *TLSError
	if !errors.As(err, &te) || te.Reason != TLSWrongName {
		t.Errorf("%v", err)
	}
}
