package finding

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/weirmesh/weir/internal/model"
)

// Teller logs findings, each once as long as it stays. Log is required.
type Teller struct {
	Log *slog.Logger
	// Quiet is for findings that another process reports to people: they are logged at level debug.
	Quiet    bool
	findings map[Finding]bool
}

// Tell logs the findings that were not there the last time, and which ones are gone.
func (t *Teller) Tell(findings []Finding) {
	told := make(map[Finding]bool, len(findings))
	for _, f := range findings {
		told[f] = true
		if t.findings[f] {
			continue
		}
		level := slog.LevelError
		switch f.Severity {
		case Warning:
			level = slog.LevelWarn
		case Info:
			level = slog.LevelInfo
		}
		if t.Quiet {
			level = slog.LevelDebug
		}
		attributes := []slog.Attr{slog.String("code", f.Code)}
		for _, a := range []slog.Attr{
			slog.String("origin", f.Origin.String()), slog.String("object", Object(f.Ref)), slog.String("field", f.Ref.Field),
			slog.String("reason", f.Message), slog.String("fix", f.Fix),
		} {
			if a.Value.String() != "" {
				attributes = append(attributes, a)
			}
		}
		t.Log.LogAttrs(context.Background(), level, "finding", attributes...)
	}
	t.tellCleared(told)
	t.findings = told
}

// maxCleared is how many findings the log names that are gone.
const maxCleared = 10

// tellCleared logs which findings are there no more. One whose object has another of the same code, perhaps at another line, is not gone.
func (t *Teller) tellCleared(now map[Finding]bool) {
	type about struct{ code, object, field string }
	of := func(f Finding) about {
		a := about{f.Code, Object(f.Ref), f.Ref.Field}
		if a.object == "" {
			a.object = f.Origin.File
		}
		return a
	}
	still := make(map[about]bool, len(now))
	for f := range now {
		still[of(f)] = true
	}
	var gone []string
	for f := range t.findings {
		a := of(f)
		if text := strings.TrimRight(a.code+" "+a.object+" "+a.field, " "); !still[a] {
			gone = append(gone, text)
		}
	}
	if len(gone) == 0 {
		return
	}
	slices.Sort(gone)
	level := slog.LevelInfo
	if t.Quiet {
		level = slog.LevelDebug
	}
	t.Log.Log(context.Background(), level, "findings cleared", "cleared", len(gone), "left", len(now), "which", strings.Join(First(gone, maxCleared), ", "))
}

// Object is "Kind namespace/name" of a reference, empty when it names no object.
func Object(r model.Ref) string {
	if r.Kind == "" {
		return ""
	}
	r.Field = ""
	return r.String()
}

// First is the first of a list of texts for people, and how many more there are.
func First(all []string, most int) []string {
	if len(all) <= most {
		return all
	}
	return append(slices.Clone(all[:most]), fmt.Sprintf("%d more", len(all)-most))
}
