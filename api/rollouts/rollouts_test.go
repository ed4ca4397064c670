package rollouts

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

func object(t *testing.T, text string) (u map[string]any) {
	t.Helper()
	text = strings.ReplaceAll(text, "\t", "  ")
	inJSON, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(inJSON, &u); err != nil {
		t.Fatal(err)
	}
	return u
}

// valid has every field.
const valid = `
apiVersion: rollouts.kruise.io/v1beta1
kind: Rollout
metadata: {name: shop, namespace: store}
spec:
  workloadRef: {apiVersion: apps/v1, kind: Deployment, name: shop}
  strategy:
    canary:
      enableExtraWorkloadForCanary: true
      failureThreshold: 10%
      patchPodTemplateMetadata: {labels: {track: canary}}
      steps:
      - replicas: 1
        pause: {}
        requestHeaderModifier: {set: [{name: x-version, value: v2}]}
        matches:
        - path: {type: PathPrefix, value: /api/v2}
          headers: [{name: user-id, value: "123456"}]
          queryParams: [{name: user, type: RegularExpression, value: 123.*}]
      - replicas: 20%
        traffic: 20%
        pause: {duration: 60}
      - replicas: 100%
      trafficRoutings:
      - service: shop
        gracePeriodSeconds: 0
        gateway: {httpRouteName: shop}
        customNetworkRefs: [{apiVersion: networking.istio.io/v1beta1, kind: VirtualService, name: shop}]
`

func TestEveryFieldIsRead(t *testing.T) {
	r, errs := Decode("v1beta1", object(t, valid))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	plan, step := r.Spec.Strategy.Plan(), r.Spec.Strategy.Canary.Steps[0]
	match := step.Matches[0]
	if *match.Path.Value != "/api/v2" || match.Headers[0].Value != "123456" || *match.QueryParams[0].Type != "RegularExpression" || step.RequestHeaderModifier.Set[0].Value != "v2" {
		t.Errorf("the match is %+v", match)
	}
	if n, ok := plan.Steps[1].Percent(); n != 20 || !ok || *plan.Steps[1].Pause.Duration != 60 || step.Pause.Duration != nil {
		t.Errorf("the second step is %+v", plan.Steps[1])
	}
	if plan.Steps[2].Shifts() || !plan.Steps[1].Shifts() || !step.Shifts() {
		t.Error("steps that route requests are not told from those that do not")
	}
	traffic := plan.Traffic()
	if traffic.GracePeriod() != 0 || *traffic.Gateway.HTTPRouteName != "shop" || traffic.CustomNetworkRefs[0].Kind != "VirtualService" || plan.CanaryService() != "shop-canary" {
		t.Errorf("the routing is %+v", traffic)
	}
	if r.Spec.Style() != ExtraPods || r.Name != "shop" || r.APIVersion != "rollouts.kruise.io/v1beta1" {
		t.Errorf("the Rollout is %+v", r)
	}
	// What it writes is what it read.
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var again map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &again); err != nil {
		t.Fatal(err)
	}
	delete(again["metadata"].(map[string]any), "creationTimestamp")
	want := object(t, valid)
	steps := stepsOf(want["spec"].(map[string]any))
	delete(steps[0].(map[string]any), "pause") // an empty one says nothing
	if !reflect.DeepEqual(again, want) {
		t.Errorf("it became\n%v\nwas\n%v", again, want)
	}
}

func TestMistakesAreNamedByTheirField(t *testing.T) {
	for _, c := range []struct{ old, new, field, detail string }{
		{"replicas: 20%", "replicas: 0%", "spec.strategy.canary.steps[1].replicas", "more than 0"},
		{"replicas: 20%", "replicas: 101%", "spec.strategy.canary.steps[1].replicas", "from 0% to 100%"},
		{"replicas: 20%", "replicas: -1", "spec.strategy.canary.steps[1].replicas", "negative"},
		{"replicas: 100%", "replicas: 19%", "spec.strategy.canary.steps[2].replicas", "not be less than in the steps before (20)"},
		{"replicas: 20%", "{}", "spec.strategy.canary.steps[1].replicas", "write how many pods"},
		{"traffic: 20%", "traffic: 0%", "spec.strategy.canary.steps[1].traffic", "from 1% to 100%"},
		{"traffic: 20%", `traffic: "20"`, "spec.strategy.canary.steps[1].traffic", "such as 20%"},
		{"traffic: 20%", `traffic: "+20%"`, "spec.strategy.canary.steps[1].traffic", "such as 20%"},
		{"traffic: 20%", `traffic: "%"`, "spec.strategy.canary.steps[1].traffic", "such as 20%"},
		{"traffic: 20%", "matches: [{}]", "spec.strategy.canary.steps[1].matches[0]", "every request"},
		{"duration: 60", "duration: -1", "spec.strategy.canary.steps[1].pause.duration", "negative"},
		{"failureThreshold: 10%", "failureThreshold: ten", "spec.strategy.canary.failureThreshold", "whole number"},
		{"- service: shop", "- service: ''", "spec.strategy.canary.trafficRoutings[0].service", "name the Service"},
		{"gracePeriodSeconds: 0", "gracePeriodSeconds: -1", "spec.strategy.canary.trafficRoutings[0].gracePeriodSeconds", "negative"},
		{"{httpRouteName: shop}", "{}", "spec.strategy.canary.trafficRoutings[0].gateway.httpRouteName", "name the HTTPRoute"},
		{"kind: VirtualService", "kind: ''", "spec.strategy.canary.trafficRoutings[0].customNetworkRefs[0].kind", "name the object"},
		{"kind: Deployment", "kind: ''", "spec.workloadRef.kind", "name the workload"},
		{"canary:\n", "blueGreen: {steps: [{replicas: 1}]}\n    canary:\n", "spec.strategy", "one of the two"},
		{"canary:\n", "paused: true\n    unknown:\n", "spec.strategy", "write canary or blueGreen"},
		{"      steps:\n", "      other:\n", "spec.strategy.canary.steps", "at least one step"},
		{"      trafficRoutings:\n", "      trafficRoutings:\n      - {service: a, ingress: {name: b}}\n", "spec.strategy.canary.trafficRoutings", "at most 1"},
	} {
		text := strings.Replace(valid, c.old, c.new, 1)
		if c.new == "{}" && strings.HasPrefix(c.old, "replicas") {
			text = strings.Replace(valid, "- "+c.old+"\n        traffic", "- traffic", 1)
		}
		if text == valid {
			t.Fatalf("%q is not in the Rollout", c.old)
		}
		r, errs := Decode("v1beta1", object(t, text))
		if r != nil || len(errs) != 1 || errs[0].Field != c.field || !strings.Contains(errs[0].Error(), c.detail) {
			t.Errorf("with %s the errors are %v, want one of %s: %s", c.new, errs, c.field, c.detail)
		}
	}
}

func TestBlueGreenMayRouteNothingAndIsNotForEveryWorkload(t *testing.T) {
	text := `
apiVersion: rollouts.kruise.io/v1beta1
kind: Rollout
metadata: {name: shop}
spec:
  workloadRef: {apiVersion: apps/v1, kind: Deployment, name: shop}
  strategy:
    blueGreen:
      steps: [{replicas: 100%, traffic: 0%}, {replicas: 100%, traffic: 100%}]
      trafficRoutings: [{service: shop, ingress: {name: shop}}]
`
	r, errs := Decode("v1beta1", object(t, text))
	if len(errs) > 0 || r.Spec.Style() != BlueGreenStyle || r.Spec.Strategy.Field() != "spec.strategy.blueGreen" {
		t.Errorf("it is %+v, errors %v", r, errs)
	}
	_, errs = Decode("v1beta1", object(t, strings.Replace(text, "kind: Deployment", "kind: StatefulSet", 1)))
	if len(errs) != 1 || errs[0].Field != "spec.workloadRef.kind" {
		t.Errorf("a StatefulSet gives %v", errs)
	}
}

const old = `
apiVersion: rollouts.kruise.io/v1alpha1
kind: Rollout
metadata: {name: shop, annotations: {rollouts.kruise.io/rolling-style: partition}}
spec:
  objectRef:
    workloadRef: {apiVersion: apps/v1, kind: Deployment, name: shop}
  rolloutID: "7"
  strategy:
    canary:
      steps:
      - weight: 20
      - {weight: 50, replicas: 3}
      trafficRoutings: [{service: shop, ingress: {name: shop}}]
`

func TestTheOldVersionIsReadAsTheNewOne(t *testing.T) {
	r, errs := Decode("v1alpha1", object(t, old))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	steps := r.Spec.Strategy.Canary.Steps
	if *steps[0].Traffic != "20%" || *steps[0].Replicas != intstr.FromString("20%") || *steps[1].Replicas != intstr.FromInt32(3) || r.Spec.Style() != Partition || r.Spec.WorkloadRef.Name != "shop" {
		t.Errorf("it is read as %+v", r.Spec)
	}
	_, errs = Decode("v1alpha1", object(t, strings.Replace(old, "weight: 20", "weight: 200", 1)))
	var fields []string
	for _, e := range errs {
		fields = append(fields, e.Field)
	}
	if want := []string{"spec.strategy.canary.steps[0].weight", "spec.strategy.canary.steps[0].replicas"}; !reflect.DeepEqual(fields, want) {
		t.Errorf("a weight of 200 is wrong at %q, want %q", fields, want)
	}
	_, errs = Decode("v1alpha1", object(t, strings.Replace(old, "weight: 20", "weight: many", 1)))
	if len(errs) != 1 || errs[0].Field != "spec.strategy.canary.steps[0].weight" {
		t.Errorf("a weight that is text gives %v", errs)
	}
}

// Somebody with an old client edits one step: the conditions of the others, which that client cannot see, stay.
func TestAnEditInTheOldVersionKeepsWhatThatCannotSay(t *testing.T) {
	seen, err := rollout.Convert(object(t, valid), "v1alpha1")
	if err != nil {
		t.Fatal(err)
	}
	steps := stepsOf(seen["spec"].(map[string]any))
	if matches := steps[0].(map[string]any)["matches"]; matches != nil {
		t.Errorf("a match without its path would match more: %v", matches)
	}
	steps[1].(map[string]any)["weight"] = int64(30)
	back, err := rollout.Convert(seen, "v1beta1")
	if err != nil {
		t.Fatal(err)
	}
	want := object(t, strings.Replace(valid, "traffic: 20%", "traffic: 30%", 1))
	if !reflect.DeepEqual(back, want) {
		t.Errorf("it became\n%v\nwant\n%v", back, want)
	}
	seen["metadata"].(map[string]any)["annotations"].(map[string]any)[StyleAnnotation] = "partition"
	if back, err = rollout.Convert(seen, "v1beta1"); err != nil {
		t.Fatal(err)
	}
	if plan := canaryOf(back["spec"]); plan["enableExtraWorkloadForCanary"] != nil {
		t.Errorf("the style that was edited is not taken over: %v", plan)
	}
}

func TestPodsOfAStep(t *testing.T) {
	for _, c := range []struct {
		replicas intstr.IntOrString
		all      int32
		want     int32
	}{
		{intstr.FromString("20%"), 10, 2}, {intstr.FromString("1%"), 10, 1}, {intstr.FromString("100%"), 3, 3}, {intstr.FromString("50%"), 3, 2},
		{intstr.FromInt32(2), 10, 2}, {intstr.FromInt32(20), 10, 10}, {intstr.FromString("20%"), 0, 0}, {intstr.FromString("99%"), 2147483647, 2126008811},
	} {
		if got := (&Step{Replicas: &c.replicas}).Pods(c.all); got != c.want {
			t.Errorf("%s of %d pods are %d, want %d", c.replicas.String(), c.all, got, c.want)
		}
	}
}

// FuzzDecode holds that whatever an object's spec is, decoding ends in a valid Rollout or in errors that name fields.
func FuzzDecode(f *testing.F) {
	f.Add(valid, true)
	f.Add(old, false)
	f.Fuzz(func(t *testing.T, text string, beta bool) {
		inJSON, err := yaml.YAMLToJSON([]byte(text))
		var u map[string]any
		if err != nil || kjson.UnmarshalCaseSensitivePreserveInts(inJSON, &u) != nil || u == nil {
			return
		}
		version := map[bool]string{true: "v1beta1", false: "v1alpha1"}[beta]
		r, errs := Decode(version, u)
		if (r == nil) != (len(errs) > 0) {
			t.Fatalf("the Rollout is %v with errors %v", r, errs)
		}
		for _, e := range errs {
			if e.Field == "" {
				t.Fatalf("%v names no field", e)
			}
		}
		if r == nil {
			return
		}
		for _, s := range r.Spec.Strategy.Plan().Steps {
			if n, ok := s.Percent(); ok != (s.Traffic != nil) || n < 0 || n > 100 {
				t.Fatalf("a valid step has traffic %v", *s.Traffic)
			}
		}
	})
}
