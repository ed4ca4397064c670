package topology

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestTheReaderSeesNodesArrowsAndLabels(t *testing.T) {
	got, err := read(`
  +---- x ------------------+
  |                         v
+---+      +-----+        +---+
| a | <--> |  b  | -+ +-> | c | --+
|   |      +-----+  | |   |   | <-+
|   | - 5% "a" -----|-+   |   |
+---+               |     +---+
                    |   +---+
                    +-> | d |
                        +---+
`, ours)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"a", "b", "c", "d"}; !slices.Equal(got.nodes, want) {
		t.Errorf("got nodes %q", got.nodes)
	}
	if want := []string{`a -> c: 5% "a"`, "a -> c: x", "a <-> b: ", "b -> d: ", "c -> c: "}; !slices.Equal(got.arrows, want) {
		t.Errorf("got arrows %q", got.arrows)
	}
	if got.crossings != 1 {
		t.Errorf("got %d crossings", got.crossings)
	}
}

// Whatever of a good drawing's characters becomes another one: it reads differently, or not at all.
func TestTheReaderSeesEveryChange(t *testing.T) {
	good := Text(Graph{Edges: []Edge{{"a", "b", ""}, {"b", "a", ""}, {"a", "c", "5%"}, {"b", "c", ""}, {"c", "c", ""}, {"a", "d", "x"}, {"d", "b", ""}, {"d", "c", ""}}}, Options{})
	want, err := read(good, ours)
	if err != nil {
		t.Fatal(err)
	}
	changes := 0
	for i, c := range good {
		for _, other := range "-+|<>v x" {
			if c == other || c == '\n' {
				continue
			}
			changes++
			got, err := read(good[:i]+string(other)+good[i+1:], ours)
			if err == nil && reflect.DeepEqual(got.boxes, want.boxes) && slices.Equal(got.arrows, want.arrows) && got.crossings == want.crossings {
				t.Errorf("nobody sees that %q became %q at %d of\n%s", c, other, i, good)
			}
		}
	}
	if changes < 1000 || !strings.ContainsAny(good, "v") {
		t.Errorf("%d changes of\n%s", changes, good)
	}
}
