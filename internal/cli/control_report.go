package cli

import (
	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/dataplane"
	"github.com/weirmesh/weir/internal/finding"
)

// controlReport is the report of a data plane whose configurations a control loop makes.
type controlReport struct{ control.Report }

// Standing implements report.
func (r controlReport) Standing() dataplane.Standing {
	return dataplane.Standing{Generation: r.Generation, Config: r.Config, Findings: r.Findings, Err: r.Err, Changed: r.Changed}
}

// With implements dataplane.Report.
func (r controlReport) With(unserved []finding.Unserved, running []finding.Finding) dataplane.Report {
	return controlReport{r.WithUnpublished(finding.ByGateway(unserved)).WithFindings(running)}
}

// Status implements report.
func (r controlReport) Status() any { return r.Report.Status() }
