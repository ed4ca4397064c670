package rollouts

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Workloads are the kinds that a Rollout can release wherever Rollouts are carried out; those of apps.kruise.io are OpenKruise's.
var Workloads = []schema.GroupKind{
	{Group: "apps", Kind: "Deployment"}, {Group: "apps", Kind: "StatefulSet"}, {Group: "apps", Kind: "DaemonSet"},
	{Group: "apps.kruise.io", Kind: "CloneSet"}, {Group: "apps.kruise.io", Kind: "StatefulSet"}, {Group: "apps.kruise.io", Kind: "DaemonSet"},
}

// MayBeNamed reports whether a kind can be released if whoever runs Weir's controller names it there: one of a custom
// definition. Kinds of Kubernetes itself have groups without a dot, or below k8s.io.
func MayBeNamed(kind schema.GroupKind) bool {
	return strings.Contains(kind.Group, ".") && kind.Group != "k8s.io" && !strings.HasSuffix(kind.Group, ".k8s.io")
}

// GroupKind of the object that r names.
func (r Ref) GroupKind() schema.GroupKind {
	group, _, found := strings.Cut(r.APIVersion, "/")
	if !found {
		group = ""
	}
	return schema.GroupKind{Group: group, Kind: r.Kind}
}

// Key is equal for two Refs in one namespace if they name the same object, in whichever version.
func (r Ref) Key() string { return r.GroupKind().String() + " " + r.Name }

// validateWorkload returns why a Rollout of a style cannot release the object that r names.
func validateWorkload(r Ref, blueGreen bool, at *field.Path) (errs field.ErrorList) {
	for _, name := range []struct{ name, value string }{{"apiVersion", r.APIVersion}, {"kind", r.Kind}, {"name", r.Name}} {
		if name.value == "" {
			errs = append(errs, field.Required(at.Child(name.name), "name the workload that is released"))
		}
	}
	kind := r.GroupKind()
	fixed, named := slices.Contains(Workloads, kind), MayBeNamed(kind)
	switch {
	case r.Kind == "":
	case blueGreen && (r.Kind != "Deployment" && r.Kind != "CloneSet" || named && !fixed):
		errs = append(errs, field.NotSupported(at.Child("kind"), r.Kind, []string{"Deployment", "CloneSet"}))
	case r.APIVersion != "" && !fixed && !named:
		var known []string
		for _, k := range Workloads {
			known = append(known, k.String())
		}
		errs = append(errs, field.NotSupported(at.Child("kind"), kind.String(), known))
	}
	return errs
}
