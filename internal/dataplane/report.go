package dataplane

import (
	"slices"

	"github.com/weirmesh/weir/internal/finding"
	"github.com/weirmesh/weir/internal/model"
)

// Report says how a data plane stands after a publish.
type Report interface {
	// Standing is what every report has.
	Standing() Standing
	// With is the report of the same data plane when these listeners are not served and these findings are made while it runs.
	With(unserved []finding.Unserved, running []finding.Finding) Report
	// Status is the JSON form of /status.
	Status() any
}

// Standing is the least that a report says, and a report itself.
type Standing struct {
	// Generation counts the configurations that were served; 0 is none yet.
	Generation uint64
	// Config is the one being served: the last that was published, nil when Generation is 0.
	Config *model.Config
	// Findings are what people are told of it.
	Findings []finding.Finding
	// Err says why the newest configuration is not being served; nil when it is.
	Err error
	// Changed says that this report's configuration was published just now.
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
