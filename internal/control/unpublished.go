package control

import (
	"errors"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weirmesh/weir/internal/finding"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// translated is the result of translating the newest set, before anything was published.
type translated struct {
	statuses []resource.Status
	findings []resource.Finding
}

// WithUnpublished returns the report with errs, by Gateway, as the reasons why the configuration is not fully served.
// Findings and conditions then report these errors, instead of the ones that the report had. For a
// finding.UnservedError, its listeners get Programmed False with the reason PortUnavailable. Their Gateway gets it if
// it has no other listener. For any other error, the Gateway and all its listeners get it. The report itself does not
// change.
func (r Report) WithUnpublished(errs map[model.Owner]error) Report {
	r.Unpublished, r.Statuses, r.Findings = errs, r.translated.statuses, r.translated.findings
	if len(errs) == 0 {
		return r
	}
	r.Findings = slices.Clone(r.Findings)
	verdicts := map[model.Owner]resource.Verdict{}
	for _, owner := range slices.Sorted(maps.Keys(errs)) {
		var unserved finding.UnservedError
		switch {
		case errors.As(errs[owner], &unserved):
			verdicts[owner] = unservedVerdict(unserved)
			for _, u := range unserved {
				r.Findings = append(r.Findings, r.placed(u.Finding()))
			}
		case owner == "": // Err tells
		default:
			verdicts[owner] = notProgrammed(brief(errs[owner]))
			r.Findings = append(r.Findings, r.placed(resource.Finding{
				Code: codeUnpublished, Severity: resource.Error, Ref: owner.Ref(), Message: brief(errs[owner]), Fix: "correct what the message names",
			}))
		}
	}
	resource.SortFindings(r.Findings)
	r.Statuses = judge(r.Set, r.Statuses, verdicts)
	return r
}

// placed returns the finding with the place where its object was written.
func (r Report) placed(f resource.Finding) resource.Finding {
	f.Origin = r.Set.Origin(model.Ref{Kind: f.Ref.Kind, Namespace: f.Ref.Namespace, Name: f.Ref.Name})
	return f
}

// unservedVerdict returns the verdict for a Gateway with unserved listeners.
func unservedVerdict(unserved finding.UnservedError) resource.Verdict {
	v := resource.Verdict{Unserved: map[string]string{}, None: programmedFalse("spec.listeners: none can be served; see their conditions")}
	for _, u := range unserved {
		v.Unserved[u.Listener] = u.Message() + "; " + u.Fix
	}
	return v
}

// notProgrammed returns the verdict for a Gateway for which nothing new is served.
func notProgrammed(why string) resource.Verdict { return resource.Verdict{Whole: programmedFalse(why)} }

func programmedFalse(why string) *resource.Condition {
	return &resource.Condition{Type: resource.Programmed, Status: metav1.ConditionFalse, Reason: "Invalid", Message: why}
}

// judge corrects Programmed of Gateways that the translation found valid. set may be nil.
func judge(set *resource.Set, statuses []resource.Status, verdicts map[model.Owner]resource.Verdict) []resource.Status {
	if set == nil {
		set = &resource.Set{}
	}
	return set.Judge(statuses, func(owner model.Owner, is *resource.Status) resource.Verdict {
		if c := is.Condition(resource.Programmed); c == nil || c.Status != metav1.ConditionTrue {
			v := verdicts[owner]
			return resource.Verdict{Unserved: v.Unserved}
		}
		return verdicts[owner]
	})
}
