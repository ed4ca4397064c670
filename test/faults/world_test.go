//go:build linux

// Package faults_test shows what becomes of Weir, a process of its own, when its peers, its disk and its system fail it: nothing hangs, memory
// stays bounded, the blame is right, and whoever has no part in it is served as ever.
//
// What "go test" runs is bounded, and smaller still with -short; "make test-faults" (FAULTS=full) runs it at full size.
package faults_test

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmesh/weir/test/weirtest"
)

// TestMain runs more tests at a time than there are processors, as most of them wait.
func TestMain(m *testing.M) {
	weirtest.StandIn()
	flag.Parse()
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	weirtest.Main(m)
}

// full says that everything runs at full size.
var full = os.Getenv("FAULTS") == "full"

// sized is one of three sizes.
func sized(short, bounded, whole int) int {
	switch {
	case full:
		return whole
	case testing.Short():
		return short
	}
	return bounded
}

// together lets a test that mostly waits run beside others, unless it needs all there is.
func together(t *testing.T) {
	t.Helper()
	if !full {
		t.Parallel()
	}
}

// patience is how long anything may take before a test fails; it decides nothing else.
const patience = time.Minute

// route is a host name that leads to one backend.
type route struct {
	name, address string
	extra         string // of the rule, in YAML
}

// world is a weir that serves routes.
type world struct {
	*weirtest.Process
	t      *testing.T
	addr   string
	dir    string
	client *http.Client
}

// serve runs weir with a route for each name; the host is the name with ".example". Arguments are further flags.
func serve(t *testing.T, routes []route, args ...string) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), addr: fmt.Sprintf("127.0.0.1:%d", weirtest.FreePort(t))}
	w.write(routes)
	// A machine that has much else to do must not look like an overload.
	w.Process = weirtest.Run(t, append(append([]string{"--max-queue-delay", "0"}, args...), w.dir)...)
	transport := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 10}
	t.Cleanup(transport.CloseIdleConnections)
	w.client = &http.Client{Transport: transport, Timeout: patience}
	return w
}

// write writes the manifests.
func (w *world) write(routes []route) {
	w.t.Helper()
	var b strings.Builder
	_, port, _ := net.SplitHostPort(w.addr)
	fmt.Fprintf(&b, `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge}
spec:
  gatewayClassName: weir
  addresses: [{type: IPAddress, value: 127.0.0.1}]
  listeners: [{name: http, port: %s, protocol: HTTP}]
`, port)
	for _, r := range routes {
		_, port, err := net.SplitHostPort(r.address)
		if err != nil {
			w.t.Fatal(err)
		}
		fmt.Fprintf(&b, `---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: %[1]s}
spec:
  parentRefs: [{name: edge}]
  hostnames: [%[1]s.example]
  rules:
  - name: all
    backendRefs: [{name: %[1]s, port: 80}]
    %[3]s
---
apiVersion: v1
kind: Service
metadata: {name: %[1]s}
spec: {ports: [{name: http, port: 80, targetPort: %[2]s}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{name: http, port: %[2]s}]
endpoints: [{addresses: [127.0.0.1]}]
`, r.name, port, r.extra)
	}
	temporary := filepath.Join(w.t.TempDir(), "new")
	if err := os.WriteFile(temporary, []byte(b.String()), 0o600); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Rename(temporary, filepath.Join(w.dir, "all.yaml")); err != nil {
		w.t.Fatal(err)
	}
}

// request makes a request to a route.
func (w *world) request(method, name, path string, body io.Reader) *http.Request {
	w.t.Helper()
	r, err := http.NewRequest(method, "http://"+w.addr+path, body)
	if err != nil {
		w.t.Fatal(err)
	}
	r.Host = name + ".example"
	return r
}

// get fetches a route's path: status, body, and how the body ended.
func (w *world) get(name, path string) (int, string, error) {
	resp, err := w.client.Do(w.request("GET", name, path, nil))
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

// scrape reads the metrics.
func (w *world) scrape() []string {
	w.t.Helper()
	resp, err := http.Get(w.Admin() + "metrics")
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		w.t.Fatalf("metrics: status %d, %v", resp.StatusCode, err)
	}
	http.DefaultClient.CloseIdleConnections()
	return strings.Split(string(b), "\n")
}

// metric is the sum of the samples of a name whose labels hold all the texts.
func (w *world) metric(name string, labels ...string) (sum float64) {
	w.t.Helper()
	for _, line := range w.scrape() {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest == "" || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		if slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(rest, l) }) {
			continue
		}
		v, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
		if err != nil {
			w.t.Fatal(err)
		}
		sum += v
	}
	return sum
}

var reasonLabel = regexp.MustCompile(`reason="([a-z_]+)"`)

// reasons are the reasons counted for a route, each with its number.
func (w *world) reasons(name string) map[string]int {
	w.t.Helper()
	all := map[string]int{}
	for _, line := range w.scrape() {
		if m := reasonLabel.FindStringSubmatch(line); m != nil && strings.HasPrefix(line, "weir_request_failures_total{") &&
			strings.Contains(line, fmt.Sprintf("route=%q", "default/"+name)) {
			n, _ := strconv.Atoi(line[strings.LastIndexByte(line, ' ')+1:])
			all[m[1]] += n
		}
	}
	return all
}

// until waits for a condition.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("still not: %s", what)
		}
	}
}

// backend runs h.
func backend(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// hello is a backend that takes everything and answers "hello".
func hello(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body)
	io.WriteString(w, "hello")
}

// dial opens a connection from a source address, as one source has few ports.
func dial(t *testing.T, source, addr string) net.Conn {
	t.Helper()
	d := net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}
	c, err := d.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// exchange sends a request over a connection and reads its answer.
func exchange(c net.Conn, r *bufio.Reader, name string) error {
	c.SetDeadline(time.Now().Add(patience))
	if _, err := fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s.example\r\n\r\n", name); err != nil {
		return err
	}
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 200 {
		return fmt.Errorf("status %d, %q, %w", resp.StatusCode, b, err)
	}
	return nil
}

// healthy is a client who has no part in what goes wrong, and is served all the time.
type healthy struct {
	stop  atomic.Bool
	wg    sync.WaitGroup
	mu    sync.Mutex
	times []time.Duration
	errs  []error
}

// visit starts clients of a route that make a request every so often, each over a connection of its own.
func (w *world) visit(name string, clients int, every time.Duration) *healthy {
	h := &healthy{}
	for range clients {
		c := dial(w.t, "127.0.0.1", w.addr)
		r := bufio.NewReader(c)
		h.wg.Go(func() {
			for !h.stop.Load() {
				start := time.Now()
				err := exchange(c, r, name)
				d := time.Since(start)
				h.mu.Lock()
				h.times = append(h.times, d)
				if err != nil {
					h.errs = append(h.errs, err)
				}
				h.mu.Unlock()
				if err != nil {
					return
				}
				time.Sleep(every)
			}
		})
	}
	return h
}

// end stops the clients, fails if one was not served, and returns how many requests there were and their 99th percentile.
func (h *healthy) end(t *testing.T) (int, time.Duration) {
	t.Helper()
	h.stop.Store(true)
	h.wg.Wait()
	for _, err := range h.errs {
		t.Errorf("a healthy client: %v", err)
	}
	if len(h.times) == 0 {
		t.Fatal("no healthy client made a request")
	}
	slices.Sort(h.times)
	return len(h.times), h.times[len(h.times)*99/100]
}
