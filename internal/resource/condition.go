package resource

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// True returns a condition that holds. The message may be empty.
func True(kind, reason, message string) Condition {
	return Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: message}
}

// False returns a condition that does not hold.
func False(kind, reason, message string) Condition {
	return Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message}
}

// Unknown is a condition whose status is not known yet.
func Unknown(kind, reason, message string) Condition {
	return Condition{Type: kind, Status: metav1.ConditionUnknown, Reason: reason, Message: message}
}

// ConditionOf returns an object's condition without its time, which only the writer of conditions knows.
func ConditionOf(c metav1.Condition) Condition {
	return Condition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message, Generation: c.ObservedGeneration}
}

// FindCondition returns the condition of a type, or nil. The caller may change it in place.
func FindCondition(conditions []Condition, kind string) *Condition {
	if i := slices.IndexFunc(conditions, func(c Condition) bool { return c.Type == kind }); i >= 0 {
		return &conditions[i]
	}
	return nil
}

// WithCondition returns the conditions with by in the place of the one with its type. If there is none, nothing
// changes. The input stays unchanged.
func WithCondition(conditions []Condition, by Condition) []Condition {
	out := slices.Clone(conditions)
	if c := FindCondition(out, by.Type); c != nil {
		*c = by
	}
	return out
}

// maxTexts bounds what a condition reports about problems, in bytes: the API server accepts 32 KiB
// (metav1.Condition.message). The findings have the rest.
const maxTexts = 8 << 10

// Texts returns the message of a condition for these problems of one object.
func Texts(problems []Finding) string {
	var b strings.Builder
	for i, p := range problems {
		text := p.Text()
		if i > 0 && b.Len()+len(text) > maxTexts {
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
