package resource

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/weirmesh/weir/internal/resource/rules"
	"github.com/weirmesh/weir/test/size"
)

// TestRulesHoldExactlyWhenTheAPIServerSaysSo changes objects at random and compares the quick run of their rules with
// the API server's own validator.
func TestRulesHoldExactlyWhenTheAPIServerSaysSo(t *testing.T) {
	files, err := filepath.Glob("testdata/findings/*")
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	each := size.Of(8, 40)
	good, bad := 0, 0
	rulesOf, judges := map[*Kind]*rules.Rules{}, map[*Kind]*cel.Validator{}
	for _, path := range files {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range splitFile(content, false) {
			for range each {
				value, _, _ := p.parse()
				u, _ := value.(map[string]any)
				apiVersion, _ := u["apiVersion"].(string)
				kindName, _ := u["kind"].(string)
				k := everything.Find(gatewayGroup, kindName)
				if k == nil || !k.Custom() || apiVersion != k.APIVersion("v1") {
					break
				}
				mutate(random, u, func() any { return words[random.IntN(len(words))] })
				s := schemaOf(k, "v1").structural
				if rulesOf[k] == nil {
					rulesOf[k], judges[k] = rules.New(s), cel.NewValidator(s, true, celconfig.PerCallLimit)
				}
				budget := int64(celconfig.RuntimeCELCostBudget)
				holds := rulesOf[k].Hold(u, &budget)
				errs, left := judges[k].Validate(t.Context(), nil, s, u, nil, celconfig.RuntimeCELCostBudget)
				if holds != (len(errs) == 0) {
					t.Fatalf("hold is %v, but the API server says %v of %v", holds, errs, u)
				}
				if holds && budget != left {
					t.Fatalf("cost %d differs from %d", budget, left)
				}
				if holds {
					good++
				} else {
					bad++
				}
			}
		}
	}
	if min(good, bad) < each {
		t.Errorf("%d good and %d bad objects prove little", good, bad)
	}
}

var words = []any{"a", "/a", "//", "", "HTTP", "HTTPS", "TLS", "Exact", "PathPrefix", "RequestMirror", "RequestRedirect", "URLRewrite", "Service", "*.x.example",
	"10s", "1ms", int64(0), int64(80), int64(443), true, nil, []any{}, map[string]any{}, map[string]any{"name": "a"}}

// mutate replaces, removes or adds one thing somewhere in m.
func mutate(random *rand.Rand, m map[string]any, word func() any) {
	for range 3 {
		at := any(m["spec"])
		for range random.IntN(8) {
			switch v := at.(type) {
			case map[string]any:
				keys := slices.Sorted(maps.Keys(v))
				if len(keys) == 0 {
					break
				}
				key := keys[random.IntN(len(keys))]
				switch next := v[key].(type) {
				case map[string]any, []any:
					at = next
				default:
					if random.IntN(4) == 0 {
						delete(v, key)
					} else if random.IntN(3) == 0 {
						v[key] = word()
					}
				}
			case []any:
				if len(v) > 0 {
					at = v[random.IntN(len(v))]
				}
			}
		}
	}
}

func TestNearest(t *testing.T) {
	for _, c := range []struct{ name, want string }{
		{"wieght", "weight"}, {"WEIGHT", "weight"}, {"match", "matches"}, {"zzz", ""}, {"percent", "requestMirror.percent"}, {"nmae", "name"}, {"", ""},
	} {
		if got := nearest(c.name, []string{"weight", "matches", "name", "requestMirror", "requestMirror.percent"}); got != c.want {
			t.Errorf("%q is taken for %q, want %q", c.name, got, c.want)
		}
	}
}

func TestFieldsAreFoundInTheText(t *testing.T) {
	text := "kind: X\nmetadata:\n  labels:\n    a.b/c: d\nspec:\n- a: 1\n- b: &x\n    c: 2\n- d: *x\n"
	for path, want := range map[string]int{
		"": 0, "kind": 0, "metadata.labels": 2, "metadata.labels.a.b/c": 3, "metadata.labels[a.b/c]": 3, "spec[0].a": 5, "spec[1].b.c": 7, "spec[1].b.none": 6,
		"spec[9]": 4, "none.at[all]": 0, "spec[2].d.c": 7, "metadata.[": 1,
	} {
		if got := (&locator{source: &source{text: []byte(text)}}).line(path); got != want {
			t.Errorf("%s is found in line %d, want %d", path, got, want)
		}
	}
}

func TestFieldsAreFoundInJSONAndThroughMergeKeys(t *testing.T) {
	text := "{\n\t\"kind\": \"List\",\n\t\"items\": [\n\t\t{\"a\": {\n\t\t\t\"b\": [1,\n2, {\"c\": \"\\ud83d\\ude00\"}]}}, {\n\"a\": null}\n]}"
	for path, want := range map[string]int{"kind": 1, "items": 2, "items[0]": 3, "items[0].a.b": 4, "items[0].a.b[1]": 5, "items[0].a.b[2].c": 5, "items[1].a": 6, "items[1].z": 5, "none": 0} {
		if got := (&locator{source: &source{text: []byte(text), json: true}}).line(path); got != want {
			t.Errorf("%s is found in line %d, want %d", path, got, want)
		}
	}
	text = "base: &base\n  x: 1\n  y: 2\nother: &other {z: 3}\nspec:\n  <<: [*base, *other]\n  y: 3\nmore:\n  <<: *base\n"
	for path, want := range map[string]int{"spec.x": 1, "spec.y": 6, "spec.z": 3, "more.y": 2, "more.z": 7} {
		if got := (&locator{source: &source{text: []byte(text)}}).line(path); got != want {
			t.Errorf("%s is found in line %d, want %d", path, got, want)
		}
	}
	// Anchors that name others that name others cost no more than they should.
	bomb := "a0: &a0 {k: 1}\n"
	for i := 1; i < 40; i++ {
		bomb += fmt.Sprintf("a%d: &a%d {<<: [*a%d, *a%d, *a%d]}\n", i, i, i-1, i-1, i-1)
	}
	if got := (&locator{source: &source{text: []byte(bomb)}}).line("a39"); got != 39 {
		t.Errorf("line %d, want 39", got)
	}
}

func TestFindingsAndSeveritiesHaveTextForms(t *testing.T) {
	for _, s := range []Severity{Error, Warning, Info} {
		text, _ := s.MarshalText()
		var back Severity
		if err := back.UnmarshalText(text); err != nil || back != s || fmt.Sprint(s) != string(text) {
			t.Errorf("%v becomes %q becomes %v: %v", s, text, back, err)
		}
	}
	if err := new(Severity).UnmarshalText([]byte("fatal")); err == nil {
		t.Error("fatal is a severity")
	}
}
