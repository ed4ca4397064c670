package routing

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/model"
)

func TestCompileLeavesOutWhatIsInvalidAndServesTheRest(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*model.Config)
		want   string
	}{
		"listener twice": {
			func(c *model.Config) { c.Listeners = append(c.Listeners, c.Listeners[0]) },
			`Gateway ns/gw spec.listeners[0].name: listener "web" occurs twice`,
		},
		"protocol": {
			func(c *model.Config) { c.Listeners[0].Protocol = "udp" },
			`Gateway ns/gw spec.listeners[0].protocol: "udp" is unknown to this version`,
		},
		"TLS and not on a port": {
			func(c *model.Config) {
				c.Listeners = append(c.Listeners, model.Listener{Name: "other", Port: 80, Protocol: model.HTTPS})
			},
			"port 80 has a listener of the protocol \"http\"",
		},
		"unknown listener": {
			func(c *model.Config) { c.Routes[0].Attachments[0].Listener = "gone" },
			`HTTPRoute ns/r attachments[0].listener: listener "gone" does not exist`,
		},
		"no hostnames": {
			func(c *model.Config) { c.Routes[0].Attachments[0].Hostnames = nil },
			"HTTPRoute ns/r attachments[0].hostnames: is empty",
		},
		"empty hostname": {
			func(c *model.Config) { c.Routes[0].Attachments[0].Hostnames = []string{"*", ""} },
			"HTTPRoute ns/r attachments[0].hostnames[1]: is empty",
		},
		"no matches": {
			func(c *model.Config) { c.Routes[0].Rules[0].Matches = nil },
			"HTTPRoute ns/r rules[0].matches: is empty",
		},
		"path type": {
			func(c *model.Config) { c.Routes[0].Rules[0].Matches[0].Path.Type = "glob" },
			`HTTPRoute ns/r rules[0].matches[0].path.type: "glob" is not`,
		},
		"relative path": {
			func(c *model.Config) { c.Routes[0].Rules[0].Matches[0].Path.Value = "a" },
			`HTTPRoute ns/r rules[0].matches[0].path.value: "a": the path does not begin with a slash`,
		},
		"path that has no normal form": {
			func(c *model.Config) { c.Routes[0].Rules[0].Matches[0].Path.Value = "/%zz" },
			`rules[0].matches[0].path.value: "/%zz": the path has an invalid percent escape`,
		},
		"path expression": {
			func(c *model.Config) { c.Routes[0].Rules[0].Matches[0] = regex("/a(") },
			"rules[0].matches[0].path.value: \"/a(\" does not compile: missing closing ): `/a(`",
		},
		"expression valid only between anchors": {
			func(c *model.Config) { c.Routes[0].Rules[0].Matches[0] = regex("a)(b") },
			"unexpected ): `a)(b`",
		},
		"header expression": {
			func(c *model.Config) {
				c.Routes[0].Rules[0].Ref = model.Ref{Kind: "HTTPRoute", Name: "r", Field: "spec.rules[0]"}
				c.Routes[0].Rules[0].Matches[0].Headers = []model.ValueMatch{{Type: model.Regex, Name: "h", Value: "["}}
			},
			"HTTPRoute r spec.rules[0].matches[0].headers[0].value: \"[\" does not compile",
		},
		"header type": {
			func(c *model.Config) {
				c.Routes[0].Rules[0].Matches[0].Headers = []model.ValueMatch{{Type: model.Prefix, Name: "h"}}
			},
			`rules[0].matches[0].headers[0].type: "prefix" is not "exact" or "regex"`,
		},
		"query name": {
			func(c *model.Config) { c.Routes[0].Rules[0].Matches[0].Query = []model.ValueMatch{{Type: model.Exact}} },
			"rules[0].matches[0].query[0].name: is empty",
		},
		"denominator": {
			func(c *model.Config) { c.Routes[0].Rules[0].Filters.Mirrors[0].Denominator = 0 },
			"HTTPRoute ns/r rules[0].filters.mirrors[0].fraction: 1/0 is not a fraction",
		},
		"numerator of a backend's mirror": {
			func(c *model.Config) {
				c.Routes[0].Rules[0].Backends[0].Filters.Mirrors = []model.Mirror{{
					Ref:       model.Ref{Kind: "HTTPRoute", Namespace: "ns", Name: "r", Field: "spec.rules[0].backendRefs[0].filters[1]"},
					Numerator: 3, Denominator: 2,
				}}
			},
			"HTTPRoute ns/r spec.rules[0].backendRefs[0].filters[1].fraction: 3/2 is not a fraction",
		},
	} {
		t.Run(name, func(t *testing.T) {
			route := on("r", []string{"*"}, prefix("/"))
			route.Rules[0].Filters.Mirrors = []model.Mirror{{Numerator: 1, Denominator: 2}}
			route.Rules[0].Backends = []model.Backend{{Weight: 1}}
			cfg := &model.Config{
				Listeners: []model.Listener{{
					Name: "web", Port: 80, Protocol: model.HTTP,
					Ref: model.Ref{Kind: "Gateway", Namespace: "ns", Name: "gw", Field: "spec.listeners[0]"},
				}},
				Routes: []model.Route{route},
			}
			if _, left := Compile(cfg, nil); left != nil {
				t.Fatal(left)
			}
			c.change(cfg)
			good := on("good", []string{"good.example"}, prefix("/"))
			cfg.Routes = append(cfg.Routes, good)
			if cfg.Listeners[0].Protocol != model.HTTP {
				cfg.Listeners = append(cfg.Listeners, model.Listener{Name: "sound", Port: 81, Protocol: model.HTTP})
				cfg.Routes[1].Attachments[0].Listener = "sound"
			}
			table, left := Compile(cfg, nil)
			if len(left) != 1 || !strings.Contains(left[0].String(), c.want) {
				t.Errorf("left out %v, want %s", left, c.want)
			}
			var d Decision
			l := table.Ports()[len(table.Ports())-1].Listener("good.example")
			if !l.Match(&Request{Host: "good.example", Method: "GET", Path: "/x"}, &d) || d.Rule.Route.Ref.Name != "good" {
				t.Errorf("the other route is not served: %+v", d)
			}
		})
	}
}

func TestAnEmptyConfigurationCompiles(t *testing.T) {
	table, left := Compile(&model.Config{}, nil)
	if left != nil || len(table.Ports()) != 0 {
		t.Errorf("%+v, %v", table, left)
	}
}

func TestIDsAreDense(t *testing.T) {
	cfg := randomConfig(rand.New(rand.NewPCG(8, 9)))
	mirrors := func(n int) model.Filters {
		return model.Filters{Mirrors: make([]model.Mirror, n)}
	}
	for i := range cfg.Routes {
		for j := range cfg.Routes[i].Rules {
			rule := &cfg.Routes[i].Rules[j]
			rule.Filters = mirrors(j % 3)
			rule.Backends = []model.Backend{{Weight: 1, Filters: mirrors(2)}, {Weight: 2}}
			for _, list := range [][]model.Mirror{rule.Filters.Mirrors, rule.Backends[0].Filters.Mirrors} {
				for k := range list {
					list[k].Denominator = 1
				}
			}
		}
	}
	table, left := Compile(cfg, nil)
	if left != nil {
		t.Fatal(left)
	}
	rules, backends, mirrored := 0, 0, 0
	mirror := func(list []*Mirror) {
		for _, m := range list {
			if m.ID != mirrored || table.Mirrors()[mirrored] != m {
				t.Fatalf("mirror %d has ID %d", mirrored, m.ID)
			}
			mirrored++
		}
	}
	for i := range cfg.Routes {
		for j := range cfg.Routes[i].Rules {
			r := table.Rules()[rules]
			if r.ID != rules || r.Rule != &cfg.Routes[i].Rules[j] || r.Route != &cfg.Routes[i] || r.Index != j {
				t.Fatalf("rule %d is %+v", rules, r)
			}
			rules++
			mirror(r.Mirrors)
			for _, b := range r.Backends {
				if b.ID != backends || table.Backends()[backends] != b {
					t.Fatalf("backend %d has ID %d", backends, b.ID)
				}
				backends++
				mirror(b.Mirrors)
			}
		}
	}
	if len(table.Rules()) != rules || len(table.Backends()) != backends || len(table.Mirrors()) != mirrored {
		t.Error("more rules, backends or mirrors than the model has")
	}
}

// sampled is a configuration with one mirror and two backends.
func sampled(name string, denominator, weight uint32) *model.Config {
	route := on(name, []string{"*"}, prefix("/"))
	route.Rules[0].Filters.Mirrors = []model.Mirror{{Numerator: 1, Denominator: denominator}}
	route.Rules[0].Backends = []model.Backend{{Weight: 1}, {Weight: weight}}
	return &model.Config{Listeners: []model.Listener{{Name: "web", Port: 80, Protocol: model.HTTP}}, Routes: []model.Route{route}}
}

func TestSamplersSurviveANewTable(t *testing.T) {
	const denominator, weight = 50, 49
	var table *Table
	hits, picks := 0, 0
	for i := range 20 * denominator {
		if i%7 == 0 {
			var left []model.Omission
			if table, left = Compile(sampled("r", denominator, weight), table); left != nil {
				t.Fatal(left)
			}
		}
		if table.Mirrors()[0].Sample() {
			hits++
		}
		if table.Rules()[0].Pick().ID == 0 {
			picks++
		}
		if done := (i + 1) / denominator; (i+1)%denominator == 0 && (hits != done || picks != done) {
			t.Fatalf("after %d blocks: %d sampled, %d drawn", done, hits, picks)
		}
	}
}

func TestSamplersStartAnewWhenTheirMeaningChanges(t *testing.T) {
	for name, next := range map[string]*model.Config{
		"route":               sampled("other", 50, 49),
		"fraction and weight": sampled("r", 49, 50),
	} {
		old, left := Compile(sampled("r", 50, 49), nil)
		if left != nil {
			t.Fatal(left)
		}
		table, left := Compile(next, old)
		if left != nil {
			t.Fatal(left)
		}
		if table.Mirrors()[0].fraction.sampler == old.Mirrors()[0].fraction.sampler {
			t.Errorf("another %s: the mirror keeps its sampler", name)
		}
		if table.Rules()[0].split.sampler == old.Rules()[0].split.sampler {
			t.Errorf("another %s: the rule keeps its sampler", name)
		}
	}
}

func TestPartsWithoutProvenanceDoNotShareSamplers(t *testing.T) {
	cfg := sampled("r", 50, 49)
	cfg.Routes = append(cfg.Routes, cfg.Routes[0])
	old, left := Compile(cfg, nil)
	if left != nil {
		t.Fatal(left)
	}
	table, left := Compile(cfg, old)
	if left != nil {
		t.Fatal(left)
	}
	for i, m := range table.Mirrors() {
		if m.fraction.sampler != old.Mirrors()[i].fraction.sampler {
			t.Errorf("mirror %d lost its sampler", i)
		}
	}
	if table.Mirrors()[0].fraction.sampler == table.Mirrors()[1].fraction.sampler {
		t.Error("two mirrors share a sampler")
	}
}
