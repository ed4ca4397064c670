package release

import (
	"slices"
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

func TestWhoAsksComesFirst(t *testing.T) {
	of := func(n int) types.NamespacedName { return types.NamespacedName{Name: strconv.Itoa(n)} }
	order := &turns{asked: map[types.NamespacedName]bool{}}
	q := newQueue(order)
	defer q.ShutDown()
	for n := range 30 {
		q.Add(of(n))
	}
	ask := func(n int) {
		order.ask(of(n))
		q.Add(of(n))
	}
	next := func() int {
		r, _ := q.Get()
		n, _ := strconv.Atoi(r.Name)
		return n
	}
	busy := next() // somebody asks while it is worked on
	ask(0)
	q.Done(of(busy))
	for n := 29; n >= 20; n-- { // they wait for their turns
		ask(n)
		ask(n)
	}
	ask(40) // it does not wait yet
	var got []int
	for q.Len() > 0 {
		n := next()
		got = append(got, n)
		q.Done(of(n))
	}
	want := []int{0, 29, 28, 27, 26, 25, 24, 23, 1, 22, 21, 20, 40, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19}
	if busy != 0 || !slices.Equal(got, want) {
		t.Errorf("first %d, then %v, want 0, then %v", busy, got, want)
	}
	if len(order.asked) != 0 {
		t.Errorf("still noted: %v", order.asked)
	}
}

func TestWhatAsks(t *testing.T) {
	for text, want := range map[string]bool{
		"{kind: Rollout, metadata: {generation: 2}, status: {observedGeneration: 1}}":                                                                    true,
		"{kind: Rollout, metadata: {generation: 2}, status: {observedGeneration: 2, currentStepState: StepReady}}":                                       true,
		"{kind: Rollout, metadata: {generation: 2}, status: {observedGeneration: 2, canaryStatus: {currentStepState: StepReady}}}":                       true,
		"{kind: Rollout, metadata: {generation: 2}, status: {observedGeneration: 2, blueGreenStatus: {currentStepIndex: 1, nextStepIndex: 3}}}":          true,
		"{kind: Rollout, metadata: {annotations: {rollouts.weirmesh.github.io/abort: v2}}}":                                                              true,
		"{kind: Rollout, metadata: {deletionTimestamp: \"2026-01-01T00:00:00Z\"}}":                                                                       true,
		"{kind: Rollout, metadata: {generation: 2}, status: {observedGeneration: 2, canaryStatus: {currentStepIndex: 1, nextStepIndex: 2}}}":             false,
		"{kind: Rollout, metadata: {generation: 2}, status: {observedGeneration: 2, canaryStatus: {currentStepIndex: 3, nextStepIndex: -1}}}":            false,
		"{kind: Rollout, metadata: {generation: 2}, status: {observedGeneration: 2, currentStepState: StepPaused, canaryStatus: {currentStepIndex: 1}}}": false,
		"{kind: Rollout, metadata: {generation: 1}}":                                                                                                     false,
		"{kind: Deployment, metadata: {generation: 3}, status: {observedGeneration: 2}}":                                                                 true,
		"{kind: Deployment, metadata: {generation: 3}, status: {observedGeneration: 3}}":                                                                 false,
		"{kind: Service, metadata: {deletionTimestamp: \"2026-01-01T00:00:00Z\"}}":                                                                       false,
	} {
		var parsed map[string]any
		if err := yaml.Unmarshal([]byte(text), &parsed); err != nil {
			t.Fatal(err)
		}
		u := &unstructured.Unstructured{Object: parsed}
		if u.SetAPIVersion("apps/v1"); parsed["kind"] == "Rollout" {
			u.SetAPIVersion("rollouts.kruise.io/v1beta1")
		}
		data, err := u.MarshalJSON()
		if err == nil {
			err = u.UnmarshalJSON(data)
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := asks(u); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}
