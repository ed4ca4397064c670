//go:build linux

package faults_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/weirmesh/weir/test/weirtest"
)

const toxiproxyVersion = "v2.12.0"

// toxiproxy is a running server of github.com/Shopify/toxiproxy.
type toxiproxy struct {
	t   *testing.T
	api string
}

// startToxiproxy builds the server, once for all runs, and runs it.
func startToxiproxy(t *testing.T) *toxiproxy {
	t.Helper()
	server := filepath.Join(weirtest.Tool(t, "toxiproxy "+toxiproxyVersion, func(dir string) *exec.Cmd {
		build := exec.Command("go", "install", "github.com/Shopify/toxiproxy/v2/cmd/server@"+toxiproxyVersion)
		build.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=")
		return build
	}), "server")
	port := weirtest.FreePort(t)
	cmd := exec.Command(server, "-host", "127.0.0.1", "-port", fmt.Sprint(port))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	p := &toxiproxy{t: t, api: fmt.Sprintf("http://127.0.0.1:%d", port)}
	until(t, "toxiproxy is up", func() bool {
		resp, err := http.Get(p.api + "/version")
		if err == nil {
			resp.Body.Close()
		}
		return err == nil
	})
	return p
}

func (p *toxiproxy) call(method, path string, body any) {
	p.t.Helper()
	b, err := json.Marshal(body)
	if err != nil {
		p.t.Fatal(err)
	}
	req, err := http.NewRequest(method, p.api+path, bytes.NewReader(b))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode >= 300 {
		p.t.Fatalf("toxiproxy: %s %s: %d %s", method, path, resp.StatusCode, text)
	}
}

// proxy makes a way to an address.
func (p *toxiproxy) proxy(name, to string) string {
	p.t.Helper()
	listen := fmt.Sprintf("127.0.0.1:%d", weirtest.FreePort(p.t))
	p.call("POST", "/proxies", map[string]any{"name": name, "listen": listen, "upstream": to, "enabled": true})
	return listen
}

// toxic spoils it: stream is "downstream" for what comes from the backend, "upstream" for what goes there.
func (p *toxiproxy) toxic(proxy, kind, stream string, attributes map[string]int) {
	p.t.Helper()
	p.call("POST", "/proxies/"+proxy+"/toxics", map[string]any{"type": kind, "stream": stream, "toxicity": 1.0, "attributes": attributes})
}

const answerSize = 200_000

func TestFaultsOnTheWayToABackend(t *testing.T) {
	together(t)
	p := startToxiproxy(t)
	step := make(chan struct{})
	addr := backend(t, func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			return
		}
		switch r.URL.Path {
		case "/length":
			w.Header().Set("Content-Length", fmt.Sprint(answerSize))
			io.CopyN(w, zeros{}, answerSize)
		case "/halves":
			io.CopyN(w, zeros{}, answerSize/2)
			w.(http.Flusher).Flush()
			<-step
			io.CopyN(w, zeros{}, answerSize/2)
		case "/count":
			fmt.Fprint(w, n)
		default: // chunked
			io.CopyN(w, zeros{}, answerSize)
		}
	})
	steady := backend(t, hello)

	const hasty = "timeouts: {backendRequest: 500ms}"
	cases := []struct {
		name, path, extra string
		spoil             func(name string)
		upload            int // bytes
		later             func(name string)
		status            int
		broken            bool // the answer's end is missing
		reasons           map[string]int
	}{
		{name: "none", path: "/length", status: 200},
		{name: "latency", path: "/length", status: 200,
			spoil: func(n string) { p.toxic(n, "latency", "downstream", map[string]int{"latency": 200, "jitter": 100}) }},
		{name: "too-much-latency", path: "/length", status: 504, extra: hasty, reasons: map[string]int{"backend_timeout": 1},
			spoil: func(n string) { p.toxic(n, "latency", "downstream", map[string]int{"latency": 5000}) }},
		{name: "down", path: "/", status: 502, reasons: map[string]int{"connect_failed": 1},
			spoil: func(n string) { p.call("POST", "/proxies/"+n, map[string]any{"enabled": false}) }},
		{name: "reset", path: "/", status: 502, reasons: map[string]int{"backend_reset": 1},
			spoil: func(n string) { p.toxic(n, "reset_peer", "downstream", map[string]int{"timeout": 0}) }},
		{name: "silence", path: "/", status: 504, extra: hasty, reasons: map[string]int{"backend_timeout": 1},
			spoil: func(n string) { p.toxic(n, "timeout", "downstream", map[string]int{"timeout": 0}) }},
		{name: "silence-then-end", path: "/", status: 502, reasons: map[string]int{"backend_reset": 1},
			spoil: func(n string) { p.toxic(n, "timeout", "downstream", map[string]int{"timeout": 200}) }},
		{name: "cut-in-the-head", path: "/", status: 502, reasons: map[string]int{"backend_reset": 1},
			spoil: func(n string) { p.toxic(n, "limit_data", "downstream", map[string]int{"bytes": 20}) }},
		{name: "cut-in-the-length", path: "/length", status: 200, broken: true, reasons: map[string]int{"backend_reset": 1},
			spoil: func(n string) { p.toxic(n, "limit_data", "downstream", map[string]int{"bytes": answerSize / 2}) }},
		{name: "cut-in-the-chunks", path: "/", status: 200, broken: true, reasons: map[string]int{"backend_reset": 1},
			spoil: func(n string) { p.toxic(n, "limit_data", "downstream", map[string]int{"bytes": answerSize / 2}) }},
		{name: "reset-in-the-answer", path: "/halves", status: 200, broken: true, reasons: map[string]int{"backend_reset": 1},
			later: func(n string) {
				p.toxic(n, "reset_peer", "downstream", map[string]int{"timeout": 0})
				step <- struct{}{}
			}},
		{name: "slow-answer", path: "/length", status: 200,
			spoil: func(n string) { p.toxic(n, "bandwidth", "downstream", map[string]int{"rate": 100}) }}, // KB/s
		{name: "sliced", path: "/", status: 200,
			spoil: func(n string) {
				p.toxic(n, "slicer", "downstream", map[string]int{"average_size": 500, "size_variation": 400, "delay": 100})
			}},
		{name: "slow-close", path: "/", status: 200,
			spoil: func(n string) { p.toxic(n, "slow_close", "downstream", map[string]int{"delay": 300}) }},
		{name: "slow-backend", path: "/count", status: 200, upload: 3 << 20, // the client, which is fast, is not to blame
			spoil: func(n string) { p.toxic(n, "bandwidth", "upstream", map[string]int{"rate": 1000}) }},
		{name: "cut-in-the-upload", path: "/count", status: 502, upload: 32 << 20, reasons: map[string]int{"backend_reset": 1},
			spoil: func(n string) { p.toxic(n, "limit_data", "upstream", map[string]int{"bytes": 1 << 20}) }},
	}
	routes := []route{{name: "steady", address: steady}}
	for _, c := range cases {
		routes = append(routes, route{c.name, p.proxy(c.name, addr), c.extra})
		if c.spoil != nil {
			c.spoil(c.name)
		}
	}
	w := serve(t, routes)
	h := w.visit("steady", 4, 5*time.Millisecond)
	t.Run("cases", func(t *testing.T) {
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				req := w.request("GET", c.name, c.path, nil)
				if c.upload > 0 {
					req = w.request("POST", c.name, c.path, io.LimitReader(zeros{}, int64(c.upload)))
				}
				req.Close = true
				resp, err := w.client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				if c.later != nil {
					c.later(c.name)
				}
				b, err := io.ReadAll(resp.Body)
				if resp.StatusCode != c.status {
					t.Errorf("status %d, want %d; %.100q", resp.StatusCode, c.status, b)
				}
				if broken := err != nil; broken != c.broken {
					t.Errorf("%d bytes, then %v; want it broken off: %v", len(b), err, c.broken)
				}
				switch {
				case c.upload > 0 && c.status == 200:
					if string(b) != fmt.Sprint(c.upload) {
						t.Errorf("the backend got %s bytes of %d", b, c.upload)
					}
				case c.status == 200 && !c.broken && len(b) != answerSize:
					t.Errorf("%d bytes of %d", len(b), answerSize)
				}
				want := c.reasons
				if want == nil {
					want = map[string]int{}
				}
				until(t, fmt.Sprintf("%s counts %v (it counts %v)", c.name, want, w.reasons(c.name)), func() bool {
					return reflect.DeepEqual(w.reasons(c.name), want)
				})
			})
		}
	})
	n, p99 := h.end(t)
	t.Logf("another route meanwhile: %d requests, 99%% within %v", n, p99)
	w.Stop()
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// A way that is cut and mended serves again at once: nothing of the bad time is kept.
func TestBackendComesBack(t *testing.T) {
	together(t)
	p := startToxiproxy(t)
	addr := backend(t, hello)
	w := serve(t, []route{{name: "shop", address: p.proxy("shop", addr)}})
	for range 3 {
		if status, body, err := w.get("shop", "/"); status != 200 {
			t.Fatalf("status %d, %q, %v", status, body, err)
		}
		p.call("POST", "/proxies/shop", map[string]any{"enabled": false})
		for range 3 {
			if status, body, err := w.get("shop", "/"); status != 502 {
				t.Fatalf("status %d, %q, %v", status, body, err)
			}
		}
		p.call("POST", "/proxies/shop", map[string]any{"enabled": true})
	}
	if got := w.reasons("shop"); got["connect_failed"]+got["backend_reset"] != 9 || len(got) > 2 {
		t.Errorf("%v", got)
	}
	if strings.Contains(w.Stderr(), "panic") {
		t.Error("a panic")
	}
	w.Stop()
}
