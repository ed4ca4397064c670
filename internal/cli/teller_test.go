package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/process"
	"github.com/weirmesh/weir/internal/resource"
)

func TestFindingsThatAnotherTellsAreForDebugging(t *testing.T) {
	findings := []resource.Finding{{Code: "WR999", Severity: resource.Error, Message: "wrong"}}
	for _, quiet := range []bool{false, true} {
		var b bytes.Buffer
		l := newTeller(process.NewLogger(&b, "text", "debug"), quiet)
		l.tell(findings, nil)
		l.tell(findings, nil)
		want := "level=ERROR"
		if quiet {
			want = "level=DEBUG"
		}
		if got := b.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, want) {
			t.Errorf("quiet %v: %s: want one line, %s", quiet, got, want)
		}
	}
}
