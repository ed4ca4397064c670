package access

import (
	"regexp"
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/model"
)

// TestNothingInAGraphIsMoreThanAText gives all texts of a matrix what has a meaning in DOT.
func TestNothingInAGraphIsMoreThanAText(t *testing.T) {
	evil := "a\"]; \\\"x\\N\n\r\x1b\u202e -> \"b\" [label=\"<&>\\"
	ref := model.Ref{Kind: "Deployment", Namespace: evil, Name: evil}
	m := &Matrix{Workloads: []Governed{{Workload: ref, State: State{Deny: "never"}}}}
	for range maxLabel + 3 {
		evil += "\\\""
		m.Grants = append(m.Grants, Grant{Source: model.Source{Kind: "Pod", Namespace: evil, Name: evil}, Target: ref, Traffic: model.TrafficHTTP, Methods: []string{evil},
			Paths: []string{evil + strings.Repeat("long", 50)}, Headers: []model.ValueMatch{{Name: evil, Value: evil}}, Ports: []int32{1}})
	}
	const quoted = `"(?:[^"\\]|\\.)*"`
	statement := regexp.MustCompile(`^  (?:rankdir=LR|node \[shape=box\]|` + quoted + `(?: -> ` + quoted + `)? \[(?:label=` + quoted + `|shape=ellipse)(?:, style=dashed)?\]);$`)
	lines := strings.Split(strings.TrimSuffix(m.DOT(), "\n"), "\n")
	for i, line := range lines {
		if i > 0 && i < len(lines)-1 && !statement.MatchString(line) {
			t.Errorf("not a statement: %s", line)
		}
	}
	if want := 3 + 1 + 2*(maxLabel+3) + 1; len(lines) != want {
		t.Errorf("%d lines, want %d", len(lines), want)
	}
}
