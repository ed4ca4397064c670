// Package front runs HAProxy and nginx in front of weir and behind it, with header fields and with the PROXY protocol: what one says of the client the
// other understands.
package front

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirmesh/weir/test/weirtest"
)

func TestMain(m *testing.M) { weirtest.Main(m) }

// patience is how long anything may take before a test fails; it decides nothing else.
const patience = 30 * time.Second

// client is an address that is not trusted; the proxies under test are on 127.0.0.1, which is.
const client = "127.0.0.77"

// peer starts HAProxy or nginx with a configuration, and waits until a port of it can be connected to.
func peer(t *testing.T, tool, config string, port int) {
	t.Helper()
	binary, err := exec.LookPath(tool)
	if err != nil {
		binary, err = exec.LookPath("/usr/sbin/" + tool)
	}
	if err != nil {
		t.Skipf("%s is not installed: scripts/setup.sh %s", tool, tool)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, tool+".conf")
	args := []string{"-db", "-f", path}
	if tool == "nginx" {
		config = fmt.Sprintf("daemon off; worker_processes 1; pid %s/pid; error_log stderr; events { worker_connections 256; }\n%s", dir,
			strings.Replace(config, "http {", fmt.Sprintf("http { access_log off; client_body_temp_path %[1]s/b; proxy_temp_path %[1]s/p; fastcgi_temp_path %[1]s/f; "+
				"uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;", dir), 1))
		args = []string{"-p", dir, "-c", path}
	} else {
		config = "global\n  nbthread 1\ndefaults\n  mode http\n  timeout connect 5s\n  timeout client 20s\n  timeout server 20s\n" + config
	}
	if err := os.WriteFile(path, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s said:\n%s", tool, out.String())
		}
	})
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			c.Close()
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s does not listen: %v", tool, err)
		}
	}
}

// weir runs with a Gateway of two ports, one of which is of the PROXY protocol, and one of the PROXY protocol for TCP, all before one backend; behind is how that
// is announced to. log is the access log.
func weir(t *testing.T, backend int, behind string) (plain, announced, relayed int, log func() string) {
	t.Helper()
	plain, announced, relayed = weirtest.FreePort(t), weirtest.FreePort(t), weirtest.FreePort(t)
	dir := t.TempDir()
	text := fmt.Sprintf(`apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata:
  name: edge
  annotations:
    weirmesh.github.io/trusted-proxies: 127.0.0.1
    weirmesh.github.io/proxy-protocol: "%[2]d,%[3]d"
spec:
  gatewayClassName: weir
  listeners:
  - {name: plain, port: %[1]d, protocol: HTTP}
  - {name: announced, port: %[2]d, protocol: HTTP}
  - {name: relayed, port: %[3]d, protocol: TCP}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: r}
spec:
  parentRefs: [{name: edge}]
  rules:
  - backendRefs: [{name: app, port: 80}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: TCPRoute
metadata: {name: r}
spec:
  parentRefs: [{name: edge, sectionName: relayed}]
  rules:
  - backendRefs: [{name: app, port: 80}]
---
apiVersion: v1
kind: Service
metadata: {name: app, annotations: {weirmesh.github.io/proxy-protocol: %[4]s}}
spec: {ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: app-1, labels: {kubernetes.io/service-name: app}}
addressType: IPv4
endpoints: [{addresses: [127.0.0.1]}]
ports: [{port: %[5]d}]
`, plain, announced, relayed, behind, backend)
	if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "access.log")
	weirtest.Run(t, "--access-log", path, "--address", "127.0.0.1", dir)
	return plain, announced, relayed, func() string {
		b, _ := os.ReadFile(path)
		return string(b)
	}
}

// telling is a backend that tells what it is told of the client.
func telling(t *testing.T) int {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"X-Forwarded-For", "X-Real-Ip", "X-Forwarded-Proto", "Forwarded"} {
			fmt.Fprintf(w, "%s=%s\n", name, strings.Join(r.Header[name], "|"))
		}
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().(*net.TCPAddr).Port
}

// ask asks twice over one connection from an address, with forged fields.
func ask(t *testing.T, from string, port int) (answers []string, address string) {
	t.Helper()
	d := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	tr := &http.Transport{DialContext: d.DialContext}
	defer tr.CloseIdleConnections()
	c := &http.Client{Transport: tr, Timeout: patience}
	for range 2 {
		r, err := http.NewRequest("GET", fmt.Sprintf("http://127.0.0.1:%d/", port), nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Forwarded-For", "203.0.113.1, 127.0.0.1")
		r.Header.Set("X-Real-IP", "203.0.113.2")
		r.Header.Set("Forwarded", "for=203.0.113.3;proto=gopher")
		resp, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("status %d, %q, %v", resp.StatusCode, b, err)
		}
		answers = append(answers, string(b))
	}
	return answers, from
}

func TestProxiesInFront(t *testing.T) {
	for _, c := range []struct {
		name, tool, server string
		announced, relayed bool
		scheme             string
	}{
		{"HAProxy, X-Forwarded-For", "haproxy", "  option forwardfor\n  server w 127.0.0.1:%d\n", false, false, ""},
		{"HAProxy, PROXY version 1", "haproxy", "  server w 127.0.0.1:%d send-proxy\n", true, false, ""},
		{"HAProxy, PROXY version 2", "haproxy", "  server w 127.0.0.1:%d send-proxy-v2\n", true, false, ""},
		{"HAProxy, PROXY version 2 with a checksum", "haproxy", "  server w 127.0.0.1:%d send-proxy-v2 proxy-v2-options crc32c,unique-id,authority\n", true, false, ""},
		{"HAProxy, PROXY version 2, relayed", "haproxy", "  mode tcp\n  server w 127.0.0.1:%d send-proxy-v2\n", true, true, ""},
		{"nginx, X-Forwarded-For", "nginx", "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; proxy_pass http://127.0.0.1:%d;", false, false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			behind := "none"
			backend := telling(t)
			var relays int
			if c.relayed {
				// The bytes go through; who they are from is told by a header again, to an nginx.
				backend, behind = weirtest.FreePort(t), "v1"
				peer(t, "nginx", fmt.Sprintf("http { server { listen 127.0.0.1:%d proxy_protocol; return 200 \"$proxy_protocol_addr\"; } }", backend), backend)
			}
			plain, announced, relayed, log := weir(t, backend, behind)
			to := plain
			if c.announced {
				to = announced
			}
			if relays = relayed; c.relayed {
				to = relays
			}
			port := weirtest.FreePort(t)
			config := fmt.Sprintf("http { server { listen 127.0.0.1:%d; location / { %s } } }", port, fmt.Sprintf(c.server, to))
			if c.tool == "haproxy" {
				mode := ""
				if c.relayed {
					mode = "  mode tcp\n"
				}
				config = fmt.Sprintf("frontend f\n%s  bind 127.0.0.1:%d\n  default_backend b\nbackend b\n", mode, port) + fmt.Sprintf(c.server, to)
			}
			peer(t, c.tool, config, port)
			answers, _ := ask(t, client, port)
			for _, a := range answers {
				want := "X-Forwarded-For=" + client + ", 127.0.0.1\nX-Real-Ip=" + client + "\n"
				switch {
				case c.relayed:
					want = client
				case c.announced: // nothing is in front that speaks HTTP and is trusted
					want = "X-Forwarded-For=" + client + "\nX-Real-Ip=" + client + "\n"
				}
				if !strings.HasPrefix(a, want) || strings.Contains(a, "203.0.113") || strings.Contains(a, "gopher") {
					t.Errorf("the backend was told\n%s, want\n%s", a, want)
				}
			}
			for end := time.Now().Add(patience); !strings.Contains(log(), `"client":"`+client); time.Sleep(20 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("the access log does not tell of %s:\n%s", client, log())
				}
			}
		})
	}
}

func TestProxiesBehind(t *testing.T) {
	for _, c := range []struct{ name, tool, config string }{
		{"HAProxy", "haproxy", "frontend f\n  bind 127.0.0.1:%d accept-proxy\n  http-request return status 200 content-type text/plain lf-string \"%%[src] %%[req.hdr(x-real-ip)]\"\n"},
		{"nginx", "nginx", "http { server { listen 127.0.0.1:%d proxy_protocol; return 200 \"$proxy_protocol_addr $http_x_real_ip\"; } }"},
	} {
		for _, version := range []string{"v1", "v2"} {
			t.Run(c.name+", PROXY "+version, func(t *testing.T) {
				backend := weirtest.FreePort(t)
				peer(t, c.tool, fmt.Sprintf(c.config, backend), backend)
				plain, _, _, _ := weir(t, backend, version)
				for i := range 5 {
					from := fmt.Sprintf("127.0.0.%d", 77+i)
					answers, _ := ask(t, from, plain)
					for _, a := range answers {
						if a != from+" "+from {
							t.Errorf("%s: the backend was told %q", from, a)
						}
					}
				}
			})
		}
	}
}
