package cli

import (
	"context"
	"log/slog"

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
	t.findings = told
}
