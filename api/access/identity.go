package access

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// IdentityBinding says which pods of its own namespace, and which identities, a name stands for.
type IdentityBinding struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              IdentitySpec   `json:"spec"`
	Status            map[string]any `json:"status,omitempty"`
}

// IdentitySpec is the spec of an IdentityBinding.
type IdentitySpec struct {
	Schemes Schemes `json:"schemes"`
}

// Schemes are ways to name who is meant: whoever one of them names. At least one is there; pods and a ServiceAccount
// exclude each other.
type Schemes struct {
	// Pods are those that any of the selectors selects.
	Pods []PodSelector `json:"podLabelSelectors,omitempty"`
	// SPIFFE are SPIFFE IDs, with "spiffe://" or without it. They are only text here.
	SPIFFE []string `json:"spiffeIdentities,omitempty"`
	// ServiceAccount is one of the binding's own namespace.
	ServiceAccount string `json:"serviceAccount,omitempty"`
}

// PodSelector selects pods by their labels. It has matchLabels or matchExpressions, which may be empty and then select all.
type PodSelector struct {
	Name                 string `json:"name,omitempty"`
	metav1.LabelSelector `json:",inline"`
}

// DecodeIdentityBinding is as DecodeTrafficTarget. The specification's texts write pod selectors under two names, in two
// forms: each name is read in each form.
func DecodeIdentityBinding(version string, u map[string]any) (*IdentityBinding, field.ErrorList) {
	b := &IdentityBinding{TypeMeta: typeMeta("IdentityBinding", IdentityVersions[0])}
	d := start(version, IdentityVersions, u, &b.ObjectMeta)
	root := d.root(u, "spec")
	b.Status = root.status()
	at := field.NewPath("spec")
	v, ok := u["spec"]
	if !ok {
		d.fail(field.Required(at, "write schemes"))
		return nil, d.errs
	}
	spec := d.object(v, at, "schemes")
	at = at.Child("schemes")
	if v, ok = spec.u["schemes"]; !ok {
		d.fail(field.Required(at, "write podLabelSelectors, spiffeIdentities or serviceAccount"))
		return nil, d.errs
	}
	b.Spec.Schemes = d.schemes(v, at)
	return result(d, b)
}

func (d *decoder) schemes(v any, at *field.Path) (s Schemes) {
	o := d.object(v, at, "podLabelSelectors", "podLabelSelector", "spiffeIdentities", "serviceAccount")
	for _, name := range []string{"podLabelSelectors", "podLabelSelector"} {
		switch v := o.u[name].(type) {
		case nil:
		case map[string]any:
			s.Pods = append(s.Pods, d.selector(v, at.Child(name)))
		default:
			o.list(name, MaxSelectors, func(v any, at *field.Path) { s.Pods = append(s.Pods, d.selector(v, at)) })
		}
	}
	s.SPIFFE = o.texts("spiffeIdentities", MaxIdentities, func(s string) string {
		if s == "" || len(s) > MaxIdentity {
			return "must be a SPIFFE ID of at most 2048 bytes"
		}
		return ""
	})
	s.ServiceAccount = o.text("serviceAccount", false, isName)
	pods := o.u["podLabelSelectors"] != nil || o.u["podLabelSelector"] != nil
	switch {
	case len(d.errs) == 0 && len(s.Pods) == 0 && len(s.SPIFFE) == 0 && s.ServiceAccount == "":
		d.fail(field.Required(at, "write podLabelSelectors, spiffeIdentities or serviceAccount: the binding names nobody"))
	case pods && o.u["serviceAccount"] != nil:
		d.fail(field.Forbidden(at.Child("serviceAccount"), "pod selectors and a ServiceAccount exclude each other: remove one of the two"))
	}
	return s
}

func (d *decoder) selector(v any, at *field.Path) (s PodSelector) {
	before := len(d.errs)
	o := d.object(v, at, "name", "matchLabels", "matchExpressions")
	s.Name = o.text("name", false, isMatch)
	if o.u["matchLabels"] == nil && o.u["matchExpressions"] == nil {
		if len(d.errs) > before {
			return s // it was meant to be something
		}
		d.fail(field.Required(at.Child("matchLabels"), "write labels; {} selects all pods of the namespace"))
		return s
	}
	if v, ok := o.u["matchLabels"]; ok {
		labels, ok := v.(map[string]any)
		if !ok || len(labels) > MaxSelectors {
			d.fail(field.TypeInvalid(at.Child("matchLabels"), short(v), "must be an object of at most 64 labels"))
		}
		s.MatchLabels = make(map[string]string, len(labels))
		for _, name := range slices.Sorted(maps.Keys(labels)) {
			s.MatchLabels[name] = d.text(labels[name], at.Child("matchLabels").Key(name), func(string) string { return "" })
		}
	}
	o.list("matchExpressions", MaxSelectors, func(v any, at *field.Path) {
		e := d.object(v, at, "key", "operator", "values")
		s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{
			Key:      e.text("key", true, func(string) string { return "" }),
			Operator: metav1.LabelSelectorOperator(e.text("operator", true, func(string) string { return "" })),
			Values:   e.texts("values", MaxMatches, func(string) string { return "" }),
		})
	})
	if len(d.errs) == 0 {
		d.errs = append(d.errs, validation.ValidateLabelSelector(&s.LabelSelector, validation.LabelSelectorValidationOptions{}, at)...)
	}
	return s
}
