package proxy

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/weirmesh/weir/internal/model"
)

// named runs n backends that answer with the name and their number.
func named(t testing.TB, name string, n int) (addresses []string) {
	for i := range n {
		addresses = append(addresses, backend(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, name, i) }))
	}
	return addresses
}

// sticky has two services with three endpoints each, a0..a2 and b0..b2. Service a gets three times as many requests.
func sticky(t testing.TB, session model.Session) *model.Config {
	r := ruleTo("default/a:80", "default/b:80")
	r.Backends[0].Weight = 3
	r.Session = &session
	return config([]model.Service{
		service("default/a:80", model.HTTP, named(t, "a", 3)...), service("default/b:80", model.HTTP, named(t, "b", 3)...),
	}, r)
}

// fetched is an answer.
type fetched struct {
	status int
	by     string
	cookie *http.Cookie // nil: none was set
	header http.Header
}

// fetch sends a request from a client that keeps no cookies.
func fetch(t testing.TB, c *http.Client, target string, header ...string) fetched {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, target, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	f := fetched{status: resp.StatusCode, by: string(body), header: resp.Header}
	if all := resp.Cookies(); len(all) > 1 {
		t.Fatalf("%d cookies are set", len(all))
	} else if len(all) == 1 {
		f.cookie = all[0]
	}
	return f
}

// begin opens a session.
func begin(t testing.TB, c *http.Client, target string) (by, cookie string) {
	t.Helper()
	f := fetch(t, c, target)
	if f.status != 200 || f.cookie == nil {
		t.Fatalf("%d by %q without a cookie", f.status, f.by)
	}
	return f.by, f.cookie.Name + "=" + f.cookie.Value
}

// beginAt opens sessions until one is at the endpoint, or at any endpoint of a service if at names only the service.
func beginAt(t testing.TB, c *http.Client, target, at string) (by, cookie string) {
	t.Helper()
	for range 500 {
		if by, cookie = begin(t, c, target); strings.HasPrefix(by, at) {
			return by, cookie
		}
	}
	t.Fatalf("no session at %s", at)
	return "", ""
}

func TestSessionsStayAndNewOnesAreSharedExactly(t *testing.T) {
	t.Parallel()
	for name, newSessionClient := range map[string]func(testing.TB) *http.Client{"HTTP/1.1": newClient, "HTTP/2": h2cClient} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, sticky(t, model.Session{Name: "s", Type: model.Cookie}))
			target := "http://" + s.addr() + "/"
			browser, c := newSessionClient(t), newSessionClient(t)
			browser.Jar, _ = cookiejar.New(nil)
			first := fetch(t, browser, target)
			if first.cookie == nil {
				t.Fatal("no session is begun")
			}
			if strings.Contains(first.cookie.Value, "127") {
				t.Errorf("token %q", first.cookie.Value)
			}
			shares, endpoints := map[string]int{}, map[string]bool{}
			shares[first.by[:1]]++
			for i := range 200 {
				if got := fetch(t, browser, target); got.by != first.by || got.cookie != nil {
					t.Fatalf("request %d went to %s, the first to %s; cookie %v", i, got.by, first.by, got.cookie)
				}
				if i < 199 {
					by, _ := begin(t, c, target)
					shares[by[:1]]++
					endpoints[by] = true
				}
			}
			if shares["a"] != 150 || shares["b"] != 50 {
				t.Errorf("200 new sessions are shared %v, want 150 and 50", shares)
			}
			if len(endpoints) != 6 {
				t.Errorf("of six endpoints %d got sessions", len(endpoints))
			}
		})
	}
}

func TestSessionsOutliveReloadsAndTheProxyThatBeganThem(t *testing.T) {
	cfg := sticky(t, model.Session{Name: "s", Type: model.Cookie})
	s, other := serve(t, cfg), serve(t, cfg)
	c := newClient(t)
	var sessions [][2]string
	for range 20 {
		by, cookie := begin(t, c, "http://"+s.addr()+"/")
		sessions = append(sessions, [2]string{by, cookie})
	}
	check := func(s *testServer, what string) {
		t.Helper()
		for _, x := range sessions {
			if got := fetch(t, c, "http://"+s.addr()+"/", "Cookie", x[1]); got.by != x[0] || got.cookie != nil {
				t.Errorf("%s: the session of %s is served by %s, cookie %v", what, x[0], got.by, got.cookie)
			}
		}
	}
	check(other, "another proxy")
	apply := func(cfg *model.Config) {
		t.Helper()
		if err := s.Apply(cfg); err != nil {
			t.Fatal(err)
		}
	}
	// The backends have another order, other weights and other matches. Service a has a fourth endpoint.
	next := *cfg
	next.Services = slices.Clone(cfg.Services)
	next.Services[0].Endpoints = append([]model.Endpoint{{Address: named(t, "new", 1)[0]}}, next.Services[0].Endpoints...)
	next.Routes = slices.Clone(cfg.Routes)
	r := cfg.Routes[0].Rules[0]
	r.Backends = []model.Backend{r.Backends[1], r.Backends[0]}
	r.Backends[0].Weight, r.Backends[1].Weight = 1, 0
	r.Matches = append([]model.Match{{Path: model.PathMatch{Type: model.Prefix, Value: "/other"}}}, r.Matches...)
	next.Routes[0].Rules = []model.Rule{r}
	apply(&next)
	check(s, "after a reload")
	for range 20 {
		if by, _ := begin(t, c, "http://"+s.addr()+"/"); by[:1] != "b" {
			t.Errorf("a new session is begun at %s, whose weight is 0", by)
		}
	}
	none := next
	none.Routes = slices.Clone(next.Routes)
	r.Backends = slices.Clone(r.Backends)
	r.Backends[0].Weight = 0
	none.Routes[0].Rules = []model.Rule{r}
	apply(&none)
	check(s, "with all weights 0")
	if got := fetch(t, c, "http://"+s.addr()+"/"); got.status != 500 || got.cookie != nil {
		t.Errorf("with all weights 0 a new session gets %d, cookie %v", got.status, got.cookie)
	}
}

func TestASessionWhoseEndpointIsGoneIsBegunAnew(t *testing.T) {
	cfg := sticky(t, model.Session{Name: "s", Type: model.Cookie})
	s := serve(t, cfg)
	c := newClient(t)
	target := "http://" + s.addr() + "/"
	_, gone := beginAt(t, c, target, "a1")
	_, stays := beginAt(t, c, target, "a2")
	next := *cfg
	next.Services = slices.Clone(cfg.Services)
	next.Services[0].Endpoints = []model.Endpoint{cfg.Services[0].Endpoints[0], cfg.Services[0].Endpoints[2]}
	if err := s.Apply(&next); err != nil {
		t.Fatal(err)
	}
	shares := map[string]int{}
	for range 40 {
		got := fetch(t, c, target, "Cookie", gone)
		if got.by == "a1" || got.cookie == nil {
			t.Fatalf("served by %s, cookie %v", got.by, got.cookie)
		}
		shares[got.by[:1]]++
		if again := fetch(t, c, target, "Cookie", "s="+got.cookie.Value); again.by != got.by || again.cookie != nil {
			t.Errorf("the new session of %s is served by %s, cookie %v", got.by, again.by, again.cookie)
		}
		if kept := fetch(t, c, target, "Cookie", stays); kept.by != "a2" {
			t.Errorf("the session of a2 is served by %s", kept.by)
		}
	}
	if a := shares["a"]; a < 27 || a > 33 { // 40 draws that begin and end within a block
		t.Errorf("40 new sessions are shared %v, want 30 and 10", shares)
	}
}

func TestARetryTakesTheSessionToAnotherEndpoint(t *testing.T) {
	var down atomic.Int32
	down.Store(-1)
	var addresses []string
	for i := range 3 {
		addresses = append(addresses, backend(t, func(w http.ResponseWriter, r *http.Request) {
			if down.Load() == int32(i) {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			fmt.Fprint(w, "a", i)
		}))
	}
	r := ruleTo(serviceName)
	r.Session = &model.Session{Name: "s", Type: model.Cookie}
	r.Retry = &model.Retry{Attempts: 1, Codes: []int{503}}
	s := serve(t, config([]model.Service{service(serviceName, model.HTTP, addresses...)}, r))
	c := newClient(t)
	target := "http://" + s.addr() + "/"
	_, cookie := beginAt(t, c, target, "a1")
	down.Store(1)
	got := fetch(t, c, target, "Cookie", cookie)
	if got.status != 200 || got.by == "a1" || got.cookie == nil {
		t.Fatalf("%d by %s, cookie %v", got.status, got.by, got.cookie)
	}
	down.Store(-1)
	if again := fetch(t, c, target, "Cookie", "s="+got.cookie.Value); again.by != got.by || again.cookie != nil {
		t.Errorf("the session went from %s to %s", got.by, again.by)
	}
}

func TestASessionLeavesAnEjectedEndpoint(t *testing.T) {
	var whole atomic.Bool
	whole.Store(true)
	broken := rawBackend(t, func(c net.Conn) {
		if c.Read(make([]byte, 4096)); whole.Load() {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 6\r\n\r\nbroken")
		} // otherwise it closes
	})
	r := ruleTo(serviceName)
	r.Session = &model.Session{Name: "s", Type: model.Header}
	to := service(serviceName, model.HTTP, append(named(t, "a", 1), broken)...)
	to.Limits = &model.Limits{RetryPercent: new(int)} // no request is repeated elsewhere
	s := serve(t, config([]model.Service{to}, r))
	// The token of the endpoint that will break.
	var token string
	for first := newTalk(t, s.addr()); token == ""; {
		first.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		if resp, body := first.answer("GET"); body == "broken" {
			token = resp.Header.Get("s")
		}
	}
	whole.Store(false)
	c := newClient(t)
	failed := 0
	for range 10 {
		got := fetch(t, c, "http://"+s.addr()+"/", "s", token)
		if got.status == 200 {
			if got.header.Get("s") == "" || failed != 3 {
				t.Errorf("served by %s after %d failures, token %q", got.by, failed, got.header.Get("s"))
			}
			return
		}
		failed++
	}
	t.Errorf("%d requests were sent to an endpoint that fails", failed)
}

func TestSessionsInAHeader(t *testing.T) {
	mine := backend(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Session", "the backend's own")
		w.Header().Add("Set-Cookie", "own=1")
		fmt.Fprint(w, r.Header.Get("X-Session"))
	})
	r := ruleTo(serviceName)
	r.Session = &model.Session{Name: "x-session", Type: model.Header}
	s := serve(t, config([]model.Service{service(serviceName, model.HTTP, append(named(t, "a", 2), mine)...)}, r))
	c := newClient(t)
	target := "http://" + s.addr() + "/"
	for range 20 {
		first := fetch(t, c, target)
		token := first.header.Values("X-Session")
		if len(token) != 1 || len(token[0]) != tokenLetters {
			t.Fatalf("tokens %q", token)
		}
		if first.by == "" && first.cookie.String() != "own=1" || first.by != "" && first.cookie != nil {
			t.Errorf("by %q, cookie %v", first.by, first.cookie)
		}
		want := first.by
		if want == "" {
			want = token[0] // the value that the backend gets
		}
		for range 10 {
			got := fetch(t, c, target, "X-SESSION", token[0])
			if got.by != want || got.header.Get("X-Session") != "" {
				t.Fatalf("by %q, not %q, header %v", got.by, want, got.header)
			}
		}
	}
}

func TestSessionsStayWithTheLeafOfASplit(t *testing.T) {
	leaves := model.Split{Leaves: []model.Leaf{{Service: "default/v1:80", Weight: 3}, {Service: "default/v2:80", Weight: 1}},
		Matches: []model.SplitMatch{{Path: "/split"}}}
	cfg := divided(t, leaves)
	for i := range cfg.Routes[0].Rules {
		cfg.Routes[0].Rules[i].Session = &model.Session{Name: "s", Type: model.Cookie}
	}
	s := serve(t, cfg)
	c := newClient(t)
	target := "http://" + s.addr() + "/split"
	shares := map[string]int{}
	for range 40 {
		by, cookie := begin(t, c, target)
		shares[by]++
		if got := fetch(t, c, target, "Cookie", cookie); got.by != by || got.cookie != nil {
			t.Errorf("the session of %s is served by %s, cookie %v", by, got.by, got.cookie)
		}
	}
	if shares["v1"] != 30 || shares["v2"] != 10 {
		t.Errorf("40 new sessions are shared %v, want 30 and 10", shares)
	}
	// Where the split does not apply, its leaves get nothing, whatever the token says.
	_, cookie := beginAt(t, c, target, "v2")
	if got := fetch(t, c, "http://"+s.addr()+"/a", "Cookie", cookie); got.by != "root" || got.cookie == nil {
		t.Errorf("by %s, cookie %v", got.by, got.cookie)
	}
	next := *cfg
	next.Splits = []model.Split{cfg.Splits[0]}
	next.Splits[0].Leaves = []model.Leaf{{Service: "default/v1:80", Weight: 1}, {Service: "default/v2:80", Weight: 0}}
	if err := s.Apply(&next); err != nil {
		t.Fatal(err)
	}
	if got := fetch(t, c, target, "Cookie", cookie); got.by != "v2" {
		t.Errorf("the session of v2, now without a weight, is served by %s", got.by)
	}
}

func TestGRPCSessionsInMetadata(t *testing.T) {
	var addresses []string
	for i := range 3 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		g := grpc.NewServer(grpc.ForceServerCodec(bytesCodec{}), grpc.UnknownServiceHandler(func(_ any, st grpc.ServerStream) error {
			m := fmt.Appendf(nil, "a%d", i)
			return st.SendMsg(&m)
		}))
		done := make(chan error, 1)
		go func() { done <- g.Serve(ln) }()
		t.Cleanup(func() {
			g.Stop()
			<-done
		})
		addresses = append(addresses, ln.Addr().String())
	}
	r := ruleTo(serviceName)
	r.Session = &model.Session{Name: "x-session", Type: model.Header}
	cfg := config([]model.Service{service(serviceName, model.H2C, addresses...)}, r)
	cfg.Routes[0].Kind = model.RouteGRPC
	s := serve(t, cfg)
	c := grpcClient(t, s.addr())
	call := func(token string) (by string, tokens []string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if token != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "x-session", token)
		}
		var in, out []byte
		var md metadata.MD
		if err := c.Invoke(ctx, "/test.Any/Call", &in, &out, grpc.Header(&md)); err != nil {
			t.Fatal(err)
		}
		return string(out), md["x-session"]
	}
	seen := map[string]bool{}
	for range 20 {
		by, tokens := call("")
		if len(tokens) != 1 {
			t.Fatalf("tokens %q", tokens)
		}
		seen[by] = true
		for range 10 {
			if got, again := call(tokens[0]); got != by || again != nil {
				t.Fatalf("the session of %s is served by %s, tokens %q", by, got, again)
			}
		}
	}
	if len(seen) != 3 {
		t.Errorf("of three endpoints %v got sessions", seen)
	}
}

func TestTwoBackendsOfOneServiceHaveSessionsOfTheirOwn(t *testing.T) {
	say := backend(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Header.Get("X-Part")) })
	r := ruleTo(serviceName, serviceName)
	for i := range r.Backends {
		r.Backends[i].Filters.RequestHeaders = &model.HeaderEdit{Set: []model.HeaderValue{{Name: "X-Part", Value: fmt.Sprint("part", i)}}}
	}
	r.Session = &model.Session{Name: "s", Type: model.Cookie}
	s := serve(t, config([]model.Service{service(serviceName, model.HTTP, say)}, r))
	c := newClient(t)
	for range 10 {
		by, cookie := begin(t, c, "http://"+s.addr()+"/")
		if got := fetch(t, c, "http://"+s.addr()+"/", "Cookie", cookie); got.by != by {
			t.Errorf("the session of %s is served by %s", by, got.by)
		}
	}
}

func TestMirrorsCopyRequestsOfSessionsLikeOthers(t *testing.T) {
	tokens := make(chan string, 200)
	mirror := backend(t, func(w http.ResponseWriter, r *http.Request) { tokens <- r.Header.Get("X-Session") })
	cfg := mirrored("127.0.0.1:1", mirror, 1, 4)
	cfg.Services[0] = service(serviceName, model.HTTP, named(t, "a", 3)...)
	cfg.Routes[0].Rules[0].Session = &model.Session{Name: "x-session", Type: model.Header}
	s := serve(t, cfg)
	c := newClient(t)
	target := "http://" + s.addr() + "/"
	first := fetch(t, c, target)
	token := first.header.Get("X-Session")
	for range 99 {
		if got := fetch(t, c, target, "X-Session", token); got.by != first.by {
			t.Fatalf("the session of %s is served by %s", first.by, got.by)
		}
	}
	for range 24 { // one of the 25 copies may be of the first request
		if got := <-tokens; got != token && got != "" {
			t.Errorf("the mirror got the token %q, want %q", got, token)
		}
	}
	if m := s.mirrorSnapshot(); m.Considered != 100 || m.Selected != 25 {
		t.Errorf("%d of %d requests were copied, want 25 of 100", m.Selected, m.Considered)
	}
}

func TestAnUpgradeBeginsASession(t *testing.T) {
	cfg := plain(switching(t, make(chan string, 1)))
	cfg.Routes[0].Rules[0].Session = &model.Session{Name: "s", Type: model.Cookie}
	k := newTalk(t, serve(t, cfg).addr())
	k.send(upgradeRequest)
	head, err := rawHead(k.r)
	if err != nil || !strings.HasPrefix(head, "HTTP/1.1 101 ") || !strings.Contains(head, "\r\nSet-Cookie: s=") {
		t.Errorf("head %q, %v", head, err)
	}
}
