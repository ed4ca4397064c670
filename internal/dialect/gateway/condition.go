package gateway

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// problem is something wrong with an object: a finding, and a part of the message of a condition.
type problem struct {
	code string
	// reason is the condition's reason.
	reason              string
	field, message, fix string
}

func (p problem) String() string { return p.field + ": " + p.message + "; " + p.fix }

func texts(problems []problem) string {
	all := make([]string, len(problems))
	for i, p := range problems {
		all[i] = p.String()
	}
	return strings.Join(all, ". ")
}

// report adds a finding about an object.
func (t *translator) report(ref model.Ref, p problem) {
	ref.Field = p.field
	t.findings = append(t.findings, resource.Finding{
		Code: p.code, Severity: severities[p.code], Ref: ref, Origin: t.set.Origin(ref), Message: p.message, Fix: p.fix,
	})
}

func isTrue(kind, reason, message string) resource.Condition {
	return resource.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: message}
}

func isFalse(kind, reason, message string) resource.Condition {
	return resource.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message}
}
