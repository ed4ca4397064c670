package tracing

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/provider/yamlprovider"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/service/telemetry/otelconftelemetry"
)

// patience is how long anything may take before a test fails; it decides nothing else.
const patience = time.Minute

// kept is an exporter of the Collector that keeps what arrives.
type kept struct {
	component.StartFunc
	component.ShutdownFunc
	mu       sync.Mutex
	resource map[string]string
	spans    []ptrace.Span
}

func (k *kept) Capabilities() consumer.Capabilities { return consumer.Capabilities{} }

func (k *kept) ConsumeTraces(_ context.Context, all ptrace.Traces) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	copied := ptrace.NewTraces()
	all.CopyTo(copied)
	for _, r := range copied.ResourceSpans().All() {
		for key, value := range r.Resource().Attributes().All() {
			k.resource[key] = value.AsString()
		}
		for _, s := range r.ScopeSpans().All() {
			for _, span := range s.Spans().All() {
				k.spans = append(k.spans, span)
			}
		}
	}
	return nil
}

// collect runs a Collector that receives OTLP over HTTP until the returned function is called.
func collect(t *testing.T, address string) (*kept, func()) {
	t.Helper()
	k := &kept{resource: map[string]string{}}
	memory := exporter.NewFactory(component.MustNewType("memory"), func() component.Config { return &struct{}{} },
		exporter.WithTraces(func(context.Context, exporter.Settings, component.Config) (exporter.Traces, error) { return k, nil }, component.StabilityLevelStable))
	config := fmt.Sprintf(`yaml:
receivers: {otlp: {protocols: {http: {endpoint: %q}}}}
exporters: {memory: {}}
service:
  telemetry: {metrics: {level: none}}
  pipelines: {traces: {receivers: [otlp], exporters: [memory]}}
`, address)
	c, err := otelcol.NewCollector(otelcol.CollectorSettings{
		BuildInfo:               component.NewDefaultBuildInfo(),
		DisableGracefulShutdown: true,
		Factories: func() (f otelcol.Factories, err error) {
			if f.Receivers, err = otelcol.MakeFactoryMap(otlpreceiver.NewFactory()); err != nil {
				return f, err
			}
			f.Exporters, err = otelcol.MakeFactoryMap(memory)
			f.Telemetry = otelconftelemetry.NewFactory()
			return f, err
		},
		ConfigProviderSettings: otelcol.ConfigProviderSettings{ResolverSettings: confmap.ResolverSettings{
			URIs: []string{config}, ProviderFactories: []confmap.ProviderFactory{yamlprovider.NewFactory()},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Run(context.Background()) }()
	wait(t, "the Collector", func() bool { return c.GetState() == otelcol.StateRunning || len(ended) > 0 })
	stop := sync.OnceFunc(func() {
		c.Shutdown()
		if err := <-ended; err != nil {
			t.Errorf("the Collector: %v", err)
		}
	})
	t.Cleanup(stop)
	return k, stop
}

func wait(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s is not ready", what)
		}
	}
}

func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func port(address string) string {
	_, p, _ := net.SplitHostPort(address)
	return p
}

const manifest = `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge}
spec:
  gatewayClassName: weir
  listeners: [{name: http, port: LISTEN, protocol: HTTP}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: shop}
spec:
  parentRefs: [{name: edge}]
  rules:
  - name: all
    retry: {attempts: 2, codes: [503]}
    filters: [{type: RequestMirror, requestMirror: {backendRef: {name: copies, port: 80}}}]
    backendRefs: [{name: shop, port: 80}]
`

const service = `---
apiVersion: v1
kind: Service
metadata: {name: NAME}
spec: {ports: [{name: http, port: 80, targetPort: PORT}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: NAME-1, labels: {kubernetes.io/service-name: NAME}}
addressType: IPv4
ports: [{name: http, port: PORT}]
endpoints: [{addresses: [127.0.0.1]}]
`

// build returns the path of weir.
func build(t *testing.T) string {
	t.Helper()
	weir := filepath.Join(t.TempDir(), "weir")
	cmd := exec.Command("go", "build", "-trimpath", "-tags", "grpcnotrace", "-o", weir, "./cmd/weir")
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return weir
}

// TestCollectorGetsTheTraceOfEachRequest sends requests that each need a second attempt, and compares what backends were
// told with what the Collector got.
func TestCollectorGetsTheTraceOfEachRequest(t *testing.T) {
	folder, weir := t.TempDir(), build(t)
	var mu sync.Mutex
	told := map[string]string{} // the parent that a backend was told: what it answered
	copied := map[string]bool{}
	var n atomic.Int64
	shop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := 200
		if n.Add(1)%2 == 1 {
			status = 503
		}
		mu.Lock()
		told[r.Header.Get("Traceparent")] = fmt.Sprint(status)
		mu.Unlock()
		w.WriteHeader(status)
	}))
	defer shop.Close()
	copies := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		copied[r.Header.Get("Traceparent")] = true
	}))
	defer copies.Close()
	listen, admin, collector := free(t), free(t), free(t)
	got, stop := collect(t, collector)
	text := strings.ReplaceAll(manifest, "LISTEN", port(listen))
	for name, s := range map[string]*httptest.Server{"shop": shop, "copies": copies} {
		text += strings.NewReplacer("NAME", name, "PORT", port(s.Listener.Addr().String())).Replace(service)
	}
	file := filepath.Join(folder, "routes.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	cmd := exec.Command(weir, "run", "--admin", admin, "--otlp-endpoint", "http://"+collector, "--trace-share", "1/2", file)
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end := sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("weir: %v", err)
		}
		if t.Failed() {
			t.Log(log.String())
		}
	})
	defer end()
	get := func(url string, parent string) int {
		r, _ := http.NewRequest("GET", url, nil)
		if parent != "" {
			r.Header.Set("Traceparent", parent)
		}
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0
		}
		defer a.Body.Close()
		_, _ = io.Copy(io.Discard, a.Body)
		return a.StatusCode
	}
	wait(t, "weir", func() bool { return get("http://"+admin+"/readyz", "") == 200 })
	const asked, shared = 5, 20
	parents := map[string]bool{}
	for i := range asked {
		parent := fmt.Sprintf("00-%032x-%016x-01", 0xa000+i, 0xb000+i)
		parents[fmt.Sprintf("%016x", 0xb000+i)] = true
		if status := get("http://"+listen+"/a?secret", parent); status != 200 {
			t.Fatalf("status %d", status)
		}
	}
	for range shared {
		if status := get("http://"+listen+"/a?secret", ""); status != 200 {
			t.Fatalf("status %d", status)
		}
	}
	end()
	stop()

	if got.resource["service.name"] != "weir" || got.resource["host.name"] == "" {
		t.Errorf("the resource is %v", got.resource)
	}
	servers := map[string]ptrace.Span{}
	begun := 0
	attempts := map[string]int{}
	for _, s := range got.spans {
		if s.Kind() == ptrace.SpanKindServer {
			servers[s.SpanID().String()] = s
			if s.ParentSpanID().IsEmpty() {
				begun++
			} else if !parents[s.ParentSpanID().String()] {
				t.Errorf("no client is %s", s.ParentSpanID())
			}
		}
	}
	value := func(s ptrace.Span, key string) string {
		v, ok := s.Attributes().Get(key)
		if !ok {
			return ""
		}
		return v.AsString()
	}
	for _, s := range got.spans {
		if strings.Contains(fmt.Sprint(s.Attributes().AsRaw()), "secret") {
			t.Errorf("there is a secret in %v", s.Attributes().AsRaw())
		}
		if s.Kind() == ptrace.SpanKindServer {
			continue
		}
		server, ok := servers[s.ParentSpanID().String()]
		if !ok || server.TraceID() != s.TraceID() {
			t.Errorf("the attempt %s has no request", s.SpanID())
			continue
		}
		attempts[server.SpanID().String()]++
		name := fmt.Sprintf("00-%s-%s-01", s.TraceID(), s.SpanID())
		if answer := told[name]; answer == "" || answer != value(s, "http.response.status_code") {
			t.Errorf("the attempt %s was answered %q, its span says %q", name, answer, value(s, "http.response.status_code"))
		}
	}
	if len(servers) != asked+shared/2 || begun != shared/2 {
		t.Errorf("%d requests are traced, %d of them without a client's trace; want %d and %d", len(servers), begun, asked+shared/2, shared/2)
	}
	for id, s := range servers {
		for key, want := range map[string]string{
			"weir.route": "default/shop", "weir.rule": "all", "weir.backend": "default/shop:80", "weir.mirrors": `["default/copies:80"]`, "weir.attempts": "2", "url.path": "/a",
			"http.response.status_code": "200", "weir.endpoint": shop.Listener.Addr().String(),
		} {
			if value(s, key) != want {
				t.Errorf("%s is %q, want %q", key, value(s, key), want)
			}
		}
		if attempts[id] != 2 || !copied[fmt.Sprintf("00-%s-%s-01", s.TraceID(), id)] {
			t.Errorf("the request %s has %d attempts, and a copy: %v", id, attempts[id], copied)
		}
	}
}

// TestSpansThatACollectorRejectsAreCounted answers in the form that OpenTelemetry's own libraries write.
func TestSpansThatACollectorRejectsAreCounted(t *testing.T) {
	weir := build(t)
	c := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		answer := ptraceotlp.NewExportResponse()
		answer.PartialSuccess().SetRejectedSpans(1)
		answer.PartialSuccess().SetErrorMessage("older than a day")
		body, err := answer.MarshalProto()
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
		_, _ = w.Write(body)
	}))
	defer c.Close()
	listen, admin := free(t), free(t)
	file := filepath.Join(t.TempDir(), "routes.yaml")
	text := strings.ReplaceAll(manifest, "LISTEN", port(listen)) + strings.NewReplacer("NAME", "shop", "PORT", port(free(t))).Replace(service)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(weir, "run", "--admin", admin, "--otlp-endpoint", c.URL, "--trace-share", "1", file)
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ask := func(url string) (int, string) {
		a, err := http.Get(url)
		if err != nil {
			return 0, ""
		}
		defer a.Body.Close()
		page, _ := io.ReadAll(a.Body)
		return a.StatusCode, string(page)
	}
	wait(t, "weir", func() bool { status, _ := ask("http://" + admin + "/readyz"); return status == 200 })
	if status, _ := ask("http://" + listen + "/"); status != 502 {
		t.Errorf("status %d, want 502", status)
	}
	wait(t, "the count", func() bool {
		_, page := ask("http://" + admin + "/metrics")
		return strings.Contains(page, `weir_trace_spans_total{result="rejected"} 1`)
	})
	_ = cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Errorf("weir: %v", err)
	}
	if !strings.Contains(log.String(), "older than a day") {
		t.Errorf("the log is %q", log.String())
	}
}
