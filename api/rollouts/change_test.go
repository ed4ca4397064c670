package rollouts

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestWhatChangesWhileAReleaseIsUnderWay(t *testing.T) {
	const extra = `workloadRef: {apiVersion: apps/v1, kind: Deployment, name: shop}
  strategy:
    canary:
      enableExtraWorkloadForCanary: true
      trafficRoutings: [{service: shop, gateway: {httpRouteName: shop}}]
      steps: [{traffic: 20%, replicas: 1}, {traffic: 50%, replicas: 2}]`
	beta := "apiVersion: rollouts.kruise.io/v1beta1\nkind: Rollout\nspec:\n  " + extra
	for name, c := range map[string]struct {
		version, before string
		edits           []string // pairs
		fields          []string // none: allowed
	}{
		"nothing":         {"v1beta1", beta, nil, nil},
		"a step's share":  {"v1beta1", beta, []string{"20%", "30%"}, nil},
		"pause":           {"v1beta1", beta, []string{"replicas: 1}", "replicas: 1, pause: {duration: 5}}"}, nil},
		"disabled":        {"v1beta1", beta, []string{"spec:\n", "spec:\n  disabled: true\n"}, nil},
		"workload":        {"v1beta1", beta, []string{"name: shop}\n", "name: other}\n"}, []string{"spec.workloadRef"}},
		"style":           {"v1beta1", beta, []string{"canary:\n      enableExtraWorkloadForCanary: true\n", "blueGreen:\n"}, []string{"spec.strategy"}},
		"extra workload":  {"v1beta1", beta, []string{"enableExtraWorkloadForCanary: true", "enableExtraWorkloadForCanary: false"}, []string{"spec.strategy.canary.enableExtraWorkloadForCanary"}},
		"routing":         {"v1beta1", beta, []string{"httpRouteName: shop", "httpRouteName: other"}, []string{"spec.strategy.canary.trafficRoutings"}},
		"one step more":   {"v1beta1", beta, []string{"}]\n", "}]\n", "{traffic: 50%, replicas: 2}", "{traffic: 50%, replicas: 2}, {replicas: 3}"}, []string{"spec.strategy.canary.steps"}},
		"all at once":     {"v1beta1", beta, []string{"name: shop}\n", "name: other}\n", "httpRouteName: shop", "httpRouteName: other", ", {traffic: 50%, replicas: 2}", ""}, []string{"spec.workloadRef", "spec.strategy.canary.trafficRoutings", "spec.strategy.canary.steps"}},
		"old: style":      {"v1alpha1", old, []string{"rolling-style: partition", "rolling-style: canary"}, []string{"metadata.annotations[rollouts.kruise.io/rolling-style]"}},
		"old: workload":   {"v1alpha1", old, []string{"name: shop}\n  rollout", "name: other}\n  rollout"}, []string{"spec.objectRef.workloadRef"}},
		"old: its weight": {"v1alpha1", old, []string{"weight: 20", "weight: 10"}, nil},
		// One that was never valid is compared all the same.
		"invalid before": {"v1beta1", strings.Replace(beta, "traffic: 20%", "traffic: 900%", 1), []string{"900%", "20%", "name: shop}\n", "name: other}\n"}, []string{"spec.workloadRef"}},
	} {
		before, errs := Read(c.version, object(t, c.before))
		after, more := Read(c.version, object(t, strings.NewReplacer(c.edits...).Replace(c.before)))
		if len(errs)+len(more) > 0 {
			t.Fatalf("%s: %v %v", name, errs, more)
		}
		for phase, frozen := range map[Phase]bool{
			PhaseProgressing: true, PhaseTerminating: true, PhaseDisabling: true, PhaseHealthy: false, PhaseInitial: false, PhaseDisabled: false, "": false,
		} {
			before.Status.Phase = phase
			var fields []string
			for _, e := range ValidateChange(c.version, before, after) {
				fields = append(fields, e.Field)
				if !strings.Contains(e.Detail, string(phase)) || !strings.Contains(e.Detail, "wait") {
					t.Errorf("%s: %v says neither why nor what to do", name, e)
				}
			}
			if want := c.fields; frozen && !slices.Equal(fields, want) || !frozen && fields != nil {
				t.Errorf("%s while %q: %q, want %q", name, phase, fields, want)
			}
		}
	}
}

func TestWhichWorkloadsThereAre(t *testing.T) {
	for _, c := range []struct {
		apiVersion, kind string
		blueGreen, ok    bool
	}{
		{"apps/v1", "Deployment", true, true}, {"apps/v1", "Deployment", false, true}, {"apps/v1", "StatefulSet", false, true}, {"apps/v1", "StatefulSet", true, false},
		{"apps.kruise.io/v1alpha1", "CloneSet", true, true}, {"apps.kruise.io/v1beta1", "StatefulSet", false, true}, {"apps.kruise.io/v1alpha1", "DaemonSet", false, true},
		{"apps/v1", "CloneSet", false, false}, {"apps/v1", "ReplicaSet", false, false}, {"v1", "Pod", false, false}, {"batch/v1", "Job", false, false}, {"gateway.networking.k8s.io/v1", "Gateway", false, false},
		{"apps.example.com/v1", "GameSet", false, true}, {"apps.example.com/v1", "GameSet", true, false}, // the controller knows whether it is named
		{"example.com/v1", "Deployment", true, false},
	} {
		s := &Spec{WorkloadRef: Ref{c.apiVersion, c.kind, "shop"}, Strategy: Strategy{Canary: &Canary{Plan: Plan{Steps: []Step{{Replicas: ptr(intstr.FromInt32(1))}}}}}}
		if c.blueGreen {
			s.Strategy = Strategy{BlueGreen: &BlueGreen{Plan: s.Strategy.Canary.Plan}}
		}
		errs := Validate(s)
		if c.ok != (len(errs) == 0) || !c.ok && (errs[0].Field != "spec.workloadRef.kind" || !strings.Contains(errs[0].Error(), "Deployment")) {
			t.Errorf("%+v: %v", c, errs)
		}
	}
	if a := (Ref{"apps.kruise.io/v1alpha1", "StatefulSet", "a"}); a.Key() != (Ref{"apps.kruise.io/v1beta1", "StatefulSet", "a"}).Key() || a.Key() == (Ref{"apps/v1", "StatefulSet", "a"}).Key() {
		t.Errorf("two versions of one workload are two, or two kinds one: %s", a.Key())
	}
}

func ptr[T any](v T) *T { return &v }
