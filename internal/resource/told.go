package resource

import tells "github.com/weirmesh/weir/internal/finding"

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

// SortFindings is finding.Sort.
func SortFindings(findings []Finding) { tells.Sort(findings) }
