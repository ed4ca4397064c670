package rollout_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/rollout"
	"github.com/weirmesh/weir/internal/rollout/provider"
)

const route = `
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: r, namespace: default, labels: {team: a}, resourceVersion: "7"}
spec:
  parentRefs: [{name: gw}]
  rules:
  - matches: [{path: {type: PathPrefix, value: /a}}]
    backendRefs: [{name: svc, port: 80, weight: 7}, {name: other, port: 80, weight: 3}]
  - matches: [{path: {type: PathPrefix, value: /b}}]
    backendRefs: [{name: svc, port: 80}]
`

func percent(n int) *rollout.Routing { return &rollout.Routing{Percent: n} }

func header(t testing.TB) *rollout.Routing {
	t.Helper()
	var m rollouts.Match
	if err := json.Unmarshal([]byte(`{"headers":[{"name":"x","value":"1","type":"Exact"}]}`), &m); err != nil {
		t.Fatal(err)
	}
	return &rollout.Routing{Matches: []rollouts.Match{m}}
}

// at returns what is at a path of fields and indexes.
func at(v any, path ...any) any {
	for _, p := range path {
		switch p := p.(type) {
		case string:
			v = v.(map[string]any)[p]
		case int:
			v = v.([]any)[p]
		}
	}
	return v
}

func TestAnEditOfDividedWeightsCountsAsItIsSeen(t *testing.T) {
	refs := func(u map[string]any) any { return at(u, "spec", "rules", 0, "backendRefs") }
	for what, c := range map[string]struct {
		edit func(list []any) []any
		want string
	}{
		"nothing": {func(l []any) []any { return l }, `[{"name":"svc","port":80,"weight":7},{"name":"other","port":80,"weight":3}]`},
		// Laid are svc 56, svc-canary 14, other 30.
		"another weight": {func(l []any) []any { l[2].(map[string]any)["weight"] = int64(60); return l },
			`[{"name":"svc","port":80,"weight":70},{"name":"other","port":80,"weight":60}]`},
		"the stable weight": {func(l []any) []any { l[0].(map[string]any)["weight"] = int64(16); return l },
			`[{"name":"svc","port":80,"weight":30},{"name":"other","port":80,"weight":30}]`},
		"the canary's weight": {func(l []any) []any { l[1].(map[string]any)["weight"] = int64(44); return l },
			`[{"name":"svc","port":80,"weight":100},{"name":"other","port":80,"weight":30}]`},
		"one more": {func(l []any) []any {
			return append(l, map[string]any{"name": "third", "port": int64(80), "weight": int64(100)})
		}, `[{"name":"svc","port":80,"weight":70},{"name":"other","port":80,"weight":30},{"name":"third","port":80,"weight":100}]`},
		"one less":           {func(l []any) []any { return l[:2] }, `[{"name":"svc","port":80,"weight":7}]`},
		"another port":       {func(l []any) []any { l[2].(map[string]any)["port"] = int64(81); return l }, `[{"name":"svc","port":80,"weight":7},{"name":"other","port":81,"weight":3}]`},
		"no canary":          {func(l []any) []any { return []any{l[0], l[2]} }, `[{"name":"svc","port":80,"weight":56},{"name":"other","port":80,"weight":30}]`},
		"filters of canary":  {func(l []any) []any { l[1].(map[string]any)["filters"] = []any{}; return l }, `[{"name":"svc","port":80,"weight":7},{"name":"other","port":80,"weight":3}]`},
		"filters of another": {func(l []any) []any { l[2].(map[string]any)["filters"] = []any{}; return l }, `[{"name":"svc","port":80,"weight":7},{"filters":[],"name":"other","port":80,"weight":3}]`},
	} {
		live := over(t, object(t, route), percent(20))
		rule := at(live, "spec", "rules", 0).(map[string]any)
		rule["backendRefs"] = c.edit(rule["backendRefs"].([]any))
		want := object(t, route)
		if err := json.Unmarshal([]byte(c.want), new(any)); err != nil {
			t.Fatal(err)
		}
		got := restored(t, live)
		if text(refs(got)) != c.want {
			t.Errorf("%s: the original is %s, want %s", what, text(refs(got)), c.want)
		}
		if text(at(got, "spec", "rules", 1)) != text(at(want, "spec", "rules", 1)) {
			t.Errorf("%s: the other rule is %s", what, text(at(got, "spec", "rules", 1)))
		}
	}
}

// TestDividedQuantitiesAreAdded is the same for versions that write weights as quantities.
func TestDividedQuantitiesAreAdded(t *testing.T) {
	split := object(t, "apiVersion: split.smi-spec.io/v1alpha1\nkind: TrafficSplit\nmetadata: {name: r}\nspec: {service: root, backends: [{service: svc, weight: 700m}, {service: other, weight: 300m}]}")
	live := over(t, split, percent(20))
	if got, want := text(at(live, "spec", "backends")), `[{"service":"svc","weight":"56"},{"service":"svc-canary","weight":"14"},{"service":"other","weight":"30"}]`; got != want {
		t.Fatalf("laid is %s, want %s", got, want)
	}
	at(live, "spec", "backends", 0).(map[string]any)["weight"] = "500m"
	if got, want := text(at(restored(t, live), "spec", "backends")), `[{"service":"svc","weight":"14500m"},{"service":"other","weight":"30"}]`; got != want {
		t.Errorf("the original is %s, want %s", got, want)
	}
}

// TestAFileThatIsAppliedAgainCounts holds that "kubectl apply" midway, which puts the user's fields back and leaves the
// annotations, is what the user wants.
func TestAFileThatIsAppliedAgainCounts(t *testing.T) {
	for what, file := range map[string]string{
		"unchanged":   route,
		"a weight":    strings.Replace(route, "weight: 7", "weight: 9", 1),
		"another":     strings.Replace(route, "name: other", "name: another", 1),
		"a rule":      route + "  - backendRefs: [{name: other, port: 80}]\n",
		"no rule":     route[:strings.Index(route, "  - matches: [{path: {type: PathPrefix, value: /b")],
		"the matches": strings.ReplaceAll(route, "/a", "/c"),
	} {
		for step, routing := range map[string]*rollout.Routing{"traffic": percent(20), "matches": header(t)} {
			live := over(t, object(t, route), routing)
			applied := object(t, file)
			live["spec"] = copyOf(applied)["spec"]
			if got := restored(t, live); text(got) != text(applied) {
				t.Errorf("%s, %s: the original is\n%s, want\n%s", what, step, text(got), text(applied))
			}
			if got, want := over(t, live, routing), over(t, applied, routing); text(got) != text(want) {
				t.Errorf("%s, %s: laid is\n%s, want\n%s", what, step, text(got), text(want))
			}
		}
	}
}

// TestWhatAnAPIServerCompletesIsNoEdit adds defaults to what was laid, as an API server does.
func TestWhatAnAPIServerCompletesIsNoEdit(t *testing.T) {
	complete := func(u map[string]any) map[string]any {
		out := copyOf(u)
		for _, v := range at(out, "spec", "rules").([]any) {
			rule := v.(map[string]any)
			for _, m := range rule["matches"].([]any) {
				if match := m.(map[string]any); match["path"] == nil {
					match["path"] = map[string]any{"type": "PathPrefix", "value": "/"}
				}
			}
			for _, b := range rule["backendRefs"].([]any) {
				for name, value := range map[string]any{"group": "", "kind": "Service", "weight": int64(1)} {
					if ref := b.(map[string]any); ref[name] == nil {
						ref[name] = value
					}
				}
			}
		}
		return out
	}
	for _, routing := range []*rollout.Routing{percent(20), header(t)} {
		original := complete(object(t, strings.ReplaceAll(route, "matches: [{path: {type: PathPrefix, value: /b}}]", "matches: [{method: GET}]")))
		live := complete(over(t, original, routing))
		u, err := rollout.Original(live)
		if err != nil || len(u.Told) > 0 || text(u.Object) != text(original) {
			t.Errorf("%v, told %v: the original is\n%s, want\n%s", err, u.Told, text(u.Object), text(original))
		}
	}
}

func TestAnEditOfTheCanarysRuleIsTold(t *testing.T) {
	live := over(t, object(t, route), header(t))
	at(live, "spec", "rules", 0, "backendRefs", 0).(map[string]any)["port"] = int64(8080)
	u, err := rollout.Original(live)
	if err != nil || !u.Edited || text(u.Object) != text(copyOf(object(t, route))) || len(u.Told) != 1 || !strings.HasPrefix(u.Told[0].Message, "spec.rules[0] of HTTPRoute r is of the step") {
		t.Errorf("%v, told %v: %s", err, u.Told, text(u.Object))
	}
	if u, err = rollout.Original(u.Object); err != nil || u.Kept || u.Edited {
		t.Errorf("the original itself: %v, %+v", err, u)
	}
}

// TestACopyOfADividedRuleIsNotDivided holds that a rule which a user makes of one that he sees leads to no canary at the end.
func TestACopyOfADividedRuleIsNotDivided(t *testing.T) {
	live := over(t, object(t, route), percent(20))
	rules := at(live, "spec", "rules").([]any)
	more := copyOf(rules[0].(map[string]any))
	more["matches"] = []any{map[string]any{"path": path("/new")}}
	live["spec"].(map[string]any)["rules"] = append(rules, more)
	got := restored(t, live)
	if text(at(got, "spec", "rules", 2, "backendRefs")) != text(at(object(t, route), "spec", "rules", 0, "backendRefs")) || strings.Contains(text(got), "canary") {
		t.Errorf("the original is %s", text(got))
	}
}

func TestALostOriginalLeavesTheObjectAlone(t *testing.T) {
	all := provider.All()
	for what, c := range map[string]struct {
		edit func(u map[string]any)
		told string
	}{
		"removed": {func(u map[string]any) { delete(annotations(u), rollout.OriginalAnnotation) }, "is gone, so nobody knows"},
		"removed and edited": {func(u map[string]any) {
			delete(annotations(u), rollout.OriginalAnnotation)
			at(u, "spec").(map[string]any)["hostnames"] = []any{"a.example"}
		}, "leads to svc-canary, and its annotation"},
		"not JSON":       {func(u map[string]any) { annotations(u)[rollout.OriginalAnnotation] = "{" }, "cannot be read (it is not the JSON that Weir writes)"},
		"empty":          {func(u map[string]any) { annotations(u)[rollout.OriginalAnnotation] = "" }, "cannot be read"},
		"another JSON":   {func(u map[string]any) { annotations(u)[rollout.OriginalAnnotation] = "[1]" }, "cannot be read"},
		"no spec":        {func(u map[string]any) { annotations(u)[rollout.OriginalAnnotation] = `{"laid":{"spec":{}}}` }, "cannot be read (it has no spec)"},
		"no laid spec":   {func(u map[string]any) { annotations(u)[rollout.OriginalAnnotation] = `{"spec":{},"laid":{}}` }, "cannot be read (it has no spec)"},
		"a label":        {func(u map[string]any) { annotations(u)[rollout.OriginalAnnotation] = `{"spec":{},"labels":{"a":1}}` }, "is no text"},
		"not compressed": {func(u map[string]any) { annotations(u)[rollout.OriginalAnnotation] = `{"gzip":"e30="}` }, "cannot be read"},
		"a bomb": {func(u map[string]any) {
			var b bytes.Buffer
			z := gzip.NewWriter(&b)
			fmt.Fprintf(z, `{"spec":{"a":"%s"}}`, strings.Repeat("a", 9<<20))
			z.Close()
			annotations(u)[rollout.OriginalAnnotation] = text(map[string]string{"gzip": base64.StdEncoding.EncodeToString(b.Bytes())})
		}, "it is longer than"},
	} {
		live := over(t, object(t, route), percent(20))
		c.edit(live)
		before := text(live)
		laid, ok := all.Over(live, request(live), percent(40))
		if !ok || len(laid.Told) != 1 || !laid.Told[0].Short || !laid.Told[0].Object || laid.Told[0].Fix == "" || !strings.Contains(laid.Told[0].Message, c.told) || !strings.Contains(laid.Told[0].Message, "HTTPRoute r") {
			t.Errorf("%s: %v, told %+v, want %q", what, ok, laid.Told, c.told)
		}
		if text(laid.Object) != before || len(laid.Owned) > 0 {
			t.Errorf("%s: the object becomes %s", what, text(laid.Object))
		}
	}
	// Both gone and his own file applied: it is the user's.
	live := over(t, object(t, route), percent(20))
	delete(annotations(live), rollout.OriginalAnnotation)
	live["spec"] = object(t, route)["spec"]
	if got := restored(t, live); text(got) != text(copyOf(object(t, route))) {
		t.Errorf("an object with the mark alone becomes %s", text(got))
	}
}

// TestALargeOriginalIsCompressedOrTheObjectIsLeftAlone holds the bound of annotations.
func TestALargeOriginalIsCompressedOrTheObjectIsLeftAlone(t *testing.T) {
	large := func(rules int, noise string) map[string]any {
		u := object(t, route)
		spec := u["spec"].(map[string]any)
		list := spec["rules"].([]any)
		for i := range rules {
			list = append(list, map[string]any{"name": fmt.Sprintf("rule-%d", i), "backendRefs": []any{map[string]any{"name": "svc", "port": int64(80)}}})
		}
		spec["rules"], spec["noise"] = list, noise
		return copyOf(u)
	}
	want := large(2_000, "")
	live := over(t, want, percent(20))
	if n := len(annotations(live)[rollout.OriginalAnnotation].(string)); n > 64<<10 || n < 1<<10 {
		t.Errorf("the original takes %d bytes", n)
	}
	if got := restored(t, live); text(got) != text(want) {
		t.Error("it does not come back")
	}
	at(live, "spec", "rules", 1_000).(map[string]any)["name"] = "edited"
	at(want, "spec", "rules", 1_000).(map[string]any)["name"] = "edited"
	if got := restored(t, live); text(got) != text(want) {
		t.Error("an edit does not come back")
	}
	var noise strings.Builder
	m := maker{newRand()}
	for noise.Len() < 400<<10 {
		fmt.Fprintf(&noise, "%016x", m.Uint64())
	}
	u := large(0, noise.String())
	laid, ok := provider.All().Over(u, request(u), percent(20))
	if !ok || len(laid.Told) != 1 || !laid.Told[0].Object || !strings.Contains(laid.Told[0].Message, "HTTPRoute r is too large") || text(laid.Object) != text(u) {
		t.Errorf("%v, told %+v", ok, laid.Told)
	}
}

// TestWhatSomebodyElseKeptCostsLittle merges annotations that are made to cost much: deep lists, and long ones of which all
// elements are new.
func TestWhatSomebodyElseKeptCostsLittle(t *testing.T) {
	deep := func(leaf string) string { return strings.Repeat(`[`, 5_000) + leaf + strings.Repeat(`]`, 5_000) }
	long := func(leaf string) string {
		all := make([]string, 4_000)
		for i := range all {
			all[i] = fmt.Sprintf(`{"a":"%s%d","b":1}`, leaf, i)
		}
		return "[" + strings.Join(all, ",") + "]"
	}
	for what, of := range map[string]func(string) string{"deep": deep, "long": long} {
		spec := func(leaf string) json.RawMessage { return json.RawMessage(`{"x":` + of(leaf) + `}`) }
		live := object(t, route)
		live["spec"] = spec("1")
		live["metadata"].(map[string]any)["annotations"] = map[string]any{rollout.OriginalAnnotation: text(map[string]any{"spec": spec("2"), "laid": map[string]any{"spec": spec("3")}})}
		u, err := rollout.Original(live)
		if err != nil || text(at(u.Object, "spec")) != string(spec("1")) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestLabelsAndAnnotationsOfAStepComeBack keeps what a provider changes of metadata.
func TestLabelsAndAnnotationsOfAStepComeBack(t *testing.T) {
	original := object(t, "apiVersion: v1\nkind: Toy\nmetadata: {name: r, labels: {a: \"1\", b: \"1\"}, annotations: {c: \"1\"}}\nspec: {x: 1}")
	laid := object(t, "apiVersion: v1\nkind: Toy\nmetadata: {name: r, labels: {a: \"2\", d: \"2\"}, annotations: {e: \"2\"}}\nspec: {x: 1}")
	live, err := rollout.Keep(original, laid)
	if err != nil {
		t.Fatal(err)
	}
	if got := restored(t, live); text(got) != text(original) {
		t.Errorf("restored is %s, want %s", text(got), text(original))
	}
	at(live, "metadata", "labels").(map[string]any)["a"] = "3"
	if got := restored(t, live); at(got, "metadata", "labels", "a") != "3" || at(got, "metadata", "labels", "b") != "1" {
		t.Errorf("after an edit it is %s", text(got))
	}
	plain := object(t, "apiVersion: v1\nkind: Toy\nmetadata: {name: r}\nspec: {x: 1}")
	if live, err = rollout.Keep(plain, laid); err != nil || text(restored(t, live)) != text(plain) {
		t.Errorf("%v: restored is %s, want %s", err, text(restored(t, live)), text(plain))
	}
}

// TestAnOriginalOfOpenKruiseComesBack restores what another controller kept, in its form.
func TestAnOriginalOfOpenKruiseComesBack(t *testing.T) {
	live := object(t, strings.ReplaceAll(route, "/a", "/changed"))
	live["metadata"].(map[string]any)["annotations"] = map[string]any{"own": "1", rollout.OriginalAnnotation: text(map[string]any{"spec": object(t, route)["spec"], "labels": map[string]any{"team": "a"}, "annotations": nil})}
	want := object(t, route)
	want["metadata"].(map[string]any)["annotations"] = map[string]any{"own": "1"}
	if got := restored(t, live); text(got) != text(want) {
		t.Errorf("restored is\n%s, want\n%s", text(got), text(want))
	}
}

// FuzzOriginalReadsAnything gives objects annotations that somebody else wrote.
func FuzzOriginalReadsAnything(f *testing.F) {
	live := over(f, object(f, route), percent(20))
	f.Add(text(live["spec"]), annotations(live)[rollout.OriginalAnnotation].(string))
	f.Add(`{"rules":[1,null,{}]}`, `{"spec":{"rules":[{},{"a":[]}]},"laid":{"spec":{"rules":[null,{"weight":"x"},1]}}}`)
	f.Add(`{"backends":[{"weight":"1"},{"weight":2.5}]}`, `{"spec":{"backends":[{"weight":1}]},"laid":{"spec":{"backends":[{"weight":"2m"},{"weight":1}]}}}`)
	f.Fuzz(func(t *testing.T, spec, kept string) {
		var s map[string]any
		if json.Unmarshal([]byte(spec), &s) != nil {
			return
		}
		u := map[string]any{"kind": "HTTPRoute", "metadata": map[string]any{"name": "r", "annotations": map[string]any{rollout.OriginalAnnotation: kept}}, "spec": s}
		if got, err := rollout.Original(u); err == nil && annotations(got.Object)[rollout.OriginalAnnotation] != nil {
			t.Errorf("it is still there: %s", text(got.Object))
		}
	})
}
