package rollout

import (
	"fmt"
	"slices"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/weirmesh/weir/api/rollouts"
)

// TestLabelsOfExtraPodsClashWithSelectors holds that a label is told of by which a selector wants another value, or none, and
// no other one.
func TestLabelsOfExtraPodsClashWithSelectors(t *testing.T) {
	parse := func(text string) (u map[string]any) {
		if err := yaml.Unmarshal([]byte(text), &u); err != nil {
			t.Fatal(err)
		}
		return u
	}
	for _, c := range []struct {
		labels              map[string]string
		deployment, service string // their selectors; none if empty
		want                []string
	}{
		{map[string]string{"track": "canary"}, "{matchLabels: {app: web}}", "{app: web}", nil},
		{map[string]string{"app": "web", "track": "canary"}, "{matchLabels: {app: web}}", "{app: web}", nil},
		{map[string]string{"app": "other"}, "{matchLabels: {app: web}}", "", []string{
			"spec.strategy.canary.patchPodTemplateMetadata.labels[app]: Deployment web selects pods by app=web, so those with app=other would not be its own: use another label"}},
		{map[string]string{"app": "web", "track": "canary"}, "{matchLabels: {app: web}}", "{app: web, track: stable}", []string{
			"spec.strategy.canary.patchPodTemplateMetadata.labels[track]: Service svc selects pods by track=stable, so neither it nor the canary's Service would have those with track=canary: use another label, or remove this one from the selector"}},
		{map[string]string{"track": "canary"}, "{matchExpressions: [{key: track, operator: In, values: [stable, canary]}]}", "", nil},
		{map[string]string{"track": "canary"}, "{matchExpressions: [{key: track, operator: NotIn, values: [canary]}]}", "", []string{
			"spec.strategy.canary.patchPodTemplateMetadata.labels[track]: Deployment web selects pods by track notin (canary), so those with track=canary would not be its own: use another label"}},
		{map[string]string{"track": ""}, "{matchExpressions: [{key: track, operator: DoesNotExist}]}", "", []string{
			"spec.strategy.canary.patchPodTemplateMetadata.labels[track]: Deployment web selects pods by !track, so those with track= would not be its own: use another label"}},
		{map[string]string{"app": "other"}, "[]", "[]", nil},
		{map[string]string{"app": "other"}, "{matchExpressions: [{key: app, operator: Is}]}", "{app: 1}", nil},
		{nil, "{matchLabels: {app: web}}", "{app: web}", nil},
	} {
		objects := map[string]map[string]any{}
		for name, selector := range map[string]string{"web": c.deployment, "svc": c.service} {
			if selector != "" {
				objects[name] = parse("{metadata: {name: " + name + "}, spec: {selector: " + selector + "}}")
			}
		}
		before := fmt.Sprint(objects)
		var got []string
		for _, clash := range Clashes(&rollouts.PodTemplateMetadata{Labels: c.labels}, objects["web"], objects["svc"]) {
			got = append(got, clash.String())
		}
		if !slices.Equal(got, c.want) || fmt.Sprint(objects) != before {
			t.Errorf("%v of %s and %s: %q, want %q", c.labels, c.deployment, c.service, got, c.want)
		}
	}
	if got := Clashes(nil, parse("{}"), nil); got != nil {
		t.Errorf("without metadata: %v", got)
	}
}

// TestMetadataThatPodsDoNotGetIsTold: a condition says so as long as it is so, and an Event once.
func TestMetadataThatPodsDoNotGetIsTold(t *testing.T) {
	why := MetadataField + " " + MetadataIgnored + "."
	for extra, want := range map[bool]int{true: 0, false: 1} {
		r := canaryRollout(extra, "20%")
		r.Spec.Strategy.Canary.PatchPodTemplateMetadata = &rollouts.PodTemplateMetadata{Labels: map[string]string{"track": "canary"}}
		w := newWorld(t, r)
		w.must("healthy", w.phase(rollouts.PhaseHealthy))
		w.release("v2")
		w.must("step 1 waits", w.waits(1))
		told := 0
		for _, line := range w.trace {
			if line == "event: "+why {
				told++
			}
		}
		c := w.rollout.Status.Condition(rollouts.ConditionMetadata)
		if told != want || (c != nil) != (want == 1) || c != nil && (c.Message != why || c.Status != "False" || c.Reason != rollouts.ReasonNoExtraPods) {
			t.Errorf("with extra pods %t: told %d times, condition %+v", extra, told, c)
		}
		r.Spec.Strategy.Canary.PatchPodTemplateMetadata = nil
		w.approve()
		w.must("the end", w.finished)
		if c := w.rollout.Status.Condition(rollouts.ConditionMetadata); c != nil {
			t.Errorf("it was removed, and the condition stays: %+v", c)
		}
	}
}
