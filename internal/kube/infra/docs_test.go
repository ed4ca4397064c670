package infra_test

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/kube/infra"
)

// TestParametersAreDocumented holds the table of docs/kubernetes.md to the fields there are.
func TestParametersAreDocumented(t *testing.T) {
	if testing.Short() {
		t.Skip("rows may follow what they describe: make test-full")
	}
	text, err := os.ReadFile("../../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n## Parameters\n")
	table, _, _ = strings.Cut(table, "\n## ")
	want := fields("", reflect.TypeFor[infra.Parameters]())
	for _, f := range want {
		if !strings.Contains(table, "\n| `"+f+"` |") {
			t.Errorf("docs/kubernetes.md has no row for %s", f)
		}
	}
	if got := strings.Count(table, "\n| `"); got != len(want) {
		t.Errorf("docs/kubernetes.md has %d rows, there are %d parameters", got, len(want))
	}
}

// fields are those of a type and of the mappings of this package in it.
func fields(prefix string, in reflect.Type) []string {
	var out []string
	for f := range in.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Type.Kind() == reflect.Struct && f.Type.PkgPath() == in.PkgPath() {
			out = append(out, fields(prefix+name+".", f.Type)...)
			continue
		}
		out = append(out, prefix+name)
	}
	return out
}
