package cli

import (
	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/dataplane"
	"github.com/weirmesh/weir/internal/finding"
	"github.com/weirmesh/weir/internal/resource"
)

// controlReport is the report of a data plane whose configurations a control loop makes.
type controlReport struct{ control.Report }

// Standing implements report.
func (r controlReport) Standing() dataplane.Standing {
	return dataplane.Standing{Generation: r.Generation, Config: r.Config, Findings: r.Findings, Err: r.Err, Changed: r.Changed}
}

// With implements dataplane.Report.
func (r controlReport) With(unserved []finding.Unserved, running []finding.Finding) dataplane.Report {
	return controlReport{r.WithUnserved(unserved).WithFindings(running)}
}

// Status implements report.
func (r controlReport) Status() any { return newStatusReply(&r.Report) }

// statusReply is the JSON form of /status where objects are known.
type statusReply struct {
	dataplane.Status
	Statuses []resource.Status `json:"statuses"`
	// Events are what a cluster would show on the objects.
	Events []resource.Event `json:"events"`
}

// newStatusReply is that of a report; nil: there was none yet.
func newStatusReply(r *control.Report) statusReply {
	if r == nil {
		r = &control.Report{}
	}
	return statusReply{
		Status:   dataplane.NewStatus(controlReport{*r}.Standing()),
		Statuses: append([]resource.Status{}, r.Statuses...),
		Events:   append([]resource.Event{}, r.Events...),
	}
}
