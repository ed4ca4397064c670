package model

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestEveryListOfAConfigurationHasARow fails when Config gets a field that Lists does not have: it would be dropped by Merge, and not be sent.
func TestEveryListOfAConfigurationHasARow(t *testing.T) {
	typ := reflect.TypeFor[Config]()
	if n := typ.NumField(); n != len(Lists) {
		t.Errorf("Config has %d fields, Lists has %d rows", n, len(Lists))
	}
	for i := range typ.NumField() {
		field := typ.Field(i)
		if field.Type.Kind() != reflect.Slice {
			t.Errorf("%s is no list", field.Name)
			continue
		}
		var c Config
		reflect.ValueOf(&c).Elem().Field(i).Set(reflect.MakeSlice(field.Type, 1, 1))
		var rows []string
		for _, l := range Lists {
			if l.Len(&c) == 1 {
				rows = append(rows, l.Element())
			}
		}
		if len(rows) != 1 {
			t.Errorf("Config.%s has the rows %q in Lists, want one", field.Name, rows)
			continue
		}
		plural := rows[0] + "s"
		if stem, ok := strings.CutSuffix(rows[0], "y"); ok {
			plural = stem + "ies"
		}
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != plural {
			t.Errorf("Config.%s is %q in JSON, its elements are called %q", field.Name, name, rows[0])
		}
		if (&Config{}).Equal(&c) {
			t.Errorf("Equal does not compare Config.%s", field.Name)
		}
	}
}

// TestEveryRowSaysWhatItMust holds that no row lacks what code that goes over the rows calls.
func TestEveryRowSaysWhatItMust(t *testing.T) {
	either := [][2]string{{"name", "ref"}, {"used", "deal"}}
	may := []string{"inside"}
	for _, l := range Lists {
		row := reflect.ValueOf(l).Elem()
		has := func(field string) bool { return !row.FieldByName(field).IsZero() }
		for i := range row.NumField() {
			field := row.Type().Field(i).Name
			if slices.Contains(may, field) || slices.ContainsFunc(either, func(e [2]string) bool { return slices.Contains(e[:], field) }) {
				continue
			}
			if !has(field) {
				t.Errorf("%s: %s is missing", l.Element(), field)
			}
		}
		for _, e := range either {
			if has(e[0]) == has(e[1]) {
				t.Errorf("%s: want either %s or %s", l.Element(), e[0], e[1])
			}
		}
		if has("used") && !has("name") {
			t.Errorf("%s: is used by names, and has none", l.Element())
		}
	}
}

func TestPiecesAreRunsOfOneKey(t *testing.T) {
	ref := func(name, field string) Ref { return Ref{Kind: "R", Namespace: "n", Name: name, Field: field} }
	c := &Config{
		Splits: []Split{{Root: "a"}, {Root: "a"}, {Root: "b"}, {Root: "a"}},
		Routes: []Route{{Ref: ref("x", "")}, {Ref: ref("x", "f")}, {Ref: ref("x", "f")}},
	}
	var got []string
	for _, l := range Lists {
		for piece := range l.Pieces(c) {
			got = append(got, strings.Repeat("+", l.Len(piece))+string(l.AppendKey(nil, piece)))
			for _, other := range Lists {
				if other != l && other.Len(piece) != 0 {
					t.Errorf("a piece of %s has elements of %s", l.Element(), other.Element())
				}
			}
		}
		for piece := range l.Pieces(c) { // which may be left early
			_ = piece
			break
		}
	}
	if want := []string{"+R/n/x", "++R/n/x#f", "++a", "+b", "+a"}; !slices.Equal(got, want) {
		t.Errorf("pieces %q, want %q", got, want)
	}
}

func TestWhatIsTheSameStaysTheSameInMemory(t *testing.T) {
	before := &Config{Policies: []Policy{{Ref: Ref{Kind: "P", Name: "a"}, Methods: []string{"GET"}}}, Splits: []Split{{Root: "a"}}}
	after := &Config{Policies: []Policy{{Ref: Ref{Kind: "P", Name: "a"}, Methods: []string{"GET"}}}, Splits: []Split{{Root: "b"}}}
	for _, l := range Lists {
		l.Share(after, before)
	}
	if &after.Policies[0] != &before.Policies[0] {
		t.Error("equal policies are there twice")
	}
	if after.Splits[0].Root != "b" {
		t.Error("a split that changed is the one before")
	}
}
