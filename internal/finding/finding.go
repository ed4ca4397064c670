// Package finding holds what users are told about what they wrote: what, where, why, and what to do. Front ends make
// findings about objects, the data plane about what it cannot serve. The package knows no kind of object and nothing of
// Kubernetes.
package finding

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/visible"
)

// Origin is the place in the input where a document begins, or where a file could not be read on.
type Origin struct {
	// File is the path as it was reached from the paths given, or "-" for the standard input.
	File string `json:"file,omitempty"`
	// Line counts from 1; 0 is the file as a whole.
	Line int `json:"line,omitempty"`
}

// String is "file:line", "file", or empty.
func (o Origin) String() string {
	if o.Line == 0 {
		return visible.Text(o.File)
	}
	return visible.Text(o.File) + ":" + strconv.Itoa(o.Line)
}

// Severity of a finding. The zero value is Error.
type Severity uint8

const (
	// Error means that something the user wrote is not served.
	Error Severity = iota
	// Warning means that it is served, but hardly as meant.
	Warning
	// Info is worth knowing.
	Info
)

var severities = [...]string{Error: "error", Warning: "warning", Info: "info"}

// String is "error", "warning" or "info".
func (s Severity) String() string {
	if int(s) < len(severities) {
		return severities[s]
	}
	return "severity " + strconv.Itoa(int(s))
}

// MarshalText implements encoding.TextMarshaler.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Severity) UnmarshalText(text []byte) error {
	i := slices.Index(severities[:], string(text))
	if i < 0 {
		return fmt.Errorf("severity %q: want error, warning or info", text)
	}
	*s = Severity(i)
	return nil
}

// Finding is one thing that a user should know about what he wrote.
type Finding struct {
	// Code is stable; see Codes.
	Code     string   `json:"code"`
	Severity Severity `json:"severity"`
	// Ref is the object, its Field the path inside it; zero when no object could be made out.
	Ref    model.Ref `json:"ref,omitzero"`
	Origin Origin    `json:"origin,omitzero"`
	// Message is the reason, Fix what to do about it.
	Message string `json:"message"`
	Fix     string `json:"fix,omitempty"`
	// Reason is a CamelCase word for the condition or event that tells of it; empty where none does.
	Reason string `json:"-"`
	// Server has the words in which an API server says the same, a line of "field: message" each; empty for what only Weir says.
	Server string `json:"-"`
	// Meant is the field that a misspelt one was most likely meant to be.
	Meant string `json:"-"`
	// Absent means that a required field is missing.
	Absent bool `json:"-"`
	// General means that the finding is about alternatives: other findings inside of the field are more exact.
	General bool `json:"-"`
}

// Problem is a finding as it is made where only the part of an object is known in which something is wrong: whoever knows the object and its place adds
// them, and the severity of the code.
func Problem(code, reason, field, message, fix string) Finding {
	return Finding{Code: code, Reason: reason, Ref: model.Ref{Field: field}, Message: message, Fix: fix}
}

// Text is what a condition or an event of the object says: "field: message; fix".
func (f Finding) Text() string {
	text := f.Message + "; " + f.Fix
	if f.Ref.Field == "" {
		return text
	}
	return f.Ref.Field + ": " + text
}

// String is one line: "file:line: severity CODE Kind namespace/name field: message; fix".
func (f Finding) String() string {
	var b strings.Builder
	if o := f.Origin.String(); o != "" {
		b.WriteString(o + ": ")
	}
	b.WriteString(f.Severity.String() + " " + f.Code)
	switch {
	case f.Ref.Kind != "":
		b.WriteString(" " + f.Ref.String())
	case f.Ref.Field != "":
		b.WriteString(" " + f.Ref.Field)
	}
	b.WriteString(": " + f.Message)
	if f.Fix != "" {
		b.WriteString("; " + f.Fix)
	}
	return b.String()
}

// Sort orders by place, object, field, code and message.
func Sort(findings []Finding) {
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Or(
			cmp.Compare(a.Origin.File, b.Origin.File),
			cmp.Compare(a.Origin.Line, b.Origin.Line),
			a.Ref.Compare(b.Ref),
			cmp.Compare(a.Code, b.Code),
			cmp.Compare(a.Message, b.Message),
		)
	})
}
