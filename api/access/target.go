package access

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// TrafficTarget says which requests sources may send to a destination.
type TrafficTarget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              TargetSpec     `json:"spec"`
	Status            map[string]any `json:"status,omitempty"`
}

// TargetSpec allows what all of its parts allow: any of the sources, to the destination at the port, by any of the rules.
type TargetSpec struct {
	// Destination is whose pods are reached.
	Destination Identity `json:"destination"`
	// Port limits the destination to one of its ports; 0 does not. v1alpha1 and v1alpha2 have it as a field, the others in
	// PortAnnotation.
	Port int32 `json:"port,omitempty"`
	// Sources is never empty.
	Sources []Identity `json:"sources"`
	// Rules is never empty.
	Rules []TargetRule `json:"rules"`
}

// Identity names who sends or serves requests.
type Identity struct {
	// Kind is "ServiceAccount" or "IdentityBinding".
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Namespace is empty if it was not written: it is the target's own then.
	Namespace string `json:"namespace,omitempty"`
}

// The kinds of identities.
const (
	KindServiceAccount  = "ServiceAccount"
	KindIdentityBinding = "IdentityBinding"
)

// TargetRule names a group of requests (specs.smi-spec.io) in the target's own namespace.
type TargetRule struct {
	// Kind is "HTTPRouteGroup", "TCPRoute" or "UDPRoute".
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Matches are those of the group's matches that are allowed. If it is nil, it was not written, and all are; if it is
	// empty, none is.
	Matches []string `json:"matches,omitzero"`
}

var (
	identityKinds = []string{KindServiceAccount, KindIdentityBinding}
	ruleKinds     = []string{"HTTPRouteGroup", "TCPRoute", "UDPRoute"}
)

const specsGroup = "specs.smi-spec.io"

// DecodeTrafficTarget reads the object u, written in the given version, or returns what is wrong with every field, named as
// that version names it. It checks the form, never what names refer to. It does not change u.
func DecodeTrafficTarget(version string, u map[string]any) (*TrafficTarget, field.ErrorList) {
	t := &TrafficTarget{TypeMeta: typeMeta("TrafficTarget", trafficTarget.Hub)}
	d := start(version, TargetVersions, u, &t.ObjectMeta)
	if len(d.errs) > 0 {
		return nil, d.errs
	}
	hub := u
	if version != trafficTarget.Hub {
		hub = runtime.DeepCopyJSON(u)
		hub["apiVersion"] = Group + "/" + version
		if err := trafficTarget.Change(hub, trafficTarget.Hub); err != nil {
			d.fail(fieldError(err))
			return nil, d.errs
		}
	}
	t.Spec, t.Status = d.target(hub)
	if len(d.errs) > 0 {
		return nil, asWritten(version, d.errs)
	}
	return t, nil
}

func fieldError(err error) *field.Error {
	if e, ok := err.(*field.Error); ok {
		return e
	}
	return field.Invalid(nil, "object", err.Error())
}

// asWritten gives fields the names that they have in a version.
func asWritten(version string, errs field.ErrorList) field.ErrorList {
	if version != "v1alpha1" {
		return errs
	}
	for _, e := range errs {
		if rest, ok := strings.CutPrefix(e.Field, "spec."); ok {
			e.Field = rest
		}
		if rest, ok := strings.CutPrefix(e.Field, "rules"); ok {
			e.Field = "specs" + rest
		}
	}
	return errs
}

// target reads the hub's form.
func (d *decoder) target(u map[string]any) (s TargetSpec, status map[string]any) {
	root := d.root(u, "spec")
	port, err := keptPort(u)
	if err != nil {
		d.fail(err)
	}
	s.Port = port.number
	v, ok := root.u["spec"]
	if !ok {
		d.fail(field.Required(field.NewPath("spec"), "write destination, rules and sources"))
		return s, nil
	}
	o := d.object(v, field.NewPath("spec"), "destination", "rules", "sources")
	if v, ok := o.u["destination"]; ok {
		s.Destination = d.identity(v, o.at.Child("destination"))
	} else {
		d.fail(field.Required(o.at.Child("destination"), "name whose pods are reached"))
	}
	o.required("sources", "name who sends the requests")
	o.required("rules", "name which requests are allowed")
	o.list("sources", MaxSources, func(v any, at *field.Path) { s.Sources = append(s.Sources, d.identity(v, at)) })
	o.list("rules", MaxRules, func(v any, at *field.Path) { s.Rules = append(s.Rules, d.targetRule(v, at)) })
	o.some("sources")
	o.some("rules")
	return s, root.status()
}

// some reports an empty list.
func (o object) some(name string) {
	if list, ok := o.u[name].([]any); ok && len(list) == 0 {
		o.d.fail(field.Invalid(o.at.Child(name), "[]", "must have at least one element"))
	}
}

func (d *decoder) identity(v any, at *field.Path) (i Identity) {
	if u, ok := v.(map[string]any); ok && u["port"] != nil {
		d.fail(field.Forbidden(at.Child("port"), "v1alpha3 and v1alpha4 have no port: name a TCPRoute of specs.smi-spec.io with the port as a rule"))
		return i
	}
	o := d.object(v, at, "kind", "name", "namespace", "group")
	i.Kind = o.oneOf("kind", identityKinds)
	i.Name = o.text("name", true, isName)
	i.Namespace = o.text("namespace", false, isNamespace)
	if i.Kind == KindIdentityBinding {
		o.group("group", "", Group)
	} else {
		o.group("group", "")
	}
	return i
}

func (d *decoder) targetRule(v any, at *field.Path) (r TargetRule) {
	o := d.object(v, at, "kind", "name", "matches", "group")
	r.Kind = o.oneOf("kind", ruleKinds)
	r.Name = o.text("name", true, isName)
	o.group("group", "", specsGroup)
	r.Matches = o.texts("matches", MaxMatches, isMatch)
	return r
}

func isMatch(s string) string {
	if s == "" || len(s) > maxName {
		return "must be the name of a match"
	}
	return ""
}
