package control

import (
	"log/slog"

	"github.com/weirmesh/weir/internal/finding"
	"github.com/weirmesh/weir/internal/resource"
)

// Teller logs findings and events, each once as long as it stays.
type Teller struct {
	finding.Teller
	events map[resource.Event]bool
}

// NewTeller returns one that logs to log. quiet is true if another process reports to people.
func NewTeller(log *slog.Logger, quiet bool) *Teller {
	return &Teller{Teller: finding.Teller{Log: log, Quiet: quiet}}
}

// Tell logs the findings and events that were not there the last time.
func (t *Teller) Tell(findings []resource.Finding, events []resource.Event) {
	t.Teller.Tell(findings)
	t.TellEvents(events)
}

// TellEvents logs events as a cluster would show them on the object. A finding has the same message with its place.
func (t *Teller) TellEvents(events []resource.Event) {
	known := make(map[resource.Event]bool, len(events))
	for _, e := range events {
		if !t.events[e] && !known[e] {
			t.Log.Info("event", "type", e.Type, "object", finding.Object(e.Ref), "reason", e.Reason, "message", e.Message)
		}
		known[e] = true
	}
	t.events = known
}
