package proxy

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/peertest"
)

// TestPrefixIsReplacedAsGatewayAPISays: see Gateway API, HTTPPathModifier.replacePrefixMatch.
func TestPrefixIsReplacedAsGatewayAPISays(t *testing.T) {
	addr := backend(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.RequestURI) })
	for _, test := range []struct{ path, prefix, value, want string }{
		{"/foo/bar", "/foo", "/xyz", "/xyz/bar"},
		{"/foo/bar", "/foo", "/xyz/", "/xyz/bar"},
		{"/foo/bar", "/foo/", "/xyz", "/xyz/bar"},
		{"/foo/bar", "/foo/", "/xyz/", "/xyz/bar"},
		{"/foo", "/foo", "/xyz", "/xyz"},
		{"/foo/", "/foo", "/xyz", "/xyz/"},
		{"/foo/bar", "/foo", "", "/bar"},
		{"/foo/", "/foo", "", "/"},
		{"/foo", "/foo", "", "/"},
		{"/foo/", "/foo", "/", "/"},
		{"/foo", "/foo", "/", "/"},
		{"/foo/bar", "/", "/xyz", "/xyz/foo/bar"},
		{"/", "/", "/xyz", "/xyz/"},
		{"/foo/bar?a=/foo&b", "/foo", "/xyz", "/xyz/bar?a=/foo&b"},
		{"/foo/b%2Fr?", "/foo", "/xyz", "/xyz/b%2Fr?"},
		{"/f%6fo/b%7er", "/foo", "/xyz", "/xyz/b~r"},
		{"/a/../foo/./bar", "/foo", "/xyz", "/xyz/bar"},
	} {
		cfg := plain(addr)
		cfg.Routes[0].Rules[0].Matches[0].Path.Value = test.prefix
		cfg.Routes[0].Rules[0].Filters.Rewrite = &model.Rewrite{Path: &model.PathPatch{Prefix: true, Value: test.value}}
		s := serve(t, cfg)
		k := newTalk(t, s.addr())
		k.send("GET " + test.path + " HTTP/1.1\r\nHost: a\r\n\r\n")
		if _, got := k.answer("GET"); got != test.want {
			t.Errorf("%s with %q replaced by %q: %s, want %s", test.path, test.prefix, test.value, got, test.want)
		}
	}
}

func TestHostAndPathAreRewritten(t *testing.T) {
	addr := backend(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s %s", r.Host, r.RequestURI, r.Header.Get("X-Forwarded-Host"))
	})
	cfg := plain(addr)
	cfg.Routes[0].Rules[0].Filters.Rewrite = &model.Rewrite{Hostname: "inner.example", Path: &model.PathPatch{Value: "/one page"}}
	s := serve(t, cfg)
	k := newTalk(t, s.addr())
	k.send("GET /x?y=z HTTP/1.1\r\nHost: outer.example\r\n\r\n")
	if _, got := k.answer("GET"); got != "inner.example /one%20page?y=z outer.example" {
		t.Errorf("backend got %q", got)
	}
	// A backend's own rewrite wins.
	cfg = plain(addr)
	cfg.Routes[0].Rules[0].Backends[0].Filters.Rewrite = &model.Rewrite{Hostname: "backend.example"}
	if err := s.Apply(cfg); err != nil {
		t.Fatal(err)
	}
	k.send("GET /x?y=z HTTP/1.1\r\nHost: outer.example\r\n\r\n")
	if _, got := k.answer("GET"); got != "backend.example /x?y=z outer.example" {
		t.Errorf("backend got %q", got)
	}
}

func TestHeadersAreModifiedByRuleAndBackend(t *testing.T) {
	var got http.Header
	addr := backend(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.Header
		w.Header()["X-Out"] = []string{"backend"}
		w.Header()["X-Gone"] = []string{"1"}
		w.Header()["Content-Length"] = []string{"2"}
		fmt.Fprint(w, "ok")
	})
	cfg := plain(addr)
	rule := &cfg.Routes[0].Rules[0]
	rule.Filters = model.Filters{
		RequestHeaders: &model.HeaderEdit{
			Set:    []model.HeaderValue{{Name: "X-Set", Value: "rule"}, {Name: "Content-Length", Value: "99"}},
			Add:    []model.HeaderValue{{Name: "x-add", Value: "rule"}},
			Remove: []string{"X-Remove", "X-Forwarded-Proto"},
		},
		ResponseHeaders: &model.HeaderEdit{Set: []model.HeaderValue{{Name: "X-Rule", Value: "1"}}, Remove: []string{"x-gone"}},
	}
	rule.Backends[0].Filters = model.Filters{
		RequestHeaders:  &model.HeaderEdit{Add: []model.HeaderValue{{Name: "X-Add", Value: "backend"}}},
		ResponseHeaders: &model.HeaderEdit{Add: []model.HeaderValue{{Name: "X-Out", Value: "filter"}}},
	}
	s := serve(t, cfg)
	req, _ := http.NewRequest("GET", "http://"+s.addr()+"/", nil)
	req.Header = http.Header{"X-Set": {"client", "again"}, "X-Add": {"client"}, "X-Remove": {"client"}, "X-Keep": {"client"}}
	resp, err := newClient(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	for name, want := range map[string][]string{
		"X-Set": {"rule"}, "X-Add": {"client", "rule", "backend"}, "X-Remove": nil, "X-Keep": {"client"}, "X-Forwarded-Proto": nil,
		"X-Forwarded-For": {"127.0.0.1"}, "Content-Length": nil,
	} {
		if !slices.Equal(got[name], want) {
			t.Errorf("request field %s: %q, want %q", name, got[name], want)
		}
	}
	for name, want := range map[string][]string{"X-Out": {"backend", "filter"}, "X-Gone": nil, "X-Rule": {"1"}, "Content-Length": {"2"}} {
		if !slices.Equal(resp.Header[name], want) {
			t.Errorf("answer field %s: %q, want %q", name, resp.Header[name], want)
		}
	}
}

func TestRedirects(t *testing.T) {
	full := func(v string) *model.PathPatch { return &model.PathPatch{Value: v} }
	prefix := func(v string) *model.PathPatch { return &model.PathPatch{Prefix: true, Value: v} }
	for _, test := range []struct {
		r    model.Redirect
		port int32
		tls  bool
		path string
		want string
	}{
		{model.Redirect{Scheme: "https", Status: 301}, 80, false, "/a?b", "https://shop.example/a?b"},
		{model.Redirect{Scheme: "https", Status: 302}, 8080, false, "/a", "https://shop.example/a"},
		{model.Redirect{Scheme: "https", Port: 8443, Status: 302}, 80, false, "/a", "https://shop.example:8443/a"},
		{model.Redirect{Scheme: "http", Port: 80, Status: 302}, 8080, false, "/a", "http://shop.example/a"},
		{model.Redirect{Hostname: "other.example", Status: 307}, 80, false, "/a?", "http://other.example/a?"},
		{model.Redirect{Hostname: "other.example", Status: 308}, 8080, false, "/a", "http://other.example:8080/a"},
		{model.Redirect{Hostname: "other.example", Status: 303}, 443, true, "/a", "https://other.example/a"},
		{model.Redirect{Hostname: "other.example", Status: 303}, 8443, true, "/a", "https://other.example:8443/a"},
		{model.Redirect{Scheme: "http", Status: 303}, 443, true, "/a", "http://shop.example/a"},
		{model.Redirect{Path: full("/new"), Status: 302}, 80, false, "/old/x?y", "http://shop.example/new?y"},
		{model.Redirect{Path: prefix("/new"), Status: 302}, 80, false, "/old/x?y", "http://shop.example/new/x?y"},
		{model.Redirect{Path: prefix("/"), Status: 302}, 80, false, "/old", "http://shop.example/"},
		{model.Redirect{Port: 8080, Status: 302}, 80, false, "/a", "http://shop.example:8080/a"},
	} {
		cfg := plain("127.0.0.1:1")
		var pool = peertest.NewAuthority(t).Pool()
		if test.tls {
			pool = secure(t, cfg, "shop.example")
		}
		cfg.Listeners[0].Port = test.port
		r := &cfg.Routes[0].Rules[0]
		r.Filters.Redirect = &test.r
		r.Backends = nil
		r.Fault = &model.Fault{Status: 500, Reason: "BackendNotFound"}
		if test.r.Path != nil && test.r.Path.Prefix {
			r.Matches[0].Path.Value = "/old"
		}
		s := serve(t, cfg)
		k := newTalk(t, s.addr())
		if test.tls {
			k = newTLSTalk(t, s.addr(), pool, "shop.example")
		}
		k.send("POST " + test.path + " HTTP/1.1\r\nHost: Shop.example:1234\r\nContent-Length: 3\r\n\r\nabc" +
			"GET " + test.path + " HTTP/1.1\r\nHost: Shop.example:1234\r\n\r\n")
		for range 2 {
			resp, _ := k.answer("GET")
			if got := resp.Header.Get("Location"); got != test.want || resp.StatusCode != test.r.Status {
				t.Errorf("%+v at port %d: %d %s, want %d %s", test.r, test.port, resp.StatusCode, got, test.r.Status, test.want)
			}
		}
	}
}

func TestCORS(t *testing.T) {
	addr := backend(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "http://from.backend")
		fmt.Fprint(w, "served")
	})
	strict := &model.CORS{
		AllowOrigins:     []string{"https://shop.example", "https://*.shop.example", "http://port.example:8080", "http://default.example:80"},
		AllowCredentials: true, AllowMethods: []string{"GET", "PUT"}, AllowHeaders: []string{"X-One", "X-Two"},
		ExposeHeaders: []string{"X-Out"}, MaxAge: 60,
	}
	open := &model.CORS{AllowOrigins: []string{"*"}, AllowMethods: []string{"*"}, AllowHeaders: []string{"*"}, ExposeHeaders: []string{"*"}}
	openCredentials := &model.CORS{AllowOrigins: []string{"*"}, AllowCredentials: true, AllowMethods: []string{"*"}, AllowHeaders: []string{"*"}, ExposeHeaders: []string{"*"}}
	for _, test := range []struct {
		name      string
		cors      *model.CORS
		origin    string
		preflight bool
		want      map[string]string
	}{
		{"allowed preflight", strict, "https://shop.example", true, map[string]string{
			"Access-Control-Allow-Origin": "https://shop.example", "Access-Control-Allow-Credentials": "true",
			"Access-Control-Allow-Methods": "GET, PUT", "Access-Control-Allow-Headers": "X-One, X-Two", "Access-Control-Max-Age": "60",
			"Access-Control-Expose-Headers": "X-Out"}},
		{"preflight by wildcard", strict, "https://a.b.shop.example", true, map[string]string{"Access-Control-Allow-Origin": "https://a.b.shop.example"}},
		{"preflight from elsewhere", strict, "https://evil.example", true, map[string]string{
			"Access-Control-Allow-Origin": "", "Access-Control-Allow-Methods": "", "Access-Control-Allow-Credentials": ""}},
		{"wildcard is no suffix trick", strict, "https://evilshop.example", true, map[string]string{"Access-Control-Allow-Origin": ""}},
		{"wildcard is no port", strict, "https://a.shop.example:8443", true, map[string]string{"Access-Control-Allow-Origin": ""}},
		{"scheme matters", strict, "http://shop.example", true, map[string]string{"Access-Control-Allow-Origin": ""}},
		{"port", strict, "http://port.example:8080", false, map[string]string{"Access-Control-Allow-Origin": "http://port.example:8080"}},
		{"default port", strict, "http://default.example", false, map[string]string{"Access-Control-Allow-Origin": "http://default.example"}},
		{"actual request", strict, "https://shop.example", false, map[string]string{
			"Access-Control-Allow-Origin": "https://shop.example", "Access-Control-Allow-Credentials": "true",
			"Access-Control-Expose-Headers": "X-Out", "Access-Control-Allow-Methods": "", "Vary": "Origin"}},
		{"actual request from elsewhere", strict, "https://evil.example", false, map[string]string{"Access-Control-Allow-Origin": "", "Vary": "Origin"}},
		{"no origin", strict, "", false, map[string]string{"Access-Control-Allow-Origin": "", "Vary": "Origin"}},
		{"open", open, "https://any.example", false, map[string]string{
			"Access-Control-Allow-Origin": "*", "Access-Control-Expose-Headers": "*", "Vary": ""}},
		{"open preflight", open, "https://any.example", true, map[string]string{
			"Access-Control-Allow-Origin": "*", "Access-Control-Allow-Methods": "*", "Access-Control-Allow-Headers": "*", "Access-Control-Max-Age": "5"}},
		{"open with credentials", openCredentials, "https://any.example", false, map[string]string{
			"Access-Control-Allow-Origin": "https://any.example", "Access-Control-Expose-Headers": "", "Vary": "Origin"}},
		{"open preflight with credentials", openCredentials, "https://any.example", true, map[string]string{
			"Access-Control-Allow-Origin": "https://any.example", "Access-Control-Allow-Methods": "DELETE", "Access-Control-Allow-Headers": "x-a, x-b"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := plain(addr)
			cfg.Routes[0].Rules[0].Filters.CORS = test.cors
			s := serve(t, cfg)
			k := newTalk(t, s.addr())
			origin := ""
			if test.origin != "" {
				origin = "Origin: " + test.origin + "\r\n"
			}
			wantBody := "served"
			if test.preflight {
				k.send("OPTIONS / HTTP/1.1\r\nHost: a\r\n" + origin + "Access-Control-Request-Method: DELETE\r\nAccess-Control-Request-Headers: x-a, x-b\r\n\r\n")
				wantBody = ""
			} else {
				k.send("GET / HTTP/1.1\r\nHost: a\r\n" + origin + "\r\n")
			}
			resp, body := k.answer("GET")
			if body != wantBody {
				t.Errorf("body %q", body)
			}
			if test.preflight && resp.StatusCode != 204 {
				t.Errorf("status %d", resp.StatusCode)
			}
			for name, want := range test.want {
				if got := strings.Join(resp.Header.Values(name), "|"); got != want {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
		})
	}
}

func TestOptionsWithoutPreflightGoesToTheBackend(t *testing.T) {
	addr := backend(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "served") })
	cfg := plain(addr)
	cfg.Routes[0].Rules[0].Filters.CORS = &model.CORS{AllowOrigins: []string{"*"}}
	s := serve(t, cfg)
	k := newTalk(t, s.addr())
	k.send("OPTIONS / HTTP/1.1\r\nHost: a\r\nOrigin: https://x.example\r\n\r\n")
	if _, body := k.answer("OPTIONS"); body != "served" {
		t.Errorf("body %q", body)
	}
}
