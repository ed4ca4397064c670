package control

import (
	"slices"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// WithFindings returns the report with findings of a data plane that runs, each with the place where its object was written. The report itself is left
// alone.
func (r Report) WithFindings(all []resource.Finding) Report {
	if len(all) == 0 {
		return r
	}
	r.Findings = slices.Clone(r.Findings)
	for _, f := range all {
		if r.Set != nil {
			f.Origin = r.Set.Origin(model.Ref{Kind: f.Ref.Kind, Namespace: f.Ref.Namespace, Name: f.Ref.Name})
		}
		r.Findings = append(r.Findings, f)
	}
	resource.SortFindings(r.Findings)
	return r
}
