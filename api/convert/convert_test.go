package convert_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/weirmesh/weir/api/convert"
)

var thing = convert.Kind{Group: "example.com", Name: "Thing", Plural: "things", Hub: "v3", Versions: map[string]convert.Version{
	"v2": {},
	"v1": {
		Up: func(u map[string]any) error {
			if u["old"] == "broken" {
				return errors.New("old: is broken")
			}
			u["new"] = u["old"]
			delete(u, "old")
			return nil
		},
		Down: func(u map[string]any) { u["old"] = u["new"]; delete(u, "new") },
	},
}}

func TestEveryVersionIsReachedByTheHub(t *testing.T) {
	for _, c := range []struct{ from, to, field string }{{"v1", "v3", "new"}, {"v3", "v1", "old"}, {"v1", "v2", "new"}, {"v2", "v1", "old"}, {"v2", "v3", "new"}, {"v1", "v1", "old"}} {
		field := "new"
		if c.from == "v1" {
			field = "old"
		}
		in := map[string]any{"apiVersion": "example.com/" + c.from, field: "x"}
		out, err := thing.Convert(in, c.to)
		if err != nil || !reflect.DeepEqual(out, map[string]any{"apiVersion": "example.com/" + c.to, c.field: "x"}) {
			t.Errorf("%s to %s: %v, %v", c.from, c.to, out, err)
		}
		if in["apiVersion"] != "example.com/"+c.from || in[field] != "x" {
			t.Errorf("%s to %s changed its input: %v", c.from, c.to, in)
		}
	}
	for want, c := range map[string][2]string{
		`apiVersion: "other.example/v1" is not of example.com`: {"other.example/v1", "v3"}, `no version "v4"; its versions are v3, v1, v2`: {"example.com/v4", "v3"},
		`no version "v5"`: {"example.com/v3", "v5"}, "old: is broken": {"example.com/v1", "v3"},
	} {
		if out, err := thing.Convert(map[string]any{"apiVersion": c[0], "old": "broken"}, c[1]); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s to %s: %v, %v, want %q", c[0], c[1], out, err, want)
		}
	}
	if thing.Definition() != "things.example.com" {
		t.Error(thing.Definition())
	}
}

func TestWhatIsKeptNeverExceedsWhatAnAPIServerTakes(t *testing.T) {
	const limit, name, other = 256 << 10, "example.com/kept", "example.com/other"
	for what, c := range map[string]struct {
		size, left int // of the text, and what others leave
		want       string
	}{
		"fits": {100, 116, strings.Repeat("x", 100)}, "one too many": {101, 116, convert.TooLarge}, "no space": {100, 20, ""}, "not even a name": {100, 3, ""},
	} {
		taken := strings.Repeat("y", limit-len(other)-c.left)
		u := map[string]any{"metadata": map[string]any{"annotations": map[string]any{other: taken}}}
		convert.Keep(u, name, strings.Repeat("x", c.size))
		got, ok := convert.Take(u, name)
		if got != c.want || ok != (c.want != "") {
			t.Errorf("%s: kept %q, %t", what, got, ok)
		}
		if all := u["metadata"].(map[string]any)["annotations"].(map[string]any); all[other] != taken || len(all) != 1 {
			t.Errorf("%s: the other annotation is not as it was", what)
		}
	}
	u := map[string]any{}
	convert.Keep(u, name, "")
	if text, ok := convert.Take(u, name); text != "" || !ok || !reflect.DeepEqual(u, map[string]any{"metadata": map[string]any{}}) {
		t.Errorf("%q, %t, %v", text, ok, u)
	}
	if _, ok := convert.Take(map[string]any{"metadata": 7}, name); ok {
		t.Error("something was kept")
	}
}
