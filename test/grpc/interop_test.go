// Package grpc_test runs the interoperability cases of gRPC (grpc/grpc doc/interop-test-descriptions.md) through a real weir, with
// grpc-go's own client and server as they are released.
package grpc_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"text/template"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/weirmesh/weir/test/weirtest"
)

// interop is the release whose client and server are run; the checksum database vouches for it.
const interop = "v1.84.0"

// patience is how long anything may take before a test fails; it decides nothing else.
const patience = time.Minute

// cases are those of the client that need no cloud's credentials and no balancer of its own, with the calls that each makes.
var cases = []struct {
	name  string
	calls float64
	// givenUp: by the client, perhaps before anything was sent. early: the server may answer before it has the whole request. A copy of either
	// may be given up too.
	givenUp, early bool
	// outrun is what the client says when it was too slow to give its call up, and was answered instead. It fails then, so it is run again.
	outrun string
}{
	{name: "empty_unary", calls: 1},
	{name: "large_unary", calls: 1},
	{name: "client_streaming", calls: 1},
	{name: "server_streaming", calls: 1},
	{name: "ping_pong", calls: 1},
	{name: "empty_stream", calls: 1},
	{name: "timeout_on_sleeping_server", calls: 1, givenUp: true},
	// The client cancels, and then calls CloseAndRecv. grpc-go (clientStream.CloseSend) ends the request although it is cancelled, and only
	// notices that when it reads (recvBufferReader), or in another goroutine. If either comes late, the server has the end of the request and
	// answers, and what is in the buffer is read before the cancellation. It happens without a proxy too, on a busy machine.
	{name: "cancel_after_begin", calls: 1, givenUp: true, outrun: "CloseAndRecv() got error code 0, want 1\n"},
	{name: "cancel_after_first_response", calls: 1, givenUp: true},
	{name: "status_code_and_message", calls: 2},
	{name: "special_status_message", calls: 1},
	{name: "custom_metadata", calls: 2},
	{name: "unimplemented_method", calls: 1, early: true},
	{name: "unimplemented_service", calls: 1, early: true},
}

// rounds is how often each case runs: the split is even, so every case meets either leaf.
const rounds = 2

// most is how often a round runs whose client was outrun. On a busy machine it is about one in a hundred.
const most = 5

func TestMain(m *testing.M) { weirtest.Main(m) }

func TestInteroperabilityCasesPassWhileCallsAreSplitAndMirrored(t *testing.T) {
	tools := weirtest.Tool(t, "grpc interop "+interop, func(dir string) *exec.Cmd {
		install := exec.CommandContext(t.Context(), "go", "install",
			"google.golang.org/grpc/interop/client@"+interop, "google.golang.org/grpc/interop/server@"+interop)
		install.Env = append(os.Environ(), "GOBIN="+dir)
		return install
	})
	for _, listener := range []bool{false, true} {
		for _, endpoints := range []bool{false, true} {
			t.Run(fmt.Sprintf("listener %s, endpoints %s", transport(listener), transport(endpoints)), func(t *testing.T) {
				newSetup(t, tools, listener, endpoints).run()
			})
		}
	}
}

func transport(secure bool) string {
	if secure {
		return "TLS"
	}
	return "cleartext"
}

// setup is a weir between the client and three servers: leaves a and b of a split, and a mirror.
type setup struct {
	t             *testing.T
	Name          string // in the certificate that everybody uses
	Port          int
	TLS, Backends bool // TLS at the listener, and to the servers
	Servers       map[string]int

	tools, cert, key string
	weir             *weirtest.Process
}

func newSetup(t *testing.T, tools string, listener, endpoints bool) *setup {
	s := &setup{t: t, tools: tools, Name: "interop.test", Port: weirtest.FreePort(t), TLS: listener, Backends: endpoints, Servers: map[string]int{}}
	s.certify()
	for _, name := range []string{"a", "b", "mirror"} {
		s.serve(name)
	}
	path := filepath.Join(t.TempDir(), "interop.yaml")
	var manifests bytes.Buffer
	if err := template.Must(template.New("").Funcs(template.FuncMap{"indent": indent}).Parse(configuration)).Execute(&manifests, s); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, manifests.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	// The largest request is a little over the memory that a copy may take by default, and may come faster than the mirror takes it.
	s.weir = weirtest.Run(t, "--address", "127.0.0.1", "--mirror-max-copy-bytes", "1MiB", path)
	return s
}

const configuration = `apiVersion: v1
kind: Secret
metadata: {name: certificate}
type: kubernetes.io/tls
stringData:
  tls.crt: |
{{indent .Certificate}}
  tls.key: |
{{indent .Key}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge}
spec:
  gatewayClassName: weir
  listeners:
  - name: grpc
    port: {{.Port}}
{{- if .TLS}}
    protocol: HTTPS
    tls: {certificateRefs: [{name: certificate}]}
{{- else}}
    protocol: HTTP
{{- end}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GRPCRoute
metadata: {name: interop}
spec:
  parentRefs: [{name: edge}]
  rules:
  - name: all
    filters:
    - type: RequestMirror
      requestMirror: {backendRef: {name: mirror, port: 80}, percent: 100}
    backendRefs:
    - {name: a, port: 80, weight: 1}
    - {name: b, port: 80, weight: 1}
{{- range $name, $port := .Servers}}
---
apiVersion: v1
kind: Service
metadata: {name: {{$name}}}
spec:
  ports: [{name: grpc, port: 80, targetPort: {{$port}}, appProtocol: kubernetes.io/h2c}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: {{$name}}-local, labels: {kubernetes.io/service-name: {{$name}}}}
addressType: IPv4
ports: [{name: grpc, port: {{$port}}}]
endpoints: [{addresses: [127.0.0.1]}]
{{- end}}
{{- if .Backends}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: ca}
data:
  ca.crt: |
{{indent .Certificate}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata: {name: interop}
spec:
  targetRefs:
{{- range $name, $port := .Servers}}
  - {group: "", kind: Service, name: {{$name}}}
{{- end}}
  validation:
    hostname: {{.Name}}
    caCertificateRefs: [{group: "", kind: ConfigMap, name: ca}]
{{- end}}
`

func indent(text string) string {
	return "    " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    ")
}

func (s *setup) Certificate() (string, error) { return read(s.cert) }
func (s *setup) Key() (string, error)         { return read(s.key) }

func read(path string) (string, error) {
	b, err := os.ReadFile(path)
	return string(b), err
}

// certify writes a certificate that is its own authority.
func (s *setup) certify() {
	s.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	template := x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{s.Name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	cert, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	if err != nil {
		s.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		s.t.Fatal(err)
	}
	dir := s.t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			s.t.Fatal(err)
		}
		return path
	}
	s.cert, s.key = write("tls.crt", "CERTIFICATE", cert), write("tls.key", "PRIVATE KEY", private)
}

// serve runs an interop server until the test ends.
func (s *setup) serve(name string) {
	s.t.Helper()
	port := weirtest.FreePort(s.t)
	s.Servers[name] = port
	server := exec.Command(filepath.Join(s.tools, "server"), "--port", strconv.Itoa(port),
		"--use_tls="+strconv.FormatBool(s.Backends), "--tls_cert_file", s.cert, "--tls_key_file", s.key)
	var out bytes.Buffer
	server.Stdout, server.Stderr = &out, &out
	if err := server.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
		if s.t.Failed() {
			s.t.Logf("server %s:\n%s", name, out.String())
		}
	})
	s.until("server "+name+" accepts", func() bool {
		c, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

func (s *setup) until(what string, holds func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

func (s *setup) run() {
	var calls, unsent, partial float64
	for _, c := range cases {
		s.t.Run(c.name, func(t *testing.T) {
			for range rounds {
				out, err := s.call(t, c.name)
				for n := 1; err != nil && c.outrun != "" && strings.HasSuffix(out, c.outrun) && n < most; n++ {
					t.Logf("outrun, so it runs again: %s", out)
					calls += c.calls // and this one was answered
					out, err = s.call(t, c.name)
				}
				if err != nil {
					t.Errorf("%v\n%s", err, out)
				}
			}
		})
		calls += rounds * c.calls
		if c.givenUp {
			unsent += rounds * c.calls
		}
		if c.givenUp || c.early {
			partial += rounds * c.calls
		}
	}
	s.account(calls, unsent, partial)
}

// call runs a case of the client once, and returns what it said.
func (s *setup) call(t *testing.T, name string) (string, error) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	client := exec.CommandContext(ctx, filepath.Join(s.tools, "client"), "--test_case", name,
		"--server_host", "127.0.0.1", "--server_port", strconv.Itoa(s.Port),
		"--use_tls="+strconv.FormatBool(s.TLS), "--use_test_ca", "--ca_file", s.cert, "--server_host_override", s.Name)
	out, err := client.CombinedOutput()
	return string(out), err
}

// account checks where the calls went, by what weir counted: half to either leaf, and a copy of each to the mirror. Of the calls unsent ones may
// never have left the client, and partial ones may have no whole copy.
func (s *setup) account(calls, unsent, partial float64) {
	t := s.t
	var m metrics
	var served float64
	s.until("every exchange and every copy has ended", func() bool {
		m = s.metrics()
		served = m.sum("weir_requests_total")
		// A call that was given up last may still be under way: it is considered, but not served.
		return served >= calls-unsent && m.sum("weir_mirror_requests_total") >= served && m.sum("weir_mirror_considered_total") <= served
	})
	a, b := m.sum("weir_requests_total", "backend", "default/a:80"), m.sum("weir_requests_total", "backend", "default/b:80")
	if served > calls || a+b != served || math.Abs(a-b) > 1 {
		t.Errorf("%v calls to a and %v to b, want halves of %v to %v", a, b, calls-unsent, calls)
	}
	for _, name := range []string{"weir_mirror_considered_total", "weir_mirror_selected_total", "weir_mirror_requests_total"} {
		if got := m.sum(name, "mirror", "default/mirror:80"); got != served {
			t.Errorf("%s = %v, want %v", name, got, served)
		}
	}
	sent, aborted := m.sum("weir_mirror_requests_total", "outcome", "sent"), m.sum("weir_mirror_requests_total", "outcome", "dropped_aborted")
	if sent < calls-partial || sent+aborted != served {
		t.Errorf("the mirror answered %v copies, %v were given up with their calls; want together %v, at least %v answered", sent, aborted, served, calls-partial)
	}
	const failures, route = "weir_request_failures_total", "default/interop"
	// A server knows the deadline of a call (grpc-timeout), too, and may reset the call before its client does.
	reset := m.sum(failures, "route", route, "reason", "backend_reset")
	if failed := m.sum(failures, "route", route) - m.sum(failures, "route", route, "reason", "client_closed") - reset; failed != 0 || reset > unsent {
		t.Errorf("%v exchanges failed that nobody gave up, and %v were reset by servers where %v had a deadline", failed, reset, unsent)
	}
	if t.Failed() {
		t.Logf("metrics: %v", model.Vector(m))
	}
}

// metrics are those of weir's admin endpoint.
type metrics model.Vector

func (s *setup) metrics() metrics {
	s.t.Helper()
	resp, err := http.Get(s.weir.Admin() + "metrics")
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	defer http.DefaultClient.CloseIdleConnections()
	decoder := expfmt.SampleDecoder{Dec: expfmt.NewDecoder(resp.Body, expfmt.ResponseFormat(resp.Header)), Opts: &expfmt.DecodeOptions{}}
	var all model.Vector
	for {
		var v model.Vector
		switch err := decoder.Decode(&v); err {
		case nil:
			all = append(all, v...)
		case io.EOF:
			return metrics(all)
		default:
			s.t.Fatal(err)
		}
	}
}

// sum adds up the samples of a metric that have the labels, given as names and values.
func (m metrics) sum(name string, labels ...string) float64 {
	total := 0.0
next:
	for _, s := range m {
		if string(s.Metric[model.MetricNameLabel]) != name {
			continue
		}
		for i := 0; i < len(labels); i += 2 {
			if string(s.Metric[model.LabelName(labels[i])]) != labels[i+1] {
				continue next
			}
		}
		total += float64(s.Value)
	}
	return total
}
