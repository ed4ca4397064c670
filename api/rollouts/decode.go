package rollouts

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Decode reads the object u, written in the given version, into the one type, or returns what is wrong with every field,
// named as that version names it. It does not change u.
func Decode(version string, u map[string]any) (*Rollout, field.ErrorList) {
	if !slices.Contains(Versions, version) {
		return nil, field.ErrorList{field.NotSupported(field.NewPath("apiVersion"), version, Versions)}
	}
	hub := u
	if version != rollout.Hub {
		hub = runtime.DeepCopyJSON(u)
		hub["apiVersion"] = Group + "/" + version
		if err := rollout.Change(hub, rollout.Hub); err != nil {
			return nil, asWritten(version, field.ErrorList{fieldError(err)})
		}
	}
	r := &Rollout{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(hub, r); err != nil {
		return nil, field.ErrorList{field.Invalid(field.NewPath("spec"), "object", err.Error())}
	}
	r.APIVersion, r.Kind = Group+"/"+rollout.Hub, rollout.Name
	if errs := Validate(&r.Spec); len(errs) > 0 {
		return nil, asWritten(version, errs)
	}
	return r, nil
}

func fieldError(err error) *field.Error {
	if e, ok := err.(*field.Error); ok {
		return e
	}
	return field.Invalid(field.NewPath("spec"), "object", err.Error())
}

// asWritten gives fields the names that they have in a version.
func asWritten(version string, errs field.ErrorList) field.ErrorList {
	if version == rollout.Hub {
		return errs
	}
	for _, e := range errs {
		if rest, ok := strings.CutPrefix(e.Field, "spec.workloadRef"); ok {
			e.Field = "spec.objectRef.workloadRef" + rest
		}
		if rest, ok := strings.CutSuffix(e.Field, "].traffic"); ok {
			e.Field = rest + "].weight"
		}
	}
	return errs
}
