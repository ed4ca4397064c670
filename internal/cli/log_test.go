package cli

import (
	"bytes"
	"errors"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/resource"
)

func TestDurationsReadAlikeInTextAndJSON(t *testing.T) {
	for format, want := range map[string]string{"text": "in=1.5s", "json": `"in":"1.5s"`} {
		var b bytes.Buffer
		newLogger(&b, format, "info").Info("trying again", "in", 1500*time.Millisecond, slog.Group("more", "in", 1500*time.Millisecond))
		if n := strings.Count(b.String(), "1.5s"); n != 2 || !strings.Contains(b.String(), want) {
			t.Errorf("%s: %s: want %s, in the group too", format, b.String(), want)
		}
	}
}

func TestWhatOthersWriteIsCutInTheLog(t *testing.T) {
	long := strings.Repeat("é", 40_000)
	for _, format := range []string{"text", "json"} {
		var b bytes.Buffer
		var none *url.URL
		newLogger(&b, format, "info").Info("failed", "path", long, "error", errors.New(long), slog.Group("in", "host", long), "none", none, "short", "kept", "stack", long)
		if n := b.Len(); n > len(long)+3*maxAttr+1000 || strings.Count(b.String(), "...+75904") != 3 || !strings.Contains(b.String(), "kept") {
			t.Errorf("%s: a line of %d bytes", format, n)
		}
	}
}

func TestFindingsThatAnotherTellsAreForDebugging(t *testing.T) {
	findings := []resource.Finding{{Code: "WR999", Severity: resource.Error, Message: "wrong"}}
	for _, quiet := range []bool{false, true} {
		var b bytes.Buffer
		l := &teller{log: newLogger(&b, "text", "debug"), quiet: quiet}
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
