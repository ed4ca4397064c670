package proxy

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/peertest"
	"github.com/weirmesh/weir/internal/socket"
)

// restarted is a pod with a sidecar that ends and is started again in the same place, and a proxy with an identity whose
// clients call it.
type restarted struct {
	*testServer
	t       *testing.T
	at      string
	sidecar *testServer
	inbound *model.Config
	with    []func(*Options)
	route   func(addresses ...string) *model.Config
	edit    func(*model.Config)
}

func newRestarted(t *testing.T, app string, route func(addresses ...string) *model.Config, edit func(*model.Config), opt func(*Options)) *restarted {
	t.Helper()
	ca := peertest.NewAuthority(t)
	r := &restarted{t: t, inbound: route(app), route: route, edit: edit}
	edit(r.inbound)
	_, identity := mutual(t, r.inbound, ca)
	r.with = []func(*Options){identity, func(o *Options) { o.Beside, o.Pseudonym = true, "sidecar" }}
	r.start()
	source := &identities{}
	source.have(t, ca.Workload(t, shopID, nil), ca.Pool())
	r.testServer = serve(t, r.to(r.at), func(o *Options) { o.Identities = source.of }, opt)
	return r
}

// to leads to pods at addresses, of which none needs to be ready.
func (r *restarted) to(addresses ...string) *model.Config {
	cfg := r.route(addresses...)
	cfg.Services[0].TLS = &model.ServiceTLS{Hostname: "cart.shop", CAs: workload, Pods: []model.PodIdentity{{Address: "127.0.0.1", ID: cartID}}}
	for i := range cfg.Routes {
		cfg.Routes[i].ClientCertificate = workload
	}
	r.edit(cfg)
	if err := cfg.Validate(); err != nil {
		r.t.Fatal(err)
	}
	return cfg
}

// apply is what a controller does that has news.
func (r *restarted) apply(cfg *model.Config) {
	r.t.Helper()
	if err := r.Apply(cfg); err != nil {
		r.t.Fatal(err)
	}
}

func (r *restarted) start() {
	r.sidecar = serve(r.t, r.inbound, append(r.with, func(o *Options) {
		if r.at != "" {
			o.Listen = func(network, _ string) (socket.Bound, error) { return socket.Streams(listen(r.t))(network, r.at) }
		}
	})...)
	r.at = r.sidecar.addr()
}

func (r *restarted) stop() {
	r.sidecar.stop()
	<-r.sidecar.ended
}

// wait waits until so many wait for the sidecar.
func (r *restarted) wait(n int64) {
	r.t.Helper()
	for limit := time.Now().Add(patience); r.pipe.Waiting() < n; time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			r.t.Fatalf("%d wait, want %d", r.pipe.Waiting(), n)
		}
	}
}

func long(o *Options) { o.Restart, o.Upstream.ConnectTimeout = time.Hour, time.Hour }

// callRestarted calls the pod over one protocol: it returns what became of a call.
var callRestarted = map[string]struct {
	route func(addresses ...string) *model.Config
	edit  func(*model.Config)
	call  func(t *testing.T, addr string, i int) string
}{
	"HTTP/1.1": {plain, http1s, callRequest},
	"HTTP/2":   {plain, func(c *model.Config) { c.Services[0].Protocol = model.H2C }, callRequest},
	"TCP": {toAddresses, http1s, func(t *testing.T, addr string, _ int) string {
		c, err := dialled(t, addr)
		if err != nil {
			return "reset"
		}
		defer c.Close()
		io.WriteString(c, "!")
		got := make([]byte, 3)
		if _, err := io.ReadFull(c, got); err != nil {
			return "reset"
		}
		return strings.Replace(string(got), "up!", "200", 1)
	}},
}

func callRequest(t *testing.T, addr string, i int) string {
	k := newTalk(t, addr)
	method := []string{"GET", "POST"}[i%2]
	k.send(method + " / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello")
	resp, body := k.answer(method)
	reason, _, _ := strings.Cut(body, ":")
	if resp.StatusCode == 200 {
		return "200"
	}
	return fmt.Sprint(resp.StatusCode, " ", reason)
}

func appOf(t *testing.T, name string) string {
	if name == "TCP" {
		return echo(t, "up")
	}
	return h2cBackend(t, func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) })
}

// TestWhatWaitsForTheOnlyPodsSidecar is called while the sidecar of the only pod ends and is started again, as after it was
// killed. The news of that comes late, or at once.
func TestWhatWaitsForTheOnlyPodsSidecar(t *testing.T) {
	for name, c := range callRestarted {
		for _, told := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, told %t", name, told), func(t *testing.T) {
				t.Parallel()
				r := newRestarted(t, appOf(t, name), c.route, c.edit, long)
				if got := c.call(t, r.addr(), 0); got != "200" {
					t.Fatal(got)
				}
				r.stop()
				if told {
					r.apply(r.to()) // its pod is there, and not ready
				}
				const n = 8
				var calls sync.WaitGroup
				for i := range n {
					calls.Go(func() {
						if got := c.call(t, r.addr(), i); got != "200" {
							t.Errorf("call %d: %s", i, got)
						}
					})
				}
				r.wait(n)
				if !told {
					e := r.endpoints()[0]
					for fails := e.Stats().DialFails; e.Stats().DialFails < fails+2; { // it is asked again and again, by one for all
						time.Sleep(time.Millisecond)
					}
				}
				r.start()
				if told {
					r.apply(r.to(r.at))
				}
				calls.Wait()
				if n := r.pipe.Waiting(); n != 0 {
					t.Errorf("%d wait still", n)
				}
			})
		}
	}
}

// TestNobodyWaitsForASidecarThatStaysAway would not end, or take too long, if somebody did.
func TestNobodyWaitsForASidecarThatStaysAway(t *testing.T) {
	failed := func(name, want string) string {
		if name == "TCP" {
			return "reset"
		}
		return want
	}
	for name, c := range callRestarted {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Run("never there", func(t *testing.T) {
				r := newRestarted(t, appOf(t, name), c.route, c.edit, long)
				r.stop()
				if got := c.call(t, r.addr(), 0); got != failed(name, "502 connect_failed") {
					t.Error(got)
				}
			})
			t.Run("no pods any more", func(t *testing.T) {
				r := newRestarted(t, appOf(t, name), c.route, c.edit, long)
				c.call(t, r.addr(), 0)
				r.stop()
				none := r.to()
				none.Services[0].TLS = nil
				r.apply(none)
				if got := c.call(t, r.addr(), 0); got != failed(name, "503 no_endpoint") {
					t.Error(got)
				}
			})
			t.Run("for too long", func(t *testing.T) {
				r := newRestarted(t, appOf(t, name), c.route, c.edit, func(o *Options) { long(o); o.Restart = time.Nanosecond })
				c.call(t, r.addr(), 0)
				r.stop()
				if got := c.call(t, r.addr(), 0); got != failed(name, "502 connect_failed") {
					t.Error(got)
				}
				r.apply(r.to())
				if got := c.call(t, r.addr(), 0); got != failed(name, "503 no_endpoint") {
					t.Error(got)
				}
			})
			t.Run("too many", func(t *testing.T) {
				r := newRestarted(t, appOf(t, name), c.route, c.edit, func(o *Options) { long(o); o.MaxInFlight = 8 })
				c.call(t, r.addr(), 0)
				r.stop()
				var calls sync.WaitGroup
				for i := range 2 { // a quarter
					calls.Go(func() {
						if got := c.call(t, r.addr(), i); got != "200" {
							t.Errorf("call %d: %s", i, got)
						}
					})
				}
				r.wait(2)
				if got := c.call(t, r.addr(), 0); got != failed(name, "502 connect_failed") {
					t.Error(got)
				}
				r.start()
				calls.Wait()
			})
		})
	}
}

// TestAClientThatLeavesWaitsNoLonger: its place is another's.
func TestAClientThatLeavesWaitsNoLonger(t *testing.T) {
	c := callRestarted["HTTP/1.1"]
	r := newRestarted(t, appOf(t, ""), c.route, c.edit, long)
	c.call(t, r.addr(), 0)
	r.stop()
	client := dial(t, r.addr())
	io.WriteString(client, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	r.wait(1)
	client.Close()
	for limit := time.Now().Add(patience); r.pipe.Waiting() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("it waits")
		}
	}
}

// TestAnEndBeforeTheSettingsCostsNoRequest: an endpoint, or the application behind a sidecar, is killed when a connection of
// HTTP/2 has come about and nothing was sent over it.
func TestAnEndBeforeTheSettingsCostsNoRequest(t *testing.T) {
	h2c := func(c *model.Config) { c.Services[0].Protocol = model.H2C }
	ends := func(t *testing.T) string {
		return peertest.Raw(t, func(_ int, c net.Conn) {
			io.ReadFull(c, make([]byte, len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")))
			c.(*net.TCPConn).CloseWrite() // in order: what a reset says is known
			io.Copy(io.Discard, c)
		})
	}
	serves := func(t *testing.T) string {
		return h2cBackend(t, func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) })
	}
	for name, addr := range map[string]func(t *testing.T) string{
		"an endpoint": func(t *testing.T) string {
			cfg := plain(ends(t), serves(t), ends(t))
			h2c(cfg)
			return serve(t, cfg, func(o *Options) { o.Upstream.EjectAfter = -1 }).addr()
		},
		"an application": func(t *testing.T) string {
			return newMeshedTo(t, [2]string{ends(t), serves(t)}, plain, h2c, func(o *Options) { o.Upstream.EjectAfter = -1 }).addr()
		},
	} {
		t.Run(name, func(t *testing.T) {
			to := addr(t)
			client := h2cClient(t)
			for i := range 30 {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				req, err := http.NewRequestWithContext(ctx, "POST", "http://"+to+"/", strings.NewReader("hello"))
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Content-Type", []string{"text/plain", "application/grpc"}[i%2])
				req.Header.Set("TE", "trailers")
				resp, err := client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				got, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				if resp.StatusCode != 200 || string(got) != "hello" {
					t.Fatalf("request %d: %s %q %v", i, resp.Status, got, resp.Header)
				}
			}
		})
	}
}
