package probe_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/weirmesh/weir/internal/probe"
)

var loopback = netip.MustParseAddr("127.0.0.1")

// ask has a check done.
func ask(t *testing.T, c probe.Check) (status int, text string) {
	t.Helper()
	h := probe.New(parsed(t, probe.Table{"app/readiness": c}), loopback, slog.New(slog.DiscardHandler))
	return get(t, h, "/app/readiness")
}

// parsed is a table as it comes over to the sidecar.
func parsed(t *testing.T, table probe.Table) probe.Table {
	t.Helper()
	text, err := json.Marshal(table)
	if err != nil {
		t.Fatal(err)
	}
	out, err := probe.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func get(t *testing.T, h http.Handler, path string) (int, string) {
	r := httptest.NewRequestWithContext(t.Context(), "GET", path, nil)
	r.Header.Set("User-Agent", "kube-probe/1.36")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// port is where a test's server listens.
func port(t *testing.T, address string) int32 {
	t.Helper()
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return int32(at.Port())
}

// silent accepts connections, and says nothing over them.
func silent(t *testing.T) int32 {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return port(t, ln.Addr().String())
}

// unused is a port that nobody listens at.
func unused(t *testing.T) int32 {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return port(t, ln.Addr().String())
}

func TestHTTPIsAskedAsTheKubeletDoes(t *testing.T) {
	var got *http.Request
	app := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		switch r.URL.Path {
		case "/broken":
			http.Error(w, "the database is away", http.StatusInternalServerError)
		case "/here":
			http.Redirect(w, r, "/fine", http.StatusFound)
		case "/away":
			http.Redirect(w, r, "http://192.0.2.1:1/", http.StatusFound)
		case "/round":
			http.Redirect(w, r, "/round", http.StatusFound)
		case "/to-broken":
			http.Redirect(w, r, "/broken", http.StatusFound)
		case "/large":
			io.Copy(w, io.LimitReader(zeros{}, 1<<20))
		case "/cut":
			w.Header().Set("Content-Length", "10")
		}
	})
	plain, secure := httptest.NewServer(app), httptest.NewTLSServer(app)
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	at, over := port(t, plain.Listener.Addr().String()), port(t, secure.Listener.Addr().String())
	for name, x := range map[string]struct {
		check  probe.HTTP
		status int
		text   string
		want   func(r *http.Request) bool
	}{
		"plain": {probe.HTTP{Port: at, Path: "/healthz?full=1"}, 200, "ok", func(r *http.Request) bool {
			return r.URL.RawQuery == "full=1" && r.Host == fmt.Sprintf("127.0.0.1:%d", at) && r.UserAgent() == "kube-probe/1.36" && r.Header.Get("Accept") == "*/*" && r.Header.Get("Accept-Encoding") == ""
		}},
		"fields": {probe.HTTP{Port: at, Path: "/", Fields: []probe.Field{{"Host", "shop.example"}, {"X-A", "1"}, {"X-A", "2"}, {"User-Agent", "mine"}, {"Accept", ""}}}, 200, "ok", func(r *http.Request) bool {
			_, accept := r.Header["Accept"]
			return r.Host == "shop.example" && fmt.Sprint(r.Header["X-A"]) == "[1 2]" && r.UserAgent() == "mine" && !accept
		}},
		"no path":            {probe.HTTP{Port: at}, 200, "ok", nil},
		"a path as it is":    {probe.HTTP{Port: at, Path: "/%zz"}, 200, "ok", func(r *http.Request) bool { return r.URL.Path == "/%zz" }},
		"TLS":                {probe.HTTP{Port: over, Path: "/", Secure: true}, 200, "ok", nil},
		"cleartext to TLS":   {probe.HTTP{Port: over, Path: "/"}, 503, "status 400", nil},
		"TLS to cleartext":   {probe.HTTP{Port: at, Secure: true}, 503, "", nil},
		"broken":             {probe.HTTP{Port: at, Path: "/broken"}, 503, "status 500: the database is away", nil},
		"redirected":         {probe.HTTP{Port: at, Path: "/here"}, 200, "ok", func(r *http.Request) bool { return r.URL.Path == "/fine" }},
		"to another host":    {probe.HTTP{Port: at, Path: "/away"}, 200, "ok", nil},
		"round and round":    {probe.HTTP{Port: at, Path: "/round"}, 503, "10 redirects", nil},
		"redirected, broken": {probe.HTTP{Port: at, Path: "/to-broken"}, 503, "status 500", nil},
		"a large answer":     {probe.HTTP{Port: at, Path: "/large"}, 200, "ok", nil},
		"a short answer":     {probe.HTTP{Port: at, Path: "/cut"}, 503, "unexpected EOF", nil},
		"nobody":             {probe.HTTP{Port: unused(t)}, 503, "refused", nil},
	} {
		got = nil
		status, text := ask(t, probe.Check{HTTP: &x.check, Seconds: 20})
		if status != x.status || !strings.Contains(text, x.text) || x.want != nil && (got == nil || !x.want(got)) {
			t.Errorf("%s: %d %q, the application got %+v", name, status, text, got)
		}
	}
	if status, text := ask(t, probe.Check{HTTP: &probe.HTTP{Port: silent(t)}, Seconds: 1}); status != 503 || !strings.Contains(text, "deadline") {
		t.Errorf("silence: %d %q", status, text)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestTCPIsReallyDialled(t *testing.T) {
	if status, text := ask(t, probe.Check{TCP: &probe.TCP{Port: silent(t)}, Seconds: 20}); status != 200 {
		t.Errorf("%d %s", status, text)
	}
	if status, text := ask(t, probe.Check{TCP: &probe.TCP{Port: unused(t)}, Seconds: 20}); status != 503 || !strings.Contains(text, "refused") {
		t.Errorf("nobody listens: %d %s", status, text)
	}
}

func TestGRPCIsCalled(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, h := grpc.NewServer(), health.NewServer()
	grpc_health_v1.RegisterHealthServer(s, h)
	h.SetServingStatus("carts", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	go s.Serve(ln)
	t.Cleanup(s.Stop)
	at := port(t, ln.Addr().String())
	for service, want := range map[string]string{"": "200 ok", "carts": `503 service "carts" is NOT_SERVING`, "unknown": "503 rpc error: code = NotFound"} {
		status, text := ask(t, probe.Check{GRPC: &probe.GRPC{Port: at, Service: service}, Seconds: 20})
		if got := fmt.Sprint(status, " ", text); !strings.HasPrefix(got, want) {
			t.Errorf("%q: %s", service, got)
		}
	}
	if status, _ := ask(t, probe.Check{GRPC: &probe.GRPC{Port: silent(t)}, Seconds: 1}); status != 503 {
		t.Errorf("silence: %d", status)
	}
	if status, _ := ask(t, probe.Check{GRPC: &probe.GRPC{Port: unused(t)}, Seconds: 1}); status != 503 {
		t.Errorf("nobody: %d", status)
	}
}

func TestOnlyThePodsChecksAreAnswered(t *testing.T) {
	h := probe.New(parsed(t, probe.Table{"app/readiness": {TCP: &probe.TCP{Port: silent(t)}}}), loopback, slog.New(slog.DiscardHandler))
	for path, want := range map[string]int{"/app/readiness": 200, "/app/liveness": 404, "/app/readiness/": 404, "/": 404, "/app/readiness?x": 200} {
		if status, _ := get(t, h, path); status != want {
			t.Errorf("%s: %d", path, status)
		}
	}
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, httptest.NewRequest("POST", "/app/readiness", nil)); w.Code != 404 {
		t.Errorf("POST: %d", w.Code)
	}
}

// TestWhoDoesNotKnowThePathHasNothingDone: hooks change an application, and whoever takes the places of a probe has it fail.
func TestWhoDoesNotKnowThePathHasNothingDone(t *testing.T) {
	asked := 0
	app := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer app.Close()
	key := probe.Key("app", probe.PreStop, "5ec4e7")
	table := parsed(t, probe.Table{key: {HTTP: &probe.HTTP{Port: port(t, app.Listener.Addr().String()), Path: "/quit"}}})
	h := probe.New(table, loopback, slog.New(slog.DiscardHandler))
	for _, path := range []string{"/app/preStop", "/app/preStop/", "/app/preStop/5ec4e", "/app/preStop/5ec4e70", "/app/preStop/5EC4E7", "/app/preStop/5ec4e7/"} {
		if status, text := get(t, h, path); status != 404 || asked > 0 || strings.Contains(text, "5ec4e7") {
			t.Errorf("%s: %d %q, and the application was asked %d times", path, status, text, asked)
		}
	}
	if status, _ := get(t, h, "/"+key); status != 200 || asked != 1 {
		t.Errorf("the kubelet: %d, %d", status, asked)
	}
	if table.Secret() != "5ec4e7" || probe.Name(key) != "app/preStop" || (probe.Table{"app/preStop": {}}).Secret() != "" || probe.Name("app/preStop") != "app/preStop" {
		t.Errorf("%q %q", table.Secret(), probe.Name(key))
	}
}

// TestManyAskersAreNoLoadForTheApplication has a check asked again while it is under way.
func TestManyAskersAreNoLoadForTheApplication(t *testing.T) {
	arrived, go_ := make(chan struct{}), make(chan struct{})
	app := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-go_
	}))
	defer app.Close()
	var log bytes.Buffer
	check := probe.Check{HTTP: &probe.HTTP{Port: port(t, app.Listener.Addr().String())}}
	h := probe.New(parsed(t, probe.Table{"app/liveness": check, "app/readiness/5ec4e7": {TCP: &probe.TCP{Port: unused(t)}}}), loopback, slog.New(slog.NewTextHandler(&log, nil)))
	done := make(chan int)
	for range 3 {
		go func() {
			status, _ := get(t, h, "/app/liveness")
			done <- status
		}()
		<-arrived
	}
	if status, text := get(t, h, "/app/liveness"); status != 503 || !strings.Contains(text, "under way") {
		t.Errorf("%d %s", status, text)
	}
	for range 2 {
		if status, _ := get(t, h, "/app/readiness/5ec4e7"); status != 503 { // others have their own places
			t.Errorf("%d", status)
		}
	}
	close(go_)
	for range 3 {
		if status := <-done; status != 200 {
			t.Errorf("%d", status)
		}
	}
	if lines := strings.Split(strings.TrimSpace(log.String()), "\n"); len(lines) != 1 || !strings.Contains(lines[0], "check=app/readiness ") {
		t.Errorf("logged %q", lines)
	}
}

// TestAHookIsBoundByTheKubeletAlone has no time of its own, and ends when the kubelet gives up.
func TestAHookIsBoundByTheKubeletAlone(t *testing.T) {
	arrived := make(chan struct{})
	app := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
	}))
	defer app.Close()
	h := probe.New(probe.Table{"app/preStop": {HTTP: &probe.HTTP{Port: port(t, app.Listener.Addr().String())}}}, loopback, slog.New(slog.DiscardHandler))
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	done := make(chan int)
	go func() {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/app/preStop", nil))
		done <- w.Code
	}()
	<-arrived
	stop()
	if status := <-done; status != 503 {
		t.Errorf("%d", status)
	}
}

func TestTablesAreReadStrictly(t *testing.T) {
	for text, want := range map[string]string{
		`{`:       "unexpected EOF",
		`{} {}`:   "more follows",
		`{"a":1}`: "cannot unmarshal",
		`{"app/readiness":{"tcp":{"port":1},"exec":{}}}`:                                             `unknown field "exec"`,
		`{"readiness":{"tcp":{"port":1}}}`:                                                           `probe "readiness": its name is not CONTAINER/KIND`,
		`{"app/ready":{"tcp":{"port":1}}}`:                                                           "its name is not CONTAINER/KIND",
		`{"app/readiness/":{"tcp":{"port":1}}}`:                                                      "its name is not CONTAINER/KIND",
		`{"app/readiness/a.b":{"tcp":{"port":1}}}`:                                                   `probe "app/readiness": its name is not CONTAINER/KIND`,
		`{"app/readiness/a/b":{"tcp":{"port":1}}}`:                                                   "its name is not CONTAINER/KIND",
		`{"A/readiness":{"tcp":{"port":1}}}`:                                                         "its name is not CONTAINER/KIND",
		`{"app/readiness":{}}`:                                                                       "0 of http, tcp and grpc are set",
		`{"app/readiness":{"tcp":{"port":1},"grpc":{"port":1}}}`:                                     "2 of http, tcp and grpc are set",
		`{"app/readiness":{"tcp":{"port":0}}}`:                                                       "port: 0 is not a port",
		`{"app/readiness":{"http":{"port":65536}}}`:                                                  "port: 65536 is not a port",
		`{"app/readiness":{"grpc":{"port":1},"seconds":-1}}`:                                         "seconds: -1 is negative",
		`{"app/readiness":{"http":{"port":1,"fields":[{"name":"a b","value":""}]}}}`:                 `http.fields[0]: "a b" is no field`,
		`{"app/readiness":{"http":{"port":1,"fields":[{"name":"a","value":"b\r\nc: d"}]}}}`:          `http.fields[0]: "a" is no field`,
		`{"app/readiness":{"http":{"port":1,"fields":[{"name":"Host","value":"a b"}]}}}`:             `"a b" is no host`,
		`{"app/readiness":{"http":{"port":1,"fields":[` + strings.Repeat(`{},`, 64) + `{}]}}}`:       "65 fields",
		`{"app/readiness":{"http":{"port":1,"path":"` + strings.Repeat("a", probe.MaxTable) + `"}}}`: "bytes, more than",
	} {
		if _, err := probe.Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %v, want %q", text, err, want)
		}
	}
	many := probe.Table{}
	for n := range probe.MaxChecks + 1 {
		many[probe.Key(fmt.Sprint("c", n), probe.Liveness, "5ec4e7")] = probe.Check{TCP: &probe.TCP{Port: 1}}
	}
	text, err := json.Marshal(many)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := probe.Parse(text); err == nil || !strings.Contains(err.Error(), "257 entries") {
		t.Errorf("%v", err)
	}
}

// FuzzParse holds that what is read can be asked for, whatever the answer is.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"app/readiness":{"http":{"port":1,"path":"/a?b","secure":true,"fields":[{"name":"Host","value":"a"}]},"seconds":1}}`))
	f.Add([]byte(`{"app/startup":{"grpc":{"port":1,"service":"a"}},"b/preStop":{"tcp":{"port":1}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		table, err := probe.Parse(text)
		if err != nil {
			return
		}
		ctx, stop := context.WithCancel(t.Context())
		stop() // nothing is dialled
		h := probe.New(table, loopback, slog.New(slog.DiscardHandler))
		for key := range table {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/"+key, nil))
			if w.Code != 503 {
				t.Errorf("%s: %d", key, w.Code)
			}
		}
	})
}
