package proxy

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/peertest"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/upstream"
	"github.com/weirmesh/weir/test/size"
)

func TestARefusedConnectionCostsNoRequest(t *testing.T) {
	t.Parallel()
	for _, protocol := range []model.Protocol{model.HTTP, model.H2C} {
		for clientName, c := range map[string]*http.Client{"HTTP/1.1": newClient(t), "HTTP/2": h2cClient(t)} {
			addr := h2cBackend(t, func(w http.ResponseWriter, r *http.Request) {
				n, _ := io.Copy(io.Discard, r.Body)
				fmt.Fprint(w, n)
			})
			cfg := plain(append(refusing(t, 6), addr)...)
			cfg.Services[0].Protocol = protocol
			s := serve(t, cfg, func(o *Options) { o.Upstream.EjectAfter = -1 })
			for i := range 60 {
				method := []string{"GET", "POST", "PUT", "PATCH"}[i%4]
				size := []int{0, 5, 100_000}[i/4%3]
				var b io.Reader = bytes.NewReader(body(size))
				if i%5 == 0 {
					b = io.MultiReader(b) // of unknown length
				}
				req, err := http.NewRequest(method, "http://"+s.addr()+"/", b)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := c.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				got, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				if resp.StatusCode != 200 || string(got) != fmt.Sprint(size) {
					t.Errorf("%s to %s: %s of %d bytes was answered %d %q", clientName, protocol, method, size, resp.StatusCode, got)
				}
			}
			c.CloseIdleConnections()
			s.stop()
			<-s.ended
			var retries uint64
			for _, x := range s.metrics.Snapshot().Exchanges {
				retries += x.Retries
			}
			if retries == 0 {
				t.Error("no attempt beyond the first was counted")
			}
		}
	}
}

// refusing are addresses that refuse connections.
func refusing(t *testing.T, n int) (addresses []string) {
	for range n {
		addresses = append(addresses, peertest.Refusing(t))
	}
	return addresses
}

func TestEndpointsThatRefuseAreTriedSoManyTimes(t *testing.T) {
	dropping := func() string { // closes connections during the handshake
		return peertest.Raw(t, func(_ int, c net.Conn) {
			c.Read(make([]byte, 1))
		})
	}
	side := peertest.NewTLS(t, 0)
	for name, test := range map[string]struct {
		cfg             *model.Config
		dials, rejected uint64 // rejected by the retry budget
	}{
		"refused":               {plain(refusing(t, 12)...), 8, 0},
		"one endpoint":          {plain(peertest.Refusing(t)), 1, 0},
		"two endpoints":         {plain(refusing(t, 2)...), 2, 0},
		"handshakes that fail":  {side.OverTLS(plain(dropping(), dropping(), dropping(), dropping())), 4, 0},
		"nor beyond the budget": {side.OverTLS(plain(dropping(), dropping(), dropping(), dropping())), 1, 1},
		"but three are free":    {plain(refusing(t, 12)...), 3, 1},
		"but three are all":     {plain(refusing(t, 3)...), 3, 0},
	} {
		if name[0] == 'n' || name[0] == 'b' {
			test.cfg.Services[0].Limits = &model.Limits{RetryPercent: new(int)}
		}
		s := serve(t, test.cfg)
		k := newTalk(t, s.addr())
		k.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello")
		if resp, _ := k.answer("POST"); resp.StatusCode != 502 {
			t.Errorf("%s: status %d", name, resp.StatusCode)
		}
		dials := uint64(0)
		for _, e := range s.state.Load().Service(&upstream.Service{Name: serviceName}).Endpoints() {
			dials += e.Stats().Dials
		}
		if dials != test.dials {
			t.Errorf("%s: %d connections attempted, want %d", name, dials, test.dials)
		}
		rejected := uint64(0)
		for state := range s.Services {
			for _, l := range state.Rejected {
				rejected += l.Count
			}
		}
		if rejected != test.rejected {
			t.Errorf("%s: %d beyond the retry budget, want %d", name, rejected, test.rejected)
		}
	}
}

// replica is a backend that stops as a pod does. It finishes running requests, closes idle connections and refuses new
// ones.
type replica struct {
	http.Server
	net.Listener
}

func newReplica(t testing.TB) *replica {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &replica{Listener: ln}
	r.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n)
	})
	return r
}

func (r *replica) start() { go r.Serve(r.Listener) }

func (r *replica) stop(t testing.TB) {
	if err := r.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestRollingEndpointsCostsNoRequest replaces endpoints, and adds some before they are ready. No request is lost,
// whatever its method.
func TestRollingEndpointsCostsNoRequest(t *testing.T) {
	t.Parallel()
	for _, replicas := range []int{1, 3} {
		t.Run(fmt.Sprint(replicas), func(t *testing.T) {
			var all []*replica
			addresses := func() (list []string) {
				for _, r := range all {
					list = append(list, r.Listener.Addr().String())
				}
				return list
			}
			for range replicas {
				all = append(all, newReplica(t))
				all[len(all)-1].start()
			}
			s := serve(t, plain(addresses()...))
			const clients = 4
			var sent [clients]atomic.Int64
			var wg sync.WaitGroup
			done := make(chan struct{})
			for i := range clients {
				wg.Go(func() {
					c := newClient(t)
					for n := 0; ; n++ {
						select {
						case <-done:
							return
						default:
						}
						method := []string{"GET", "POST", "DELETE", "PATCH"}[(i+n)%4]
						req, err := http.NewRequest(method, "http://"+s.addr()+"/", io.MultiReader(bytes.NewReader(body(n%3*1000))))
						if err != nil {
							t.Error(err)
							return
						}
						resp, err := c.Do(req)
						if err != nil {
							t.Error(err)
							return
						}
						io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
						if resp.StatusCode != 200 {
							t.Errorf("%s was answered %d", method, resp.StatusCode)
						}
						sent[i].Add(1)
					}
				})
			}
			// settle waits until all requests in flight have ended, and a little longer.
			settle := func() {
				for i := range sent {
					for n := sent[i].Load(); sent[i].Load() < n+3 && !t.Failed(); {
						time.Sleep(100 * time.Microsecond)
					}
				}
			}
			for range size.Of(4, 20) {
				// The next endpoint is configured but still refuses connections.
				if err := s.Apply(plain(append(addresses(), peertest.Refusing(t))...)); err != nil {
					t.Fatal(err)
				}
				settle()
				old := all[0]
				all = append(all[1:], newReplica(t))
				all[len(all)-1].start()
				if err := s.Apply(plain(addresses()...)); err != nil {
					t.Fatal(err)
				}
				settle()
				old.stop(t)
			}
			close(done)
			wg.Wait()
			for _, r := range all {
				r.stop(t)
			}
		})
	}
}

func TestARequestGoesToEndpointsThatCameAfterIt(t *testing.T) {
	gone := peertest.Refusing(t)
	addr, _ := wire(t, okResponse)
	before := plain(gone)
	before.Routes[0].Rules[0].Retry = &model.Retry{Attempts: 1} // has the body before it picks an endpoint
	s := serve(t, before)
	k := newTalk(t, s.addr())
	k.send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
	if head, err := rawHead(k.r); head != "HTTP/1.1 100 Continue\r\n\r\n" || err != nil {
		t.Fatalf("%q, %v", head, err)
	}
	if err := s.Apply(plain(addr)); err != nil {
		t.Fatal(err)
	}
	k.send("hello")
	if resp, _ := k.answer("POST"); resp.StatusCode != 200 {
		t.Errorf("status %d", resp.StatusCode)
	}
}

// TestARequestWaitsForTheSuccessorOfAnEndpoint ends the only endpoint before the configuration names the next one.
func TestARequestWaitsForTheSuccessorOfAnEndpoint(t *testing.T) {
	for _, protocol := range []model.Protocol{model.HTTP, model.H2C} {
		old, next := newReplica(t), newReplica(t)
		for _, r := range []*replica{old, next} {
			r.Protocols = new(http.Protocols)
			r.Protocols.SetHTTP1(true)
			r.Protocols.SetUnencryptedHTTP2(true)
			r.start()
		}
		to := func(r *replica) *model.Config {
			cfg := plain(r.Listener.Addr().String())
			cfg.Services[0].Protocol = protocol
			return cfg
		}
		s := serve(t, to(old), func(o *Options) { o.Succession, o.Upstream.ConnectTimeout = time.Hour, time.Hour })
		ask := func(method string) int {
			k := newTalk(t, s.addr())
			k.send(method + " / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello")
			resp, _ := k.answer(method)
			return resp.StatusCode
		}
		if status := ask("GET"); status != 200 {
			t.Fatalf("%s: status %d", protocol, status)
		}
		old.stop(t)
		var wg sync.WaitGroup
		const n = 8
		for i := range n {
			wg.Go(func() {
				method := []string{"GET", "POST"}[i%2]
				if status := ask(method); status != 200 {
					t.Errorf("%s: %s was answered %d", protocol, method, status)
				}
			})
		}
		endpoint := s.state.Load().Service(&upstream.Service{Name: serviceName}).Endpoints()[0]
		var load telemetry.Load
		for s.pipe.Load(&load); load.InFlight < n || endpoint.Stats().DialFails == 0; s.pipe.Load(&load) {
			time.Sleep(time.Millisecond)
		}
		// Another configuration without news for them changes nothing.
		if err := s.Apply(to(old)); err != nil {
			t.Fatal(err)
		}
		if err := s.Apply(to(next)); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		next.stop(t)
	}
}

// TestNoRequestWaitsForAServiceThatStaysAway would not end if one did.
func TestNoRequestWaitsForAServiceThatStaysAway(t *testing.T) {
	old := newReplica(t)
	old.start()
	address := old.Listener.Addr().String()
	for name, test := range map[string]struct {
		before, after *model.Config
		succession    time.Duration
		stop          bool
		status        int
	}{
		"never there":        {plain(peertest.Refusing(t)), nil, time.Hour, false, 502},
		"removed altogether": {plain(peertest.Refusing(t)), plain(), time.Hour, false, 503},
		"gone for too long":  {plain(address), nil, time.Nanosecond, true, 502},
	} {
		s := serve(t, test.before, func(o *Options) { o.Succession, o.Upstream.ConnectTimeout = test.succession, time.Hour })
		ask := func() int {
			k := newTalk(t, s.addr())
			k.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
			resp, _ := k.answer("GET")
			return resp.StatusCode
		}
		if test.stop {
			ask()
			old.stop(t)
		}
		if test.after != nil {
			if err := s.Apply(test.after); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 {
			if status := ask(); status != test.status {
				t.Errorf("%s: status %d, want %d", name, status, test.status)
			}
		}
	}
}

// TestAnEndpointThatEndsUnansweredCostsNoIdempotentRequest sends requests to endpoints that take them and end the connection, as a
// process does that is ended while connections wait for it.
func TestAnEndpointThatEndsUnansweredCostsNoIdempotentRequest(t *testing.T) {
	for _, protocol := range []model.Protocol{model.HTTP, model.H2C} {
		for name, test := range map[string]struct {
			method  string
			ending  int // so many endpoints end unanswered, and one answers
			edit    func(*model.Config)
			status  int
			arrived int64 // how often the request came to an endpoint that ends, at most
		}{
			"repeated":                {"GET", 1, nil, 200, 1},
			"with a body":             {"PUT", 1, nil, 200, 1},
			"not if it may do harm":   {"POST", 1, nil, 502, 1},
			"once":                    {"GET", 9, nil, 502, 2},
			"not beyond the budget":   {"GET", 1, func(c *model.Config) { c.Services[0].Limits = &model.Limits{RetryPercent: new(int)} }, 502, 1},
			"not against the rule":    {"GET", 9, func(c *model.Config) { c.Routes[0].Rules[0].Retry = &model.Retry{} }, 502, 2},
			"as often as the rule is": {"GET", 9, func(c *model.Config) { c.Routes[0].Rules[0].Retry = &model.Retry{Attempts: 3} }, 502, 4},
		} {
			var arrived atomic.Int64
			var addresses []string
			for range test.ending {
				addresses = append(addresses, ending(t, protocol, &arrived))
			}
			if test.ending == 1 {
				addresses = append(addresses, h2cBackend(t, func(w http.ResponseWriter, r *http.Request) {
					n, _ := io.Copy(io.Discard, r.Body)
					fmt.Fprint(w, n)
				}))
			}
			cfg := plain(addresses...)
			cfg.Services[0].Protocol = protocol
			if test.edit != nil {
				test.edit(cfg)
			}
			s := serve(t, cfg, func(o *Options) { o.Upstream.EjectAfter = -1 })
			for arrived.Load() == 0 { // until an endpoint that ends was picked
				k := newTalk(t, s.addr())
				k.send(test.method + " / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello")
				resp, body := k.answer(test.method)
				if arrived.Load() == 0 {
					continue
				}
				if resp.StatusCode != test.status || test.status == 200 && body != "5" {
					t.Errorf("%s, %s: status %d, %q, want %d", protocol, name, resp.StatusCode, body, test.status)
				}
			}
			if n := arrived.Load(); n != test.arrived {
				t.Errorf("%s, %s: the request arrived %d times, want %d", protocol, name, n, test.arrived)
			}
		}
	}
}

// ending reads a request and ends the connection.
func ending(t *testing.T, protocol model.Protocol, arrived *atomic.Int64) string {
	if protocol == model.HTTP {
		return peertest.Raw(t, func(_ int, c net.Conn) {
			if request, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
				io.Copy(io.Discard, request.Body)
				arrived.Add(1)
			}
		})
	}
	var current sync.Map // of the connections, by the address of their other end
	s := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		arrived.Add(1)
		c, _ := current.Load(r.RemoteAddr)
		c.(net.Conn).Close()
	}), Protocols: new(http.Protocols)}
	s.Protocols.SetUnencryptedHTTP2(true)
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		current.Store(c.RemoteAddr().String(), c)
		return ctx
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); s.Serve(ln) }()
	t.Cleanup(func() { s.Close(); <-done })
	return ln.Addr().String()
}
