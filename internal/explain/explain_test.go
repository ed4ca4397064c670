package explain

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/curl"
	"github.com/weirmesh/weir/internal/finding"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/screen"
)

// gateways returns a configuration of Gateways with a listener each. Each has a host if the listener has one. Their
// routes redirect requests below a path.
func gateways(all ...model.Listener) *Served {
	s := &Served{Config: &model.Config{}, ProxyPerGateway: true, Set: &resource.Set{}}
	for i, l := range all {
		l.Name, l.Port, l.Protocol = string(l.Owner)+"/http", 80, model.HTTP
		l.Ref = model.Ref{Kind: "Gateway", Namespace: l.Owner.Namespace(), Name: l.Owner.Name()}
		s.Config.Listeners = append(s.Config.Listeners, l)
		s.Config.Routes = append(s.Config.Routes, model.Route{
			Ref: model.Ref{Kind: "HTTPRoute", Namespace: "shop", Name: l.Owner.Name()}, Attachments: []model.Attachment{{Listener: l.Name, Hostnames: []string{"*"}}},
			Rules: []model.Rule{{
				Ref:     model.Ref{Kind: "HTTPRoute", Namespace: "shop", Name: l.Owner.Name(), Field: "spec.rules[0]"},
				Matches: []model.Match{{Path: model.PathMatch{Type: model.Prefix, Value: "/" + l.Owner.Name()}}},
				Filters: model.Filters{Redirect: &model.Redirect{Status: 302, Hostname: "there.example"}},
			}},
		})
		s.Set.Gateways = append(s.Set.Gateways, &gatewayv1.Gateway{
			ObjectMeta: metav1.ObjectMeta{Namespace: l.Owner.Namespace(), Name: l.Owner.Name()},
			Status:     gatewayv1.GatewayStatus{Addresses: []gatewayv1.GatewayStatusAddress{{Value: "192.0.2." + string(rune('1'+i))}}},
		})
	}
	return s
}

func request(t *testing.T, text string) *curl.Request {
	t.Helper()
	r, err := curl.ParseText(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestTheGatewayOfARequestIsFoundOrTheReasonSaid(t *testing.T) {
	two := gateways(model.Listener{Owner: "shop/a"}, model.Listener{Owner: "shop/b"})
	hosts := gateways(model.Listener{Owner: "shop/a", Hostname: "a.example"}, model.Listener{Owner: "shop/b", Hostname: "b.example"})
	one := &Served{Config: two.Config}
	for name, c := range map[string]struct {
		served  *Served
		request string
		asked   model.Owner
		want    model.Owner
		by      string
		problem GatewayProblem // if want and by are empty
	}{
		"by its address":        {two, "http://192.0.2.2/x", "", "shop/b", "it has the address 192.0.2.2", 0},
		"by its rule":           {two, "http://any.example/a", "", "shop/a", "of those that listen, it alone has a rule that matches", 0},
		"asked for":             {two, "http://any.example/x", "shop/b", "shop/b", "", 0},
		"files":                 {one, "http://any.example/a", "", "", "files", 0},
		"asked for in files":    {one, "http://any.example/a", "shop/a", "", "", NotSeparate},
		"asked for in vain":     {two, "http://any.example/a", "shop/c", "", "", UnknownGateway},
		"none at all":           {gateways(), "http://any.example/a", "", "", "", NoGateway},
		"none listens":          {two, "http://any.example:81/a", "", "", "", NoneListens},
		"several, no rule":      {two, "http://any.example/x", "", "", "", SeveralListen},
		"by its host":           {hosts, "http://b.example/b", "", "shop/b", "of those that listen, it alone has a rule that matches", 0},
		"refused by any at all": {two, "http://any.example/x -H 'Content-Length: x'", "", "shop/a", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := c.served.Explain(request(t, c.request), c.asked)
			var g *GatewayError
			switch {
			case c.want == "" && c.by == "":
				if !errors.As(err, &g) || g.Problem != c.problem {
					t.Errorf("%v, want problem %d", err, c.problem)
				}
			case err != nil:
				t.Error(err)
			case e.Gateway != c.want || c.want != "" && e.GatewayBy != c.by:
				t.Errorf("at %q since %q, want %q since %q", e.Gateway, e.GatewayBy, c.want, c.by)
			}
		})
	}
}

func TestAGatewayErrorListsWhatThereIs(t *testing.T) {
	_, err := gateways(model.Listener{Owner: "shop/a", Hostname: "a.example"}, model.Listener{Owner: "shop/b"}).Part("shop/c")
	want := "Gateway shop/c is not served; there is:\n  shop/a at 192.0.2.1: 80 a.example\n  shop/b at 192.0.2.2: 80"
	if err == nil || err.Error() != want {
		t.Errorf("%v\nwant\n%s", err, want)
	}
}

// TestARequestStaysAsItIs checks a request that is tried at several Gateways: no note appears twice, and none is added
// to the caller's request.
func TestARequestStaysAsItIs(t *testing.T) {
	served := gateways(model.Listener{Owner: "shop/a"}, model.Listener{Owner: "shop/a-too"})
	served.Config.Routes[1].Rules[0].Matches[0].Path.Value = "/none"
	r := request(t, "curl -L -x proxy http://any.example/a")
	before := *r
	for range 2 {
		e, err := served.Explain(r, "")
		if err != nil || e.Gateway != "shop/a" || e.Answer == nil || e.Answer.Location != "http://there.example/a" {
			t.Fatalf("%+v, %v", e, err)
		}
		if n := len(e.Request.Notes); n != 2 {
			t.Errorf("%d notes: %q", n, e.Request.Notes)
		}
	}
	if !reflect.DeepEqual(*r, before) {
		t.Errorf("%+v was %+v", *r, before)
	}
}

// TestWithoutASetTheRestIsExplained checks what a proxy's configuration alone can explain.
func TestWithoutASetTheRestIsExplained(t *testing.T) {
	served := gateways(model.Listener{Owner: "shop/a"})
	served.Set, served.Findings = nil, []finding.Finding{{Code: "WR999", Ref: model.Ref{Kind: "HTTPRoute", Namespace: "shop", Name: "left"}}}
	for text, matches := range map[string]bool{"http://any.example/a": true, "http://any.example/x": false, "http://any.example:81/": false} {
		e, err := served.Explain(request(t, text), "shop/a")
		if err != nil || e.Matched() != matches || len(e.LeftOut) > 0 {
			t.Errorf("%s: %+v, %v", text, e, err)
			continue
		}
		var b strings.Builder
		if err := e.Print(&b, screen.Screen{}, served.Origin); err != nil || !strings.Contains(b.String(), "request") {
			t.Errorf("%s: %v\n%s", text, err, &b)
		}
	}
}

func TestReferencesHaveTheirOrigin(t *testing.T) {
	rule := model.Ref{Kind: "HTTPRoute", Namespace: "shop", Name: "a", Field: "spec.rules[0]"}
	v := map[string]any{"rule": rule, "list": []any{rule, map[string]any{"kind": "HTTPRoute", "name": "a", "more": 1}}, "n": json.Number("12345678901234567890"), "text": "<&>"}
	got, err := WithOrigins(v, func(r model.Ref) finding.Origin {
		if r == rule {
			return finding.Origin{File: "a.yaml", Line: 7}
		}
		return finding.Origin{}
	})
	if err != nil {
		t.Fatal(err)
	}
	text, err := got.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	const at = `{"kind":"HTTPRoute","namespace":"shop","name":"a","field":"spec.rules[0]","origin":{"file":"a.yaml","line":7}}`
	if s := strings.ReplaceAll(string(text), "\n", ""); s != `{"list":[`+at+`,{"kind":"HTTPRoute","more":1,"name":"a"}],"n":12345678901234567890,"rule":`+at+`,"text":"<&>"}` {
		t.Errorf("%s", s)
	}
}

// TestWhichEndpointsAProxyUsesIsTold, by where it runs, and that a client keeps its own.
func TestWhichEndpointsAProxyUsesIsTold(t *testing.T) {
	endpoint := func(address, nodes, zones string) model.Endpoint {
		return model.Endpoint{Address: address, Nodes: nodes, Zones: zones}
	}
	for name, c := range map[string]struct {
		service model.Service
		want    []string
	}{
		"nothing": {model.Service{Endpoints: []model.Endpoint{endpoint("10.0.0.1:80", "", "")}}, nil},
		"zones": {
			model.Service{Endpoints: []model.Endpoint{endpoint("10.0.0.1:80", "", "za"), endpoint("10.0.0.2:80", "", "za,zb")}},
			[]string{"a proxy prefers the endpoints that are meant for its zone: zone za has 2, zone zb has 1"},
		},
		"nodes and zones": {
			model.Service{Endpoints: []model.Endpoint{endpoint("10.0.0.1:80", "n1", "za")}},
			[]string{"a proxy prefers the endpoints that are meant for its node: node n1 has 1", "a proxy prefers the endpoints that are meant for its zone: zone za has 1"},
		},
		"local": {
			model.Service{NodeLocal: true, ClientAffinity: true, Endpoints: []model.Endpoint{endpoint("10.0.0.1:80", "n1", "")}},
			[]string{"a proxy that knows its node uses the endpoints there alone: node n1 has 1", "what comes from one client address goes to one endpoint"},
		},
	} {
		p := places(&c.service)
		if got := p.lines(); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	many := model.Service{}
	for i := range 10 {
		many.Endpoints = append(many.Endpoints, endpoint(fmt.Sprintf("10.0.0.%d:80", i), "", fmt.Sprintf("z%d", i)))
	}
	p := places(&many)
	if got := p.lines()[0]; !strings.HasSuffix(got, "zone z7 has 1, 2 more") {
		t.Errorf("many zones: %q", got)
	}
}
