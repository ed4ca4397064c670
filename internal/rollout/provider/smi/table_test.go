package smi_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
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
	"github.com/weirmesh/weir/internal/rollout/provider/smi"
	"github.com/weirmesh/weir/internal/routing"
	"github.com/weirmesh/weir/test/size"
)

var requests = flag.Int("requests", 0, "how many requests are compared; 0 is the default of the run")

type fields map[string]string

func (f fields) Field(name string) (string, bool) {
	v, ok := f[strings.ToLower(name)]
	return v, ok
}

// world is a route that leads to the root, with splits and groups.
func world(t *testing.T, objects ...map[string]any) *routing.Table {
	t.Helper()
	kinds := dialect.Kinds()
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name, Namespace: "default"} }
	port := gatewayv1.PortNumber(80)
	all := []metav1.Object{
		&gatewayv1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: "weir"}, Spec: gatewayv1.GatewayClassSpec{ControllerName: "weirmesh.github.io/gateway-controller"}},
		&gatewayv1.Gateway{ObjectMeta: meta("gw"), Spec: gatewayv1.GatewaySpec{GatewayClassName: "weir", Listeners: []gatewayv1.Listener{{Name: "http", Port: 80, Protocol: "HTTP"}}}},
		&gatewayv1.HTTPRoute{ObjectMeta: meta("r"), Spec: gatewayv1.HTTPRouteSpec{
			CommonRouteSpec: gatewayv1.CommonRouteSpec{ParentRefs: []gatewayv1.ParentReference{{Name: "gw"}}},
			Rules:           []gatewayv1.HTTPRouteRule{{BackendRefs: []gatewayv1.HTTPBackendRef{{BackendRef: gatewayv1.BackendRef{BackendObjectReference: gatewayv1.BackendObjectReference{Name: "root", Port: &port}}}}}},
		}},
	}
	for _, name := range []string{"root", "svc", "svc-canary", "other"} {
		all = append(all, &corev1.Service{ObjectMeta: meta(name), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}})
	}
	for i, u := range objects {
		object, err := resource.Decode(kinds, &unstructured.Unstructured{Object: runtime.DeepCopyJSON(u)})
		if err != nil || object.Value() == nil {
			t.Fatalf("%v: %s is not valid", err, inJSON(u))
		}
		o := object.Value().(metav1.Object)
		o.SetCreationTimestamp(metav1.Unix(int64(i), 0)) // what is added is younger
		all = append(all, o)
	}
	result, err := control.Options{}.Translate(resource.NewSet(kinds, all...))
	if err != nil {
		t.Fatal(err)
	}
	table, left := routing.Compile(result.Config, nil)
	if len(left) > 0 {
		t.Fatalf("%v is left out", left)
	}
	return table
}

func inJSON(v any) string {
	text, _ := json.Marshal(v)
	return string(text)
}

// shares are those of the services that a request goes to.
func shares(t *testing.T, table *routing.Table, req *routing.Request) map[string]float64 {
	t.Helper()
	var d routing.Decision
	again := *req
	if !table.Listeners()[0].Match(&again, &d) {
		t.Fatal("no rule")
	}
	split := d.Rule.Backends[0].Split(&again)
	if split == nil {
		return map[string]float64{"root": 1}
	}
	sum, out := 0.0, map[string]float64{}
	for _, l := range split.Leaves {
		sum += float64(l.Weight)
	}
	for _, l := range split.Leaves {
		out[strings.TrimSuffix(strings.TrimPrefix(l.Service, "default/"), ":80")] += float64(l.Weight) / sum
	}
	return out
}

// TestExactlyTheRequestsThatAStepNamesReachTheCanary compares splits with and without a step in Weir's own table.
func TestExactlyTheRequestsThatAStepNamesReachTheCanary(t *testing.T) {
	want := *requests
	if want == 0 {
		want = size.Of(40_000, 200_000)
	}
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	one := func(all ...string) string { return all[rnd.IntN(len(all))] }
	compared, reached := 0, 0
	for compared < want {
		version := one("v1alpha4", "v1alpha2", "v1alpha1")
		weight := func() any {
			n := int64(rnd.IntN(5))
			if version == "v1alpha1" {
				return fmt.Sprint(n*500) + "m"
			}
			return n
		}
		backends := []any{map[string]any{"service": one("svc", "svc.default.svc.cluster.local"), "weight": weight()}, map[string]any{"service": "other", "weight": weight()}}
		if rnd.IntN(3) == 0 {
			backends = backends[:1]
		}
		s := map[string]any{
			"apiVersion": "split.smi-spec.io/" + version, "kind": "TrafficSplit", "metadata": map[string]any{"name": "s", "namespace": "default"},
			"spec": map[string]any{"service": "root", "backends": backends},
		}
		var r rollout.Routing
		if rnd.IntN(3) == 0 {
			r.Percent = rnd.IntN(101)
		} else {
			for range 1 + rnd.IntN(2) {
				m := map[string]any{"headers": []any{}}
				if rnd.IntN(2) == 0 {
					m["path"] = map[string]any{"type": one("Exact", "PathPrefix"), "value": one("/", "/a", "/a/", "/a.b", "/a/b")}
				} else if rnd.IntN(3) == 0 {
					m["path"] = map[string]any{"type": "RegularExpression", "value": one("/a|/b", "/a/.*", "/.*b")}
				}
				for _, name := range []string{"x", "Y"} {
					if rnd.IntN(2) == 0 {
						m["headers"] = append(m["headers"].([]any), map[string]any{"name": name, "type": one("Exact", "RegularExpression"), "value": one("1", "1.", "1|2")})
					}
				}
				var match rollouts.Match
				if err := json.Unmarshal([]byte(inJSON(m)), &match); err != nil {
					t.Fatal(err)
				}
				r.Matches = append(r.Matches, match)
			}
		}
		before := inJSON(s)
		laid := smi.Provider.Lay(rollout.Request{
			Target: rollout.Target{Group: "split.smi-spec.io", Kind: "TrafficSplit", Name: "s"}, Object: s, Namespace: "default", Stable: "svc", Canary: "svc-canary", Routing: r,
		})
		what := fmt.Sprintf("seed %d: %s with %s is %s and %s, told %v", seed, before, inJSON(r), inJSON(laid.Object), inJSON(laid.Owned), laid.Told)
		if inJSON(s) != before {
			t.Fatalf("%s: the user's object was changed", what)
		}
		if len(laid.Told) > 0 {
			if w := backends[0].(map[string]any)["weight"]; w == int64(0) || w == "0m" {
				continue // it leads nowhere
			}
			t.Fatal(what)
		}
		old, now := world(t, s), world(t, append([]map[string]any{laid.Object}, laid.Owned...)...)
		for range 200 {
			f := fields{}
			for _, name := range []string{"x", "y"} {
				if rnd.IntN(2) == 0 {
					f[name] = one("1", "12", "2", "1.")
				}
			}
			req := &routing.Request{Host: "a.example", Method: "GET", Path: one("/", "/a", "/a/b", "/a.b", "/a/b/c", "/axb", "/ab", "/b"), Fields: f}
			wanted := map[string]float64{}
			for service, share := range shares(t, old, req) {
				switch {
				case service != "svc":
					wanted[service] += share
				case len(r.Matches) > 0 && named(r.Matches, req):
					wanted["svc-canary"] += share
				case len(r.Matches) > 0:
					wanted["svc"] += share
				default:
					wanted["svc-canary"] += share * float64(r.Percent) / 100
					wanted["svc"] += share * float64(100-r.Percent) / 100
				}
			}
			got := shares(t, now, req)
			compared++
			if got["svc-canary"] > 0 {
				reached++
			}
			for _, service := range []string{"root", "svc", "svc-canary", "other"} {
				if d := got[service] - wanted[service]; d > 1e-9 || d < -1e-9 {
					t.Fatalf("%s %v goes to %v, want %v\n%s", req.Path, req.Fields, got, wanted, what)
				}
			}
		}
	}
	if reached < compared/10 {
		t.Errorf("only %d of %d requests reached the canary: too few to mean something", reached, compared)
	}
}

// named reports, naively, whether one of the matches names a request.
func named(matches []rollouts.Match, req *routing.Request) bool {
	whole := func(re, value string) bool { return regexp.MustCompile("^(?:" + re + ")$").MatchString(value) }
	for _, m := range matches {
		ok := true
		if p := m.Path; p != nil {
			prefix := strings.TrimRight(*p.Value, "/")
			ok = *p.Type == "Exact" && *p.Value == req.Path || *p.Type == "RegularExpression" && whole(*p.Value, req.Path) ||
				*p.Type == "PathPrefix" && (req.Path == prefix || strings.HasPrefix(req.Path, prefix+"/"))
		}
		for _, h := range m.Headers {
			value, there := req.Fields.Field(string(h.Name))
			ok = ok && there && (*h.Type == "Exact" && value == h.Value || *h.Type == "RegularExpression" && whole(h.Value, value))
		}
		if ok {
			return true
		}
	}
	return false
}
