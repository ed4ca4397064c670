package rollout_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/rollout"
	"github.com/weirmesh/weir/internal/rollout/provider"
	"github.com/weirmesh/weir/test/size"
)

func object(t testing.TB, text string) (u map[string]any) {
	t.Helper()
	inJSON, err := yaml.YAMLToJSONStrict([]byte(strings.ReplaceAll(text, "\t", "  ")))
	if err != nil {
		t.Fatal(err)
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(inJSON, &u); err != nil {
		t.Fatal(err)
	}
	return u
}

func text(v any) string {
	out, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(out)
}

func copyOf(u map[string]any) (out map[string]any) {
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(text(u)), &out); err != nil {
		panic(err)
	}
	return out
}

func annotations(u map[string]any) map[string]any {
	meta, _ := u["metadata"].(map[string]any)
	all, _ := meta["annotations"].(map[string]any)
	return all
}

// request asks to lay something over an object, of the Service svc.
func request(u map[string]any) rollout.Request {
	group, version := rollout.SplitVersion(u["apiVersion"].(string))
	kind := u["kind"].(string)
	r := rollout.Request{Target: rollout.Target{Group: group, Version: version, Kind: kind, Name: "r"}, Rollout: "shop", Namespace: "default", Stable: "svc", Canary: "svc-canary",
		Other: func(_, _, _ string) map[string]any { return nil }}
	if kind == "DestinationRule" {
		r.Canary = "svc"
	}
	return r
}

// over lays a routing over a live object, as a cluster's controller would.
func over(t testing.TB, live map[string]any, routing *rollout.Routing) map[string]any {
	t.Helper()
	before := text(live)
	laid, ok := provider.All().Over(live, request(live), routing)
	if !ok {
		t.Fatalf("no provider for %s", before)
	}
	if text(live) != before {
		t.Fatalf("the live object is changed, from %s to %s", before, text(live))
	}
	return copyOf(laid.Object)
}

func restored(t testing.TB, live map[string]any) map[string]any {
	t.Helper()
	u, err := rollout.Original(live)
	if err != nil {
		t.Fatalf("%v: %s", err, text(live))
	}
	return u.Object
}

// kinds of objects whose rules have marks, by which a test finds them.
type kind struct {
	name string
	// rules is the path of the list that steps change.
	list string
	// make returns an object.
	make func(m maker) map[string]any
	// rule is a new entry of the list with a mark, which leads to other.
	rule func(mark string) map[string]any
	// mark of an entry.
	mark func(rule map[string]any) string
	// edit changes an entry, but nothing that a step divides.
	edit func(m maker, rule map[string]any)
}

type maker struct{ *rand.Rand }

func (m maker) one(all ...string) string { return all[m.IntN(len(all))] }

func (m maker) weight() int64 { return int64(m.IntN(9)) }

func newRand() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

func path(s string) map[string]any { return map[string]any{"type": "PathPrefix", "value": s} }

var allKinds = []kind{
	routeKind("HTTPRoute"), routeKind("GRPCRoute"),
	{
		name: "VirtualService", list: "http",
		make: func(m maker) map[string]any {
			var rules []any
			for i := range 1 + m.IntN(4) {
				destination := func(host string, weight any) any {
					d := map[string]any{"destination": map[string]any{"host": host}}
					if weight != nil {
						d["weight"] = weight
					}
					return d
				}
				rule := map[string]any{"name": fmt.Sprintf("m%d", i), "route": []any{destination("svc", nil)}}
				if m.IntN(2) == 0 {
					rule["route"] = []any{destination("svc", 1+m.weight()), destination("other", m.weight())}
				}
				if m.IntN(3) == 0 {
					rule["match"] = []any{map[string]any{"uri": map[string]any{"prefix": m.one("/a", "/b")}}}
				}
				rules = append(rules, rule)
			}
			return map[string]any{"apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": map[string]any{"name": "r", "namespace": "default"},
				"spec": map[string]any{"hosts": []any{"a.example"}, "http": rules}}
		},
		rule: func(mark string) map[string]any {
			return map[string]any{"name": mark, "route": []any{map[string]any{"destination": map[string]any{"host": "other"}}}}
		},
		mark: func(rule map[string]any) string { return strings.TrimSuffix(rule["name"].(string), "-canary") },
		edit: func(m maker, rule map[string]any) {
			switch m.IntN(3) {
			case 0:
				rule["timeout"] = m.one("1s", "2s")
			case 1:
				rule["retries"] = map[string]any{"attempts": int64(m.IntN(5))}
			default:
				rule["match"] = []any{map[string]any{"uri": map[string]any{"prefix": m.one("/x", "/y")}}}
			}
		},
	},
	{
		name: "DestinationRule", list: "subsets",
		make: func(m maker) map[string]any {
			var subsets []any
			for i := range m.IntN(3) {
				subsets = append(subsets, map[string]any{"name": fmt.Sprintf("m%d", i), "labels": map[string]any{"version": m.one("1", "2")}})
			}
			spec := map[string]any{"host": "svc"}
			if subsets != nil {
				spec["subsets"] = subsets
			}
			return map[string]any{"apiVersion": "networking.istio.io/v1beta1", "kind": "DestinationRule", "metadata": map[string]any{"name": "r", "namespace": "default"}, "spec": spec}
		},
		rule: func(mark string) map[string]any {
			return map[string]any{"name": mark, "labels": map[string]any{"version": mark}}
		},
		mark: func(rule map[string]any) string { return rule["name"].(string) },
		edit: func(m maker, rule map[string]any) {
			rule["labels"] = map[string]any{"version": m.one("3", "4")}
		},
	},
	{
		name: "TrafficSplit", list: "backends",
		make: func(m maker) map[string]any {
			version, weight := m.one("v1alpha4", "v1alpha2"), func() any { return 1 + m.weight() }
			if m.IntN(3) == 0 {
				version, weight = "v1alpha1", func() any { return fmt.Sprintf("%d", 1+m.weight()) }
			}
			backends := []any{map[string]any{"service": "svc", "weight": weight()}}
			for i := range m.IntN(3) {
				backends = append(backends, map[string]any{"service": fmt.Sprintf("m%d", i), "weight": weight()})
			}
			return map[string]any{"apiVersion": "split.smi-spec.io/" + version, "kind": "TrafficSplit", "metadata": map[string]any{"name": "r", "namespace": "default"},
				"spec": map[string]any{"service": "root", "backends": backends}}
		},
		mark: func(rule map[string]any) string { return rule["service"].(string) },
	},
}

func routeKind(name string) kind {
	return kind{
		name: name, list: "rules",
		make: func(m maker) map[string]any {
			var rules []any
			for i := range 1 + m.IntN(4) {
				backend := func(service string, weight any) any {
					b := map[string]any{"name": service, "port": int64(80)}
					if weight != nil {
						b["weight"] = weight
					}
					return b
				}
				rule := map[string]any{"name": fmt.Sprintf("m%d", i), "backendRefs": []any{backend("svc", nil)}}
				switch m.IntN(4) {
				case 0:
					rule["backendRefs"] = []any{backend("svc", 1+m.weight()), backend("other", m.weight()), backend("svc", m.weight())}
				case 1:
					rule["backendRefs"] = []any{backend("other", nil)}
				}
				if m.IntN(2) == 0 && name == "HTTPRoute" {
					rule["matches"] = []any{map[string]any{"path": path(m.one("/a", "/b"))}}
				}
				if m.IntN(3) == 0 {
					rule["sessionPersistence"] = map[string]any{"sessionName": "s"}
				}
				rules = append(rules, rule)
			}
			return map[string]any{"apiVersion": "gateway.networking.k8s.io/v1", "kind": name, "metadata": map[string]any{"name": "r", "namespace": "default"},
				"spec": map[string]any{"parentRefs": []any{map[string]any{"name": "gw"}}, "rules": rules}}
		},
		rule: func(mark string) map[string]any {
			return map[string]any{"name": mark, "backendRefs": []any{map[string]any{"name": "other", "port": int64(80)}}}
		},
		mark: func(rule map[string]any) string {
			mark, _, _ := strings.Cut(rule["name"].(string), "-canary")
			return mark
		},
		edit: func(m maker, rule map[string]any) {
			switch m.IntN(4) {
			case 3:
				rule["sessionPersistence"] = map[string]any{"sessionName": m.one("s", "t")}
			case 0:
				rule["timeouts"] = map[string]any{"request": m.one("1s", "2s")}
			case 1:
				rule["filters"] = []any{map[string]any{"type": "ResponseHeaderModifier", "responseHeaderModifier": map[string]any{"remove": []any{m.one("x", "y")}}}}
			default:
				rule["matches"] = []any{map[string]any{"headers": []any{map[string]any{"name": "h", "value": m.one("1", "2")}}}}
			}
		},
	}
}

func (m maker) routing() *rollout.Routing {
	switch m.IntN(8) {
	case 0:
		return &rollout.Routing{Percent: 100} // a version without a share may be no backend
	case 1, 2, 3:
		return &rollout.Routing{Percent: m.IntN(101)}
	}
	var match rollouts.Match
	parts := []string{`"headers":[{"name":"x","value":"1","type":"Exact"}]`, `"headers":[{"name":"x","value":"2","type":"Exact"},{"name":"y","value":"2","type":"Exact"}]`, `"path":{"type":"PathPrefix","value":"/a/b"}`}
	if err := json.Unmarshal([]byte("{"+m.one(parts...)+"}"), &match); err != nil {
		panic(err)
	}
	return &rollout.Routing{Matches: []rollouts.Match{match}}
}

// edit is a change that a user can make to his file and to the laid object alike.
func (m maker) edit(k kind, u map[string]any) (what string, do func(map[string]any)) {
	spec := func(u map[string]any) map[string]any { return u["spec"].(map[string]any) }
	list := func(u map[string]any) []any { all, _ := spec(u)[k.list].([]any); return all }
	// find is the user's entry of a mark: what a step adds to it is before it, and canaries of weights have another name.
	find := func(u map[string]any, mark string) int {
		at := -1
		for i, v := range list(u) {
			if k.mark(v.(map[string]any)) == mark {
				at = i
			}
		}
		return at
	}
	var marks []string
	for _, v := range list(u) {
		marks = append(marks, k.mark(v.(map[string]any)))
	}
	which := 3
	if k.rule == nil {
		which = m.IntN(2)
	} else if len(marks) > 0 {
		which = m.IntN(8)
	}
	var mark string
	if len(marks) > 0 {
		mark = m.one(marks...)
	}
	fresh := fmt.Sprintf("new%d", m.IntN(1_000_000))
	value := m.one("v", "w")
	switch which {
	case 0:
		return "annotate", func(u map[string]any) {
			meta := u["metadata"].(map[string]any)
			if meta["annotations"] == nil {
				meta["annotations"] = map[string]any{}
			}
			meta["annotations"].(map[string]any)[fresh] = value
		}
	case 1:
		return "change the spec", func(u map[string]any) { spec(u)["field"] = []any{fresh, value} }
	case 2, 3:
		return "add " + fresh + " behind " + mark, func(u map[string]any) {
			spec(u)[k.list] = slices.Insert(list(u), find(u, mark)+1, any(k.rule(fresh)))
		}
	case 4:
		if len(marks) < 2 {
			return "nothing", func(map[string]any) {}
		}
		return "delete " + mark, func(u map[string]any) {
			at := find(u, mark)
			spec(u)[k.list] = slices.Delete(list(u), at, at+1)
		}
	}
	if which == 5 && len(marks) > 1 && k.list != "subsets" {
		return "move " + mark, func(u map[string]any) {
			at := find(u, mark)
			rule := list(u)[at]
			spec(u)[k.list] = append(slices.Delete(list(u), at, at+1), rule)
		}
	}
	state := m.Uint64()
	return "edit " + mark, func(u map[string]any) {
		k.edit(maker{rand.New(rand.NewPCG(state, 0))}, list(u)[find(u, mark)].(map[string]any))
	}
}

// TestWhatTheUserWroteAndEditsComesBack lays random steps over random objects, edits the objects in between, and wants what
// the user wrote with his edits, exactly.
func TestWhatTheUserWroteAndEditsComesBack(t *testing.T) {
	for _, k := range allKinds {
		t.Run(k.name, func(t *testing.T) {
			laidOver, edits := 0, 0
			rounds := size.Of(300, 5_000)
			for range rounds {
				seed := rand.Uint64()
				m := maker{rand.New(rand.NewPCG(seed, 0))}
				want := k.make(m)
				live := copyOf(want)
				log := []string{text(want)}
				for range 1 + m.IntN(3) {
					routing := m.routing()
					live = over(t, live, routing)
					log = append(log, "lay "+text(routing)+": "+text(live))
					if annotations(live)[rollout.OriginalAnnotation] != nil {
						laidOver++
					}
					if got := restored(t, live); text(got) != text(want) {
						t.Fatalf("seed %d: restored is\n%s, want\n%s, after\n%s", seed, text(got), text(want), strings.Join(log, "\n"))
					}
					if again := over(t, live, routing); text(again) != text(live) {
						t.Fatalf("seed %d: laid again it is\n%s, after\n%s", seed, text(again), strings.Join(log, "\n"))
					}
					for range m.IntN(2) {
						what, do := m.edit(k, want)
						do(want)
						do(live)
						want, live = copyOf(want), copyOf(live)
						log = append(log, what+": "+text(live))
						edits++
					}
					if got := restored(t, live); text(got) != text(want) {
						t.Fatalf("seed %d: restored is\n%s, want\n%s, after\n%s", seed, text(got), text(want), strings.Join(log, "\n"))
					}
				}
				if m.IntN(2) == 0 {
					live = over(t, live, nil)
				}
				if got := restored(t, live); text(got) != text(want) {
					t.Fatalf("seed %d: at the end it is\n%s, want\n%s, after\n%s", seed, text(got), text(want), strings.Join(log, "\n"))
				}
			}
			t.Logf("%d times a step was laid, %d edits", laidOver, edits)
			if laidOver < rounds/2 || edits < rounds/2 {
				t.Error("too few to mean something")
			}
		})
	}
}
