package control_test

import (
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/dialect"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/routing"
)

// strictFiles are a Gateway and a route with a path for each kind of annotation.
const strictFiles = `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, annotations: {GATEWAY}}
spec:
  gatewayClassName: weir
  listeners: [{name: http, port: 8080, protocol: HTTP}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: shop, annotations: {ROUTE}}
spec:
  parentRefs: [{name: edge}]
  rules:
  - matches: [{path: {type: TYPE, value: "PATH"}}, {path: {type: PathPrefix, value: /plain}}]
    filters: [{type: RequestRedirect, requestRedirect: {hostname: a.example}}]
`

func TestARuleWhosePathThePolicyRefusesIsTold(t *testing.T) {
	const strict, written = "weirmesh.github.io/path-policy: strict", "weirmesh.github.io/path-policy: as-written"
	for _, c := range []struct {
		gateway, route, kind, path string
		flag                       model.PathPolicy
		told                       bool
	}{
		{strict, "", "PathPrefix", "/a;b", "", true},
		{"", strict, "Exact", "/a%5Cb", "", true},
		{"", "", "Exact", "/a%5Cb", model.PathStrict, true},
		{strict, written, "Exact", "/a%5Cb", model.PathStrict, false},
		{"", "", "PathPrefix", "/a;b", "", false},
		{strict, "", "PathPrefix", "/a%20b", "", false},
		{strict, "", "PathPrefix", "/c%23", "", false},
		{strict, "", "PathPrefix", "/Cart", "", false},
		{strict, "", "RegularExpression", "/a;b", "", false},
	} {
		text := strings.NewReplacer("GATEWAY", c.gateway, "ROUTE", c.route, "TYPE", c.kind, "PATH", c.path).Replace(strictFiles)
		set, err := resource.Load(dialect.Kinds(), []string{"-"}, strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		r, err := control.Options{PathPolicy: c.flag}.Translate(set)
		if err != nil {
			t.Fatal(err)
		}
		told := false
		for _, f := range r.Findings {
			told = told || f.Code == "WR547" && f.Ref.Field == "spec.rules[0].matches[0].path.value" && f.Fix != ""
		}
		if told != c.told || len(r.Findings) > 1 {
			t.Errorf("%+v: findings %v", c, r.Findings)
		}
		if c.kind == "RegularExpression" {
			continue
		}
		// The reported paths are the refused ones.
		table, _ := routing.Compile(r.Config, nil)
		l := table.Port("tcp", "", 8080).Listener("h")
		req, d := &routing.Request{Host: "h", Method: "GET"}, routing.Decision{}
		if req.Path, err = routing.NormalizePath(c.path); err != nil || !l.Match(req, &d) {
			t.Fatalf("%s matches nothing: %v", c.path, err)
		}
		if refusal, refused := l.Refuses(c.path, req, &d, nil); (refusal.Reading != routing.OneReading) != told {
			t.Errorf("%+v: refused %v %v, told %v", c, refusal.Reading, refused, told)
		}
	}
}
