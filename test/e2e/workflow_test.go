// Package e2e_test runs whole workflows: manifests as users write them, real proxies, real services, real requests.
package e2e_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/dialect"
	"github.com/weirmesh/weir/internal/exchange"
	"github.com/weirmesh/weir/internal/proxy"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/resource/rules"
	"github.com/weirmesh/weir/internal/socket"
	"github.com/weirmesh/weir/internal/telemetry"
)

func init() { resource.CheckRules(rules.Compile) }

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hold is the header field of a request that a toy does not answer before the hold is released.
const hold = "X-Hold"

// world is a proxy, the toys behind it and a load on it.
type world struct {
	t       *testing.T
	options control.Options
	server  *proxy.Server
	client  *http.Client
	// common is YAML that every state has.
	common string

	toys    map[string]*httptest.Server
	arrived chan struct{} // one for each request held
	mu      sync.Mutex
	release chan struct{} // closed to let go what is held

	failures atomic.Int64
	first    sync.Once
}

func newWorld(t *testing.T, common string, options control.Options) *world {
	w := &world{t: t, options: options, common: common, toys: map[string]*httptest.Server{}, arrived: make(chan struct{}, 100), release: make(chan struct{})}
	w.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}, Timeout: 30 * time.Second}
	t.Cleanup(w.client.CloseIdleConnections)
	w.server = proxy.New(proxy.Options{
		Options:    exchange.Options{Metrics: telemetry.New()},
		DrainGrace: -1, DrainTimeout: 10 * time.Second,
		Listen: func(network, _ string) (socket.Bound, error) { return socket.Open(network, "127.0.0.1:0") },
	})
	return w
}

// serve begins to serve, with the state that was applied first.
func (w *world) serve() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.server.Run(ctx) }()
	w.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	})
}

// deploy starts a toy that answers with its name.
func (w *world) deploy(names ...string) {
	for _, name := range names {
		s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.Header.Get(hold) != "" {
				w.mu.Lock()
				release := w.release
				w.mu.Unlock()
				w.arrived <- struct{}{}
				<-release
			}
			io.WriteString(rw, name)
		}))
		w.toys[name] = s
		w.t.Cleanup(s.Close)
	}
}

// service is a Service on port 80 whose endpoints are those of the toys named.
func (w *world) service(name string, toys ...string) string {
	text := fmt.Sprintf("---\napiVersion: v1\nkind: Service\nmetadata: {name: %s}\nspec: {ports: [{port: 80}]}\n", name)
	for _, toy := range toys {
		_, port, _ := net.SplitHostPort(w.toys[toy].Listener.Addr().String())
		text += fmt.Sprintf(`---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %s-%s, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{port: %[3]s}]
endpoints: [{addresses: [127.0.0.1]}]
`, name, toy, port)
	}
	return text
}

// apply serves the manifests: one set, one model, one snapshot.
func (w *world) apply(manifests ...string) {
	w.t.Helper()
	set, err := resource.Load(dialect.Kinds(), []string{"-"}, strings.NewReader(strings.Join(append(manifests, w.common), "---\n")))
	if err != nil {
		w.t.Fatal(err)
	}
	result, err := w.options.Translate(set)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range result.Findings {
		if f.Severity == resource.Error {
			w.t.Errorf("unexpected: %s", f)
		}
	}
	if err := w.server.Apply(result.Config); err != nil {
		w.t.Fatal(err)
	}
}

// get sends a request and returns who answered; anything but a 200 is a failure of the test.
func (w *world) get(host string, header ...string) string {
	req, err := http.NewRequest(http.MethodGet, "http://"+w.server.Addrs()[0].Bound.String()+"/", nil)
	if err != nil {
		w.fail(err.Error())
		return ""
	}
	req.Host = host
	for _, h := range header {
		req.Header.Set(h, "1")
	}
	resp, err := w.client.Do(req)
	if err != nil {
		w.fail(err.Error())
		return ""
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		w.fail(fmt.Sprintf("%s: %s %q %v", host, resp.Status, body, err))
	}
	return string(body)
}

func (w *world) fail(what string) {
	w.failures.Add(1)
	w.first.Do(func() { w.t.Errorf("a request failed: %s", what) })
}

const workers = 8

// count sends n requests, several at a time, and returns how many each toy answered.
func (w *world) count(n int, host string) map[string]int {
	var next atomic.Int64
	var mu sync.Mutex
	counts := map[string]int{}
	var wait sync.WaitGroup
	for range workers {
		wait.Go(func() {
			own := map[string]int{}
			for next.Add(1) <= int64(n) {
				own[w.get(host)]++
			}
			mu.Lock()
			defer mu.Unlock()
			for k, v := range own {
				counts[k] += v
			}
		})
	}
	wait.Wait()
	return counts
}

// during runs change while requests for the host are on their way, in the hands of a toy, and then lets them finish.
func (w *world) during(host string, change func()) {
	var wait sync.WaitGroup
	for range workers {
		wait.Go(func() { w.get(host, hold) })
	}
	for range workers {
		<-w.arrived
	}
	change()
	w.mu.Lock()
	close(w.release)
	w.release = make(chan struct{})
	w.mu.Unlock()
	wait.Wait()
}

// background sends requests without a pause until stop is called, which returns who answered.
func (w *world) background(host string) (stop func() map[string]int) {
	var stopped atomic.Bool
	var mu sync.Mutex
	counts := map[string]int{}
	var wait sync.WaitGroup
	for range 3 {
		wait.Go(func() {
			own := map[string]int{}
			for !stopped.Load() {
				own[w.get(host)]++
			}
			mu.Lock()
			defer mu.Unlock()
			for k, v := range own {
				counts[k] += v
			}
		})
	}
	return func() map[string]int {
		stopped.Store(true)
		wait.Wait()
		return counts
	}
}
