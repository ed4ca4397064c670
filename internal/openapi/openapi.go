// Package openapi makes TrafficRoles of an OpenAPI document: what it documents is allowed, by method and path. It
// reads Swagger 2.0 and OpenAPI 3.0, 3.1 and 3.2, in YAML or JSON.
//
// It is pure: bytes in, objects out. It reads no file and no network, so a reference to another document is not
// followed. It does not interpret roles (dialect/access does), and nothing but the command line uses it.
//
// Roles only allow. So a document's mistake, and a part that a regular expression cannot say, must not make a role
// allow what the document does not: an operation without usable path is left out, and a parameter that falls back to
// its type is told of in a Note.
package openapi

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/weirmesh/weir/api/access"
	"github.com/weirmesh/weir/internal/visible"
)

// Bounds of what is read and made.
const (
	// MaxBytes is the most that a document may have.
	MaxBytes = 16 << 20
	// maxNodes is the most values that may be read of it, with YAML's aliases written out. maxDepth is how deeply they
	// may be nested.
	maxNodes, maxDepth = 1 << 20, 64
	// maxOperations, maxBases and maxRules bound what it documents, the base paths of an operation and the rules of all
	// roles together.
	maxOperations, maxBases, maxRules = 10_000, 32, 50_000
	// maxNotes is the most notes; another one says how many there are more.
	maxNotes = 1000
	// maxWhere and maxText bound a note, in bytes.
	maxWhere, maxText = 300, 600
)

// Grouping is what each role is for.
type Grouping string

// There is always one role for all operations, beside those of the grouping.
const (
	// ByTag makes a role of each tag.
	ByTag Grouping = "tag"
	// ByScope makes a role of each set of scopes that a request needs at once, which mostly is one scope.
	ByScope Grouping = "scope"
	// ByNone makes no other role.
	ByNone Grouping = "none"
)

// Options say what the roles are for.
type Options struct {
	// Resource serves the requests. Its name is what all roles' names begin with.
	Resource access.Resource
	// Namespace is that of the objects; it may be empty.
	Namespace string
	// By is ByTag if it is empty.
	By Grouping
	// BasePaths replace those of the document's servers, unless they are nil.
	BasePaths []string
	// Bind gives roles to subjects.
	Bind []Bind
}

// Bind gives a role to a subject.
type Bind struct {
	// To is the tag, or the scope, whose role is given; empty is the role for all operations.
	To      string
	Subject access.Subject
}

// Result is what was made of a document.
type Result struct {
	// Roles and Bindings are sorted by name.
	Roles    []Role
	Bindings []access.TrafficRoleBinding
	// Operations is how many there are in the roles, LeftOut how many are not.
	Operations, LeftOut int
	// Notes say what was left out, and what is allowed that the document does not say exactly.
	Notes []Note
}

// Role is a role with what to say about it.
type Role struct {
	access.TrafficRole
	// About says what it is for.
	About string
	// From says for each rule which operations it is of.
	From []string
	// whole is the name of the role that it is a part of.
	whole string
}

// Note is something that could not be mapped as it is written.
type Note struct {
	// Where is the operation or the part of the document; it may be empty.
	Where string
	// LeftOut means that Where is in no role.
	LeftOut bool
	Text    string
}

func (n Note) String() string {
	text := n.Text
	if n.Where != "" {
		text = n.Where + ": " + text
	}
	return visible.Text(text)
}

// Generate makes the roles. An error means that the document cannot be read, or that nothing can be made of it with these options.
func Generate(document []byte, options Options) (*Result, error) {
	options.By = cmp.Or(options.By, ByTag)
	m := &mapper{options: options}
	doc, err := m.read(document)
	if err != nil {
		return nil, err
	}
	if err := m.operations(doc); err != nil {
		return nil, err
	}
	m.overlaps()
	r := &Result{Operations: len(m.ops), LeftOut: m.leftOut}
	if r.Roles, err = m.roles(); err != nil {
		return nil, err
	}
	if r.Bindings, err = m.bindings(r.Roles); err != nil {
		return nil, err
	}
	r.Notes = m.notes
	if m.more > 0 {
		r.Notes = append(r.Notes, Note{Text: fmt.Sprintf("there are %d more such notes", m.more)})
	}
	return r, nil
}

// mapper holds one mapping.
type mapper struct {
	options Options
	ops     []*operation
	leftOut int
	notes   []Note
	more    int
	// groups are the operations of each role, by what it is for.
	groups map[string][]*operation
	names  map[string]string
}

func (m *mapper) note(where, format string, args ...any) {
	m.add(Note{Where: where, Text: fmt.Sprintf(format, args...)})
}

func (m *mapper) leave(where, format string, args ...any) {
	m.leftOut++
	m.add(Note{Where: where, LeftOut: true, Text: fmt.Sprintf(format, args...) + ": it is left out"})
}

func (m *mapper) add(n Note) {
	n.Where, n.Text = brief(n.Where, maxWhere+64), brief(n.Text, maxText)
	if slices.Contains(m.notes, n) {
		return
	}
	if len(m.notes) >= maxNotes {
		m.more++
		return
	}
	m.notes = append(m.notes, n)
}
