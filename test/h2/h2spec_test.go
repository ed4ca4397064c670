// Package h2_test runs h2spec, the conformance suite of HTTP/2 and HPACK, against a real weir.
package h2_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirmesh/weir/test/weirtest"
)

// runs is the environment's variable for how often the suite runs on each transport; once without.
const runs = "H2SPEC_RUNS"

func TestMain(m *testing.M) { weirtest.Main(m) }

func TestConformanceSuitePasses(t *testing.T) {
	rounds := 1
	if n, err := strconv.Atoi(os.Getenv(runs)); err == nil && n > 0 {
		rounds = n
	}
	module, err := os.ReadFile("h2spec.mod")
	if err != nil {
		t.Fatal(err)
	}
	suite := filepath.Join(weirtest.Tool(t, string(module), func(dir string) *exec.Cmd {
		return exec.CommandContext(t.Context(), "go", "build", "-modfile=h2spec.mod", "-o", dir+"/", "github.com/summerwind/h2spec/cmd/h2spec")
	}), "h2spec")
	for _, secure := range []bool{false, true} {
		name, flags := "cleartext", []string(nil)
		if secure {
			name, flags = "TLS", []string{"-t", "-k"}
		}
		t.Run(name, func(t *testing.T) {
			port := serve(t, secure)
			for i := range rounds {
				args := append([]string{"-S", "-o", "10", "-h", "127.0.0.1", "-p", strconv.Itoa(port)}, flags...)
				out, err := exec.CommandContext(t.Context(), suite, args...).CombinedOutput()
				if err != nil || !strings.Contains(string(out), "146 tests, 146 passed, 0 skipped, 0 failed") {
					t.Errorf("run %d: %v\n%s", i+1, err, failures(string(out)))
				}
			}
		})
	}
}

// failures is the end of the suite's report, which repeats what failed.
func failures(report string) string {
	if i := strings.Index(report, "\nFailures:"); i >= 0 {
		return report[i:]
	}
	return report[max(0, len(report)-1000):]
}

// serve runs weir before a backend whose answers have a body, and returns its port.
func serve(t *testing.T, secure bool) int {
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		io.WriteString(w, "sixteen bytes...")
	}))
	t.Cleanup(backend.Close)
	port, behind := weirtest.FreePort(t), backend.Listener.Addr().(*net.TCPAddr).Port
	text := fmt.Sprintf(manifests, port, behind, behind)
	if secure {
		cert, key := certificate(t)
		text = fmt.Sprintf(secret, indent(cert), indent(key)) + strings.Replace(text, "protocol: HTTP", "protocol: HTTPS, tls: {certificateRefs: [{name: own}]}", 1)
	}
	path := filepath.Join(t.TempDir(), "h2.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	weirtest.Run(t, "--address", "127.0.0.1", path)
	return port
}

const manifests = `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge}
spec:
  gatewayClassName: weir
  listeners:
  - {name: web, port: %d, protocol: HTTP}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: all}
spec:
  parentRefs: [{name: edge}]
  rules:
  - backendRefs: [{name: app, port: 80}]
---
apiVersion: v1
kind: Service
metadata: {name: app}
spec:
  ports: [{name: http, port: 80, targetPort: %d}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: app-local, labels: {kubernetes.io/service-name: app}}
addressType: IPv4
ports: [{name: http, port: %d}]
endpoints: [{addresses: [127.0.0.1]}]
`

const secret = `apiVersion: v1
kind: Secret
metadata: {name: own}
type: kubernetes.io/tls
stringData:
  tls.crt: |
%s
  tls.key: |
%s
---
`

func indent(text string) string {
	return "    " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    ")
}

// certificate makes a certificate and its key, in PEM.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}))
}
