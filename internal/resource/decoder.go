package resource

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Decoder makes the typed objects of a kind. Typed and Versioned return those of kinds with a definition.
type Decoder struct {
	// decode makes the typed object of u, which it may change, or reports why it cannot; findings without error
	// severity come with an object. Lines are left to the caller. An object of a kind that has a definition is
	// admitted first.
	decode func(k *Kind, version string, u map[string]any, admit admission) (object any, findings []Finding)
	// excerpt says that the objects are of Kubernetes' own kinds, and made of maps also where a cluster has them.
	excerpt bool
}

// admission completes and validates u, or reports why it is not valid. One that an API server has admitted needs less.
type admission func(k *Kind, version string, u map[string]any) (findings []Finding, ok bool)

// customObject is an object of a kind with a definition: a pointer to T with metadata.
type customObject[T any] interface {
	*T
	metav1.Object
	metav1.ObjectMetaAccessor
}

// Typed decodes objects whose versions all have the form of T, which has the JSON form of the definition.
func Typed[T any, P customObject[T]]() Decoder { return Decoder{decode: custom[T]} }

// Versioned decodes objects whose versions differ in more than name: the definition's schema for the version first, then the conversion to
// the one type, which reports what is not valid. Note, if not nil, says more about an object that was decoded.
func Versioned[T any, P customObject[T]](convert func(version string, u map[string]any) (P, field.ErrorList), note func(version string, u map[string]any) []Finding) Decoder {
	return Decoder{decode: func(k *Kind, version string, u map[string]any, admit admission) (any, []Finding) {
		findings, ok := admit(k, version, u)
		if !ok && k.Strict {
			_, errs := convert(version, u)
			return nil, exact(findings, errs, u)
		}
		if !ok && slices.ContainsFunc(findings, func(f Finding) bool { return f.Severity == Error && (!misread(f) || f.Server != "") }) {
			return nil, findings
		}
		object, errs := convert(version, u)
		for _, err := range errs {
			if !ok && slices.ContainsFunc(findings, func(f Finding) bool { return misread(f) && strings.HasPrefix(f.Ref.Field, err.Field) }) {
				continue // what is not read is missing
			}
			findings = append(findings, schemaFinding(err, u))
		}
		if !ok || len(errs) > 0 {
			return nil, findings
		}
		if note != nil {
			findings = append(findings, note(version, u)...)
		}
		return object, findings
	}}
}

// NewFinding returns a finding of reading with the severity and the fix of its code, which is one of this package's, about a field.
func NewFinding(code, field, message string) Finding { return finding(code, field, message) }
