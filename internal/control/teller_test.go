package control

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/resource"
)

func TestFindingsThatAnotherTellsAreForDebugging(t *testing.T) {
	findings := []resource.Finding{{Code: "WR999", Severity: resource.Error, Message: "wrong"}}
	for _, quiet := range []bool{false, true} {
		var b bytes.Buffer
		l := NewTeller(slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug})), quiet)
		l.Tell(findings, nil)
		l.Tell(findings, nil)
		want := "level=ERROR"
		if quiet {
			want = "level=DEBUG"
		}
		if got := b.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, want) {
			t.Errorf("quiet %v: %s: want one line, %s", quiet, got, want)
		}
	}
}
