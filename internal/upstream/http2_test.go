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
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	xhttp2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/http2"
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

// answer is what came back.
type answer struct {
	status           int
	fields, trailers []http1.Field
	interim          []int
	body             string
}

func (a *answer) get(name string) string {
	for _, f := range append(a.fields, a.trailers...) {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

func head(method, target string, fields ...http1.Field) *http2.Head {
	return &http2.Head{Method: method, Scheme: "http", Authority: "shop.test", Path: target, Fields: fields}
}

// ask sends a request without a body and reads the answer.
func ask(e *Endpoint, h *http2.Head) (*answer, error) {
	s, _, err := e.Open(h, nil, true, &Waiting{})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return read(e, &s)
}

func read(e *Endpoint, s *Stream) (*answer, error) {
	a := &answer{}
	for a.status < 200 {
		h, err := s.AwaitHead(time.Time{})
		if err != nil {
			s.Blame(err)
			return nil, err
		}
		if a.status = h.Status; a.status < 200 {
			a.interim = append(a.interim, a.status)
		}
		a.fields = slices.Clone(h.Fields)
	}
	e.Answered(a.status)
	for {
		p, err := s.Next(time.Time{})
		a.body += string(p)
		if err == io.EOF {
			a.trailers = slices.Clone(s.Trailers())
			return a, nil
		}
		if err != nil {
			s.Blame(err)
			return nil, err
		}
	}
}

func mustAsk(t testing.TB, e *Endpoint, method, target string) *answer {
	t.Helper()
	a, err := ask(e, head(method, target))
	if err != nil {
		t.Fatal(err)
	}
	return a
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
				h.Set("Got", strings.Join([]string{r.Proto, r.Method, r.Host, r.RequestURI, string(body), "[" + r.Trailer.Get("Sum") + "]"}, " | "))
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
			h := head("POST", "//a/%2e%2F/b?x=1&;y", http1.Field{Name: "Trailer", Value: "Sum"})
			h.Body = http1.Body{Kind: http1.BodyChunked}
			x, sent, err := e.Open(h, []byte("some "), false, &Waiting{})
			if err != nil || sent != 5 {
				t.Fatal(sent, err)
			}
			if err := x.Finish(nil, []byte("body"), []http1.Field{{Name: "Sum", Value: "42"}}); err != nil {
				t.Fatal(err)
			}
			a, err := read(e, &x)
			if err != nil {
				t.Fatal(err)
			}
			x.Close()
			if want := "HTTP/2.0 | POST | shop.test | //a/%2e%2F/b?x=1&;y | some body | [42]"; a.get("got") != want {
				t.Errorf("got  %s\nwant %s", a.get("got"), want)
			}
			if got := a.get("got-fields"); got != "" {
				t.Errorf("fields were added: %s", got)
			}
			if a.status != 201 || a.body != "answer" || a.get("declared") != "one" || a.get("undeclared") != "two" {
				t.Errorf("%+v", a)
			}
			for _, target := range []string{"/?", "*", "/a?", "/a//b", "//", "/a?b?c"} {
				if got := strings.Split(mustAsk(t, e, "OPTIONS", target).get("got"), " | ")[3]; got != target {
					t.Errorf("target %s arrived as %s", target, got)
				}
			}
			if st := e.Stats(); st.InFlight != 0 || st.HTTP2 != 1 || st.Dials != 1 || !st.Healthy {
				t.Errorf("%+v", st)
			}
		})
	}
}

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
	h := head("POST", "/")
	h.Body = http1.Body{Kind: http1.BodyChunked}
	s, _, err := e.Open(h, nil, false, &Waiting{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.AwaitHead(time.Time{}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := s.Send([]byte("ping"), false); err != nil {
			t.Fatal(err)
		}
		for got := ""; got != "PING"; {
			p, err := s.Next(time.Time{})
			if got += string(p); err != nil || len(got) > 4 {
				t.Fatalf("%q, %v", got, err)
			}
		}
	}
	if n := e.InFlight(); n != 1 {
		t.Errorf("in flight while streaming: %d", n)
	}
	if err := s.Send(nil, true); err != nil {
		t.Fatal(err)
	}
	if rest, err := s.Next(time.Time{}); err != io.EOF || len(rest) != 0 {
		t.Errorf("%q, %v", rest, err)
	}
	s.Close()
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
	a := mustAsk(t, one(t, newSet(t, Options{}), address), "GET", "/")
	if a.status != 204 || len(a.interim) != 1 || a.interim[0] != 103 {
		t.Errorf("%+v", a)
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
		wg.Go(func() {
			if _, err := ask(e, head("GET", "/")); err != nil {
				t.Error(err)
			}
		})
	}
	for range streams * conns {
		<-arrived
	}
	eventually(t, "the others wait in line", func() bool { return e.h2.inLine.Load() == requests-streams*conns })
	var ce *ConnectError
	if _, _, err := e.Open(head("GET", "/"), nil, true, &Waiting{Until: time.Now().Add(time.Millisecond)}); !errors.As(err, &ce) || !ce.Timeout || ce.Reason != ConnectTimedOut {
		t.Errorf("waiting for a stream ended with %v", err)
	}
	if _, _, err := e.Open(head("GET", "/"), nil, true, &Waiting{Wanted: unwanted{}}); err != errUnwanted {
		t.Errorf("waiting in vain ended with %v", err)
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
	if n := e.h2.inLine.Load(); n != 0 {
		t.Errorf("%d still in line", n)
	}
}

type unwanted struct{}

func (unwanted) Wanted() bool { return false }

func TestTheLineForStreamsIsBounded(t *testing.T) {
	address, release := http2Hanging(t, 1)
	e := one(t, newSet(t, Options{MaxHTTP2Connections: 1, ConnectTimeout: time.Minute}), address)
	var wg sync.WaitGroup
	get := func() {
		if _, err := ask(e, head("GET", "/")); err != nil {
			t.Error(err)
		}
	}
	wg.Go(get)
	eventually(t, "the only stream is taken", func() bool { return e.Stats().HTTP2 == 1 && e.h2.inLine.Load() == 0 })
	for range http2MaxWaiting {
		wg.Go(get)
	}
	eventually(t, "the line is full", func() bool { return e.h2.inLine.Load() == http2MaxWaiting })
	var ce *ConnectError
	if _, _, err := e.Open(head("GET", "/"), nil, true, &Waiting{}); !errors.As(err, &ce) || ce.Reason != ConnectBusy {
		t.Errorf("%v", err)
	}
	close(release)
	wg.Wait()
	if st := e.Stats(); st.InFlight != 0 || st.Failures != 0 || st.Dials != 1 {
		t.Errorf("%+v", st)
	}
}

// http2Hanging answers nothing before it is released.
func http2Hanging(t testing.TB, streams int) (address string, release chan struct{}) {
	release = make(chan struct{})
	return http2Server(t, nil, streams, func(http.ResponseWriter, *http.Request) { <-release }), release
}

func TestConcurrentExchangesShareOneHTTP2Dial(t *testing.T) {
	address := http2Server(t, nil, 0, func(w http.ResponseWriter, r *http.Request) {})
	e := one(t, newSet(t, Options{}), address)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if _, err := ask(e, head("GET", "/")); err != nil {
				t.Error(err)
			}
		})
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
	mustAsk(t, e, "GET", "/")
	apply(t, s, config("10.0.0.1:80"))
	eventually(t, "the idle connection is closed", func() bool { return e.Stats().HTTP2 == 0 })

	e = one(t, s, address)
	x, _, err := e.Open(head("GET", "/slow"), nil, true, &Waiting{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.AwaitHead(time.Time{}); err != nil {
		t.Fatal(err)
	}
	apply(t, s, config("10.0.0.1:80"))
	mustAsk(t, e, "GET", "/late") // with the old snapshot
	close(release)
	if a, err := read(e, &x); err != nil || a.body != "whole" {
		t.Errorf("%+v, %v", a, err)
	}
	x.Close()
	eventually(t, "the connections are closed", func() bool { st := e.Stats(); return st.HTTP2 == 0 && st.InFlight == 0 })
	s.sweep()
	if len(s.drained) != 0 {
		t.Error("a finished endpoint is not forgotten")
	}
	mustAsk(t, e, "GET", "/later")
	eventually(t, "the connection of an exchange with a drained endpoint is closed", func() bool { return e.Stats().HTTP2 == 0 })
	if st := e.Stats(); st.Failures != 0 {
		t.Errorf("%+v", st)
	}
}

func TestCloseEndsHTTP2Exchanges(t *testing.T) {
	e := func() *Endpoint {
		s := New(Options{})
		arrived := make(chan struct{})
		e := one(t, s, framed(t, func(*xhttp2.Framer, int, uint32) bool { close(arrived); return true }))
		done := make(chan error)
		go func() {
			_, err := ask(e, head("GET", "/"))
			done <- err
		}()
		<-arrived
		s.Close()
		if err := <-done; err == nil {
			t.Error("answered")
		}
		return e
	}()
	if _, err := ask(e, head("GET", "/")); !errors.Is(err, ErrClosed) {
		t.Errorf("%v", err)
	}
	if st := e.Stats(); st.Failures != 0 || st.InFlight != 0 {
		t.Errorf("%+v", st)
	}
}

func TestCloseEndsAnHTTP2Dial(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts by the kernel, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := New(Options{})
	e := one(t, s, l.Addr().String())
	done := make(chan error)
	go func() {
		_, err := ask(e, head("GET", "/"))
		done <- err
	}()
	eventually(t, "the exchange waits", func() bool { return e.h2.inLine.Load() == 1 })
	s.Close()
	if err := <-done; !errors.Is(err, ErrClosed) {
		t.Errorf("%v", err)
	}
	if st := e.Stats(); st.Failures != 0 || st.InFlight != 0 {
		t.Errorf("%+v", st)
	}
}

func TestIdleHTTP2ConnectionsExpire(t *testing.T) {
	address := http2Server(t, nil, 0, func(w http.ResponseWriter, r *http.Request) {})
	e := one(t, newSet(t, Options{IdleTimeout: 20 * time.Millisecond}), address)
	mustAsk(t, e, "GET", "/")
	eventually(t, "the connection is closed", func() bool { return e.Stats().HTTP2 == 0 })
	mustAsk(t, e, "GET", "/")
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
		_, err := ask(e, head("GET", "/"))
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
	if a := mustAsk(t, overTLS(t, s, address, model.ServiceTLS{Hostname: "x.test", CAs: ca.pem, SubjectAltNames: []string{"a.test"}}), "GET", "/"); a.body != "TLS 1.3" {
		t.Errorf("%q", a.body)
	}
	_, err := ask(overTLS(t, s, address, model.ServiceTLS{Hostname: "x.test", CAs: ca.pem}), head("GET", "/"))
	var te *TLSError
	if !errors.As(err, &te) || te.Reason != TLSWrongName {
		t.Errorf("%v", err)
	}
}

func TestAnEndpointThatNeverSendsSettingsTimesOut(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts by the kernel, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	e := one(t, newSet(t, Options{ConnectTimeout: 50 * time.Millisecond}), l.Addr().String())
	_, err = ask(e, head("GET", "/"))
	var ce *ConnectError
	if !errors.As(err, &ce) || !ce.Timeout || ce.Reason != ConnectTimedOut {
		t.Errorf("%v", err)
	}
	eventually(t, "it counts", func() bool { st := e.Stats(); return st.Failures == 1 && st.InFlight == 0 && st.HTTP2 == 0 })
}

// framed serves HTTP/2 frame by frame: on gets every request's headers with the connection's number, from 1, and returns false to close.
func framed(t testing.TB, on func(f *xhttp2.Framer, conn int, stream uint32) bool) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	serve := func(c net.Conn, number int) {
		defer c.Close()
		defer context.AfterFunc(ctx, func() { c.Close() })()
		if _, err := io.ReadFull(c, make([]byte, len(xhttp2.ClientPreface))); err != nil {
			return
		}
		f := xhttp2.NewFramer(c, c)
		f.WriteSettings()
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			switch frame := frame.(type) {
			case *xhttp2.SettingsFrame:
				if !frame.IsAck() {
					f.WriteSettingsAck()
				}
			case *xhttp2.HeadersFrame:
				if !on(f, number, frame.StreamID) {
					return
				}
			}
		}
	}
	wg.Go(func() {
		for number := 1; ; number++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { serve(c, number) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		cancel()
		wg.Wait()
	})
	return l.Addr().String()
}

// respond answers with the fields, pseudo ones included, and no body.
func respond(f *xhttp2.Framer, stream uint32, fields ...hpack.HeaderField) {
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, field := range fields {
		enc.WriteField(field)
	}
	f.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true})
}

var status200 = hpack.HeaderField{Name: ":status", Value: "200"}

func TestAConnectionThatIsGoingAwayTakesNoNewExchanges(t *testing.T) {
	finish := make(chan struct{})
	address := framed(t, func(f *xhttp2.Framer, conn int, stream uint32) bool {
		if conn == 1 {
			f.WriteGoAway(stream, xhttp2.ErrCodeNo, nil)
			<-finish
		}
		respond(f, stream, status200)
		return true
	})
	e := one(t, newSet(t, Options{}), address)
	done := make(chan struct{})
	go func() {
		defer close(done)
		mustAsk(t, e, "GET", "/slow")
	}()
	eventually(t, "the GOAWAY came", func() bool { return e.InFlight() == 1 && e.Stats().HTTP2 == 1 && len(*e.h2.conns.Load()) == 0 })
	for range 5 {
		mustAsk(t, e, "GET", "/")
	}
	if st := e.Stats(); st.HTTP2 != 2 {
		t.Errorf("%+v", st)
	}
	close(finish)
	<-done
	eventually(t, "the first connection ends", func() bool { return e.Stats().HTTP2 == 1 })
	if st := e.Stats(); st.Failures != 0 || st.InFlight != 0 || st.Dials != 2 {
		t.Errorf("%+v", st)
	}
}

func TestWhatCountsAgainstAnHTTP2Endpoint(t *testing.T) {
	t.Run("a connection lost before the answer", func(t *testing.T) {
		e := one(t, newSet(t, Options{}), framed(t, func(*xhttp2.Framer, int, uint32) bool { return false }))
		for range 3 {
			if _, err := ask(e, head("GET", "/")); err == nil {
				t.Fatal("answered")
			}
		}
		eventually(t, "it counts", func() bool {
			st := e.Stats()
			return st.Failures == 3 && st.Denied == 1 && st.InFlight == 0 && st.HTTP2 == 0
		})
	})
	t.Run("once for all streams of a connection", func(t *testing.T) {
		n := 0
		e := one(t, newSet(t, Options{}), framed(t, func(*xhttp2.Framer, int, uint32) bool { n++; return n < 10 }))
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if _, err := ask(e, head("GET", "/")); err == nil {
					t.Error("answered")
				}
			})
		}
		wg.Wait()
		if st := e.Stats(); st.Failures != 1 || st.InFlight != 0 {
			t.Errorf("%+v", st)
		}
	})
	t.Run("no HTTP/2 at all", func(t *testing.T) {
		e := one(t, newSet(t, Options{}), echoServer(t).address())
		if _, err := ask(e, head("GET", "/")); err == nil {
			t.Fatal("answered")
		}
		if st := e.Stats(); st.Failures != 1 || st.InFlight != 0 {
			t.Errorf("%+v", st)
		}
	})
	t.Run("refused", func(t *testing.T) {
		e := one(t, newSet(t, Options{}), refused(t))
		_, err := ask(e, head("GET", "/"))
		var ce *ConnectError
		if !errors.As(err, &ce) || ce.Reason != ConnectRefused {
			t.Fatalf("%v", err)
		}
		if st := e.Stats(); st.Failures != 1 || st.InFlight != 0 {
			t.Errorf("%+v", st)
		}
	})
	t.Run("a malformed answer", func(t *testing.T) {
		e := one(t, newSet(t, Options{}), framed(t, func(f *xhttp2.Framer, _ int, stream uint32) bool {
			respond(f, stream, status200, hpack.HeaderField{Name: "Upper", Value: "x"})
			return true
		}))
		for i := range uint64(2) {
			var se *http2.StreamError
			if _, err := ask(e, head("GET", "/")); !errors.As(err, &se) || se.Remote {
				t.Errorf("%v", err)
			}
			if st := e.Stats(); st.Failures != i+1 || st.HTTP2 != 1 || st.InFlight != 0 {
				t.Errorf("%+v", st)
			}
		}
	})
	t.Run("not a reset or refused stream, one that is given up, a connection that goes away", func(t *testing.T) {
		e := one(t, newSet(t, Options{}), framed(t, func(f *xhttp2.Framer, _ int, stream uint32) bool {
			switch stream {
			case 1:
				f.WriteRSTStream(stream, xhttp2.ErrCodeInternal)
			case 3:
				f.WriteRSTStream(stream, xhttp2.ErrCodeRefusedStream)
			case 7:
				f.WriteGoAway(5, xhttp2.ErrCodeNo, nil)
			}
			return true
		}))
		var se *http2.StreamError
		if _, err := ask(e, head("GET", "/")); !errors.As(err, &se) || !se.Remote || se.Code != http2.InternalError {
			t.Errorf("%v", err)
		}
		if _, err := ask(e, head("GET", "/")); !http2.Unprocessed(err) {
			t.Errorf("%v", err)
		}
		s, _, err := e.Open(head("GET", "/"), nil, true, &Waiting{})
		if err != nil {
			t.Fatal(err)
		}
		s.Abort()
		if _, err := s.AwaitHead(time.Time{}); err != http2.ErrInterrupted {
			t.Errorf("%v", err)
		} else {
			s.Blame(err)
		}
		s.Close()
		if _, err := ask(e, head("GET", "/")); !http2.Unprocessed(err) {
			t.Errorf("%v", err)
		}
		if st := e.Stats(); st.Failures != 0 || st.InFlight != 0 || st.Dials != 1 {
			t.Errorf("%+v", st)
		}
	})
}
