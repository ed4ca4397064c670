package upstream

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirmesh/weir/internal/model"
)

// pipeListener is a listener of net.Pipes.
type pipeListener struct {
	conns chan net.Conn
	dials atomic.Int32
	quit  chan struct{}
	once  sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), quit: make(chan struct{})}
}

func (l *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	l.dials.Add(1)
	near, far := net.Pipe()
	select {
	case l.conns <- far:
		return near, nil
	case <-l.quit:
		return nil, syscall.ECONNREFUSED
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.quit:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { l.once.Do(func() { close(l.quit) }); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// checked runs f in a bubble with a set whose endpoints are all served by h.
func checked(t *testing.T, h http.HandlerFunc, f func(t *testing.T, s *Set, l *pipeListener)) {
	synctest.Test(t, func(t *testing.T) {
		l := newPipeListener()
		var protocols http.Protocols
		protocols.SetHTTP1(true)
		protocols.SetUnencryptedHTTP2(true)
		server := &http.Server{Handler: h, Protocols: &protocols}
		go server.Serve(l)
		defer server.Close()
		s := New(Options{dial: l.dial})
		defer s.Close()
		f(t, s, l)
	})
}

func checkOf(kind model.HealthCheckType, edit ...func(*model.HealthCheck)) func(*model.Service) {
	h := &model.HealthCheck{Type: kind, Path: "/up?full", Interval: model.Duration(10 * time.Second), Timeout: model.Duration(time.Second), Healthy: 2, Unhealthy: 3}
	for _, e := range edit {
		e(h)
	}
	return func(s *model.Service) { s.HealthCheck = h }
}

func TestChecksChangeAnEndpointsStateAtTheirThresholds(t *testing.T) {
	var status atomic.Int32
	status.Store(200)
	var requests atomic.Int32
	checked(t, func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if r.Method != "GET" || r.RequestURI != "/up?full" || r.Host != "10.0.1.0:80" || r.UserAgent() != checkAgent {
			t.Errorf("%s %s of %s by %s", r.Method, r.RequestURI, r.Host, r.UserAgent())
		}
		w.WriteHeader(int(status.Load()))
		io.WriteString(w, "fine")
	}, func(t *testing.T, s *Set, l *pipeListener) {
		e := apply(t, s, with(checkOf(model.CheckHTTP), hosts(1)...)).Endpoints()[0]
		at := func(n int32) { // just after the nth check
			for requests.Load() < n {
				time.Sleep(100 * time.Millisecond)
			}
			synctest.Wait()
		}
		at(3)
		if !e.Healthy() || e.Stats().Checks != [2]uint64{0, 3} {
			t.Fatalf("%+v", e.Stats())
		}
		status.Store(503)
		at(5)
		if !e.Healthy() {
			t.Fatal("failing after two bad checks, want three")
		}
		at(6)
		if st := e.Stats(); st.Healthy || !st.Failing || st.CheckErr != "status 503" || st.Checks != [2]uint64{3, 3} {
			t.Fatalf("%+v", st)
		}
		status.Store(204)
		at(7)
		if e.Healthy() {
			t.Fatal("passing after one good check, want two")
		}
		at(8)
		if st := e.Stats(); !st.Healthy || st.CheckErr != "" {
			t.Fatalf("%+v", st)
		}
		if n := l.dials.Load(); n != 1 {
			t.Errorf("%d connections for 8 checks, want one", n)
		}
		if st := e.Stats(); st.Dials != 0 || st.InFlight != 0 || st.Failures != 0 {
			t.Errorf("checks count as exchanges: %+v", st)
		}
	})
}

func TestChecksAreSpreadAndKeepTheirInterval(t *testing.T) {
	var mu sync.Mutex
	var times []time.Time
	first := map[time.Duration]bool{}
	checked(t, func(http.ResponseWriter, *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		times = append(times, time.Now())
	}, func(t *testing.T, s *Set, _ *pipeListener) {
		start := time.Now()
		apply(t, s, with(checkOf(model.CheckHTTP), hosts(1)...))
		time.Sleep(10 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if d := times[0].Sub(start); d > checkStart {
			t.Errorf("the first after %v", d)
		}
		varied := map[time.Duration]bool{}
		for i := 1; i < len(times); i++ {
			d := times[i].Sub(times[i-1])
			varied[d] = true
			if d < 9*time.Second || d > 11*time.Second {
				t.Errorf("%v between two checks", d)
			}
		}
		if len(times) < 54 || len(times) > 68 || len(varied) < 10 {
			t.Errorf("%d checks in ten minutes, with %d different intervals", len(times), len(varied))
		}
	})
	checked(t, func(http.ResponseWriter, *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		first[time.Duration(time.Now().Nanosecond())] = true
	}, func(t *testing.T, s *Set, _ *pipeListener) {
		apply(t, s, with(checkOf(model.CheckHTTP), hosts(50)...))
		time.Sleep(2 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if len(first) < 40 {
			t.Errorf("50 endpoints were asked at %d different times", len(first))
		}
	})
}

func TestASlowAnswerFailsTheCheck(t *testing.T) {
	checked(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, func(t *testing.T, s *Set, _ *pipeListener) {
		e := apply(t, s, with(checkOf(model.CheckHTTP, func(h *model.HealthCheck) { h.Unhealthy = 1 }), hosts(1)...)).Endpoints()[0]
		time.Sleep(5 * time.Second)
		if st := e.Stats(); st.Healthy || st.CheckErr != "no answer within 1s" {
			t.Errorf("%+v", st)
		}
	})
}

func TestExpectedStatusesAndHost(t *testing.T) {
	checked(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "up.example" {
			t.Errorf("host %s", r.Host)
		}
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(302)
	}, func(t *testing.T, s *Set, _ *pipeListener) {
		e := apply(t, s, with(checkOf(model.CheckHTTP, func(h *model.HealthCheck) {
			h.Host, h.Statuses = "up.example", []model.StatusRange{{From: 302, To: 302}}
		}), hosts(1)...)).Endpoints()[0]
		time.Sleep(time.Minute)
		if st := e.Stats(); !st.Healthy || st.Checks[0] != 0 || st.Checks[1] < 5 {
			t.Errorf("%+v", st)
		}
	})
}

func TestChecksEndWithTheirConfiguration(t *testing.T) {
	var requests atomic.Int32
	checked(t, func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		w.WriteHeader(500)
	}, func(t *testing.T, s *Set, _ *pipeListener) {
		e := apply(t, s, with(checkOf(model.CheckHTTP), hosts(2)...)).Endpoints()[0]
		time.Sleep(time.Minute)
		if e.Healthy() {
			t.Fatal("passes")
		}
		// The same again changes nothing.
		if same := apply(t, s, with(checkOf(model.CheckHTTP), hosts(1)...)).Endpoints()[0]; same != e || e.Healthy() {
			t.Error("the same check began anew")
		}
		if len(s.checks) != 1 {
			t.Errorf("%d checks for one endpoint", len(s.checks))
		}
		// Another check begins anew.
		apply(t, s, with(checkOf(model.CheckHTTP, func(h *model.HealthCheck) { h.Path = "/other" }), hosts(1)...))
		if !e.Healthy() {
			t.Error("what another check said stays")
		}
		time.Sleep(time.Minute)
		apply(t, s, config(hosts(1)...))
		if !e.Healthy() || len(s.checks) != 0 {
			t.Error("a check that is gone leaves its word behind")
		}
		n := requests.Load()
		time.Sleep(time.Minute)
		if requests.Load() != n {
			t.Error("still checked")
		}
	})
}

func TestAServiceWhoseEndpointsAllFailIsUsedAllTheSame(t *testing.T) {
	checked(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, func(t *testing.T, s *Set, _ *pipeListener) {
		svc := apply(t, s, with(checkOf(model.CheckHTTP), hosts(3)...))
		time.Sleep(time.Minute)
		picked := map[*Endpoint]bool{}
		for range 100 {
			picked[svc.Pick(nil)] = true
		}
		for _, e := range svc.Endpoints() {
			if e.Healthy() || !picked[e] {
				t.Errorf("%s: healthy %v, picked %v", e.Address, e.Healthy(), picked[e])
			}
		}
	})
}

// TestBytesBehindAChecksAnswerReachNobody: neither the next check nor an exchange.
func TestBytesBehindAChecksAnswerReachNobody(t *testing.T) {
	log.SetOutput(io.Discard) // net/http tells of them
	defer log.SetOutput(os.Stderr)
	synctest.Test(t, func(t *testing.T) {
		l := newPipeListener()
		defer l.Close()
		var served, asked atomic.Int32
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				served.Add(1)
				go func() {
					defer c.Close()
					for r := bufio.NewReader(c); ; {
						if _, err := http.ReadRequest(r); err != nil {
							return
						}
						asked.Add(1)
						io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 503 Behind\r\nContent-Length: 0\r\n\r\n")
					}
				}()
			}
		}()
		s := New(Options{dial: l.dial})
		defer s.Close()
		e := apply(t, s, with(checkOf(model.CheckHTTP), hosts(1)...)).Endpoints()[0]
		time.Sleep(time.Minute)
		if st := e.Stats(); !st.Healthy || st.Checks[0] != 0 || st.Checks[1] < 5 || st.Idle != 0 || served.Load() != asked.Load() {
			t.Errorf("%+v, %d connections for %d checks", st, served.Load(), asked.Load())
		}
	})
}

func TestTCPChecks(t *testing.T) {
	checked(t, func(http.ResponseWriter, *http.Request) {}, func(t *testing.T, s *Set, l *pipeListener) {
		e := apply(t, s, with(checkOf(model.CheckTCP), hosts(1)...)).Endpoints()[0]
		time.Sleep(time.Minute)
		if st := e.Stats(); !st.Healthy || st.Checks[1] < 5 || st.Checks[0] != 0 {
			t.Fatalf("%+v", st)
		}
		l.Close()
		time.Sleep(time.Minute)
		if st := e.Stats(); st.Healthy || st.CheckErr == "" {
			t.Errorf("%+v", st)
		}
	})
}

func TestGRPCChecks(t *testing.T) {
	for name, x := range map[string]struct {
		status, message string
		healthy         bool
	}{
		"serving":         {"0", "\x00\x00\x00\x00\x02\x08\x01", true},
		"not serving":     {"0", "\x00\x00\x00\x00\x02\x08\x02", false},
		"unknown":         {"0", "\x00\x00\x00\x00\x00", false},
		"unknown service": {"5", "", false},
		"not implemented": {"12", "", false},
		"no message":      {"0", "", false},
		"broken":          {"0", "\x00\x00\x00\x00\x01\x08", false},
		"more fields":     {"0", "\x00\x00\x00\x00\x05\x12\x01x\x08\x01", true},
	} {
		t.Run(name, func(t *testing.T) {
			checked(t, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if r.ProtoMajor != 2 || r.URL.Path != "/grpc.health.v1.Health/Check" || r.Header.Get("Content-Type") != "application/grpc" ||
					r.Header.Get("Te") != "trailers" || string(body) != "\x00\x00\x00\x00\x06\x0a\x04shop" {
					t.Errorf("%s %s %v %q", r.Proto, r.URL.Path, r.Header, body)
				}
				w.Header().Set("Content-Type", "application/grpc")
				w.Header().Set("Trailer", "Grpc-Status")
				io.WriteString(w, x.message)
				w.Header().Set("Grpc-Status", x.status)
			}, func(t *testing.T, s *Set, l *pipeListener) {
				e := apply(t, s, with(checkOf(model.CheckGRPC, func(h *model.HealthCheck) { h.Service = "shop" }), hosts(1)...)).Endpoints()[0]
				time.Sleep(time.Minute)
				if st := e.Stats(); st.Healthy != x.healthy || st.Checks[0]+st.Checks[1] < 5 {
					t.Errorf("%+v", st)
				}
				if n := l.dials.Load(); n != 1 {
					t.Errorf("%d connections", n)
				}
			})
		})
	}
}

// Over TLS a check authenticates the endpoint as exchanges do.
func TestChecksOverTLS(t *testing.T) {
	ca := newAuthority(t, "ca")
	leaf := ca.issue(t, "ns/leaf", 0, x509.ExtKeyUsageServerAuth, []string{"app.test"})
	pair, err := tls.X509KeyPair([]byte(leaf.Chain), []byte(leaf.Key.Reveal()))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var protocol, host atomic.Value
	server := &http.Server{ErrorLog: log.New(io.Discard, "", 0), TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}}, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		protocol.Store(r.Proto)
		host.Store(r.Host)
	})}
	done := make(chan error)
	go func() { done <- server.ServeTLS(l, "", "") }()
	defer func() {
		server.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()
	for _, x := range []struct {
		protocol model.Protocol
		kind     model.HealthCheckType
		hostname string
		healthy  bool
		spoken   string
	}{
		{model.HTTP, model.CheckHTTP, "app.test", true, "HTTP/1.1"},
		{model.H2C, model.CheckHTTP, "app.test", true, "HTTP/2.0"},
		{model.HTTP, model.CheckTCP, "app.test", true, ""},
		{model.HTTP, model.CheckTCP, "other.test", false, ""},
		{model.HTTP, model.CheckHTTP, "other.test", false, ""},
	} {
		s := New(Options{})
		protocol.Store("")
		edit := checkOf(x.kind, func(h *model.HealthCheck) {
			h.Interval, h.Healthy, h.Unhealthy = model.Duration(10*time.Millisecond), 1, 1
		})
		e := apply(t, s, with(func(m *model.Service) {
			edit(m)
			m.Protocol, m.TLS = x.protocol, &model.ServiceTLS{Hostname: x.hostname, CAs: ca.pem}
		}, l.Addr().String())).Endpoints()[0]
		eventually(t, fmt.Sprintf("a check's result %t", x.healthy), func() bool {
			st := e.Stats()
			return st.Checks[0]+st.Checks[1] > 0 && st.Healthy == x.healthy
		})
		if got := protocol.Load(); x.spoken != "" && (got != x.spoken || host.Load() != "app.test") {
			t.Errorf("%+v: spoken %q with %v", x, got, host.Load())
		}
		s.Close()
	}
}

func FuzzServingStatus(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x00\x02\x08\x01"))
	f.Add([]byte("\x00\x00\x00\x00\x05\x12\x01x\x08\x01"))
	f.Fuzz(func(t *testing.T, frame []byte) {
		if servingStatus(frame) == serving && len(frame) < 7 {
			t.Errorf("%q says that it is serving", frame)
		}
	})
}
