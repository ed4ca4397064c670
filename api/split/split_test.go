package split_test

import (
	"encoding/json"
	"fmt"
	"math/big"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/weirmesh/weir/api/split"
)

func object(t testing.TB, text string) map[string]any {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var u map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &u); err != nil {
		t.Fatal(err)
	}
	return u
}

func withWeights(version string, weights ...string) string {
	text := "apiVersion: " + split.Group + "/" + version + "\nkind: TrafficSplit\nmetadata: {name: s, namespace: ns}\nspec:\n  service: root\n  backends:\n"
	for i, w := range weights {
		text += fmt.Sprintf("  - service: leaf%d\n    weight: %s\n", i, w)
	}
	return text
}

func TestQuantitiesAreReadExactly(t *testing.T) {
	for text, want := range map[string]split.Weight{
		"1": 1000, "500m": 500, `"1e3"`: 1_000_000, "1e3": 1_000_000, "10m": 10, "1500m": 1500, "0m": 0, "0": 0, `"2k"`: 2_000_000,
		`"1Ki"`: 1_024_000, `"0.5"`: 500, "0.5": 500, `"1E3"`: 1_000_000, "1000m": 1000, `"+3"`: 3000, `"1e-3"`: 1, `"1000u"`: 1,
	} {
		for _, version := range []string{"v1alpha1", split.Draft} {
			s, errs := split.Decode(version, object(t, withWeights(version, text)))
			if len(errs) > 0 {
				t.Errorf("%s %s: %v", version, text, errs)
			} else if got := s.Spec.Backends[0].Weight; got != want {
				t.Errorf("%s %s is %d thousandths, want %d", version, text, got, want)
			}
		}
	}
}

func TestWholeWeightsAreReadExactly(t *testing.T) {
	for _, version := range []string{"v1alpha2", "v1alpha3", "v1alpha4"} {
		s, errs := split.Decode(version, object(t, withWeights(version, "0", "1", "1000", "1000000000000")))
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		for i, want := range []split.Weight{0, 1000, 1_000_000, split.MaxWeight * 1000} {
			if got := s.Spec.Backends[i].Weight; got != want {
				t.Errorf("%s: backend %d weighs %d, want %d", version, i, got, want)
			}
		}
	}
}

func TestWrongWeightsAreNamed(t *testing.T) {
	for _, c := range []struct{ version, weight, want string }{
		{"v1alpha4", "0.5", "spec.backends[0].weight: Invalid value: \"0.5\": must be a whole number"},
		{"v1alpha4", "-1", "must not be negative"},
		{"v1alpha4", `"10"`, "not text"},
		{"v1alpha2", "500m", "not text"},
		{"v1alpha4", "null", "spec.backends[0].weight: Required value"},
		{"v1alpha4", "1000000000001", "at most 1000000000000"},
		{"v1alpha4", "true", "must be a number"},
		{"v1alpha1", "-500m", "must not be negative"},
		{"v1alpha1", "500u", "thousandths"},
		{"v1alpha1", "half", "must be a quantity"},
		{"v1alpha1", "1e30", "at most"},
		{"v1alpha1", `"1e2147483647"`, "at most"}, // computing it would take minutes
		{"v1alpha1", `"1e-2147483647"`, "at most"},
		{"v1alpha1", `"` + strings.Repeat("9", 1<<20) + `"`, "at most 64 characters"},
	} {
		_, errs := split.Decode(c.version, object(t, withWeights(c.version, c.weight)))
		if len(errs) != 1 || !strings.Contains(errs[0].Error(), c.want) {
			t.Errorf("%s weight %s: got %v, want %q", c.version, c.weight, errs, c.want)
		}
	}
}

func TestWrongFormsAreNamed(t *testing.T) {
	for text, want := range map[string]string{
		"spec: {backends: [{service: a, weight: 1}]}":                                                "spec.service: Required",
		"spec: {service: a}":                                                                         "spec.backends: Required",
		"spec: {service: a, backends: []}":                                                           "spec.backends: Required",
		"spec: {service: 1, backends: [{service: a, weight: 1}]}":                                    "spec.service: Invalid",
		"spec: {service: a, backends: [1]}":                                                          "spec.backends[0]: Invalid",
		"spec: {service: a, backends: [{weight: 1}]}":                                                "spec.backends[0].service: Required",
		"spec: {service: a, backends: [{service: a, weight: 1}], matches: [1]}":                      "spec.matches[0]: Invalid",
		"spec: {service: a, backends: [{service: a, weight: 1}], matches: [{kind: HTTPRouteGroup}]}": "spec.matches[0].name: Required",
		"{}": "spec: Required",
	} {
		_, errs := split.Decode("v1alpha4", object(t, text))
		if len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), want) {
			t.Errorf("%s: got %v, want %s", text, errs, want)
		}
	}
	if _, errs := split.Decode("v1", object(t, "{}")); len(errs) != 1 || errs[0].Field != "apiVersion" {
		t.Errorf("an unknown version: %v", errs)
	}
}

// decoded is what matters of an object that came back.
func decoded(t *testing.T, u map[string]any) split.Spec {
	t.Helper()
	s, errs := split.Decode(strings.TrimPrefix(u["apiVersion"].(string), split.Group+"/"), u)
	if len(errs) > 0 {
		t.Fatalf("%v: %v", u, errs)
	}
	return s.Spec
}

func convert(t *testing.T, u map[string]any, versions ...string) map[string]any {
	t.Helper()
	for _, v := range versions {
		before := fmt.Sprint(u)
		out, err := split.Kinds()[0].Convert(u, v)
		if err != nil {
			t.Fatalf("%v to %s: %v", u, v, err)
		}
		if fmt.Sprint(u) != before {
			t.Errorf("the input was changed")
		}
		u = out
	}
	return u
}

func TestEveryWayThroughTheVersionsKeepsEverything(t *testing.T) {
	for range 300 {
		from := split.Versions[rand.IntN(len(split.Versions))]
		quantities := from == "v1alpha1" || from == split.Draft
		var weights []string
		for range 1 + rand.IntN(4) {
			w := fmt.Sprint(rand.IntN(2000))
			if quantities && rand.IntN(2) == 0 {
				w += "m"
			}
			weights = append(weights, w)
		}
		text := withWeights(from, weights...)
		if from == "v1alpha3" || from == "v1alpha4" {
			text += "  matches: [{kind: HTTPRouteGroup, name: g}, {apiGroup: specs.smi-spec.io, kind: HTTPRouteGroup, name: h}]\n"
		}
		u := object(t, text)
		var way []string
		for range rand.IntN(5) {
			way = append(way, split.Versions[rand.IntN(len(split.Versions))])
		}
		way = append(way, from)
		back := convert(t, u, way...)
		if got, want := decoded(t, back), decoded(t, u); !reflect.DeepEqual(got, want) {
			t.Errorf("%s by %v came back as %+v, was %+v", from, way, got, want)
		}
		if notes := back["metadata"].(map[string]any)["annotations"]; notes != nil {
			t.Errorf("%s by %v came back with annotations %v", from, way, notes)
		}
	}
}

func TestSharesSurviveInEveryVersion(t *testing.T) {
	u := object(t, withWeights("v1alpha1", "1", "500m", "10m", "0"))
	for _, v := range split.Versions {
		s := decoded(t, convert(t, u, v))
		sum := new(big.Rat)
		for _, b := range s.Backends {
			sum.Add(sum, big.NewRat(int64(b.Weight), 1))
		}
		for i, want := range []*big.Rat{big.NewRat(100, 151), big.NewRat(50, 151), big.NewRat(1, 151), new(big.Rat)} {
			share := big.NewRat(int64(s.Backends[i].Weight), 1)
			if share.Quo(share, sum); share.Cmp(want) != 0 {
				t.Errorf("%s: backend %d has %v, want %v", v, i, share, want)
			}
		}
	}
	ints, err := json.Marshal(convert(t, u, "v1alpha4")["spec"])
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(ints), `"weight":100}`) {
		t.Errorf("the whole numbers are %s", ints)
	}
}

func TestAnEditInAnotherVersionCounts(t *testing.T) {
	u := convert(t, object(t, withWeights("v1alpha1", "1", "500m")), "v1alpha2")
	u["spec"].(map[string]any)["backends"].([]any)[0].(map[string]any)["weight"] = int64(9)
	s := decoded(t, convert(t, u, "v1alpha1"))
	if s.Backends[0].Weight != 9000 || s.Backends[1].Weight != 1000 {
		t.Errorf("after the edit: %v", s.Backends)
	}
}

func TestOtherAnnotationsAndFieldsAreKept(t *testing.T) {
	u := object(t, withWeights("v1alpha4", "1", "2"))
	u["metadata"].(map[string]any)["annotations"] = map[string]any{"a": "b"}
	u["status"] = map[string]any{"x": "y"}
	out := convert(t, u, "v1alpha1")
	if fmt.Sprint(out["metadata"].(map[string]any)["annotations"]) != "map[a:b]" || fmt.Sprint(out["status"]) != "map[x:y]" {
		t.Errorf("got %v", out)
	}
}

func FuzzConvert(f *testing.F) {
	f.Add(withWeights("v1alpha1", "1", "500m"), "v1alpha4")
	f.Add(withWeights("v1alpha4", "1", "2")+"  matches: [{kind: HTTPRouteGroup, name: g}]\n", "v1alpha1")
	f.Fuzz(func(t *testing.T, text, version string) {
		data, err := yaml.YAMLToJSON([]byte(text))
		var u map[string]any
		if err != nil || kjson.UnmarshalCaseSensitivePreserveInts(data, &u) != nil {
			return
		}
		apiVersion, _ := u["apiVersion"].(string)
		if _, errs := split.Decode(strings.TrimPrefix(apiVersion, split.Group+"/"), u); len(errs) > 0 {
			_, _ = split.Kinds()[0].Convert(u, version) // an API server lets no such object come so far
			return
		}
		out, err := split.Kinds()[0].Convert(u, version)
		if err != nil {
			return
		}
		if _, errs := split.Decode(version, out); len(errs) > 0 {
			t.Errorf("%v became %v, which is not valid: %v", u, out, errs)
		}
	})
}
