package rollouts

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// MaxSteps is how many steps a plan may have, MaxMatches how many matches a step.
const (
	MaxSteps   = 50
	MaxMatches = 16
)

// Validate returns what is wrong with a spec by itself, whatever the names in it refer to. The rules are those of
// OpenKruise's webhook.
func Validate(s *Spec) (errs field.ErrorList) {
	errs = validateWorkload(s.WorkloadRef, s.Strategy.BlueGreen != nil, field.NewPath("spec", "workloadRef"))
	at := field.NewPath("spec", "strategy")
	switch {
	case s.Strategy.Canary == nil && s.Strategy.BlueGreen == nil:
		return append(errs, field.Required(at, "write canary or blueGreen"))
	case s.Strategy.Canary != nil && s.Strategy.BlueGreen != nil:
		return append(errs, field.Invalid(at, "canary, blueGreen", "must be one of the two"))
	case s.Strategy.BlueGreen != nil:
		at = at.Child("blueGreen")
	default:
		at = at.Child("canary")
	}
	plan := s.Strategy.Plan()
	errs = append(errs, validateSteps(plan, at.Child("steps"), s.Strategy.BlueGreen != nil)...)
	if f := plan.FailureThreshold; f != nil {
		if _, err := scaled(f); err != nil {
			errs = append(errs, field.Invalid(at.Child("failureThreshold"), f.String(), err.Error()))
		}
	}
	if n := len(plan.TrafficRoutings); n > 1 {
		errs = append(errs, field.TooMany(at.Child("trafficRoutings"), n, 1))
	}
	if c := s.Strategy.Canary; c != nil && c.PatchPodTemplateMetadata != nil {
		errs = append(errs, validateMetadata(c.PatchPodTemplateMetadata, at.Child("patchPodTemplateMetadata"))...)
	}
	for i := range plan.TrafficRoutings {
		errs = append(errs, validateRouting(&plan.TrafficRoutings[i], at.Child("trafficRoutings").Index(i))...)
	}
	return errs
}

func validateSteps(plan *Plan, at *field.Path, zero bool) (errs field.ErrorList) {
	switch n := len(plan.Steps); {
	case n == 0:
		return field.ErrorList{field.Required(at, "write at least one step")}
	case n > MaxSteps:
		return field.ErrorList{field.TooMany(at, n, MaxSteps)}
	}
	last := map[intstr.Type]int{} // numbers and percentages are not compared with each other
	for i := range plan.Steps {
		s, at := &plan.Steps[i], at.Index(i)
		if n := len(s.Matches); n > MaxMatches {
			errs = append(errs, field.TooMany(at.Child("matches"), n, MaxMatches))
		}
		for k, m := range s.Matches {
			if m.Path == nil && len(m.Headers) == 0 && len(m.QueryParams) == 0 {
				errs = append(errs, field.Required(at.Child("matches").Index(k), "write path, headers or queryParams: without a condition every request matches"))
			}
		}
		if s.Traffic != nil {
			if _, err := percent(*s.Traffic, zero); err != nil {
				errs = append(errs, field.Invalid(at.Child("traffic"), *s.Traffic, err.Error()))
			}
		}
		if d := s.Pause.Duration; d != nil && *d < 0 {
			errs = append(errs, field.Invalid(at.Child("pause", "duration"), *d, "must not be negative"))
		}
		if s.Replicas == nil {
			errs = append(errs, field.Required(at.Child("replicas"), "write how many pods the new version has in this step, such as 20% or 2"))
			continue
		}
		n, err := scaled(s.Replicas)
		if err == nil && n == 0 {
			err = fmt.Errorf("must be more than 0")
		}
		if err != nil {
			errs = append(errs, field.Invalid(at.Child("replicas"), s.Replicas.String(), err.Error()))
			continue
		}
		if before, ok := last[s.Replicas.Type]; ok && n < before {
			errs = append(errs, field.Invalid(at.Child("replicas"), s.Replicas.String(), fmt.Sprintf("must not be less than in the steps before (%d)", before)))
		}
		last[s.Replicas.Type] = n
	}
	return errs
}

func validateRouting(t *TrafficRouting, at *field.Path) (errs field.ErrorList) {
	if t.Service == "" {
		errs = append(errs, field.Required(at.Child("service"), "name the Service of the stable version"))
	}
	if g := t.GracePeriodSeconds; g != nil && *g < 0 {
		errs = append(errs, field.Invalid(at.Child("gracePeriodSeconds"), *g, "must not be negative"))
	}
	if t.Gateway == nil && t.Ingress == nil && len(t.CustomNetworkRefs) == 0 {
		errs = append(errs, field.Required(at, "write gateway, ingress or customNetworkRefs"))
	}
	if t.Ingress != nil && t.Ingress.Name == "" {
		errs = append(errs, field.Required(at.Child("ingress", "name"), "name the Ingress"))
	}
	if g := t.Gateway; g != nil && (g.HTTPRouteName == nil || *g.HTTPRouteName == "") {
		errs = append(errs, field.Required(at.Child("gateway", "httpRouteName"), "name the HTTPRoute"))
	}
	for i, ref := range t.CustomNetworkRefs {
		at := at.Child("customNetworkRefs").Index(i)
		for _, name := range []struct{ name, value string }{{"apiVersion", ref.APIVersion}, {"kind", ref.Kind}, {"name", ref.Name}} {
			if name.value == "" {
				errs = append(errs, field.Required(at.Child(name.name), "name the object that routes requests"))
			}
		}
	}
	return errs
}

const (
	// deploymentLabel and revisionLabel of pods tell the versions of a workload apart.
	deploymentLabel, revisionLabel = "pod-template-hash", "controller-revision-hash"
	// ownPrefix is that of labels and annotations that Weir writes itself.
	ownPrefix = "rollouts.weirmesh.github.io/"
)

// validateMetadata returns why pods cannot have labels and annotations, whatever selects them.
func validateMetadata(m *PodTemplateMetadata, at *field.Path) (errs field.ErrorList) {
	invalid := func(at *field.Path, value string, why []string) {
		for _, text := range why {
			errs = append(errs, field.Invalid(at, value, text))
		}
	}
	reserved := func(at *field.Path, key string) {
		if strings.HasPrefix(key, ownPrefix) {
			errs = append(errs, field.Forbidden(at, "the prefix "+ownPrefix+" is for what Weir writes itself: use another one"))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(m.Labels)) {
		at, value := at.Child("labels").Key(key), m.Labels[key]
		invalid(at, key, validation.IsQualifiedName(key))
		invalid(at, value, validation.IsValidLabelValue(value))
		reserved(at, key)
		if key == deploymentLabel || key == revisionLabel {
			errs = append(errs, field.Forbidden(at, "tells the versions of the workload apart, by which Services select their pods: remove it"))
		}
	}
	annotations := at.Child("annotations")
	for _, key := range slices.Sorted(maps.Keys(m.Annotations)) {
		invalid(annotations.Key(key), key, validation.IsQualifiedName(strings.ToLower(key)))
		reserved(annotations.Key(key), key)
	}
	if err := apivalidation.ValidateAnnotationsSize(m.Annotations); err != nil {
		errs = append(errs, field.TooLong(annotations, "", apivalidation.TotalAnnotationSizeLimitB))
	}
	return errs
}

// Percent is the traffic of a valid step, from 0 to 100; ok is false if it has none.
func (r *Routing) Percent() (n int, ok bool) {
	if r.Traffic == nil {
		return 0, false
	}
	n, err := percent(*r.Traffic, true)
	return n, err == nil
}

// percent reads "20%".
func percent(text string, zero bool) (int, error) {
	digits, ok := strings.CutSuffix(text, "%")
	n, err := strconv.Atoi(digits)
	least := 1
	if zero {
		least = 0
	}
	if !ok || err != nil || digits[0] == '+' || n < least || n > 100 {
		return 0, fmt.Errorf("must be a percentage from %d%% to 100%%, such as 20%%", least)
	}
	return n, nil
}

// scaled reads a number or a percentage.
func scaled(v *intstr.IntOrString) (int, error) {
	if v.Type == intstr.String {
		n, err := percent(v.StrVal, true)
		if err != nil {
			return 0, fmt.Errorf("must be a whole number, or a percentage from 0%% to 100%%, such as 20%%")
		}
		return n, nil
	}
	if v.IntVal < 0 {
		return 0, fmt.Errorf("must not be negative")
	}
	return int(v.IntVal), nil
}

// Pods is how many pods a valid step wants of a workload that has some, rounded up: at least one, at most all.
func (s *Step) Pods(all int32) int32 {
	if s.Replicas == nil {
		return all
	}
	n := int64(s.Replicas.IntVal)
	if s.Replicas.Type == intstr.String {
		share, err := percent(s.Replicas.StrVal, true)
		if err != nil {
			return all
		}
		n = (int64(all)*int64(share) + 99) / 100
	}
	return int32(min(n, int64(all)))
}
