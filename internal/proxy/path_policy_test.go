package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/telemetry"
)

func TestPathsThatServersReadDifferentlyAreRefused(t *testing.T) {
	var asked, copied atomic.Int64
	addr := backend(t, func(w http.ResponseWriter, r *http.Request) { asked.Add(1); io.WriteString(w, r.RequestURI) })
	copies := backend(t, func(http.ResponseWriter, *http.Request) { copied.Add(1) })
	admin := ruleTo(serviceName)
	admin.Matches[0].Path.Value = "/admin"
	moved := ruleTo()
	moved.Matches[0].Path.Value = "/old"
	moved.Filters.Redirect = &model.Redirect{Status: 301, Path: &model.PathPatch{Prefix: true, Value: "/new"}}
	rewritten := ruleTo(serviceName)
	rewritten.Matches[0].Path.Value = "/in"
	rewritten.Filters.Rewrite = &model.Rewrite{Path: &model.PathPatch{Value: "/out"}}
	all := ruleTo(serviceName)
	all.Filters.Mirrors = []model.Mirror{{Service: "default/copy:80", Numerator: 1, Denominator: 1}}
	all.Filters.CORS = &model.CORS{AllowOrigins: []string{"*"}}
	cfg := config([]model.Service{service(serviceName, model.HTTP, addr), service("default/copy:80", model.HTTP, copies)}, all, admin, moved, rewritten)
	cfg.Listeners[0].PathPolicy = model.PathStrict
	packages := cfg.Routes[0]
	packages.Ref.Name, packages.PathPolicy = "packages", model.PathAsWritten
	own := ruleTo(serviceName)
	own.Matches[0].Path.Value = "/packages"
	packages.Rules = []model.Rule{own}
	cfg.Routes = append(cfg.Routes, packages)
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}

	var out bytes.Buffer
	log := telemetry.NewAccessLog(&out, telemetry.AccessLogOptions{})
	s := serve(t, cfg, func(o *Options) { o.AccessLog = log })
	clients := []*http.Client{newClient(t), h2cClient(t)}
	ask := func(c *http.Client, method, target string) (int, string) {
		t.Helper()
		req, err := http.NewRequest(method, "http://"+s.addr(), nil)
		if err != nil {
			t.Fatal(err)
		}
		req.URL.Opaque = target
		if method == "OPTIONS" {
			req.Header = http.Header{"Origin": {"http://a.example"}, "Access-Control-Request-Method": {"GET"}}
		}
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(b)
	}
	refused := []struct{ target, reading string }{
		{"/admin%2Fx", "escaped_slash"}, {"/admin;x", "path_parameter"}, {"/x//y", "empty_segment"}, {"/ADMIN", "letter_case"}, {"/admin./x", "trailing_dot"},
		{"/old//x", "empty_segment"}, {"/in;x", "path_parameter"}, {"/in/%2561", "double_escape"}, {"/a%5Cb", "backslash"}, {"/a/../b", "dot_segment"},
		{`/a\b`, "backslash"}, {"/Packages/x", "letter_case"},
	}
	passed := []struct{ target, want string }{{"/packages/@a%2Fb;c", "/packages/@a%2Fb;c"}, {"/shop/Cart.html", "/shop/Cart.html"}, {"/in/x", "/out"}}
	for _, c := range clients {
		before := asked.Load()
		for _, r := range refused {
			for _, method := range []string{"GET", "OPTIONS"} {
				status, text := ask(c, method, r.target)
				if status != 400 || !strings.HasPrefix(text, "ambiguous_path: ") {
					t.Errorf("%s %s: %d %q", method, r.target, status, text)
				}
			}
		}
		if n := asked.Load() - before; n != 0 {
			t.Errorf("the backend got %d of what is refused", n)
		}
		for _, p := range passed {
			if status, text := ask(c, "GET", p.target); status != 200 || text != p.want {
				t.Errorf("%s: %d %q, want %q", p.target, status, text, p.want)
			}
		}
	}
	if n, want := s.failures(telemetry.AmbiguousPath), uint64(len(refused)*2*len(clients)); n != want {
		t.Errorf("%d failures are counted, want %d", n, want)
	}
	if n := copied.Load(); n > int64(len(clients)) {
		t.Errorf("the mirror got %d copies, some of what is refused", n)
	}
	if err := log.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	said := map[string]int{}
	for d := json.NewDecoder(&out); ; {
		var r struct {
			Path, Reason, Route string
			Reading             string `json:"path_reading"`
		}
		if err := d.Decode(&r); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if (r.Reason == "ambiguous_path") != (r.Reading != "") || r.Route == "" {
			t.Errorf("log: %+v", r)
		}
		said[r.Path+" "+r.Reading]++
	}
	for _, r := range refused {
		if n := said[strings.ReplaceAll(r.target, `\`, "%5C")+" "+r.reading]; n < 2*len(clients) {
			t.Errorf("the log says %d times that %s has %s: %v", n, r.target, r.reading, fmt.Sprint(said))
		}
	}
}
