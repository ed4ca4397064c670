package proxy

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/peertest"
	"github.com/weirmesh/weir/internal/socket"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/upstream"
)

func TestMain(m *testing.M) {
	flag.Set("test.parallel", "8") // such tests wait for timers: there may be more of them than cores
	goleak.VerifyTestMain(m)
}

// testServer is a server under test. It ends with the test.
type testServer struct {
	*Server
	metrics *telemetry.Registry
	stop    context.CancelFunc
	ended   chan struct{}
}

// backend and service are the peers of most tests.
var backend, service = peertest.Backend, peertest.Service

// listen opens the sockets of a test's servers.
var listen = func(testing.TB) func(network, address string) (net.Listener, error) { return socket.Listen }

// serve runs a server with cfg. The system chooses the ports, whatever the listeners say.
func serve(t testing.TB, cfg *model.Config, edit ...func(*Options)) *testServer {
	t.Helper()
	opt := Options{
		DrainGrace:   -1,
		DrainTimeout: 5 * time.Second,
		Listen: func(network, _ string) (socket.Bound, error) {
			return socket.Streams(listen(t))(network, "127.0.0.1:0")
		},
	}
	opt.Metrics, opt.Pseudonym = telemetry.New(), "weir"
	if os.Getenv("WEIR_TEST_LOG") != "" {
		opt.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	for _, e := range edit {
		e(&opt)
	}
	s := &testServer{Server: New(opt), metrics: opt.Metrics, ended: make(chan struct{})}
	if err := s.Apply(cfg); err != nil {
		t.Fatalf("apply: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.stop = cancel
	go func() {
		defer close(s.ended)
		if err := s.Run(ctx); err != nil {
			t.Errorf("run: %v", err)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-s.ended
		s.nothingKept(t)
	})
	return s
}

// nothingKept checks, after the server has ended, that all drawn memory was given back.
func (s *testServer) nothingKept(t testing.TB) {
	t.Helper()
	if drawn, ending := s.buffers.Drawn(), s.buffers.ending.Load(); drawn != 0 || ending != 0 {
		t.Errorf("%d bytes are still drawn, %d of them by connections that were told to end", drawn, ending)
	}
}

// addr is the address of the first port.
func (s *testServer) addr() string { return s.Addrs()[0].Bound.String() }

// Addr returns the address that the named listener is bound to, or nil.
func (s *testServer) Addr(listener string) net.Addr {
	for _, a := range s.Addrs() {
		for _, name := range a.Listeners {
			if name == listener {
				return a.Bound
			}
		}
	}
	return nil
}

// endpoints are the endpoints of the services being served.
func (s *testServer) endpoints() (all []*upstream.Endpoint) {
	for _, service := range s.state.Load().Upstream {
		all = append(all, service.Endpoints()...)
	}
	return all
}

// failures ends the server, so that everything is counted. It returns how often exchanges failed for the reason.
func (s *testServer) failures(reason telemetry.Reason) (n uint64) {
	s.stop()
	<-s.ended
	for _, x := range s.metrics.Snapshot().Exchanges {
		for _, r := range x.Reasons {
			if r.Reason == reason {
				n += r.Count
			}
		}
	}
	return n
}

const (
	listenerName = "default/gw/http"
	serviceName  = "default/app:80"
)

// ruleTo makes a rule that sends everything to the services.
func ruleTo(services ...string) model.Rule {
	r := model.Rule{
		Ref:     model.Ref{Kind: "HTTPRoute", Namespace: "default", Name: "route", Field: "spec.rules[0]"},
		Matches: []model.Match{{Path: model.PathMatch{Type: model.Prefix, Value: "/"}}},
	}
	for _, s := range services {
		r.Backends = append(r.Backends, model.Backend{Ref: r.Ref, Service: s, Weight: 1})
	}
	return r
}

// config has one listener for any host and one route with the rules.
func config(services []model.Service, rules ...model.Rule) *model.Config {
	for i := range rules {
		rules[i].Ref.Field = "spec.rules[" + string(rune('0'+i)) + "]"
	}
	return &model.Config{
		Listeners: []model.Listener{{Name: listenerName, Ref: model.Ref{Kind: "Gateway", Namespace: "default", Name: "gw"},
			Port: 80, Protocol: model.HTTP}},
		Routes: []model.Route{{
			Ref:         model.Ref{Kind: "HTTPRoute", Namespace: "default", Name: "route"},
			Attachments: []model.Attachment{{Listener: listenerName, Hostnames: []string{"*"}}},
			Rules:       rules,
		}},
		Services: services,
	}
}

// plain is a configuration that sends everything to the addresses of one service.
func plain(addresses ...string) *model.Config {
	return config([]model.Service{service(serviceName, model.HTTP, addresses...)}, ruleTo(serviceName))
}

// newClient makes an HTTP/1.1 client with its own connections that does not follow redirects.
func newClient(t testing.TB) *http.Client {
	tr := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 100}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// rawBackend accepts connections and gives each to f, until the test ends.
func rawBackend(t testing.TB, f func(net.Conn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	conns := make(chan struct{}, 1000)
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			conns <- struct{}{}
			go func() {
				defer func() { <-conns }()
				defer c.Close()
				f(c)
			}()
		}
	}()
	t.Cleanup(func() {
		ln.Close()
		<-done
	})
	return ln.Addr().String()
}

// dial opens a raw connection with a deadline, so that reads and writes cannot hang forever.
func dial(t testing.TB, addr string) net.Conn {
	t.Helper()
	c, err := dialled(t, addr)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// dialled is dial for a server that may reset the connection at once: whoever connects may see that already.
func dialled(t testing.TB, addr string) (net.Conn, error) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if errors.Is(err, syscall.ECONNRESET) {
		return nil, err
	}
	if err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(patience))
	t.Cleanup(func() { c.Close() })
	return c, nil
}

// patience is how long a step of a test may take. Tests of many steps begin it anew for each of them.
const patience = time.Minute

// fields makes a head of its lines.
func fields(lines ...string) string { return strings.Join(lines, "\r\n") + "\r\n\r\n" }
