package feed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirmesh/weir/internal/identity"
	"github.com/weirmesh/weir/internal/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	gateway = "default/gw"
	patient = time.Minute // how long a test waits for what must happen
)

// world is an authority, and a folder for the files of proxies.
type world struct {
	t         testing.TB
	authority *identity.Authority
	dir       string
}

func newWorld(t testing.TB) *world {
	t.Helper()
	a, err := identity.New(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, authority: a, dir: t.TempDir()}
	w.write("ca.crt", string(a.Bundle()))
	return w
}

func (w *world) write(name, content string) string {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return path
}

// authenticate takes tokens of the form "good:GATEWAY:PROXY".
func authenticate(_ context.Context, token string) (gateway model.Owner, proxy string, err error) {
	if p := strings.Split(token, ":"); len(p) == 3 && p[0] == "good" {
		return model.Owner(p[1]), p[2], nil
	}
	return "", "", fmt.Errorf("token %s is not good", token)
}

func (w *world) server() *Server {
	own := &identity.Server{Subject: identity.Subject{DNSNames: []string{"controller"}}}
	own.Use(w.authority)
	return &Server{Certificate: own.Certificate, Authenticate: authenticate, Logger: slog.New(slog.NewTextHandler(testLog{w.t}, nil))}
}

// testLog writes a log to a test's.
type testLog struct{ t testing.TB }

func (l testLog) Write(b []byte) (int, error) {
	l.t.Helper()
	l.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

// serve serves until the test ends or stop is called, on address or any.
func (w *world) serve(s *Server, address string) (addr string, stop func()) {
	w.t.Helper()
	l, err := net.Listen("tcp", cmp.Or(address, "127.0.0.1:0"))
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("Serve: %v", err)
		}
	})
	w.t.Cleanup(stop)
	return l.Addr().String(), stop
}

// begin serves a configuration to the proxy "a", and returns when that runs it and the server knows.
func (w *world) begin(s *Server, c *model.Config) (p *proxy, address string, stop func()) {
	w.t.Helper()
	address, stop = w.serve(s, "")
	p = w.run(w.client("a", address))
	publish(w.t, s, c)
	p.serves(c)
	knows(w.t, s, "a", c)
	return p, address, stop
}

// client is a proxy's, whose name makes its files.
func (w *world) client(name, address string) *Client {
	return &Client{
		Address: address, ServerName: "controller", Owner: gateway,
		CAFile: filepath.Join(w.dir, "ca.crt"), TokenFile: w.write(name+".token", "good:"+gateway+":"+name+"\n"),
		StateFile: filepath.Join(w.dir, name+".state"),
		Logger:    slog.New(slog.NewTextHandler(testLog{w.t}, nil)).With("proxy", name),
	}
}

// proxy is a client that runs, and what it applied.
type proxy struct {
	t      testing.TB
	client *Client
	stop   func()

	mu      sync.Mutex
	configs []*model.Config
	refuse  error
}

func (w *world) run(c *Client) *proxy {
	p := &proxy{t: w.t, client: c}
	p.start()
	return p
}

func (p *proxy) start() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.client.Run(ctx, p.apply) }()
	p.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			p.t.Errorf("Run: %v", err)
		}
	})
	p.t.Cleanup(p.stop)
}

func (p *proxy) apply(c *model.Config) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse != nil {
		return p.refuse
	}
	p.configs = append(p.configs, c)
	return nil
}

func (p *proxy) setRefuse(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = err
}

func (p *proxy) applied() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.configs)
}

func (p *proxy) last() *model.Config {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.configs) == 0 {
		return nil
	}
	return p.configs[len(p.configs)-1]
}

// until waits for a condition.
func until(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patient); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// serves waits until a proxy serves a configuration.
func (p *proxy) serves(c *model.Config) {
	p.t.Helper()
	version := Version(c)
	until(p.t, "the proxy serves the configuration", func() bool { return p.client.Status().Version == version })
	if Version(p.last()) != version {
		p.t.Fatal("what the proxy serves is not what it says")
	}
}

// knows waits until the server knows that a proxy runs a configuration.
func knows(t testing.TB, s *Server, name string, c *model.Config) Proxy {
	t.Helper()
	version := Version(c)
	var found Proxy
	until(t, "the server knows what the proxy runs", func() bool {
		for _, found = range s.Running(gateway) {
			if found.Name == name && found.Version == version {
				return true
			}
		}
		return false
	})
	return found
}

func publish(t testing.TB, s *Server, c *model.Config) {
	t.Helper()
	if err := s.Publish(map[model.Owner]*model.Config{gateway: c}); len(err) != 0 {
		t.Fatal(err)
	}
}

// config returns a configuration with that many routes and services, each service with ten endpoints.
func config(routes, services int) *model.Config {
	c := &model.Config{Listeners: []model.Listener{{
		Name: gateway + "/http", Ref: model.Ref{Kind: "Gateway", Namespace: "default", Name: "gw", Field: "spec.listeners[0]"}, Port: 80, Protocol: model.HTTP,
	}}}
	name := func(i int) string { return model.ServiceName("default", fmt.Sprintf("service-%05d", i), 80) }
	for i := range services {
		s := model.Service{Name: name(i), Ref: model.Ref{Kind: "Service", Namespace: "default", Name: fmt.Sprintf("service-%05d", i)}, Protocol: model.HTTP}
		for e := range 10 {
			s.Endpoints = append(s.Endpoints, model.Endpoint{Address: fmt.Sprintf("10.%d.%d.%d:8080", i/250, i%250, e)})
		}
		c.Services = append(c.Services, s)
	}
	for i := range routes {
		ref := model.Ref{Kind: "HTTPRoute", Namespace: "default", Name: fmt.Sprintf("route-%05d", i)}
		rule := ref
		rule.Field = "spec.rules[0]"
		backend := ref
		backend.Field = "spec.rules[0].backendRefs[0]"
		c.Routes = append(c.Routes, model.Route{
			Ref: ref, Created: time.Unix(1_700_000_000+int64(i), 0).UTC(),
			Attachments: []model.Attachment{{Listener: gateway + "/http", Hostnames: []string{fmt.Sprintf("host-%d.example.com", i%1000)}}},
			Rules: []model.Rule{{
				Ref:      rule,
				Matches:  []model.Match{{Path: model.PathMatch{Type: model.Prefix, Value: fmt.Sprintf("/api/%d", i)}, Method: "GET"}},
				Backends: []model.Backend{{Ref: backend, Service: name(i % services), Weight: 1}},
			}},
		})
	}
	c.Sort()
	return c
}

// moved is c, made anew, with one endpoint of one service at another address.
func moved(c *model.Config, service int, address string) *model.Config {
	out := *c
	out.Services = append([]model.Service(nil), c.Services...)
	s := &out.Services[service]
	s.Endpoints = append([]model.Endpoint(nil), s.Endpoints...)
	s.Endpoints[0].Address = address
	out.Sort()
	return &out
}

func TestProxyServesAndServerKnows(t *testing.T) {
	w := newWorld(t)
	s := w.server()
	c := config(10, 5)
	w.begin(s, c)
	if r := knows(t, s, "a", c); r.Err != "" || r.Since.IsZero() {
		t.Errorf("running: %+v", r)
	}
	if got := s.Version(gateway); got != Version(c) {
		t.Errorf("Version: %q", got)
	}
}

func TestOneEndpointIsOneResource(t *testing.T) {
	w := newWorld(t)
	s := w.server()
	c := config(100, 2000)
	p, _, _ := w.begin(s, c)
	before := s.Stats()
	c = moved(c, 1234, "10.200.0.1:8080")
	publish(t, s, c)
	p.serves(c)
	knows(t, s, "a", c)
	after := s.Stats()
	if n := after.Responses - before.Responses; n != 1 {
		t.Errorf("%d responses", n)
	}
	if n := after.Bytes - before.Bytes; n > 1000 {
		t.Errorf("%d bytes for one service with ten endpoints", n)
	} else {
		t.Logf("first %d bytes in %d responses, then %d bytes", before.Bytes, before.Responses, n)
	}
}

func TestPartThatIsNotValidHoldsUpNoOther(t *testing.T) {
	w := newWorld(t)
	s := w.server()
	good := config(10, 5)
	p, _, _ := w.begin(s, good)

	bad := moved(good, 0, "not an address")
	bad = moved(bad, 1, "10.9.9.9:80")
	publish(t, s, bad)
	until(t, "the server knows what is left out", func() bool { r := s.Running(gateway); return len(r) == 1 && r[0].Err != "" })
	r := s.Running(gateway)[0]
	if r.Version != Version(bad) || !strings.Contains(r.Err, `"not an address" is not host:port`) {
		t.Errorf("running: %+v", r)
	}
	got := p.last()
	if len(got.Routes) != len(good.Routes) || len(got.Services) != len(good.Services) || !slices.ContainsFunc(got.Services[1].Endpoints, func(e model.Endpoint) bool { return e.Address == "10.9.9.9:80" }) {
		t.Errorf("what is sound is not served: %+v", got)
	}
	if left := p.client.Status().LeftOut; len(left) != 1 {
		t.Errorf("left out: %v", left)
	}
	better := moved(good, 1, "10.9.9.9:80")
	publish(t, s, better)
	if r := knows(t, s, "a", better); r.Err != "" {
		t.Errorf("running: %+v", r)
	}
	if left := p.client.Status().LeftOut; left != nil {
		t.Errorf("left out: %v", left)
	}
	if n := s.Stats().Refusals; n != 0 {
		t.Errorf("%d refusals", n)
	}
}

// TestAPolicyThatCannotBeReadClosesWhatItIsAbout: a field that only a newer release understands narrows it, perhaps.
func TestAPolicyThatCannotBeReadClosesWhatItIsAbout(t *testing.T) {
	const (
		name    = "policy/TrafficRole/shop/r"
		ref     = `"ref":{"kind":"TrafficRole","namespace":"shop","name":"r"}`
		readers = `"targets":[{"namespace":"shop","kind":"Deployment","name":"cart"}],"sources":[{"kind":"ServiceAccount","namespace":"shop","name":"web"}],"traffic":"any"`
	)
	cart := []model.Target{{Namespace: "shop", Kind: "Deployment", Name: "cart"}}
	for what, c := range map[string]struct {
		data    string
		targets []model.Target
		kind    string
	}{
		"an unknown field":             {`{"policies":[{` + ref + `,` + readers + `,"hours":"9-17"}]}`, cart, "TrafficRole"},
		"an unknown field of a target": {`{"policies":[{` + ref + `,"targets":[{"namespace":"shop","kind":"Deployment","name":"cart","zone":"a"}]}]}`, cart, "TrafficRole"},
		"other targets":                {`{"policies":[{` + ref + `,"selector":{"app":"cart"}}]}`, []model.Target{{}}, "TrafficRole"},
		"another type":                 {`{"policies":[{` + ref + `,"targets":"cart"}]}`, []model.Target{{}}, "policy"},
		"nobody's":                     {`{"policies":[{` + readers + `,"hours":"9-17"}]}`, cart, "policy"},
		"no JSON":                      {`hours`, []model.Target{{}}, "policy"},
	} {
		for _, before := range []bool{false, true} {
			var has assembly
			parts := []*received{newReceived(name, []byte(`{"policies":[{`+ref+`,`+readers+`}]}`)), newReceived(name, []byte(c.data))}
			if parts[0].err != nil || parts[1].err == nil {
				t.Fatalf("%s: %v, %v", what, parts[0].err, parts[1].err)
			}
			if !before {
				parts = parts[1:]
			}
			for _, p := range parts {
				if err := has.merge([]*received{p}, maxConfig); err != nil {
					t.Fatal(err)
				}
			}
			got, left := has.config()
			if len(got.Policies) != 1 || got.Policies[0].Ref.Kind != c.kind || got.Policies[0].Void == "" || got.Policies[0].Sources != nil || !slices.Equal(got.Policies[0].Targets, c.targets) ||
				got.Validate() != nil {
				t.Errorf("%s, known before: %t: %+v, %v", what, before, got.Policies, got.Validate())
			}
			if len(left) != 1 || !strings.Contains(left[0].String(), "it allows nothing") {
				t.Errorf("%s, known before: %t: left out %v", what, before, left)
			}
		}
	}
}

// A part that only a newer release understands keeps its last readable version, in the state file, too; a new one is
// left out.
func TestPartThatCannotBeReadStaysWhatItWas(t *testing.T) {
	c := config(3, 3)
	s, err := newSnapshot(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	var has assembly
	merge := func(name string, data []byte) {
		if err := has.merge([]*received{newReceived(name, data)}, maxConfig); err != nil {
			t.Fatal(err)
		}
	}
	route := ""
	for _, p := range s.parts {
		merge(p.name, p.resource.Resource.Value)
		if strings.HasPrefix(p.name, "route/") {
			route = p.name
		}
	}
	want, _ := has.config()
	for range 2 { // what cannot be read twice in a row, too
		merge(route, []byte(`{"routes":[{"novelty":1}]}`))
	}
	merge("route/HTTPRoute/default/new", []byte(`{"routes":[{"novelty":1}]}`))
	got, left := has.config()
	if !got.Equal(want) {
		t.Errorf("it became %+v", got.Routes)
	}
	if len(left) != 2 || !strings.Contains(left[0].String(), "it stays as it was") && !strings.Contains(left[1].String(), "it stays as it was") {
		t.Errorf("left out: %v", left)
	}
	data, err := encodeState(gateway, has.parts)
	if err != nil {
		t.Fatal(err)
	}
	again, _, err := decodeState(data, gateway, maxConfig)
	if err != nil {
		t.Fatal(err)
	}
	if got, left := again.config(); left != nil || !got.Equal(want) {
		t.Errorf("after a restart: %v, left out %v", got.Routes, left)
	}
	merge(route, s.parts[slices.IndexFunc(s.parts, func(p *part) bool { return p.name == route })].resource.Resource.Value)
	if got, left := has.config(); len(left) != 1 || !got.Equal(want) {
		t.Errorf("once it can be read: left out %v", left)
	}
}

func TestWhatApplyRefusesIsTriedAgain(t *testing.T) {
	w := newWorld(t)
	s := w.server()
	address, _ := w.serve(s, "")
	p := w.run(w.client("a", address))
	p.setRefuse(errors.New("port 80 is in use"))
	c := config(3, 3)
	publish(t, s, c)
	until(t, "the server knows of the refusal", func() bool { r := s.Running(gateway); return len(r) == 1 && r[0].Err == "port 80 is in use" })
	p.setRefuse(nil)
	if r := knows(t, s, "a", c); r.Err != "" {
		t.Errorf("running: %+v", r)
	}
	if n := s.Stats().Responses; n != 1 {
		t.Errorf("%d responses", n)
	}
}

func TestTrafficKeepsAProcessorWhileAConfigurationIsApplied(t *testing.T) {
	t.Setenv("GOMAXPROCS", "1") // what is put back afterwards
	before := runtime.GOMAXPROCS(1)
	defer runtime.GOMAXPROCS(before)
	w := newWorld(t)
	s := w.server()
	address, stop := w.serve(s, "")
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	during := 0
	publish(t, s, config(2, 2))
	err := w.client("a", address).Run(ctx, func(*model.Config) error {
		during = runtime.GOMAXPROCS(0)
		cancel()
		return nil
	})
	if err != nil || during != 2 {
		t.Errorf("%d processors while it was applied, want 2; %v", during, err)
	}
	if n := runtime.GOMAXPROCS(0); n != 1 {
		t.Errorf("%d processors afterwards, want 1", n)
	}
}
