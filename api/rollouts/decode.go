package rollouts

import (
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Decode reads the object u, written in the given version, into the one type, or returns what is wrong with every field,
// named as that version names it. It does not change u.
func Decode(version string, u map[string]any) (*Rollout, field.ErrorList) {
	r, errs := Read(version, u)
	if len(errs) > 0 {
		return nil, errs
	}
	if errs := Problems(version, &r.Spec); len(errs) > 0 {
		return nil, errs
	}
	return r, nil
}

// Problems is Validate for a spec that was written in a version, whose names the fields have.
func Problems(version string, s *Spec) field.ErrorList { return asWritten(version, Validate(s)) }

// SameSpec reports whether two forms of an object, both written in a version, mean the same spec. Annotations belong to
// it where the version has them in the place of fields.
func SameSpec(version string, a, b map[string]any) bool {
	if version != rollout.Hub {
		x, xErr := rollout.Convert(a, rollout.Hub)
		y, yErr := rollout.Convert(b, rollout.Hub)
		if xErr == nil && yErr == nil {
			a, b = x, y
		}
	}
	return reflect.DeepEqual(a["spec"], b["spec"])
}

// Read is Decode for a Rollout that need not be valid, as one may be that was there before the rules.
func Read(version string, u map[string]any) (*Rollout, field.ErrorList) {
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
	for _, e := range errs {
		e.Field = Field(version, e.Field)
	}
	return errs
}

// Field is the path of a field of v1beta1 as a version names it.
func Field(version, path string) string {
	if version == rollout.Hub {
		return path
	}
	if rest, ok := strings.CutPrefix(path, "spec.workloadRef"); ok {
		return "spec.objectRef.workloadRef" + rest
	}
	switch path {
	case "spec.strategy.canary.enableExtraWorkloadForCanary":
		return "metadata.annotations[" + StyleAnnotation + "]"
	case "spec.strategy.canary.trafficRoutingRef":
		return "metadata.annotations[" + TrafficRoutingAnnotation + "]"
	}
	if rest, ok := strings.CutSuffix(path, "].traffic"); ok {
		return rest + "]." + Share(version)
	}
	return path
}

// Share is the field of a step in which a version has the percentage of the requests.
func Share(version string) string {
	if version == rollout.Hub {
		return "traffic"
	}
	return "weight"
}
