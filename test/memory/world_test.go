//go:build linux

// Package memory_test shows that what others have Weir keep for them has a bound: a process of its own with little memory (GOMEMLIMIT=64MiB), one
// attack after the other, and clients who have no part in it and are served all the while.
//
// What "go test" runs is bounded, with -short for a shorter time; "make test-memory" (MEMORY=full) runs it at full size.
package memory_test

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmesh/weir/test/weirtest"
)

// TestMain sets the limit for the processes that are started; this one has begun without.
func TestMain(m *testing.M) {
	if err := os.Setenv("GOMEMLIMIT", strconv.Itoa(limit)); err != nil {
		panic(err)
	}
	weirtest.Main(m)
}

var full = os.Getenv("MEMORY") == "full"

// sized is one of two sizes.
func sized(bounded, whole int) int {
	if full {
		return whole
	}
	return bounded
}

const (
	// limit is the process's GOMEMLIMIT.
	limit = 64 << 20
	// resident is what of the process may be in memory, beyond its files: the limit is one for the collector, which allocates before it collects.
	resident = limit + limit/4
	// patience is how long anything may take before a test fails; it decides nothing else.
	patience = time.Minute
)

// route is a host name that leads to one backend.
type route struct {
	name, address string
	rule          string // more of the rule, in YAML
	protocol      string // appProtocol
}

// world is a weir that serves routes, in cleartext and over TLS.
type world struct {
	*weirtest.Process
	t           *testing.T
	addr, tls   string
	peak        atomic.Int64 // most bytes of the process that were resident
	stopWatch   chan struct{}
	watchEnded  chan struct{}
	alreadyDone sync.Once
}

// serve runs weir with a route for each name; the host is the name with ".example".
func serve(t *testing.T, routes []route, args ...string) *world {
	t.Helper()
	w := &world{t: t, addr: fmt.Sprintf("127.0.0.1:%d", weirtest.FreePort(t)), tls: fmt.Sprintf("127.0.0.1:%d", weirtest.FreePort(t))}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "all.yaml"), []byte(w.manifests(routes)), 0o600); err != nil {
		t.Fatal(err)
	}
	// A machine that has much else to do must not look like an overload.
	w.Process = weirtest.Run(t, append(append([]string{"--max-queue-delay", "0"}, args...), dir)...)
	w.stopWatch, w.watchEnded = make(chan struct{}), make(chan struct{})
	go w.watch()
	t.Cleanup(w.endWatch)
	return w
}

func (w *world) endWatch() {
	w.alreadyDone.Do(func() { close(w.stopWatch) })
	<-w.watchEnded
}

// watch notes how much of the process is resident, until stopWatch.
func (w *world) watch() {
	defer close(w.watchEnded)
	for {
		select {
		case <-w.stopWatch:
			return
		case <-time.After(10 * time.Millisecond):
			if n := w.resident(); n > w.peak.Load() {
				w.peak.Store(n)
			}
		}
	}
}

// resident is how many bytes of the process are in memory, without those of files.
func (w *world) resident() int64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.Pid()))
	if err != nil {
		return 0 // it has ended
	}
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "RssAnon:" {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			return n << 10
		}
	}
	return 0
}

// manifests are one Gateway, and for each route its objects.
func (w *world) manifests(routes []route) string {
	var b strings.Builder
	chain, key := certificate(w.t)
	_, port, _ := net.SplitHostPort(w.addr)
	_, tlsPort, _ := net.SplitHostPort(w.tls)
	fmt.Fprintf(&b, `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge}
spec:
  gatewayClassName: weir
  addresses: [{type: IPAddress, value: 127.0.0.1}]
  listeners:
  - {name: http, port: %s, protocol: HTTP}
  - {name: https, port: %s, protocol: HTTPS, tls: {certificateRefs: [{name: edge}]}}
---
apiVersion: v1
kind: Secret
metadata: {name: edge}
type: kubernetes.io/tls
data: {tls.crt: %s, tls.key: %s}
`, port, tlsPort, chain, key)
	for _, r := range routes {
		_, port, err := net.SplitHostPort(r.address)
		if err != nil {
			w.t.Fatal(err)
		}
		protocol := ""
		if r.protocol != "" {
			protocol = ", appProtocol: " + r.protocol
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
spec: {ports: [{name: http, port: 80, targetPort: %[2]s%[4]s}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{name: http, port: %[2]s}]
endpoints: [{addresses: [127.0.0.1]}]
`, r.name, port, r.rule, protocol)
	}
	return b.String()
}

// certificate makes one for *.example, in base64.
func certificate(t *testing.T) (chain, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "edge"}, DNSNames: []string{"*.example"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	encode := func(kind string, b []byte) string {
		return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}))
	}
	return encode("CERTIFICATE", der), encode("PRIVATE KEY", private)
}

// metric is the sum of the samples of a name whose labels hold all the texts.
func (w *world) metric(name string, labels ...string) (sum float64) {
	w.t.Helper()
	resp, err := http.Get(w.Admin() + "metrics")
	if err != nil {
		w.t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		w.t.Fatalf("metrics: status %d, %v", resp.StatusCode, err)
	}
	for line := range strings.Lines(string(b)) {
		rest, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), name)
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

// until waits for a condition.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("still not: %s", what)
		}
	}
}

// healthy are clients who have no part in the attack: some keep a connection, one opens one for each request.
type healthy struct {
	w    *world
	stop chan struct{}
	wg   sync.WaitGroup

	mu              sync.Mutex
	kept, fresh     []time.Duration // of answers 200
	failed, refused []string        // of kept connections; of new ones
}

// visit has clients ask for "/" of a route until end.
func (w *world) visit(name string) *healthy {
	h := &healthy{w: w, stop: make(chan struct{})}
	request := "GET / HTTP/1.1\r\nHost: " + name + ".example\r\nCookie: " + strings.Repeat("c", 300) + "\r\n\r\n"
	ask := func(c net.Conn, r *bufio.Reader) (time.Duration, error) {
		start := time.Now()
		c.SetDeadline(start.Add(patience))
		if _, err := io.WriteString(c, request); err != nil {
			return 0, err
		}
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			return 0, err
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != 200 {
			return 0, fmt.Errorf("status %d, %q, %v", resp.StatusCode, b, err)
		}
		return time.Since(start), nil
	}
	pause := func() bool {
		select {
		case <-h.stop:
			return false
		case <-time.After(5 * time.Millisecond):
			return true
		}
	}
	for range 4 {
		c, err := net.Dial("tcp", w.addr)
		if err != nil {
			w.t.Fatal(err)
		}
		r := bufio.NewReader(c)
		if _, err := ask(c, r); err != nil {
			w.t.Fatal(err)
		}
		h.wg.Go(func() {
			defer c.Close()
			for pause() {
				d, err := ask(c, r)
				h.mu.Lock()
				if h.kept = append(h.kept, d); err != nil {
					h.failed = append(h.failed, err.Error())
				}
				h.mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	h.wg.Go(func() {
		for pause() {
			start := time.Now()
			c, err := net.DialTimeout("tcp", w.addr, patience)
			if err == nil {
				_, err = ask(c, bufio.NewReader(c))
				c.Close()
			}
			h.mu.Lock()
			if err != nil {
				h.refused = append(h.refused, err.Error())
			} else {
				h.fresh = append(h.fresh, time.Since(start))
			}
			h.mu.Unlock()
		}
	})
	return h
}

// end wants all requests over kept connections to have been answered, and new clients to have been let in.
func (h *healthy) end() {
	h.w.t.Helper()
	close(h.stop)
	h.wg.Wait()
	if len(h.failed) > 0 {
		h.w.t.Errorf("clients with a connection: %d of %d requests failed, as with %s", len(h.failed), len(h.kept), h.failed[0])
	}
	if len(h.kept) == 0 || len(h.fresh) == 0 {
		h.w.t.Errorf("%d answers over kept connections, %d over new ones", len(h.kept), len(h.fresh))
	}
	h.w.t.Logf("kept connections: %d answers, p99 %v; new connections: %d answers, p99 %v, %d refused", len(h.kept), p99(h.kept), len(h.fresh), p99(h.fresh),
		len(h.refused))
}

func p99(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return d[len(d)*99/100].Round(10 * time.Microsecond)
}

// bounded wants the process never to have been larger than it may be.
func (w *world) bounded() {
	w.t.Helper()
	w.endWatch()
	peak := w.peak.Load()
	w.t.Logf("resident at most: %.1f MiB", float64(peak)/(1<<20))
	if peak > resident && !raceEnabled {
		w.t.Errorf("%d bytes were resident, want at most %d", peak, resident)
	}
}
