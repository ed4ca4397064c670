package process

import (
	"bytes"
	"encoding/json"
	"errors"
	standard "log"
	"log/slog"
	"net/url"
	"os"
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

func TestWhatOthersWriteIsVisibleInTheLog(t *testing.T) {
	const hostile = "a\n::error::b\x1b[31m\u009b\u202e\u200b\u3164##[add-mask]c"
	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer
		log := NewLogger(&out, format, "info")
		log.Info("finding", "object", hostile)
		log.Info(hostile, "error", errors.New(hostile))
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		if len(lines) != 2 {
			t.Fatalf("%s: %d lines:\n%s", format, len(lines), out.String())
		}
		for _, line := range lines {
			if strings.ContainsAny(line, "\x1b\u009b\u202e\u200b\u3164") || strings.Contains(line, "##[") || strings.HasPrefix(line, "::") {
				t.Errorf("%s: %q", format, line)
			}
			var into struct{ Object, Error string }
			if format == "json" && (json.Unmarshal([]byte(line), &into) != nil || into.Object != hostile && into.Error != hostile) {
				t.Errorf("%q does not say what was logged", line)
			}
		}
	}
}

func TestTheStandardLibrarysLogIsALineOfTheProcesssLog(t *testing.T) {
	var out bytes.Buffer
	_, _, end := newProcessLog(&out, "json", "info")
	for range 100 {
		standard.Printf("Unsolicited response %s\n", "a\nb\x1b[31m"+strings.Repeat("x", 40_000))
	}
	end()
	var line struct{ Level, Msg, Text string }
	if err := json.Unmarshal(out.Bytes(), &line); err != nil || strings.Count(out.String(), "\n") != 1 {
		t.Fatalf("%v: %d lines", err, strings.Count(out.String(), "\n"))
	}
	if line.Level != "WARN" || !strings.HasPrefix(line.Text, "Unsolicited response a") || len(line.Text) > maxAttr+100 || strings.ContainsRune(out.String(), '\x1b') {
		t.Errorf("%s %s: %.200q", line.Level, line.Msg, line.Text)
	}
	if standard.Writer() != os.Stderr {
		t.Error("the log that has ended keeps the library's")
	}
}
