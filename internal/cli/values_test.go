package cli_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/dialect"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/routing"
)

const goodAndBad = `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge}
spec:
  gatewayClassName: weir
  listeners: [{name: http, port: 80, protocol: HTTP}]
---
apiVersion: v1
kind: Service
metadata: {name: shop}
spec: {ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: shop-1, labels: {kubernetes.io/service-name: shop}}
addressType: IPv4
ports: [{port: 80}]
endpoints: [{addresses: [10.0.0.1]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: good}
spec:
  parentRefs: [{name: edge}]
  hostnames: [good.example]
  rules: [{backendRefs: [{name: shop, port: 80}]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: bad}
spec:
  parentRefs: [{name: edge}]
  hostnames: [bad.example]
  rules:
  - {"matches": [%s], "filters": [%s], "backendRefs": [%s]}
`

// What once froze every proxy, and what a proxy would have sent although no server takes it, is judged alike by "weir check", the statuses, the
// check of the model and the compiler; and whoever is asked, the other route is served.
func TestValuesThatCannotBeServedAreJudgedAlikeEverywhere(t *testing.T) {
	quoted := func(s string) string { b, _ := json.Marshal(s); return string(b) }
	path := func(kind, value string) string {
		return fmt.Sprintf(`{"path": {"type": %q, "value": %s}}`, kind, quoted(value))
	}
	header := func(pattern string) string {
		return fmt.Sprintf(`{"headers": [{"type": "RegularExpression", "name": "x-h", "value": %s}]}`, quoted(pattern))
	}
	rewrite := func(kind, field, value string) string {
		return fmt.Sprintf(`{"type": "URLRewrite", "urlRewrite": {"path": {"type": %q, %q: %s}}}`, kind, field, quoted(value))
	}
	redirect := func(value string) string {
		return fmt.Sprintf(`{"type": "RequestRedirect", "requestRedirect": {"path": {"type": "ReplaceFullPath", "replaceFullPath": %s}}}`, quoted(value))
	}
	match := func(kind model.MatchType, value string) func(*model.Rule) {
		return func(r *model.Rule) { r.Matches[0].Path = model.PathMatch{Type: kind, Value: value} }
	}
	headers := func(pattern string) func(*model.Rule) {
		return func(r *model.Rule) {
			r.Matches[0].Headers = []model.ValueMatch{{Type: model.Regex, Name: "x-h", Value: pattern}}
		}
	}
	patch := func(value string) func(*model.Rule) {
		return func(r *model.Rule) { r.Filters.Rewrite = &model.Rewrite{Path: &model.PathPatch{Value: value}} }
	}
	costly := strings.Repeat(".{0,1000}", 455) + "!"
	nested := strings.Repeat("(", 999) + "a" + strings.Repeat(")", 999)
	starred := strings.Repeat("(?:b", 500) + "a" + strings.Repeat(")*", 500) // valid by itself, but not between anchors
	for name, x := range map[string]struct {
		match, filter string
		inModel       func(*model.Rule)
		code, field   string // empty where the value is good
		reasons       []string
	}{
		"escaped NUL":                  {path("PathPrefix", "/x%00"), "", match(model.Prefix, "/x%00"), "WR561", "matches[0].path.value", []string{"/x%00", "NUL"}},
		"parameter behind dots":        {path("PathPrefix", "/a/..;b"), "", match(model.Prefix, "/a/..;b"), "WR561", "matches[0].path.value", []string{"hides a dot segment"}},
		"backslash behind dots":        {path("PathPrefix", "/a/..%5cb"), "", match(model.Prefix, "/a/..%5cb"), "WR561", "matches[0].path.value", []string{"hides a dot segment"}},
		"dots escaped twice":           {path("PathPrefix", "/%252e%252e"), "", match(model.Prefix, "/%252e%252e"), "WR561", "matches[0].path.value", []string{"hides a dot segment"}},
		"exact, dots escaped twice":    {path("Exact", "/%252e%252e"), "", match(model.Exact, "/%252e%252e"), "WR561", "matches[0].path.value", []string{"hides a dot segment"}},
		"open quote":                   {path("RegularExpression", `/a\Q.b`), "", match(model.Regex, `/a\Q.b`), "", "", nil},
		"groups nested 999 deep":       {header(nested), "", headers(nested), "", "", nil},
		"repetitions nested too deep":  {header(starred), "", headers(starred), "WR534", "matches[0].headers[0].value", []string{"nests too deeply"}},
		"a pattern that stops a proxy": {header(costly), "", headers(costly), "WR560", "matches[0].headers[0].value", []string{"910005 instructions", "5000"}},
		"stray percent in a rewrite":   {path("PathPrefix", "/"), rewrite("ReplaceFullPath", "replaceFullPath", "/100%"), patch("/100%"), "WR561", "filters[0].urlRewrite.path.replaceFullPath", []string{"/100%", "escape"}},
		"query in a rewrite":           {path("PathPrefix", "/"), rewrite("ReplacePrefixMatch", "replacePrefixMatch", "/a?b"), patch("/a?b"), "WR561", "filters[0].urlRewrite.path.replacePrefixMatch", []string{"/a?b"}},
		"line break in a rewrite":      {path("PathPrefix", "/"), rewrite("ReplaceFullPath", "replaceFullPath", "/a\r\nb"), patch("/a\r\nb"), "WR561", "filters[0].urlRewrite.path.replaceFullPath", nil},
		"stray percent in a redirect": {path("PathPrefix", "/"), redirect("/%zz"), func(r *model.Rule) {
			r.Filters.Redirect = &model.Redirect{Status: 302, Path: &model.PathPatch{Value: "/%zz"}}
		}, "WR561", "filters[0].requestRedirect.path.replaceFullPath", nil},
		"space and umlaut in a rewrite": {path("PathPrefix", "/"), rewrite("ReplaceFullPath", "replaceFullPath", "/ein Caf\u00e9"), patch("/ein Caf\u00e9"), "", "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "shop.yaml")
			backend := `{"name": "shop", "port": 80}`
			if strings.Contains(x.filter, "RequestRedirect") {
				backend = ""
			}
			if err := os.WriteFile(file, fmt.Appendf(nil, goodAndBad, x.match, x.filter, backend), 0o600); err != nil {
				t.Fatal(err)
			}
			checkSays(t, file, x.code, x.field, x.reasons)
			statusSays(t, file, x.code)
			modelSays(t, x.inModel, x.code != "")
		})
	}
}

func checkSays(t *testing.T, file, code, field string, reasons []string) {
	t.Helper()
	r := weir("", "check", "-o", "json", file)
	var report struct {
		Errors   int
		Findings []struct {
			Code, Severity, Message, Fix string
			Ref                          model.Ref
			Origin                       struct {
				File string
				Line int
			}
		}
	}
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil {
		t.Fatal(err)
	}
	if code == "" {
		if report.Errors != 0 {
			t.Errorf("check says %s", r.stdout)
		}
		return
	}
	if report.Errors != 1 || len(report.Findings) != 1 {
		t.Fatalf("check says %s", r.stdout)
	}
	f := report.Findings[0]
	if f.Code != code || f.Ref.Name != "bad" || f.Ref.Field != "spec.rules[0]."+field || f.Origin.File != file || f.Origin.Line == 0 || f.Fix == "" {
		t.Errorf("finding %+v", f)
	}
	for _, want := range reasons {
		if !strings.Contains(f.Message, want) {
			t.Errorf("%q does not say %q", f.Message, want)
		}
	}
}

func statusSays(t *testing.T, file, code string) {
	t.Helper()
	set, err := resource.Load(dialect.Kinds(), []string{file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	out, err := control.Options{}.Translate(set)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range out.Statuses {
		if s.Ref.Kind != "HTTPRoute" {
			continue
		}
		c := s.Parents[0].Conditions[0]
		want := "True Accepted"
		if s.Ref.Name == "bad" && code != "" {
			want = "False UnsupportedValue"
		}
		if got := string(c.Status) + " " + c.Reason; c.Type != "Accepted" || got != want {
			t.Errorf("route %s: %s=%s, want %s", s.Ref.Name, c.Type, got, want)
		}
	}
	serves(t, out.Config, code == "")
}

// modelSays gives the value to the check of the model and to the compiler, as if a front end had let it pass.
func modelSays(t *testing.T, put func(*model.Rule), refused bool) {
	t.Helper()
	cfg := &model.Config{
		Listeners: []model.Listener{{Name: "l", Port: 80, Protocol: model.HTTP}},
		Services:  []model.Service{{Name: "default/shop:80", Protocol: model.HTTP}},
	}
	for _, name := range []string{"bad", "good"} {
		cfg.Routes = append(cfg.Routes, model.Route{
			Ref: model.Ref{Kind: "HTTPRoute", Namespace: "default", Name: name}, Attachments: []model.Attachment{{Listener: "l", Hostnames: []string{name + ".example"}}},
			Rules: []model.Rule{{Matches: []model.Match{{Path: model.PathMatch{Type: model.Prefix, Value: "/"}}}, Backends: []model.Backend{{Service: "default/shop:80", Weight: 1}}}},
		})
	}
	put(&cfg.Routes[0].Rules[0])
	if err := cfg.Validate(); (err != nil) != refused {
		t.Errorf("Validate says %v", err)
	}
	if _, left := routing.Compile(cfg, nil); (len(left) == 1 && left[0].Ref.Name == "bad") != refused {
		t.Errorf("Compile leaves out %v", left)
	}
	serves(t, cfg, !refused)
}

// serves checks that the good route is served, and that nothing is left out of a configuration that is said to be whole.
func serves(t *testing.T, cfg *model.Config, whole bool) {
	t.Helper()
	table, left := routing.Compile(cfg, nil)
	if whole && left != nil {
		t.Errorf("left out: %v", left)
	}
	var d routing.Decision
	if !table.Listeners()[0].Match(&routing.Request{Host: "good.example", Method: "GET", Path: "/x"}, &d) || d.Rule.Route.Ref.Name != "good" {
		t.Error("the good route is not served")
	}
}
