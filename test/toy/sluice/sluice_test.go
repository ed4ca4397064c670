package sluice_test

import (
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/weirmesh/weir/internal/dialect"
	"github.com/weirmesh/weir/internal/dialect/rollouts"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/resource/rules"
	"github.com/weirmesh/weir/internal/rollout"
	"github.com/weirmesh/weir/internal/rollout/provider"
	"github.com/weirmesh/weir/test/toy/sluice"
)

func init() { resource.CheckRules(rules.Compile) }

const written = `
apiVersion: rollouts.kruise.io/v1beta1
kind: Rollout
metadata: {name: mill}
spec:
  workloadRef: {apiVersion: apps/v1, kind: Deployment, name: mill}
  strategy:
    canary:
      trafficRoutings: [{service: mill, customNetworkRefs: [{apiVersion: toys.weirmesh.test/v1, kind: Sluice, name: river}]}]
      steps: [{replicas: 1, matches: [{path: {value: /wheel}}]}, {replicas: 1, traffic: 20%}, {replicas: 2}]
---
apiVersion: toys.weirmesh.test/v1
kind: Sluice
metadata: {name: river}
spec: {gates: [{service: mill, open: 7, paint: green}, {service: other, open: 0}]}
`

// TestAProviderIsAFolder holds that a provider for a kind that nothing else knows is enough for its steps to be planned and
// judged.
func TestAProviderIsAFolder(t *testing.T) {
	set, err := resource.Load(dialect.Kinds(), []string{"-"}, strings.NewReader(written))
	if err != nil {
		t.Fatal(err)
	}
	all := rollouts.List.In(set)
	if len(all) != 1 {
		t.Fatalf("%d Rollouts: %v", len(all), set.Findings)
	}
	providers := append(provider.All(), sluice.Provider)
	stages := providers.Plan(all[0], rollouts.Written(set, "default"))
	if len(stages) != 3 {
		t.Fatalf("%d steps", len(stages))
	}
	for i, want := range []string{
		"[{service: mill, open: 7, paint: green}, {service: other, open: 0}]",
		"[{service: mill, open: 80, paint: green}, {service: mill-canary, open: 20, paint: green}, {service: other, open: 0}]",
		"[{service: mill, open: 7, paint: green}, {service: other, open: 0}]",
	} {
		part := stages[i].Parts[0]
		got, err := yaml.Marshal(part.Laid.Object["spec"].(map[string]any)["gates"])
		if err != nil {
			t.Fatal(err)
		}
		var a, b any
		if err := yaml.Unmarshal(got, &a); err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal([]byte(want), &b); err != nil {
			t.Fatal(err)
		}
		if part.Provider != "sluice" || !reflect.DeepEqual(a, b) {
			t.Errorf("step %d of provider %q has the gates\n%swant %s", i+1, part.Provider, got, want)
		}
	}
	judged := func(p rollout.Providers) string {
		var b strings.Builder
		findings, _ := rollouts.Translate(set, rollouts.Options{Providers: p, Partial: true})
		for _, f := range findings {
			b.WriteString(f.Code + " " + f.Ref.Field + "\n")
		}
		return b.String()
	}
	if got := judged(providers); !strings.Contains(got, "WR906 spec.strategy.canary.steps[0].matches\n") || strings.Contains(got, "WR904") {
		t.Errorf("with the provider:\n%s", got)
	}
	if got := judged(provider.All()); !strings.Contains(got, "WR904 spec.strategy.canary.trafficRoutings[0].customNetworkRefs[0]\n") {
		t.Errorf("without it:\n%s", got)
	}
}
