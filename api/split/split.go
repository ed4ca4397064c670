// Package split is the SMI Traffic Split API (split.smi-spec.io): one Go type into which every version of TrafficSplit
// is decoded, and the conversion of objects between versions.
//
// It holds what a user wrote; dialect/smi interprets it.
package split

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Group is the API group. The first draft of the specification writes its one version, v1beta1, without a group.
const Group = "split.smi-spec.io"

// Versions are all there are, the newest first. Draft is the specification's first draft (April 2019); "v1alpha1" and it
// write weights as quantities and have no matches; the others have whole numbers. (v1alpha2 had no matches at first; they are
// read there too, as other implementations serve them.)
var Versions = []string{"v1alpha4", "v1alpha3", "v1alpha2", "v1alpha1", Draft}

// Draft is the version of the first draft.
const Draft = "v1beta1"

// shape is how the versions differ.
type shape struct{ quantities, matches bool }

func shapeOf(version string) shape {
	old := version == "v1alpha1" || version == Draft
	return shape{quantities: old, matches: !old}
}

// TrafficSplit weights the traffic of a root service over other services.
type TrafficSplit struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              Spec `json:"spec"`
	// Status is as it was read, whoever wrote it: an object with conditions. Files have none.
	Status map[string]any `json:"status,omitempty"`
}

// Spec is the split service, the shares, and the matches of requests.
type Spec struct {
	// Service is the root: a name in the split's own namespace, or such a Service's full name.
	Service string `json:"service"`
	// Backends is never empty.
	Backends []Backend `json:"backends"`
	// Matches limit the split to some requests; without any it is for all.
	Matches []Match `json:"matches,omitempty"`
}

// Backend is a weighted Service.
type Backend struct {
	Service string `json:"service"`
	Weight  Weight `json:"weight"`
}

// Match names a group of routes (specs.smi-spec.io).
type Match struct {
	APIGroup string `json:"apiGroup,omitempty"`
	Kind     string `json:"kind"`
	Name     string `json:"name"`
}

// Weight counts thousandths: the whole number 1 and the quantity "1000m" are both 1000.
type Weight int64

// MaxWeight is the largest weight there may be, in whole numbers; it keeps every sum far from overflowing.
const MaxWeight = 1_000_000_000_000

// Whole means that the weight has no thousandths.
func (w Weight) Whole() bool { return w%1000 == 0 }

// String is a whole number, or a quantity such as "500m".
func (w Weight) String() string {
	if w.Whole() {
		return strconv.FormatInt(int64(w)/1000, 10)
	}
	return strconv.FormatInt(int64(w), 10) + "m"
}

// MarshalJSON implements json.Marshaler: a number if that is exact, else a quantity.
func (w Weight) MarshalJSON() ([]byte, error) {
	if w.Whole() {
		return []byte(w.String()), nil
	}
	return []byte(strconv.Quote(w.String())), nil
}

// Decode reads the object u, written in the given version, into the one type, or returns what is wrong with every
// field. It checks the form, never what the names refer to. It does not change u.
func Decode(version string, u map[string]any) (*TrafficSplit, field.ErrorList) {
	if !slices.Contains(Versions, version) {
		return nil, field.ErrorList{field.NotSupported(field.NewPath("apiVersion"), version, Versions)}
	}
	s := &TrafficSplit{TypeMeta: metav1.TypeMeta{APIVersion: Group + "/" + Versions[0], Kind: "TrafficSplit"}}
	d := decoder{shape: shapeOf(version)}
	if meta, ok := u["metadata"].(map[string]any); ok {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(meta, &s.ObjectMeta); err != nil {
			d.fail(field.Invalid(field.NewPath("metadata"), "object", err.Error()))
		}
	}
	at := field.NewPath("spec")
	spec, ok := u["spec"].(map[string]any)
	if !ok {
		d.fail(field.Required(at, "write what is split, and over which backends"))
		return nil, d.errs
	}
	s.Spec = d.spec(spec, at)
	if status, ok := u["status"].(map[string]any); ok {
		s.Status = runtime.DeepCopyJSON(status)
	}
	if len(d.errs) > 0 {
		return nil, d.errs
	}
	return s, nil
}

type decoder struct {
	shape shape
	errs  field.ErrorList
}

func (d *decoder) fail(err *field.Error) { d.errs = append(d.errs, err) }

func (d *decoder) spec(u map[string]any, at *field.Path) (s Spec) {
	s.Service = d.text(u, at, "service", true)
	backends, ok := u["backends"].([]any)
	if !ok || len(backends) == 0 {
		d.fail(field.Required(at.Child("backends"), "write at least one backend"))
	}
	for i, v := range backends {
		at := at.Child("backends").Index(i)
		b, ok := v.(map[string]any)
		if !ok {
			d.fail(field.TypeInvalid(at, v, "must be an object with service and weight"))
			continue
		}
		w, err := parseWeight(b["weight"], d.shape.quantities, at.Child("weight"))
		if err != nil {
			d.fail(err)
		}
		s.Backends = append(s.Backends, Backend{Service: d.text(b, at, "service", true), Weight: w})
	}
	if d.shape.matches {
		s.Matches = d.matches(u, at)
	}
	return s
}

func (d *decoder) matches(u map[string]any, at *field.Path) (out []Match) {
	matches, _ := u["matches"].([]any)
	for i, v := range matches {
		at := at.Child("matches").Index(i)
		m, ok := v.(map[string]any)
		if !ok {
			d.fail(field.TypeInvalid(at, v, "must be an object with kind and name"))
			continue
		}
		out = append(out, Match{
			APIGroup: d.text(m, at, "apiGroup", false), Kind: d.text(m, at, "kind", true), Name: d.text(m, at, "name", true),
		})
	}
	return out
}

func (d *decoder) text(u map[string]any, at *field.Path, name string, required bool) string {
	v, ok := u[name].(string)
	switch {
	case !ok && u[name] != nil:
		d.fail(field.TypeInvalid(at.Child(name), u[name], "must be text"))
	case v == "" && required:
		d.fail(field.Required(at.Child(name), "write a name"))
	}
	return v
}

// parseWeight reads a weight exactly. A quantity is read like those of resources: "1" and "1000m" are equal, and so are
// "1000" and "1e3".
func parseWeight(v any, quantities bool, at *field.Path) (Weight, *field.Error) {
	var text string
	switch v := v.(type) {
	case nil:
		return 0, field.Required(at, "write the weight; 0 gets no traffic")
	case int64:
		text = strconv.FormatInt(v, 10)
	case float64:
		text = strconv.FormatFloat(v, 'f', -1, 64)
	case string:
		if !quantities {
			return 0, field.TypeInvalid(at, v, "must be a whole number, not text; quantities are for v1alpha1")
		}
		text = v
	default:
		return 0, field.TypeInvalid(at, v, "must be a number")
	}
	if tooLong(text) {
		return 0, field.Invalid(at, text[:min(len(text), maxWeightText)], fmt.Sprintf("must be at most %d, in at most %d characters", int64(MaxWeight), maxWeightText))
	}
	q, err := resource.ParseQuantity(text)
	switch {
	case err != nil:
		return 0, field.Invalid(at, text, "must be a quantity such as 1, 500m or 1e3")
	case q.Sign() < 0:
		return 0, field.Invalid(at, text, "must not be negative")
	case q.CmpInt64(MaxWeight) > 0:
		return 0, field.Invalid(at, text, fmt.Sprintf("must be at most %d", int64(MaxWeight)))
	}
	w := Weight(q.MilliValue()) // rounds up
	switch {
	case q.Cmp(*resource.NewMilliQuantity(int64(w), resource.DecimalSI)) != 0:
		return 0, field.Invalid(at, text, "must be a whole number of thousandths (m)")
	case !quantities && !w.Whole():
		return 0, field.Invalid(at, text, "must be a whole number; only the shares of the sum count, so 0.5 and 1 can be 1 and 2")
	}
	return w, nil
}

// maxWeightText bounds the text of a quantity, in bytes.
const maxWeightText = 64

// tooLong means that a quantity has more text, or more digits in its exponent, than any weight needs: computing
// "1e2147483647" would take minutes.
func tooLong(text string) bool {
	i := strings.LastIndexAny(text, "eE")
	return len(text) > maxWeightText || i >= 0 && len(strings.TrimLeft(text[i+1:], "+-0")) > 2
}
