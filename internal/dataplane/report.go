package dataplane

import (
	"slices"

	"github.com/weirmesh/weir/internal/finding"
	"github.com/weirmesh/weir/internal/model"
)

// Report describes a data plane after a publish.
type Report interface {
	// Standing is the part that every report has.
	Standing() Standing
	// With is the report of the same data plane when these listeners are not served and these findings are made while it runs.
	With(unserved []finding.Unserved, running []finding.Finding) Report
	// Status is the JSON form of /status.
	Status() any
}

// Standing is the minimal report.
type Standing struct {
	// Generation counts the served configurations; 0 means none yet.
	Generation uint64
	// Config is the current configuration, the last that was published; nil if Generation is 0.
	Config *model.Config
	// Findings are the findings about it.
	Findings []finding.Finding
	// Err is why the newest configuration is not served; nil if it is.
	Err error
	// Changed is true if this report's configuration was published just now.
	Changed bool
}

// Standing implements report.
func (s Standing) Standing() Standing { return s }

// With implements Report.
func (s Standing) With(unserved []finding.Unserved, running []finding.Finding) Report {
	s.Findings = slices.Concat(s.Findings, running)
	for _, u := range unserved {
		s.Findings = append(s.Findings, u.Finding())
	}
	finding.Sort(s.Findings)
	return s
}

// Status implements report.
func (s Standing) Status() any { return finding.NewSummary(s.Generation, s.Findings, s.Err) }
