package smi

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// problem is something wrong with an object: a finding, an event and a part of the message of a condition.
type problem struct {
	code string
	// reason is the event's reason, and the condition's.
	reason              string
	field, message, fix string
}

func (p problem) String() string { return p.field + ": " + p.message + "; " + p.fix }

// report adds a finding, and unless it is mere information an event, about an object.
func (t *translator) report(ref model.Ref, p problem) {
	object := ref
	object.Field = ""
	ref.Field = p.field
	severity := severities[p.code]
	t.findings = append(t.findings, resource.Finding{
		Code: p.code, Severity: severity, Ref: ref, Origin: t.set.Origin(ref), Message: p.message, Fix: p.fix,
	})
	if severity != resource.Info {
		t.events = append(t.events, resource.Event{Ref: object, Type: "Warning", Reason: p.reason, Message: p.String()})
	}
}

// status writes the conditions of a split:
//
//	Accepted      it has effect
//	ResolvedRefs  the backends with weight and the HTTPRouteGroups exist
//	PortsMatched  every backend has every port of the root
//	Conflicted    an older split of the root takes its effect
func (t *translator) status(s *trafficSplit) {
	accepted := condition("Accepted", true, "Accepted", s.warnings)
	if len(s.warnings) > 0 {
		accepted.Reason = s.warnings[0].reason
	}
	if len(s.rejected) > 0 {
		accepted = condition("Accepted", false, s.rejected[0].reason, append(s.rejected, s.warnings...))
	}
	resolved := condition("ResolvedRefs", true, "ResolvedRefs", nil)
	if len(s.unresolved) > 0 {
		resolved = condition("ResolvedRefs", false, s.unresolved[0].reason, s.unresolved)
	}
	matched := condition("PortsMatched", true, "PortsMatched", nil)
	if len(s.ports) > 0 {
		matched = condition("PortsMatched", false, s.ports[0].reason, s.ports)
	}
	conflicted := condition("Conflicted", false, "NoConflict", nil)
	if s.conflicted {
		conflicted = condition("Conflicted", true, "Conflicted", s.rejected)
	}
	t.statuses = append(t.statuses, resource.Status{
		Ref: s.ref, Generation: s.object.Generation, Conditions: []resource.Condition{accepted, resolved, matched, conflicted},
	})
}

func condition(kind string, status bool, reason string, problems []problem) resource.Condition {
	texts := make([]string, len(problems))
	for i, p := range problems {
		texts[i] = p.String()
	}
	c := resource.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: strings.Join(texts, ". ")}
	if status {
		c.Status = metav1.ConditionTrue
	}
	return c
}
