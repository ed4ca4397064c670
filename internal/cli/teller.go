package cli

import (
	"context"
	"log/slog"
	"slices"
	"strings"

	"github.com/weirmesh/weir/internal/resource"
)

// teller logs findings and events, each once as long as it stays.
type teller struct {
	log *slog.Logger
	// quiet is for what another process tells people: it is logged for debugging only.
	quiet    bool
	findings map[resource.Finding]bool
	events   map[resource.Event]bool
}

func newTeller(log *slog.Logger) *teller { return &teller{log: log} }

// tell logs those that were not there the last time.
func (t *teller) tell(findings []resource.Finding, events []resource.Event) {
	t.tellFindings(findings)
	t.tellEvents(events)
}

// tellEvents logs events as a cluster would show them on the object. A finding says the same with its place.
func (t *teller) tellEvents(events []resource.Event) {
	known := make(map[resource.Event]bool, len(events))
	for _, e := range events {
		if !t.events[e] && !known[e] {
			t.log.Info("event", "type", e.Type, "object", objectName(e.Ref), "reason", e.Reason, "message", e.Message)
		}
		known[e] = true
	}
	t.events = known
}

func (t *teller) tellFindings(findings []resource.Finding) {
	told := make(map[resource.Finding]bool, len(findings))
	for _, f := range findings {
		told[f] = true
		if t.findings[f] {
			continue
		}
		level := slog.LevelError
		switch f.Severity {
		case resource.Warning:
			level = slog.LevelWarn
		case resource.Info:
			level = slog.LevelInfo
		}
		if t.quiet {
			level = slog.LevelDebug
		}
		attributes := []slog.Attr{slog.String("code", f.Code)}
		for _, a := range []slog.Attr{
			slog.String("origin", f.Origin.String()), slog.String("object", objectName(f.Ref)), slog.String("field", f.Ref.Field),
			slog.String("reason", f.Message), slog.String("fix", f.Fix),
		} {
			if a.Value.String() != "" {
				attributes = append(attributes, a)
			}
		}
		t.log.LogAttrs(context.Background(), level, "finding", attributes...)
	}
	t.tellCleared(told)
	t.findings = told
}

// maxCleared is how many findings the log names that are gone.
const maxCleared = 10

// tellCleared logs which findings are there no more. One whose object has another of the same code, perhaps at another line, is not gone.
func (t *teller) tellCleared(now map[resource.Finding]bool) {
	type about struct{ code, object, field string }
	of := func(f resource.Finding) about {
		a := about{f.Code, objectName(f.Ref), f.Ref.Field}
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
	if t.quiet {
		level = slog.LevelDebug
	}
	t.log.Log(context.Background(), level, "findings cleared", "cleared", len(gone), "left", len(now), "which", join(firstOf(gone, maxCleared), ", "))
}
