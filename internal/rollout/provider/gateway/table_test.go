package gateway_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/url"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/dialect"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/rollout"
	"github.com/weirmesh/weir/internal/rollout/provider/gateway"
	"github.com/weirmesh/weir/internal/routing"
	"github.com/weirmesh/weir/test/size"
)

var requests = flag.Int("requests", 0, "how many requests are compared; 0 is the default of the run")

// fields are a request's header.
type fields map[string]string

func (f fields) Field(name string) (string, bool) {
	v, ok := f[strings.ToLower(name)]
	return v, ok
}

// surroundings are the objects around a route.
func surroundings() []metav1.Object {
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name, Namespace: "default"} }
	class := &gatewayv1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: "weir"}, Spec: gatewayv1.GatewayClassSpec{ControllerName: "weirmesh.github.io/gateway-controller"}}
	all := []metav1.Object{class, &gatewayv1.Gateway{ObjectMeta: meta("gw"), Spec: gatewayv1.GatewaySpec{
		GatewayClassName: "weir", Listeners: []gatewayv1.Listener{{Name: "http", Port: 80, Protocol: "HTTP"}},
	}}}
	for _, name := range []string{"svc", "svc-canary", "other"} {
		all = append(all, &corev1.Service{ObjectMeta: meta(name), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}})
	}
	return all
}

// tableOf is the table of a route.
func tableOf(t *testing.T, route map[string]any) *routing.Table {
	t.Helper()
	kinds := dialect.Kinds()
	object, err := resource.Decode(kinds, &unstructured.Unstructured{Object: runtime.DeepCopyJSON(route)})
	if err != nil {
		t.Fatal(err)
	}
	if object.Value() == nil {
		t.Fatalf("the route is not valid: %s", inJSON(route))
	}
	result, err := control.Options{}.Translate(resource.NewSet(kinds, append(surroundings(), object.Value().(metav1.Object))...))
	if err != nil {
		t.Fatal(err)
	}
	table, left := routing.Compile(result.Config, nil)
	if len(left) > 0 {
		t.Fatalf("%v is left out of %s", left, inJSON(route))
	}
	return table
}

func inJSON(v any) string {
	text, _ := json.Marshal(v)
	return string(text)
}

// outcome is what becomes of a request: the filters, and the shares of services.
func outcome(table *routing.Table, req *routing.Request) (filters string, shares map[string]float64) {
	var d routing.Decision
	again := *req
	if !table.Listeners()[0].Match(&again, &d) {
		return "no rule", nil
	}
	sum := 0.0
	shares = map[string]float64{}
	for _, b := range d.Rule.Backends {
		sum += float64(b.Backend.Weight)
	}
	for _, b := range d.Rule.Backends {
		shares[b.Backend.Service] += float64(b.Backend.Weight) / sum
	}
	return inJSON(d.Rule.Rule.Filters) + inJSON(d.Rule.Rule.Timeouts), shares
}

// maker makes random routes, steps and requests out of few values, so that they meet often.
type maker struct{ *rand.Rand }

func (m maker) one(all ...string) string { return all[m.IntN(len(all))] }

func (m maker) path() map[string]any {
	switch m.IntN(8) {
	case 0:
		return map[string]any{"type": "RegularExpression", "value": m.one("/a/.*", "/a/b(/.*)?", "/.*b")}
	case 1, 2:
		return map[string]any{"type": "Exact", "value": m.one("/a", "/a/b", "/a/b/c", "/b")}
	}
	return map[string]any{"type": "PathPrefix", "value": m.one("/", "/a", "/a/", "/a/b", "/a/b/c", "/b")}
}

func (m maker) tests(names ...string) (list []any) {
	for _, name := range names {
		if m.IntN(3) > 0 {
			continue
		}
		if m.IntN(5) == 0 {
			list = append(list, map[string]any{"name": name, "type": "RegularExpression", "value": m.one("1|2", "[0-9]+", "1.*")})
		} else {
			list = append(list, map[string]any{"name": name, "type": "Exact", "value": m.one("1", "2")})
		}
	}
	return list
}

func (m maker) match(headers, query []string) map[string]any {
	out := map[string]any{}
	if m.IntN(3) > 0 {
		out["path"] = m.path()
	}
	if list := m.tests(headers...); list != nil {
		out["headers"] = list
	}
	if list := m.tests(query...); list != nil {
		out["queryParams"] = list
	}
	return out
}

func (m maker) route() map[string]any {
	var rules []any
	for i := range 1 + m.IntN(4) {
		rule := map[string]any{"filters": []any{map[string]any{"type": "ResponseHeaderModifier", "responseHeaderModifier": map[string]any{
			"set": []any{map[string]any{"name": "rule", "value": fmt.Sprint(i)}},
		}}}}
		var matches []any
		for range m.IntN(3) {
			match := m.match([]string{"X", "y"}, []string{"q"})
			if m.IntN(4) == 0 {
				match["method"] = m.one("GET", "POST")
			}
			matches = append(matches, match)
		}
		if matches != nil {
			rule["matches"] = matches
		}
		backend := func(name string) any {
			return map[string]any{"name": name, "port": int64(80), "weight": int64(m.IntN(4))}
		}
		switch m.IntN(4) {
		case 0:
			rule["backendRefs"] = []any{map[string]any{"name": "other", "port": int64(80)}}
		case 1:
			rule["backendRefs"] = []any{backend("svc"), backend("other"), backend("svc")}
		default:
			rule["backendRefs"] = []any{map[string]any{"name": "svc", "port": int64(80), "weight": int64(7)}}
		}
		rules = append(rules, rule)
	}
	return map[string]any{
		"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": map[string]any{"name": "r", "namespace": "default"},
		"spec": map[string]any{"parentRefs": []any{map[string]any{"name": "gw"}}, "rules": rules},
	}
}

func (m maker) routing() rollout.Routing {
	if m.IntN(5) == 0 {
		return rollout.Routing{Percent: m.IntN(101)}
	}
	var r rollout.Routing
	for range 1 + m.IntN(2) {
		text := inJSON(m.match([]string{"x", "Z"}, []string{"q", "p"}))
		var match rollouts.Match
		if err := json.Unmarshal([]byte(text), &match); err != nil {
			panic(err)
		}
		r.Matches = append(r.Matches, match)
	}
	return r
}

func (m maker) request() *routing.Request {
	f := fields{}
	for _, name := range []string{"x", "y", "z"} {
		if m.IntN(2) == 0 {
			f[name] = m.one("1", "2", "12")
		}
	}
	query := url.Values{}
	for _, name := range []string{"q", "p"} {
		if m.IntN(2) == 0 {
			query.Set(name, m.one("1", "2", "12"))
		}
	}
	return &routing.Request{
		Host: "a.example", Method: m.one("GET", "POST", "PUT"), Path: m.one("/", "/a", "/a/b", "/a/b/c", "/a/b/c/d", "/ab", "/b", "/b/c", "/c"), Query: query.Encode(), Fields: f,
	}
}

// names reports, step by step and naively, whether a step names a request.
func names(r rollout.Routing, req *routing.Request) bool {
	holds := func(expression bool, want, value string, there bool) bool {
		if expression {
			return there && regexp.MustCompile("^(?:"+want+")$").MatchString(value)
		}
		return there && want == value
	}
	for _, m := range r.Matches {
		ok := true
		if p := m.Path; p != nil {
			switch *p.Type {
			case "Exact":
				ok = *p.Value == req.Path
			case "RegularExpression":
				ok = holds(true, *p.Value, req.Path, true)
			default:
				prefix := strings.TrimRight(*p.Value, "/")
				ok = req.Path == prefix || strings.HasPrefix(req.Path, prefix+"/")
			}
		}
		for _, h := range m.Headers {
			value, there := req.Fields.Field(string(h.Name))
			ok = ok && holds(*h.Type == "RegularExpression", h.Value, value, there)
		}
		query, _ := url.ParseQuery(req.Query)
		for _, q := range m.QueryParams {
			ok = ok && holds(*q.Type == "RegularExpression", q.Value, query.Get(string(q.Name)), query.Has(string(q.Name)))
		}
		if ok {
			return true
		}
	}
	return false
}

const stable, canary = "default/svc:80", "default/svc-canary:80"

// TestExactlyTheRequestsThatAStepNamesReachTheCanary compares routes with and without a step in Weir's own table. A step
// that is told to fall short may send fewer requests to the canary, but never others.
func TestExactlyTheRequestsThatAStepNamesReachTheCanary(t *testing.T) {
	want := *requests
	if want == 0 {
		want = size.Of(40_000, 200_000)
	}
	seed := rand.Uint64()
	m := maker{rand.New(rand.NewPCG(seed, 0))}
	compared, reached, short, whole := 0, 0, 0, 0
	for compared < want {
		route, r := m.route(), m.routing()
		before := inJSON(route)
		laid := gateway.Provider.Lay(rollout.Request{
			Target: rollout.Target{Group: gatewayv1.GroupName, Kind: "HTTPRoute", Name: "r"}, Object: route, Namespace: "default", Stable: "svc", Canary: "svc-canary", Routing: r,
		})
		what := fmt.Sprintf("seed %d: %s with %s is %s, told %v", seed, before, inJSON(r), inJSON(laid.Object), laid.Told)
		if inJSON(route) != before {
			t.Fatalf("%s: the user's object is %s now", what, inJSON(route))
		}
		shortened := false
		for _, told := range laid.Told {
			shortened = shortened || told.Short
		}
		if shortened {
			short++
		} else {
			whole++
		}
		old, now := tableOf(t, route), tableOf(t, laid.Object)
		for range 200 {
			req := m.request()
			filters, shares := outcome(old, req)
			gotFilters, got := outcome(now, req)
			named := names(r, req)
			wanted := map[string]float64{}
			for service, share := range shares {
				switch {
				case service != stable:
					wanted[service] += share
				case len(r.Matches) > 0 && named:
					wanted[canary] += share
				case len(r.Matches) > 0:
					wanted[stable] += share
				default:
					wanted[canary] += share * float64(r.Percent) / 100
					wanted[stable] += share * float64(100-r.Percent) / 100
				}
			}
			compared++
			if got[canary] > 0 {
				reached++
			}
			if same(got, wanted) && gotFilters == filters {
				continue
			}
			if shortened && same(got, shares) && gotFilters == filters {
				continue
			}
			t.Fatalf("%s %s?%s %v goes to %v with %s, want %v with %s\n%s", req.Method, req.Path, req.Query, req.Fields, got, gotFilters, wanted, filters, what)
		}
	}
	t.Logf("%d requests, %d of which reached the canary; %d steps fell short, %d did not", compared, reached, short, whole)
	if reached < compared/20 || whole < short {
		t.Errorf("only %d of %d requests reached the canary, and %d of %d steps fell short: too few to mean something", reached, compared, short, short+whole)
	}
}

func same(a, b map[string]float64) bool {
	for _, pair := range [][2]map[string]float64{{a, b}, {b, a}} {
		for k, v := range pair[0] {
			if d := v - pair[1][k]; d > 1e-9 || d < -1e-9 {
				return false
			}
		}
	}
	return true
}
