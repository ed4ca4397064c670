package topology

import (
	"encoding/json"
	"reflect"
	"testing"
)

func TestDOTQuotesNamesAndLabels(t *testing.T) {
	got := DOT(Graph{Nodes: []Node{{ID: "b", Name: `"];x\N`, Lines: []string{"l"}}}, Edges: []Edge{{"a", "b", `q"\`}}})
	want := "digraph topology {\n\trankdir=LR;\n\tnode [shape=box];\n\tn0 [label=\"a\"];\n\tn1 [label=\"\\\"];x\\\\N\\nl\"];\n\tn0 -> n1 [label=\"q\\\"\\\\\"];\n}\n"
	if got != want {
		t.Fatalf("got\n%s\nwant\n%s", got, want)
	}
}

func TestJSONReadsAsTheGraph(t *testing.T) {
	text, err := JSON(Graph{Nodes: []Node{{ID: "b"}, {ID: "a\x1b\u202e"}}, Edges: []Edge{{"b", "a\x1b\u202e", "x"}}})
	if err != nil {
		t.Fatal(err)
	}
	var got Graph
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if want := (Graph{Nodes: []Node{{ID: "a\x1b\u202e"}, {ID: "b"}}, Edges: []Edge{{"b", "a\x1b\u202e", "x"}}}); !reflect.DeepEqual(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}
