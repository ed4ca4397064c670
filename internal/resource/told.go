package resource

import (
	tells "github.com/weirmesh/weir/internal/finding"
	"github.com/weirmesh/weir/internal/model"
)

// Types and functions for findings about objects; see package finding.
type (
	Origin   = tells.Origin
	Severity = tells.Severity
	Finding  = tells.Finding
)

// The severities.
const (
	Error   = tells.Error
	Warning = tells.Warning
	Info    = tells.Info
)

// Problem is finding.Problem.
func Problem(code, reason, field, message, fix string) Finding {
	return tells.Problem(code, reason, field, message, fix)
}

// About completes a finding of which only the field is known: by the object, where that was read, and the severity of the code.
func (s *Set) About(object model.Ref, f Finding, severities map[string]Severity) Finding {
	object.Field = f.Ref.Field
	f.Ref, f.Origin, f.Severity = object, s.Origin(object), severities[f.Code]
	return f
}

// SortFindings is finding.Sort.
func SortFindings(findings []Finding) { tells.Sort(findings) }
