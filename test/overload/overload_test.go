// Package overload shows that goodput holds when more is asked than can be done: of a backend, and of weir itself.
package overload

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirmesh/weir/test/weirtest"
)

func TestMain(m *testing.M) { weirtest.Main(m) }

// measure skips a test that measures, unless it is asked for: where other things run, the load and the backend, which are
// this process, may get less of the machine than their part.
func measure(t *testing.T) {
	if os.Getenv("WEIR_OVERLOAD") != "full" {
		t.Skip("it says something only where nothing else wants the processors: make test-overload, on a quiet machine")
	}
}

const (
	// floor is the goodput under overload, as a part of the capacity, that a test insists on.
	floor = 0.8
	// duration is how long a measurement takes.
	duration = 10 * time.Second
)

// pool answers each request after it has had one of n places for d.
func pool(t *testing.T, n int, d time.Duration) string {
	places := make(chan struct{}, n)
	return work(t, func() {
		// Like a server with n threads: it does not notice that somebody has left while he waits.
		places <- struct{}{}
		time.Sleep(d)
		<-places
	})
}

// work answers each request once f returns.
func work(t *testing.T, f func()) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f()
		io.WriteString(w, "done")
	})}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Serve(l)
	}()
	t.Cleanup(func() { s.Close(); <-ended })
	return l.Addr().String()
}

// instant answers each request at once, as cheaply as can be.
func instant(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	answer := []byte("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone")
	var wg sync.WaitGroup
	var mu sync.Mutex
	var all []net.Conn
	wg.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			all = append(all, nc)
			mu.Unlock()
			wg.Go(func() {
				defer nc.Close()
				for r := bufio.NewReaderSize(nc, 2<<10); ; {
					line, err := r.ReadSlice('\n')
					if err != nil {
						return
					}
					if len(line) <= 2 {
						if _, err := nc.Write(answer); err != nil {
							return
						}
					}
				}
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for _, nc := range all {
			nc.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return l.Addr().String()
}

// serve runs weir with one processor before a backend.
func serve(t *testing.T, backend, annotations, rules string, flags ...string) (p *weirtest.Process, address string) {
	t.Helper()
	host, port, _ := net.SplitHostPort(backend)
	listen := weirtest.FreePort(t)
	manifest := fmt.Sprintf(`apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: default}
spec:
  gatewayClassName: weir
  listeners: [{name: http, port: %d, protocol: HTTP}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: app, namespace: default}
spec:
  parentRefs: [{name: edge}]
  rules:
%s  - backendRefs: [{name: app, port: 80}]
---
apiVersion: v1
kind: Service
metadata:
  name: app
  namespace: default
  annotations: {%s}
spec:
  ports: [{name: http, port: 80}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: app-1, namespace: default, labels: {kubernetes.io/service-name: app}}
addressType: IPv4
ports: [{name: http, port: %s}]
endpoints: [{addresses: ["%s"]}]
`, listen, rules, annotations, port, host)
	file := filepath.Join(t.TempDir(), "app.yaml")
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOMAXPROCS", "1")
	p = weirtest.Run(t, append(flags, "--address", "127.0.0.1", file)...)
	return p, net.JoinHostPort("127.0.0.1", strconv.Itoa(listen))
}

// metric reads one of the process's metrics.
func metric(t *testing.T, p *weirtest.Process, name string) float64 {
	t.Helper()
	resp, err := http.Get(p.Admin() + "metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	http.DefaultClient.CloseIdleConnections()
	for line := range strings.Lines(string(body)) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// overload measures the capacity, asks for three times as much, and then for little.
func overload(t *testing.T, p *weirtest.Process, address string, connections, most int) {
	var capacity float64 // the best of several: other things run on the machine
	for range 4 {
		_, c := closed(t, address, connections, duration/4)
		capacity = max(capacity, c)
	}
	if capacity == 0 {
		t.Fatal("no capacity")
	}
	before := open(address, capacity/3, most, duration/3)
	loaded := open(address, 3*capacity, most, duration)
	goodput := float64(loaded.good.Load()) / duration.Seconds()
	memory := metric(t, p, "process_resident_memory_bytes")
	time.Sleep(2 * time.Second) // the clients have left; a backend may still be busy with what they asked for
	after := open(address, capacity/3, most, duration/3)
	t.Logf("capacity %.0f/s; at three times that: %.0f/s good (%.0f %%), p50 %v p99 %v; %d refused, %d late, %d other, %d unsent; %.0f MiB resident",
		capacity, goodput, 100*goodput/capacity, loaded.quantile(0.5), loaded.quantile(0.99), loaded.refused.Load(), loaded.late.Load(), loaded.other.Load(),
		loaded.unsent.Load(), memory/(1<<20))
	t.Logf("at a third of the capacity: before p50 %v p99 %v, afterwards p50 %v p99 %v (%d good, %d refused, %d late)",
		before.quantile(0.5), before.quantile(0.99), after.quantile(0.5), after.quantile(0.99), after.good.Load(), after.refused.Load(), after.late.Load())
	if goodput < floor*capacity {
		t.Errorf("goodput is %.2f of the capacity, want %.2f", goodput/capacity, floor)
	}
	if n := after.good.Load(); float64(n) < 0.9*capacity/3*(duration/3).Seconds() {
		t.Errorf("after the overload only %d of %.0f requests are answered", n, capacity/3*(duration/3).Seconds())
	}
	if memory > 1<<30 {
		t.Errorf("%.0f MiB resident", memory/(1<<20))
	}
	if p.Stop(); strings.Contains(p.Stderr(), "panic") {
		t.Error("a panic")
	}
}

// answer is what became of a request.
type answer struct {
	status int
	err    error
}

// next is what comes next from a channel.
func next[T any](t *testing.T, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(time.Minute):
		t.Fatal("nothing comes")
	}
	return v
}

// TestWhatABackendCannotTakeIsRefusedAtOnce asks a backend for three times what it may have, again and again: so many
// reach it and are answered, and the others are refused while it works on these. What is asked afterwards is answered.
func TestWhatABackendCannotTakeIsRefusedAtOnce(t *testing.T) {
	const limit, asked = 100, 300
	arrived, release := make(chan struct{}, asked), make(chan struct{})
	backend := work(t, func() {
		arrived <- struct{}{}
		<-release
	})
	p, address := serve(t, backend, fmt.Sprintf("weirmesh.github.io/max-requests-per-endpoint: %q", strconv.Itoa(limit)), "", "--max-queue-delay", "0s")
	ask := func() answer {
		c, err := connect(address, time.Now().Add(time.Minute))
		if err != nil {
			return answer{err: err}
		}
		defer c.nc.Close()
		status, _, err := c.do(time.Now().Add(time.Minute))
		return answer{status, err}
	}
	for round := range 10 {
		answers := make(chan answer, asked)
		for range asked {
			go func() { answers <- ask() }()
		}
		// The backend has answered none of this round yet.
		for range asked - limit {
			if a := next(t, answers); a.status != http.StatusServiceUnavailable {
				t.Fatalf("round %d: %+v, want a refusal", round, a)
			}
		}
		for range limit {
			next(t, arrived)
		}
		for range limit {
			release <- struct{}{}
		}
		for range limit {
			if a := next(t, answers); a.status != http.StatusOK {
				t.Fatalf("round %d: %+v of what reached the backend", round, a)
			}
		}
		if n := len(arrived); n > 0 {
			t.Fatalf("round %d: %d more than %d reached the backend", round, n, limit)
		}
	}
	close(release)
	for n := range limit {
		if a := ask(); a.status != http.StatusOK {
			t.Fatalf("request %d after the overload: %+v", n, a)
		}
	}
	if memory := metric(t, p, "process_resident_memory_bytes"); memory > 1<<30 {
		t.Errorf("%.0f MiB resident", memory/(1<<20))
	}
	if p.Stop(); strings.Contains(p.Stderr(), "panic") {
		t.Error("a panic")
	}
}

// A backend that works on ten requests at a time, 10 ms each: what is beyond what it can answer in time is refused at once.
func TestGoodputWhenTheBackendIsTheBottleneck(t *testing.T) {
	measure(t)
	p, address := serve(t, pool(t, 10, 10*time.Millisecond), `weirmesh.github.io/max-requests-per-endpoint: "100"`, "")
	overload(t, p, address, 20, 4000)
	t.Run("without a limit, for comparison", func(t *testing.T) {
		_, address := serve(t, pool(t, 10, 10*time.Millisecond), "", "")
		_, capacity := closed(t, address, 20, duration)
		loaded := open(address, 3*capacity, 8000, duration)
		t.Logf("%.0f %% good of a capacity of %.0f/s", 100*float64(loaded.good.Load())/duration.Seconds()/capacity, capacity)
	})
}

// A backend that costs nothing, behind rules that cost a lot: the proxy's one processor is the bottleneck.
func TestGoodputWhenTheProxyIsTheBottleneck(t *testing.T) {
	measure(t)
	var rules strings.Builder
	for i := range 3 {
		fmt.Fprintf(&rules, "  - matches: [{headers: [{name: x-text, type: RegularExpression, value: \"(.*[a-z]+ ){3}%d+.*\"}]}]\n    backendRefs: [{name: app, port: 80}]\n", i)
	}
	p, address := serve(t, instant(t), "", rules.String(), "--max-queue-delay", "250ms")
	apart(t, p.Pid())
	overload(t, p, address, 64, 6000)
}
