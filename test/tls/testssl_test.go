// Package tls_test holds what a client sees of Weir's TLS: testssl.sh against "weir run", and certificates that change in its files.
package tls_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/weirmesh/weir/test/weirtest"
)

func TestMain(m *testing.M) { weirtest.Main(m) }

const name = "shop.example"

var testssl = flag.Bool("testssl", false, "run testssl.sh, which takes some six minutes, most of them spent waiting")

// harmless are the severities that a server may have.
var harmless = []string{"OK", "INFO", "LOW", "DEBUG"}

// finding is one of testssl.sh's.
type finding struct {
	ID       string `json:"id"`
	Severity string `json:"severity"`
	Finding  string `json:"finding"`
}

func TestTestsslFindsNothingAboveLow(t *testing.T) {
	if !*testssl {
		t.Skip("takes six minutes: make test-tls runs it; TestOnlyCurrentTLSIsSpoken and its neighbours in internal/proxy hold the same facts")
	}
	tool, err := exec.LookPath("testssl")
	if err != nil {
		t.Fatal("testssl.sh is missing: make test-tls installs it")
	}
	dir := t.TempDir()
	ca := newAuthority(t)
	roots := filepath.Join(dir, "ca.pem")
	write(t, roots, encode("CERTIFICATE", ca.cert.Raw))
	port := weirtest.FreePort(t)
	site := startSite(t, func(w http.ResponseWriter, _ *http.Request) {
		// testssl.sh looks at the site behind the proxy, too.
		w.Header().Set("Strict-Transport-Security", "max-age=31536000")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		w.Header().Set("X-Content-Type-Options", "nosniff")
	})
	const life = 90 * 24 * time.Hour
	write(t, filepath.Join(dir, "weir", "gateway.yaml"), gateway(port, site, "ecdsa", "rsa"))
	write(t, filepath.Join(dir, "weir", "certs.yaml"), ca.secret(t, "ecdsa", newECDSA(t), life)+ca.secret(t, "rsa", newRSA(t), life))
	p := weirtest.Run(t, filepath.Join(dir, "weir"))
	defer p.Stop()

	out := filepath.Join(dir, "out.json")
	cmd := exec.Command(tool, "--quiet", "--color", "0", "--warnings", "batch", "--nodns", "none", "--ip", "127.0.0.1", "--add-ca", roots,
		"--connect-timeout", "10", "--openssl-timeout", "10", "--jsonfile", out, "--full", fmt.Sprintf("%s:%d", name, port))
	text, err := cmd.CombinedOutput() // whose exit code counts findings, too
	data, e := os.ReadFile(out)
	if e != nil {
		t.Fatalf("%v, %v\n%s", err, e, text)
	}
	var findings []finding
	if err := json.Unmarshal(data, &findings); err != nil {
		t.Fatalf("%v in\n%s", err, data)
	}
	seen := map[string]bool{}
	for _, f := range findings {
		seen[f.ID] = true
		switch {
		case f.ID == "engine_problem": // of the OpenSSL that testssl.sh uses itself
		case !slices.Contains(harmless, f.Severity):
			t.Errorf("%s: %s: %s", f.Severity, f.ID, f.Finding)
		case f.Severity == "LOW":
			t.Logf("low: %s: %s", f.ID, f.Finding)
		}
	}
	// It must have got to the end, with both certificates.
	for _, id := range []string{"TLS1", "TLS1_2", "TLS1_3", "cert_trust <cert#1>", "cert_trust <cert#2>", "secure_client_renego", "CRIME_TLS", "RC4", "ROBOT"} {
		if !seen[id] {
			t.Errorf("testssl.sh did not report %s\n%s", id, text)
		}
	}
	t.Logf("%d findings", len(findings))
}
