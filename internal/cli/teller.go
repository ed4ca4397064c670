package cli

import (
	"log/slog"

	"github.com/weirmesh/weir/internal/finding"
	"github.com/weirmesh/weir/internal/resource"
)

// teller logs findings and events, each once as long as it stays.
type teller struct {
	finding.Teller
	events map[resource.Event]bool
}

// newTeller returns one that logs to log; quiet is for what another process tells people.
func newTeller(log *slog.Logger, quiet bool) *teller {
	return &teller{Teller: finding.Teller{Log: log, Quiet: quiet}}
}

// tell logs those that were not there the last time.
func (t *teller) tell(findings []resource.Finding, events []resource.Event) {
	t.Tell(findings)
	t.tellEvents(events)
}

// tellEvents logs events as a cluster would show them on the object. A finding says the same with its place.
func (t *teller) tellEvents(events []resource.Event) {
	known := make(map[resource.Event]bool, len(events))
	for _, e := range events {
		if !t.events[e] && !known[e] {
			t.Log.Info("event", "type", e.Type, "object", objectName(e.Ref), "reason", e.Reason, "message", e.Message)
		}
		known[e] = true
	}
	t.events = known
}
