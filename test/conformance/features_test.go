package conformance

import (
	"slices"
	"testing"

	"sigs.k8s.io/gateway-api/conformance/tests"
)

// The numbers of the release: a test that is left out would not show otherwise.
func TestEveryTestOfTheProfilesIsAsked(t *testing.T) {
	want := map[string][2]int{"GATEWAY-HTTP": {94, 38}, "GATEWAY-GRPC": {25, 10}, "GATEWAY-TCP": {29, 11}, "MESH-HTTP": {14, 9}, "MESH-GRPC": {2, 9}}
	for _, p := range append(profiles(), meshProfiles()...) {
		got := [2]int{len(testsOf(p, tests.ConformanceTests)), len(p.ExtendedFeatures)}
		if got != want[string(p.Name)] {
			t.Errorf("%s has %d tests and %d extended features, want %v", p.Name, got[0], got[1], want[string(p.Name)])
		}
		if !everything().Union(meshFeatures(tests.ConformanceTests)).IsSuperset(p.ExtendedFeatures) {
			t.Errorf("%s has features that are not asked", p.Name)
		}
	}
}

func TestTheShortSelectionIsOfTheProfiles(t *testing.T) {
	var all []string
	for _, p := range profiles() {
		all = append(all, testsOf(p, tests.ConformanceTests)...)
	}
	for _, name := range short {
		if !slices.Contains(all, name) {
			t.Errorf("no test %s", name)
		}
	}
	for _, must := range []string{"HTTPRouteRequestMirror", "HTTPRouteRequestMultipleMirrors", "HTTPRouteRequestPercentageMirror", "HTTPRouteWeight", "GRPCRouteWeight"} {
		if !slices.Contains(short, must) {
			t.Errorf("%s is not in the selection", must)
		}
	}
	if len(short) < 20 {
		t.Errorf("%d tests, want 20 at least", len(short))
	}
}

// TestEveryTestOfMeshesRuns has those, too, that count in no profile.
func TestEveryTestOfMeshesRuns(t *testing.T) {
	all, counted := meshTests(tests.ConformanceTests), map[string]bool{}
	for _, p := range meshProfiles() {
		for _, name := range testsOf(p, tests.ConformanceTests) {
			counted[name] = true
		}
	}
	if len(all) != 22 || len(counted) != 15 {
		t.Errorf("%d tests, of which %d count, want 22 and 15", len(all), len(counted))
	}
	for _, test := range all {
		if !meshFeatures(tests.ConformanceTests).HasAll(test.Features...) {
			t.Errorf("%s does not run", test.ShortName)
		}
	}
}
