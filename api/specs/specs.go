// Package specs is the SMI Traffic Specs API (specs.smi-spec.io): one Go type each for HTTPRouteGroup, TCPRoute and
// UDPRoute into which every version is decoded, and the conversion of objects between versions.
//
// It holds what a user wrote; dialect/smi interprets it.
package specs

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Group is the API group.
const Group = "specs.smi-spec.io"

// Versions are those of HTTPRouteGroup and TCPRoute, the newest first. "v1alpha1" and "v1alpha2" of HTTPRouteGroup have
// no spec; "v1alpha1" has no headers; TCPRoute got its ports in "v1alpha4". UDPRoute only exists in "v1alpha4".
var Versions = []string{"v1alpha4", "v1alpha3", "v1alpha2", "v1alpha1"}

// HTTPRouteGroup is a set of named conditions on HTTP requests.
type HTTPRouteGroup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              HTTPRouteGroupSpec `json:"spec"`
}

// HTTPRouteGroupSpec holds the matches. A request meets the group if it meets any of them.
type HTTPRouteGroupSpec struct {
	Matches []HTTPMatch `json:"matches,omitempty"`
}

// HTTPMatch is a set of conditions that must all hold. An empty one holds for every request.
type HTTPMatch struct {
	Name string `json:"name"`
	// Methods are the allowed methods; none or "*" allows all.
	Methods []string `json:"methods,omitempty"`
	// PathRegex must match from the start of the path.
	PathRegex string `json:"pathRegex,omitempty"`
	// Headers must all match whole. They are in the order written as a list, by name when written as an object.
	Headers []Header `json:"headers,omitempty"`
}

// Header is an expression that the value of a header field must match.
type Header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// TCPRoute is TCP traffic, to some ports or to all.
type TCPRoute struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              PortsSpec `json:"spec"`
}

// UDPRoute is UDP traffic, to some ports or to all.
type UDPRoute struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              PortsSpec `json:"spec"`
}

// PortsSpec is the spec of TCPRoute and UDPRoute.
type PortsSpec struct {
	Matches PortsMatch `json:"matches,omitzero"`
}

// PortsMatch names ports; none means all.
type PortsMatch struct {
	Name  string  `json:"name,omitempty"`
	Ports []int32 `json:"ports,omitempty"`
}

// DecodeHTTPRouteGroup reads the object u, written in the given version, or returns what is wrong with every field. It
// checks the form; regular expressions are only text here. It does not change u.
func DecodeHTTPRouteGroup(version string, u map[string]any) (*HTTPRouteGroup, field.ErrorList) {
	g := &HTTPRouteGroup{TypeMeta: typeMeta("HTTPRouteGroup")}
	d := start(version, u, &g.ObjectMeta)
	at, holder := d.body(u, inSpec(version), "matches")
	matches, ok := holder["matches"].([]any)
	if !ok && holder["matches"] != nil {
		d.fail(field.TypeInvalid(at.Child("matches"), holder["matches"], "must be a list"))
	}
	for i, v := range matches {
		at := at.Child("matches").Index(i)
		m, ok := v.(map[string]any)
		if !ok {
			d.fail(field.TypeInvalid(at, v, "must be an object"))
			continue
		}
		g.Spec.Matches = append(g.Spec.Matches, d.match(m, at, version != "v1alpha1"))
	}
	if len(d.errs) > 0 {
		return nil, d.errs
	}
	return g, nil
}

// DecodeTCPRoute is as DecodeHTTPRouteGroup. Versions before v1alpha4 have no ports.
func DecodeTCPRoute(version string, u map[string]any) (*TCPRoute, field.ErrorList) {
	r := &TCPRoute{TypeMeta: typeMeta("TCPRoute")}
	d := start(version, u, &r.ObjectMeta)
	if version == Versions[0] {
		r.Spec = d.ports(u)
	}
	if len(d.errs) > 0 {
		return nil, d.errs
	}
	return r, nil
}

// DecodeUDPRoute is as DecodeHTTPRouteGroup.
func DecodeUDPRoute(version string, u map[string]any) (*UDPRoute, field.ErrorList) {
	r := &UDPRoute{TypeMeta: typeMeta("UDPRoute")}
	d := start(version, u, &r.ObjectMeta)
	r.Spec = d.ports(u)
	if len(d.errs) > 0 {
		return nil, d.errs
	}
	return r, nil
}

func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: Group + "/" + Versions[0], Kind: kind}
}

// inSpec reports whether HTTPRouteGroup's matches are under spec.
func inSpec(version string) bool { return version == "v1alpha4" || version == "v1alpha3" }

type decoder struct{ errs field.ErrorList }

func (d *decoder) fail(err *field.Error) { d.errs = append(d.errs, err) }

func start(version string, u map[string]any, meta *metav1.ObjectMeta) *decoder {
	d := &decoder{}
	if !slices.Contains(Versions, version) {
		d.fail(field.NotSupported(field.NewPath("apiVersion"), version, Versions))
	}
	if m, ok := u["metadata"].(map[string]any); ok {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(m, meta); err != nil {
			d.fail(field.Invalid(field.NewPath("metadata"), "object", err.Error()))
		}
	}
	return d
}

// body is the object, or its spec, in which a field is.
func (d *decoder) body(u map[string]any, spec bool, name string) (*field.Path, map[string]any) {
	if !spec {
		return nil, u
	}
	at := field.NewPath("spec")
	holder, ok := u["spec"].(map[string]any)
	if !ok && u["spec"] != nil {
		d.fail(field.TypeInvalid(at, u["spec"], "must be an object with "+name))
	}
	return at, holder
}

func (d *decoder) match(u map[string]any, at *field.Path, headers bool) (m HTTPMatch) {
	m.Name = d.text(u["name"], at.Child("name"))
	m.PathRegex = d.text(u["pathRegex"], at.Child("pathRegex"))
	methods, ok := u["methods"].([]any)
	if !ok && u["methods"] != nil {
		d.fail(field.TypeInvalid(at.Child("methods"), u["methods"], "must be a list"))
	}
	for i, v := range methods {
		m.Methods = append(m.Methods, d.text(v, at.Child("methods").Index(i)))
	}
	if headers {
		m.Headers = d.headers(u["headers"], at.Child("headers"))
	}
	return m
}

// headers reads both forms: a list of objects, which implementations use, and one object, which the text of the
// specification has.
func (d *decoder) headers(v any, at *field.Path) (out []Header) {
	switch v := v.(type) {
	case nil:
	case map[string]any:
		return d.headerMap(v, at)
	case []any:
		for i, item := range v {
			at := at.Index(i)
			m, ok := item.(map[string]any)
			if !ok {
				d.fail(field.TypeInvalid(at, item, "must be an object of a header's name and an expression"))
				continue
			}
			out = append(out, d.headerMap(m, at)...)
		}
	default:
		d.fail(field.TypeInvalid(at, v, "must be an object of names and expressions, or a list of such objects"))
	}
	return out
}

func (d *decoder) headerMap(m map[string]any, at *field.Path) (out []Header) {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if name == "" {
			d.fail(field.Required(at, "a header needs a name"))
			continue
		}
		out = append(out, Header{name, d.text(m[name], at.Key(name))})
	}
	return out
}

func (d *decoder) text(v any, at *field.Path) string {
	s, ok := v.(string)
	if !ok && v != nil {
		d.fail(field.TypeInvalid(at, v, "must be text; put it in quotes"))
	}
	return s
}

func (d *decoder) ports(u map[string]any) (s PortsSpec) {
	at, spec := d.body(u, true, "matches")
	at = at.Child("matches")
	matches, ok := spec["matches"].(map[string]any)
	if !ok {
		if spec["matches"] != nil {
			d.fail(field.TypeInvalid(at, spec["matches"], "must be an object with ports"))
		}
		return s
	}
	s.Matches.Name = d.text(matches["name"], at.Child("name"))
	ports, ok := matches["ports"].([]any)
	if !ok && matches["ports"] != nil {
		d.fail(field.TypeInvalid(at.Child("ports"), matches["ports"], "must be a list of numbers"))
	}
	for i, v := range ports {
		n, ok := v.(int64)
		if !ok || n < 1 || n > 65535 {
			d.fail(field.Invalid(at.Child("ports").Index(i), strings.ReplaceAll(fmt.Sprint(v), "<nil>", "null"), "must be a port from 1 to 65535"))
			continue
		}
		s.Matches.Ports = append(s.Matches.Ports, int32(n))
	}
	return s
}
