package process

import (
	"bytes"
	"errors"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"
)

func TestDurationsReadAlikeInTextAndJSON(t *testing.T) {
	for format, want := range map[string]string{"text": "in=1.5s", "json": `"in":"1.5s"`} {
		var b bytes.Buffer
		NewLogger(&b, format, "info").Info("trying again", "in", 1500*time.Millisecond, slog.Group("more", "in", 1500*time.Millisecond))
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
		NewLogger(&b, format, "info").Info("failed", "path", long, "error", errors.New(long), slog.Group("in", "host", long), "none", none, "short", "kept", "stack", long)
		if n := b.Len(); n > len(long)+3*maxAttr+1000 || strings.Count(b.String(), "...+75904") != 3 || !strings.Contains(b.String(), "kept") {
			t.Errorf("%s: a line of %d bytes", format, n)
		}
	}
}
