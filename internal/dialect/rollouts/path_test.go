package rollouts_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/dialect"
	"github.com/weirmesh/weir/internal/dialect/rollouts"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/rollout"
)

// TestAStepMayHaveThePathsOfARoute compares which paths steps may have with what the Gateway API's definition lets an
// HTTPRoute have.
func TestAStepMayHaveThePathsOfARoute(t *testing.T) {
	paths := []string{"/", "/a", "a", "/a/", "//", "/a//b", "/a/./b", "/a/../b", "/a/.", "/a/..", "/a/...", "/.a", "/a%2fb", "/a%2Fb", "/a%20", "/a%2", "/%zz", "/a#b", "/a?b", "/a b", "/ä", "/a;b=c,d:@!$&'()*+~_-.", "/a\\\\b", "/a^", "/a|b", "/{a}"}
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var b strings.Builder
		for range 1 + random.IntN(5) {
			b.WriteString([]string{"/", "/", ".", "..", "a", "%2", "%", "f", "F", "?", "#", "~", "|", " ", "é"}[random.IntN(15)])
		}
		paths = append(paths, b.String())
	}
	var text strings.Builder
	for i, p := range paths {
		kind := []string{"Exact", "PathPrefix"}[i%2]
		fmt.Fprintf(&text, `---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: r%d}
spec: {rules: [{matches: [{path: {type: %s, value: "%s"}}]}]}
---
apiVersion: rollouts.kruise.io/v1beta1
kind: Rollout
metadata: {name: r%d}
spec:
  workloadRef: {apiVersion: apps/v1, kind: Deployment, name: r%d}
  strategy: {canary: {trafficRoutings: [{service: s, gateway: {httpRouteName: r%d}}], steps: [{replicas: 1, matches: [{path: {type: %s, value: "%s"}}]}]}}
`, i, kind, p, i, i, i, kind, p)
	}
	set, err := resource.Load(dialect.Kinds(), []string{"-"}, strings.NewReader(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	list := rollouts.List.In(set)
	if len(list) != len(paths) {
		t.Fatalf("%d of %d Rollouts: %v", len(list), len(paths), set.Findings)
	}
	accepted := 0
	for _, r := range list {
		route := set.Object(resource.Key{Group: "gateway.networking.k8s.io", Kind: "HTTPRoute", Namespace: r.Namespace, Name: r.Name}) != nil
		if route {
			accepted++
		}
		if mistakes := rollout.Mistakes(r); route != (len(mistakes) == 0) {
			t.Errorf("%q: the route is accepted: %t; of the step it is said %v", *r.Spec.Strategy.Canary.Steps[0].Matches[0].Path.Value, route, mistakes)
		}
	}
	if accepted < 20 || accepted > len(paths)-20 {
		t.Errorf("%d of %d paths are accepted", accepted, len(paths))
	}
}
