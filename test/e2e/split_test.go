package e2e_test

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/weirmesh/weir/internal/control"
)

// steady is a split that stays as it is while others change.
const steady = `kind: TrafficSplit
metadata: {name: steady}
spec: {service: steady, backends: [{service: steady-a, weight: 3}, {service: steady-b, weight: 1}]}
`

// state is a step of the workflow: what there is, and where of 300 requests for foobar go; nil is to either version.
type state struct {
	name      string
	manifests func(w *world) []string
	shares    map[string]int
	// after is done when the state is in force.
	after func(w *world)
}

func rollout(apiVersion string, backends ...string) string {
	text := "kind: TrafficSplit\nmetadata:\n  name: foobar-rollout\nspec:\n  service: foobar\n  backends:\n"
	if apiVersion != "" {
		text = "apiVersion: " + apiVersion + "\n" + text
	}
	for i := 0; i < len(backends); i += 2 {
		text += fmt.Sprintf("  - service: %s\n    weight: %s\n", backends[i], backends[i+1])
	}
	return text
}

// workflow is that of Traffic Split v1alpha4. The root's selector covers every version that is deployed.
func workflow() []state {
	v1 := func(w *world) []string { return []string{w.service("foobar", "v1"), w.service("foobar-v1", "v1")} }
	both := func(w *world) []string {
		return []string{w.service("foobar", "v1", "v2"), w.service("foobar-v1", "v1"), w.service("foobar-v2", "v2")}
	}
	v2 := func(w *world) []string { return []string{w.service("foobar", "v2"), w.service("foobar-v2", "v2")} }
	with := func(split string, services func(w *world) []string) func(w *world) []string {
		return func(w *world) []string { return append(services(w), split) }
	}
	deploy := func(w *world) { w.deploy("v2") }
	remove := func(w *world) { w.toys["v1"].Close() }
	return []state{
		{"before", v1, map[string]int{"v1": 300}, nil},
		{"split before foobar-v2 exists", with(rollout("", "foobar-v1", "100", "foobar-v2", "0"), v1), map[string]int{"v1": 300}, deploy},
		{"foobar-v2 deployed", with(rollout("", "foobar-v1", "100", "foobar-v2", "0"), both), map[string]int{"v1": 300}, nil},
		{"a third", with(rollout("", "foobar-v1", "1000", "foobar-v2", "500"), both), map[string]int{"v1": 200, "v2": 100}, nil},
		{"all", with(rollout("", "foobar-v2", "1"), both), map[string]int{"v2": 300}, nil},
		{"foobar-v1 deleted", with(rollout("", "foobar-v2", "1"), v2), map[string]int{"v2": 300}, remove},
		{"split deleted", v2, map[string]int{"v2": 300}, nil},
	}
}

// draftWorkflow is that of the first draft, which deploys before it splits and writes quantities.
func draftWorkflow() []state {
	all := workflow()
	both := func(w *world) []string {
		return []string{w.service("foobar", "v1", "v2"), w.service("foobar-v1", "v1"), w.service("foobar-v2", "v2")}
	}
	with := func(split string) func(w *world) []string {
		return func(w *world) []string { return append(both(w), split) }
	}
	deploy := all[1].after
	all[0].after = deploy
	all[1] = state{"foobar-v2 deployed", both, nil, nil}
	all[2] = state{"nothing", with(rollout("v1beta1", "foobar-v1", "1", "foobar-v2", "0m")), map[string]int{"v1": 300}, nil}
	all[3] = state{"a half of the other", with(rollout("v1beta1", "foobar-v1", "1", "foobar-v2", "500m")), map[string]int{"v1": 200, "v2": 100}, nil}
	all[4] = state{"all", with(rollout("v1beta1", "foobar-v2", "1")), map[string]int{"v2": 300}, nil}
	services := all[6].manifests
	all[5].manifests = func(w *world) []string { return append(services(w), rollout("v1beta1", "foobar-v2", "1")) }
	return all
}

const routes = `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge}
spec:
  gatewayClassName: weir
  listeners: [{name: http, port: 80, protocol: HTTP}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: foobar}
spec:
  parentRefs: [{name: edge}]
  hostnames: [foobar.default.svc.cluster.local]
  rules: [{backendRefs: [{name: foobar, port: 80}]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: steady}
spec:
  parentRefs: [{name: edge}]
  hostnames: [steady.default.svc.cluster.local]
  rules:
  - matches: [{method: GET}]
    backendRefs: [{name: steady, port: 80}]
`

// TestWorkflowFailsNoRequestAndIsExactInEveryState goes through the workflow of the specification, in both spellings, by
// a route and by host name, under load. Requests are in the hands of toys at every change, another split's requests
// never pause, and each state shares exactly from its first request on.
func TestWorkflowFailsNoRequestAndIsExactInEveryState(t *testing.T) {
	for spelling, states := range map[string][]state{"v1alpha4": workflow(), "draft": draftWorkflow()} {
		for way, x := range map[string]struct {
			options control.Options
			common  string
		}{
			"by host name": {control.Options{Serve: []string{"foobar", "steady"}}, ""},
			"by a route":   {control.Options{}, routes},
		} {
			t.Run(spelling+" "+way, func(t *testing.T) {
				w := newWorld(t, x.common, x.options)
				w.deploy("v1", "a", "b")
				w.common += "---\n" + steady + w.service("steady", "a", "b") + w.service("steady-a", "a") + w.service("steady-b", "b")
				const foobar = "foobar.default.svc.cluster.local"
				var stop func() map[string]int
				for i, s := range states {
					if i == 0 {
						w.apply(s.manifests(w)...)
						w.serve()
						stop = w.background("steady.default.svc.cluster.local")
					} else {
						w.during(foobar, func() { w.apply(s.manifests(w)...) })
					}
					if s.after != nil {
						s.after(w)
					}
					got := w.count(300, foobar)
					if s.shares != nil && !reflect.DeepEqual(got, s.shares) {
						t.Errorf("%s: 300 requests went to %v, want %v", s.name, got, s.shares)
					}
				}
				counts := stop()
				n := counts["a"] + counts["b"]
				if counts["b"] < n/4 || counts["b"] > n/4+1 || len(counts) != 2 {
					t.Errorf("the split that never changed sent %v of %d, want 3 of 4 exactly to a", counts, n)
				}
				if f := w.failures.Load(); f > 0 {
					t.Errorf("%d requests failed", f)
				}
			})
		}
	}
}

// TestASplitAndItsServicesChangeInOneSnapshot replaces a backend and its Service in one step, again and again: a
// moment with the new split and the old Services, or the other way round, would answer 500.
func TestASplitAndItsServicesChangeInOneSnapshot(t *testing.T) {
	w := newWorld(t, "", control.Options{})
	w.deploy("v1", "v2")
	states := []func(){
		func() { w.apply(w.service("foobar"), w.service("foobar-v1", "v1"), rollout("", "foobar-v1", "1")) },
		func() { w.apply(w.service("foobar"), w.service("foobar-v2", "v2"), rollout("", "foobar-v2", "1")) },
	}
	states[0]()
	w.serve()
	stop := w.background("foobar")
	for i := range 60 {
		states[(i+1)%2]()
		if got, want := w.get("foobar"), []string{"v2", "v1"}[i%2]; got != want {
			t.Errorf("after change %d %s answers, want %s", i, got, want)
		}
	}
	if counts := stop(); counts["v1"] == 0 || counts["v2"] == 0 || len(counts) != 2 {
		t.Errorf("answered by %v, want both", counts)
	}
	if f := w.failures.Load(); f > 0 {
		t.Errorf("%d requests failed", f)
	}
}
