package smi_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/weirmesh/weir/internal/dialect/goldentest"
	"github.com/weirmesh/weir/internal/dialect/smi"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/routing"
	"github.com/weirmesh/weir/test/size"
)

// asYAML is what a user gets.
func asYAML(t testing.TB, routes []smi.Converted) string {
	t.Helper()
	var parts []string
	for _, r := range routes {
		text, err := yaml.Marshal(r.Route)
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, string(text))
	}
	return strings.Join(parts, "---\n")
}

func TestConvertedRoutesAreValid(t *testing.T) {
	n := 0
	for name, g := range goldentest.All(t, leastGoldens) {
		routes, _ := smi.Convert(goldentest.Load(t, g))
		n += len(routes)
		for _, f := range set(t, asYAML(t, routes)).Findings {
			t.Errorf("%s: %s\n%s", name, f, asYAML(t, routes))
		}
	}
	if n < leastGoldens {
		t.Errorf("only %d routes", n)
	}
}

type fields map[string]string

func (f fields) Field(name string) (string, bool) {
	v, ok := f[name]
	return v, ok
}

// TestConvertedRoutesMeanTheSame sends random requests through a split and through the route it is converted to, with a
// Gateway in the place of the route's parent.
func TestConvertedRoutesMeanTheSame(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	services := strings.SplitN(web, "---\n", 2)[1] + "apiVersion: v1\nkind: Service\nmetadata: {name: web-v2}\nspec: {ports: [{port: 80}]}\n---\n"
	for range size.Of(20, 200) {
		text := services + "kind: TrafficSplit\nmetadata: {name: a}\nspec:\n  service: web\n  backends: [{service: web-v1, weight: 0}, {service: web-v2, weight: 3}]\n"
		if r.IntN(3) > 0 {
			text += "  matches: [{kind: HTTPRouteGroup, name: g}]\n---\nkind: HTTPRouteGroup\nmetadata: {name: g}\nmatches:\n"
			for i := range 1 + r.IntN(3) {
				text += fmt.Sprintf("- name: m%d\n  pathRegex: %q\n", i, pick("", "/a", "/a|/b", "/[ab]+/", ".*c", "/a$"))
				if r.IntN(2) == 0 {
					text += "  methods: [" + pick("GET", "POST, GET", "'*'") + "]\n"
				}
				if r.IntN(2) == 0 {
					text += "  headers: [{x: " + pick("'1'", "'[12]'", ".*") + "}]\n"
				}
			}
		}
		split := set(t, text)
		routes, lost := smi.Convert(split)
		if len(routes) != 1 {
			t.Fatalf("%d routes, lost %v, from\n%s", len(routes), lost, text)
		}
		spec := routes[0].Route["spec"].(map[string]any)
		spec["parentRefs"] = []any{map[string]any{"name": "gw"}}
		route := set(t, services+fmt.Sprintf(gatewayOn, 80, "HTTP", "null")+asYAML(t, routes))
		a, b := compile(t, translate(split).Config), compile(t, translate(route).Config)
		for range 30 {
			f := fields{}
			if r.IntN(2) == 0 {
				f["x"] = pick("1", "2", "3", "")
			}
			req := &routing.Request{Host: "web", Method: pick("GET", "POST", "PUT"), Path: pick("/", "/a", "/a/b", "/b/c", "/x/a", "/ab/", "/c"), Fields: f}
			if x, y := answeredBy(t, a, req), answeredBy(t, b, req); x != y {
				t.Fatalf("%+v goes to %s by the split and to %s by the route\n%s\n%s", req, x, y, text, asYAML(t, routes))
			}
		}
	}
}

func compile(t *testing.T, cfg model.Config) *routing.Table {
	t.Helper()
	table, err := routing.Compile(&cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func answeredBy(t *testing.T, table *routing.Table, req *routing.Request) string {
	t.Helper()
	var d routing.Decision
	if !table.Listeners()[0].Match(req, &d) {
		t.Fatalf("%+v matches nothing", req)
	}
	b := d.Rule.Pick()
	if l := b.Leaf(req); l != nil {
		return l.Service
	}
	return b.Backend.Service
}

func TestConvertSaysWhatARouteCannot(t *testing.T) {
	const split = "---\nkind: TrafficSplit\nmetadata: {name: c}\nspec:\n  service: web\n  backends: [%s]\n  matches: [{kind: HTTPRouteGroup, name: g}]\n---\nkind: HTTPRouteGroup\nmetadata: {name: g}\nmatches: [%s]\n"
	base := strings.SplitN(web, "---\n", 2)[1] // without its split
	for name, c := range map[string]struct{ backends, match, note, lost string }{
		"paths":          {"{service: web-v1, weight: 1}", "{name: a, pathRegex: /a}", ".* is appended", ""},
		"the rest":       {"{service: web-v1, weight: 1}", "{name: a}", "404", ""},
		"the root":       {"{service: web, weight: 1}", "{name: a}", "not ask the route again", ""},
		"large weights":  {"{service: web-v1, weight: 4000000}, {service: web, weight: 2000000}", "{name: a}", "reduced", ""},
		"larger weights": {"{service: web-v1, weight: 4000001}, {service: web, weight: 2000000}", "{name: a}", "", "at most 1000000"},
		"headers twice":  {"{service: web-v1, weight: 1}", "{name: a, headers: [{x: '1'}, {X: '2'}]}", "", "two expressions for the header"},
		"foreign":        {"{service: web-v1, weight: 1}, {service: a.b, weight: 1}", "{name: a}", "", "is in the namespace b"},
		"many backends":  {strings.TrimSuffix(strings.Repeat("{service: web-v1, weight: 1}, ", 17), ", "), "{name: a}", "", "at most 16"},
	} {
		t.Run(name, func(t *testing.T) {
			routes, lost := smi.Convert(set(t, base+fmt.Sprintf(split, c.backends, c.match)))
			if c.note != "" && (len(routes) != 1 || !strings.Contains(strings.Join(routes[0].Notes, "\n"), c.note)) {
				t.Errorf("got %v, want a note that says %q", routes, c.note)
			}
			if c.lost != "" && (len(routes) != 0 || !slices.ContainsFunc(lost, func(f resource.Finding) bool { return f.Code == "WR623" && strings.Contains(f.Message, c.lost) })) {
				t.Errorf("got %v and %v, want it lost as %q", routes, lost, c.lost)
			}
		})
	}
}

func TestConvertKeepsTheShareOfAServiceThatIsNotThere(t *testing.T) {
	text := strings.Replace(web, "backends: [", "backends: [{service: gone, weight: 0}, ", 1)
	routes, lost := smi.Convert(set(t, text))
	if len(lost) > 0 || len(routes) != 1 || !strings.Contains(asYAML(t, routes), "- name: gone\n      port: 80\n      weight: 0\n") {
		t.Errorf("got %s, %v", asYAML(t, routes), lost)
	}
}
