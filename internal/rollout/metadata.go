package rollout

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/weirmesh/weir/api/rollouts"
)

// MetadataField is the field of a Rollout whose labels and annotations extra pods get.
const MetadataField = "spec.strategy.canary.patchPodTemplateMetadata"

// MetadataIgnored says why MetadataField has no effect without extra pods, and what to do.
const MetadataIgnored = "has no effect, as pods that replace stable ones stay when the release is over, and would keep it: remove it, or set enableExtraWorkloadForCanary, which a Deployment can have"

// Clash is a label of MetadataField with which extra pods would not be selected any more.
type Clash struct {
	// Label is the key, Why says what selects by it otherwise, and Fix what to do, without a point.
	Label, Why, Fix string
}

// Field is where the label is written.
func (c Clash) Field() string { return MetadataField + ".labels[" + c.Label + "]" }

// String says it all: field, reason and fix.
func (c Clash) String() string { return c.Field() + ": " + c.Why + ": " + c.Fix }

// Clashes returns the labels of extra pods (rollouts.Spec.ExtraMetadata) with which the Deployment would not find them, and
// those with which the stable Service, and the canary's, which selects as that does, would not. Either may be nil, and is
// read-only. A selector that cannot be read selects nothing.
func Clashes(m *rollouts.PodTemplateMetadata, deployment, service map[string]any) (all []Clash) {
	if m == nil || len(m.Labels) == 0 {
		return nil
	}
	for _, by := range []struct {
		kind   string
		object map[string]any
		read   func(map[string]any) (labels.Selector, error)
		effect string
		fix    string
	}{
		{"Deployment", deployment, deploymentSelector, "those with %s would not be its own", "use another label"},
		{"Service", service, serviceSelector, "neither it nor the canary's Service would have those with %s", "use another label, or remove this one from the selector"},
	} {
		selector, err := by.read(by.object)
		if err != nil {
			continue
		}
		requirements, _ := selector.Requirements()
		for _, r := range requirements {
			value, there := m.Labels[r.Key()]
			if !there || r.Matches(labels.Set{r.Key(): value}) {
				continue
			}
			name, _, _ := unstructured.NestedString(by.object, "metadata", "name")
			all = append(all, Clash{r.Key(), fmt.Sprintf("%s %s selects pods by %s, so "+by.effect, by.kind, name, r.String(), r.Key()+"="+value), by.fix})
		}
	}
	return all
}

func deploymentSelector(u map[string]any) (labels.Selector, error) {
	text, _, _ := unstructured.NestedMap(u, "spec", "selector")
	selector := &metav1.LabelSelector{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(text, selector); err != nil {
		return nil, err
	}
	return metav1.LabelSelectorAsSelector(selector)
}

func serviceSelector(u map[string]any) (labels.Selector, error) {
	set, _, err := unstructured.NestedStringMap(u, "spec", "selector")
	if err != nil {
		return nil, err
	}
	return labels.ValidatedSelectorFromSet(set)
}
