package specs_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/weirmesh/weir/api/specs"
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

func group(t *testing.T, version, text string) []specs.HTTPMatch {
	t.Helper()
	g, errs := specs.DecodeHTTPRouteGroup(version, object(t, text))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return g.Spec.Matches
}

func TestBothFormsOfHeadersAreOne(t *testing.T) {
	want := []specs.HTTPMatch{{Name: "a", Methods: []string{"GET"}, PathRegex: "/x", Headers: []specs.Header{
		{Name: "cookie", Value: "^(.*?;)?(type=insider)(;.*)?$"}, {Name: "user-agent", Value: ".*Firefox.*"},
	}}}
	const list = `matches: [{name: a, methods: [GET], pathRegex: /x, headers: [{cookie: "^(.*?;)?(type=insider)(;.*)?$"}, {user-agent: ".*Firefox.*"}]}]`
	const object = `matches: [{name: a, methods: [GET], pathRegex: /x, headers: {user-agent: ".*Firefox.*", cookie: "^(.*?;)?(type=insider)(;.*)?$"}}]`
	for _, text := range []string{list, object} {
		if got := group(t, "v1alpha2", text); !reflect.DeepEqual(got, want) {
			t.Errorf("v1alpha2 %s: %+v", text, got)
		}
		for _, version := range []string{"v1alpha3", "v1alpha4"} {
			if got := group(t, version, "spec: {"+text+"}"); !reflect.DeepEqual(got, want) {
				t.Errorf("%s %s: %+v", version, text, got)
			}
		}
		if got := group(t, "v1alpha1", text); got[0].Headers != nil || got[0].PathRegex != "/x" {
			t.Errorf("v1alpha1 %s: %+v", text, got)
		}
	}
}

func TestWrongFormsAreNamed(t *testing.T) {
	for text, want := range map[string]string{
		"spec: 1":              "spec: Invalid",
		"spec: {matches: 1}":   "spec.matches: Invalid",
		"spec: {matches: [1]}": "spec.matches[0]: Invalid",
		"spec: {matches: [{name: a, methods: GET}]}":         "spec.matches[0].methods: Invalid",
		"spec: {matches: [{name: a, methods: [1]}]}":         "spec.matches[0].methods[0]: Invalid",
		"spec: {matches: [{name: a, pathRegex: 1}]}":         "spec.matches[0].pathRegex: Invalid",
		"spec: {matches: [{name: a, headers: x}]}":           "spec.matches[0].headers: Invalid",
		"spec: {matches: [{name: a, headers: [x]}]}":         "spec.matches[0].headers[0]: Invalid",
		"spec: {matches: [{name: a, headers: {x: 1}}]}":      "spec.matches[0].headers[x]: Invalid",
		`spec: {matches: [{name: a, headers: [{"": why}]}]}`: "spec.matches[0].headers[0]: Required",
	} {
		if _, errs := specs.DecodeHTTPRouteGroup("v1alpha4", object(t, text)); len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), want) {
			t.Errorf("%s: got %v, want %s", text, errs, want)
		}
	}
	for text, want := range map[string]string{
		"spec: {matches: []}":                   "spec.matches: Invalid",
		"spec: {matches: {ports: 1}}":           "spec.matches.ports: Invalid",
		"spec: {matches: {ports: [80, 65536]}}": "spec.matches.ports[1]: Invalid",
		"spec: {matches: {ports: [http]}}":      "spec.matches.ports[0]: Invalid",
	} {
		if _, errs := specs.DecodeTCPRoute("v1alpha4", object(t, text)); len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), want) {
			t.Errorf("%s: got %v, want %s", text, errs, want)
		}
		if _, errs := specs.DecodeUDPRoute("v1alpha4", object(t, text)); len(errs) != 1 {
			t.Errorf("UDPRoute %s: got %v", text, errs)
		}
	}
	if _, errs := specs.DecodeTCPRoute("v1", object(t, "{}")); len(errs) != 1 || errs[0].Field != "apiVersion" {
		t.Errorf("an unknown version: %v", errs)
	}
}

func TestRoutesOfPortsAreRead(t *testing.T) {
	r, errs := specs.DecodeTCPRoute("v1alpha4", object(t, "metadata: {name: r}\nspec: {matches: {name: m, ports: [3306, 80]}}"))
	if len(errs) > 0 || r.Name != "r" || !reflect.DeepEqual(r.Spec.Matches, specs.PortsMatch{Name: "m", Ports: []int32{3306, 80}}) {
		t.Errorf("got %+v, %v", r, errs)
	}
	u, errs := specs.DecodeUDPRoute("v1alpha4", object(t, "spec: {matches: {ports: [53]}}"))
	if len(errs) > 0 || !reflect.DeepEqual(u.Spec.Matches.Ports, []int32{53}) {
		t.Errorf("got %+v, %v", u, errs)
	}
	if r, errs := specs.DecodeTCPRoute("v1alpha1", object(t, "kind: TCPRoute")); len(errs) > 0 || r.Spec.Matches.Ports != nil {
		t.Errorf("got %+v, %v", r, errs)
	}
}

func TestEveryWayThroughTheVersionsKeepsEverything(t *testing.T) {
	for _, text := range []string{
		"kind: HTTPRouteGroup\nspec: {matches: [{name: a, methods: [GET, '*'], pathRegex: /x}, {name: b}]}",
		"kind: HTTPRouteGroup\nspec: {matches: [{name: a, headers: [{x: why}, {z: .*}]}]}",
		"kind: HTTPRouteGroup\nmetadata: {annotations: {k: v}}\nspec: {}",
		"kind: TCPRoute\nspec: {matches: {name: m, ports: [80, 443]}}",
		"kind: TCPRoute\nspec: {matches: {ports: []}}",
	} {
		for range 50 {
			u := object(t, text)
			u["apiVersion"] = specs.Group + "/v1alpha4"
			want := fmt.Sprint(decoded(t, u))
			var way []string
			for range rand.IntN(5) {
				way = append(way, specs.Versions[rand.IntN(4)])
			}
			for _, v := range append(way, "v1alpha4") {
				before := fmt.Sprint(u)
				out, err := convert(u, v)
				if err != nil {
					t.Fatalf("%v to %s: %v", u, v, err)
				}
				if fmt.Sprint(u) != before {
					t.Errorf("the input was changed")
				}
				u = out
			}
			if got := fmt.Sprint(decoded(t, u)); got != want {
				t.Errorf("by %v came back as\n%s\nwas\n%s", way, got, want)
			}
		}
	}
}

func decoded(t *testing.T, u map[string]any) any {
	t.Helper()
	if u["kind"] == "TCPRoute" {
		r, errs := specs.DecodeTCPRoute("v1alpha4", u)
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		return *r
	}
	g, errs := specs.DecodeHTTPRouteGroup("v1alpha4", u)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return *g
}

func TestAnEditInV1alpha1KeepsTheHeadersItCannotSee(t *testing.T) {
	u := object(t, "apiVersion: specs.smi-spec.io/v1alpha4\nkind: HTTPRouteGroup\nspec: {matches: [{name: a, headers: [{x: why}]}, {name: b}, {name: a, headers: {k: z}}]}")
	old, err := convert(u, "v1alpha1")
	if err != nil {
		t.Fatal(err)
	}
	matches := old["matches"].([]any)
	matches[0].(map[string]any)["pathRegex"] = "/new"
	old["matches"] = append([]any{map[string]any{"name": "c"}}, matches[0], matches[2])
	back, err := convert(old, "v1alpha4")
	if err != nil {
		t.Fatal(err)
	}
	const want = "map[matches:[map[name:c] map[headers:[map[x:why]] name:a pathRegex:/new] map[headers:map[k:z] name:a]]]"
	if got := fmt.Sprint(back["spec"]); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestWhatCannotBeConvertedSaysWhy(t *testing.T) {
	for text, version := range map[string]string{
		"{apiVersion: specs.smi-spec.io/v1alpha4, kind: UDPRoute}":                                                                         "v1alpha1",
		"{apiVersion: specs.smi-spec.io/v1alpha4, kind: Other}":                                                                            "v1alpha4",
		"{apiVersion: specs.smi-spec.io/v1alpha4, kind: TCPRoute}":                                                                         "v1",
		"{apiVersion: split.smi-spec.io/v1alpha4, kind: TCPRoute}":                                                                         "v1alpha1",
		"{apiVersion: specs.smi-spec.io/v1alpha1, kind: HTTPRouteGroup, metadata: {annotations: {specs.smi-spec.io/matches: too large}}}":  "v1alpha4",
		"{apiVersion: specs.smi-spec.io/v1alpha1, kind: HTTPRouteGroup, metadata: {annotations: {specs.smi-spec.io/matches: '{'}}}":        "v1alpha4",
		"{apiVersion: specs.smi-spec.io/v1alpha1, kind: TCPRoute, metadata: {annotations: {specs.smi-spec.io/matches: too large}}}":        "v1alpha4",
		"{apiVersion: specs.smi-spec.io/v1alpha1, kind: TCPRoute, metadata: {annotations: {specs.smi-spec.io/matches: 'null'}}}":           "v1alpha4",
		`{apiVersion: specs.smi-spec.io/v1alpha1, kind: TCPRoute, metadata: {annotations: {specs.smi-spec.io/matches: '{"matches": 1}'}}}`: "v1alpha4",
	} {
		if out, err := convert(object(t, text), version); err == nil {
			t.Errorf("%s to %s: %v", text, version, out)
		}
	}
	same := object(t, "{apiVersion: specs.smi-spec.io/v1alpha4, kind: TCPRoute, spec: {matches: {ports: [53]}}}")
	if out, err := convert(same, "v1alpha4"); err != nil || !reflect.DeepEqual(out, same) {
		t.Errorf("the same version: %v, %v", out, err)
	}
}

// convert returns an HTTPRouteGroup or TCPRoute in another version of the group. The object is left
// alone. A version that is asked for again gives back what was written first, unless it was edited in between.
func convert(u map[string]any, version string) (map[string]any, error) {
	for _, k := range specs.Kinds() {
		if u["kind"] == k.Name {
			return k.Convert(u, version)
		}
	}
	return nil, fmt.Errorf("kind: %v has no conversion", u["kind"])
}
