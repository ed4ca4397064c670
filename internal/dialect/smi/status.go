package smi

import (
	"slices"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// report adds a finding, and unless it is mere information an event, about an object.
func (t *translator) report(ref model.Ref, p resource.Finding) {
	f := t.set.About(ref, p, severities)
	t.findings = append(t.findings, f)
	if f.Severity != resource.Info {
		ref.Field = ""
		t.events = append(t.events, resource.Event{Ref: ref, Type: "Warning", Reason: p.Reason, Message: p.Text()})
	}
}

// status writes the conditions of a split:
//
//	Accepted      it has effect
//	ResolvedRefs  the backends with weight and the HTTPRouteGroups exist
//	PortsMatched  every backend has every port of the root
//	Conflicted    an older split of the root takes its effect
func (t *translator) status(s *trafficSplit) {
	accepted := resource.True("Accepted", "Accepted", resource.Texts(s.warnings))
	if len(s.warnings) > 0 {
		accepted.Reason = s.warnings[0].Reason
	}
	if len(s.rejected) > 0 {
		accepted = resource.False("Accepted", s.rejected[0].Reason, resource.Texts(slices.Concat(s.rejected, s.warnings)))
	}
	resolved := resource.True("ResolvedRefs", "ResolvedRefs", "")
	if len(s.unresolved) > 0 {
		resolved = resource.False("ResolvedRefs", s.unresolved[0].Reason, resource.Texts(s.unresolved))
	}
	matched := resource.True("PortsMatched", "PortsMatched", "")
	if len(s.ports) > 0 {
		matched = resource.False("PortsMatched", s.ports[0].Reason, resource.Texts(s.ports))
	}
	conflicted := resource.False("Conflicted", "NoConflict", "")
	if s.conflicted {
		conflicted = resource.True("Conflicted", "Conflicted", resource.Texts(s.rejected))
	}
	t.statuses = append(t.statuses, resource.Status{
		Ref: s.ref, Generation: s.object.Generation, Conditions: []resource.Condition{accepted, resolved, matched, conflicted},
	})
}
