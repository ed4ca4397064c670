package rollouts

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"github.com/weirmesh/weir/api/convert"
)

// Annotations by which v1alpha1 says what v1beta1 has fields for, as OpenKruise converts them.
const (
	// StyleAnnotation is "canary" or "partition": enableExtraWorkloadForCanary.
	StyleAnnotation = Group + "/rolling-style"
	// TrafficRoutingAnnotation is trafficRoutingRef.
	TrafficRoutingAnnotation = Group + "/trafficrouting"
)

// KeptAnnotation holds, as JSON, what the version of an object cannot express, so that no way through the versions loses
// anything: see kept.
const KeptAnnotation = Group + "/kept"

// Kinds are the kinds of the group with several versions, with their conversions.
func Kinds() []convert.Kind { return []convert.Kind{rollout} }

var rollout = convert.Kind{
	Group: Group, Name: "Rollout", Plural: "rollouts", Hub: "v1beta1",
	Versions: map[string]convert.Version{"v1alpha1": {Up: toBeta, Down: toAlpha}},
}

// kept is the content of KeptAnnotation: spec and annotations as another version had them, and what they became. They
// count for as long as the latter are unchanged; of an edited spec, each step that is unchanged.
type kept struct {
	Version string         `json:"version"`
	Spec    map[string]any `json:"spec"`
	// Notes are the style and traffic routing annotations, where they were others.
	Notes map[string]any `json:"notes,omitempty"`
}

// toBeta makes the form of v1beta1.
func toBeta(u map[string]any) error {
	spec, _ := u["spec"].(map[string]any)
	text, wasKept := convert.Take(u, KeptAnnotation)
	notes := notesOf(u)
	up, err := betaSpec(spec, notes)
	if err != nil {
		return err
	}
	if k, ok := readKept(text, "v1beta1"); wasKept && ok {
		down, downNotes := alphaSpec(k.Spec, k.Notes)
		u["spec"] = restore(spec, down, k.Spec, up)
		if reflect.DeepEqual(notes, downNotes) {
			setNotes(u, k.Notes)
			return nil
		}
		if plan := canaryOf(u["spec"]); plan != nil && canaryOf(up) != nil {
			copyFields(plan, canaryOf(up), "enableExtraWorkloadForCanary", "trafficRoutingRef")
		}
		return nil
	}
	u["spec"] = up
	if down, downNotes := alphaSpec(up, notes); !reflect.DeepEqual(down, spec) || !reflect.DeepEqual(downNotes, notes) {
		keep(u, kept{Version: "v1alpha1", Spec: spec, Notes: notes})
	}
	return nil
}

// toAlpha makes the form of v1alpha1.
func toAlpha(u map[string]any) {
	spec, _ := u["spec"].(map[string]any)
	text, wasKept := convert.Take(u, KeptAnnotation)
	notes := notesOf(u)
	down, downNotes := alphaSpec(spec, notes)
	if k, ok := readKept(text, "v1alpha1"); wasKept && ok {
		if up, err := betaSpec(k.Spec, k.Notes); err == nil {
			u["spec"] = restore(spec, up, k.Spec, down)
			if reflect.DeepEqual(spec, up) && reflect.DeepEqual(notes, k.Notes) {
				return
			}
			setNotes(u, downNotes)
			return
		}
	}
	u["spec"] = down
	setNotes(u, downNotes)
	if up, err := betaSpec(down, downNotes); err != nil || !reflect.DeepEqual(up, spec) || !reflect.DeepEqual(downNotes, notes) {
		keep(u, kept{Version: "v1beta1", Spec: spec, Notes: notes})
	}
}

// restore returns the kept spec if the object's spec is still what that became, else the converted one, with those steps
// of the kept spec that are.
func restore(spec, became, kept, converted map[string]any) map[string]any {
	if reflect.DeepEqual(spec, became) {
		return kept
	}
	now, then, old, out := stepsOf(spec), stepsOf(became), stepsOf(kept), stepsOf(converted)
	for i := range out {
		if i < len(now) && i < len(then) && i < len(old) && reflect.DeepEqual(now[i], then[i]) {
			out[i] = old[i]
		}
	}
	return converted
}

// betaSpec is the spec of v1beta1 for one of v1alpha1.
func betaSpec(alpha map[string]any, notes map[string]any) (map[string]any, error) {
	if alpha == nil {
		return nil, field.Required(field.NewPath("spec"), "write what is released, and how")
	}
	spec := runtime.DeepCopyJSON(alpha)
	at := field.NewPath("spec")
	object, _ := spec["objectRef"].(map[string]any)
	ref, ok := object["workloadRef"].(map[string]any)
	if !ok {
		return nil, field.Required(at.Child("objectRef", "workloadRef"), "name the workload that is released")
	}
	delete(spec, "objectRef")
	delete(spec, "rolloutID")
	spec["workloadRef"] = ref
	plan := canaryOf(spec)
	if plan == nil {
		return spec, nil
	}
	for i, s := range stepsOf(spec) {
		step, ok := s.(map[string]any)
		if !ok {
			continue
		}
		weight, weighted := step["weight"]
		delete(step, "weight")
		if !weighted {
			continue
		}
		n, ok := weight.(int64)
		if !ok {
			return nil, field.TypeInvalid(at.Child("strategy", "canary", "steps").Index(i).Child("weight"), weight, "must be a whole number")
		}
		step["traffic"] = fmt.Sprintf("%d%%", n)
		if step["replicas"] == nil {
			step["replicas"] = step["traffic"]
		}
	}
	if style, _ := notes[StyleAnnotation].(string); !strings.EqualFold(style, "partition") {
		plan["enableExtraWorkloadForCanary"] = true
	}
	if name, _ := notes[TrafficRoutingAnnotation].(string); name != "" {
		plan["trafficRoutingRef"] = name
	}
	return spec, nil
}

// alphaSpec is the spec of v1alpha1 for one of v1beta1, as far as it can express that, and the annotations that belong to
// it.
func alphaSpec(beta map[string]any, notes map[string]any) (map[string]any, map[string]any) {
	spec := runtime.DeepCopyJSON(beta)
	if spec == nil {
		spec = map[string]any{}
	}
	object := map[string]any{}
	if ref, ok := spec["workloadRef"]; ok {
		object["workloadRef"] = ref
	}
	delete(spec, "workloadRef")
	spec["objectRef"] = object
	strategy, _ := spec["strategy"].(map[string]any)
	delete(strategy, "blueGreen")
	plan := canaryOf(spec)
	if plan == nil {
		return spec, notes
	}
	for _, s := range stepsOf(spec) {
		step, ok := s.(map[string]any)
		if !ok {
			continue
		}
		if text, ok := step["traffic"].(string); ok {
			if n, err := percent(text, true); err == nil {
				step["weight"] = int64(n)
			}
		}
		delete(step, "traffic")
		var matches []any
		list, matched := step["matches"].([]any)
		for _, m := range list {
			// A match of which a part cannot be said would match more: it is left out.
			if match, ok := m.(map[string]any); ok && match["path"] == nil && match["queryParams"] == nil {
				matches = append(matches, match)
			}
		}
		if delete(step, "matches"); matched && len(matches) > 0 {
			step["matches"] = matches
		}
	}
	out := map[string]any{}
	for k, v := range notes {
		out[k] = v
	}
	extra, _ := plan["enableExtraWorkloadForCanary"].(bool)
	if style, _ := out[StyleAnnotation].(string); extra == strings.EqualFold(style, "partition") {
		out[StyleAnnotation] = map[bool]string{true: "canary", false: "partition"}[extra]
	}
	name, _ := plan["trafficRoutingRef"].(string)
	if written, _ := out[TrafficRoutingAnnotation].(string); name != written {
		if out[TrafficRoutingAnnotation] = name; name == "" {
			delete(out, TrafficRoutingAnnotation)
		}
	}
	delete(plan, "enableExtraWorkloadForCanary")
	delete(plan, "trafficRoutingRef")
	return spec, out
}

func canaryOf(spec any) map[string]any {
	s, _ := spec.(map[string]any)
	strategy, _ := s["strategy"].(map[string]any)
	plan, _ := strategy["canary"].(map[string]any)
	return plan
}

func stepsOf(spec map[string]any) []any {
	steps, _ := canaryOf(spec)["steps"].([]any)
	return steps
}

func copyFields(to, from map[string]any, names ...string) {
	for _, name := range names {
		if delete(to, name); from[name] != nil {
			to[name] = from[name]
		}
	}
}

// notesOf returns those of an object's annotations that the conversion reads.
func notesOf(u map[string]any) map[string]any {
	meta, _ := u["metadata"].(map[string]any)
	all, _ := meta["annotations"].(map[string]any)
	notes := map[string]any{}
	copyFields(notes, all, StyleAnnotation, TrafficRoutingAnnotation)
	return notes
}

// setNotes replaces them.
func setNotes(u map[string]any, notes map[string]any) {
	for _, name := range []string{StyleAnnotation, TrafficRoutingAnnotation} {
		if text, ok := notes[name].(string); ok {
			convert.Keep(u, name, text)
		} else {
			convert.Take(u, name)
		}
	}
}

func keep(u map[string]any, k kept) {
	if text, err := json.Marshal(k); err == nil {
		convert.Keep(u, KeptAnnotation, string(text))
	}
}

// readKept reads what was kept of an object of a version. What somebody else wrote there is ignored.
func readKept(text, version string) (k kept, ok bool) {
	if text == "" || text == convert.TooLarge {
		return kept{}, false
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &k); err != nil || k.Version != version || k.Spec == nil {
		return kept{}, false
	}
	for name, v := range k.Notes {
		if _, ok := v.(string); !ok || name != StyleAnnotation && name != TrafficRoutingAnnotation {
			return kept{}, false
		}
	}
	if k.Notes == nil {
		k.Notes = map[string]any{}
	}
	return k, true
}
