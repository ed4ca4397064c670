package control

import (
	"github.com/weirmesh/weir/internal/finding"
	"github.com/weirmesh/weir/internal/resource"
)

// Status is the JSON form of a report at /status.
type Status struct {
	finding.Summary
	Statuses []resource.Status `json:"statuses"`
	// Events are the events that a cluster would show on the objects.
	Events []resource.Event `json:"events"`
}

// Status returns it; r may be nil, for no report yet.
func (r *Report) Status() Status {
	if r == nil {
		r = &Report{}
	}
	return Status{
		Summary:  finding.NewSummary(r.Generation, r.Findings, r.Err),
		Statuses: append([]resource.Status{}, r.Statuses...),
		Events:   append([]resource.Event{}, r.Events...),
	}
}
