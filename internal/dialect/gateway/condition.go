package gateway

import (
	"errors"
	"fmt"
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

// maxText bounds a condition's text about problems, in bytes: the API server allows 32 KiB (Condition.message). The
// findings have the rest.
const maxText = 8 << 10

func texts(problems []problem) string {
	var b strings.Builder
	for i, p := range problems {
		text := p.String()
		if i > 0 && b.Len()+len(text) > maxText {
			fmt.Fprintf(&b, ". And %d more", len(problems)-i)
			break
		}
		if i > 0 {
			b.WriteString(". ")
		}
		b.WriteString(text)
	}
	return b.String()
}

// valueProblem is a problem of a value that package model refuses.
func valueProblem(field, value string, err error) problem {
	p := problem{code: codeNotSendable, reason: "UnsupportedValue", field: field, message: err.Error()}
	var pattern *model.PatternError
	var bad *model.ValueError
	switch {
	case errors.As(err, &pattern):
		if p.code, p.fix = codeRegex, pattern.Fix; pattern.TooLarge {
			p.code = codePatternLarge
		}
	case errors.As(err, &bad):
		p.fix = bad.Fix
		if value != "" {
			p.message = fmt.Sprintf("%.128q: %s", value, bad.Reason)
		}
	}
	return p
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
