package standalone

import (
	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/dataplane"
	"github.com/weirmesh/weir/internal/finding"
	"github.com/weirmesh/weir/internal/resource"
)

// report is the report of a data plane that gets its configurations from a control loop.
type report struct {
	control.Report
	own func() []resource.Status
}

// Standing implements report.
func (r report) Standing() dataplane.Standing {
	return dataplane.Standing{Generation: r.Generation, Config: r.Config, Findings: r.Findings, Err: r.Err, Changed: r.Changed}
}

// With implements dataplane.Report.
func (r report) With(unserved []finding.Unserved, running []finding.Finding) dataplane.Report {
	return report{r.WithUnpublished(finding.ByOwner(unserved)).WithFindings(running), r.own}
}

// Status implements report.
func (r report) Status() any {
	s := r.Report.Status()
	if r.own != nil {
		s.Statuses = append(s.Statuses, r.own()...)
		resource.SortStatuses(s.Statuses)
	}
	return s
}
