package resource

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

const usedText = `apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: h, namespace: a}
spec:
  rules:
  - filters: [{type: RequestMirror, requestMirror: {backendRef: {name: m1, port: 1}}}]
    backendRefs:
    - {name: s1, namespace: b, port: 2, filters: [{type: RequestMirror, requestMirror: {backendRef: {name: m2, port: 3}}}]}
    - {name: s2, port: 4, weight: 0}
    - {name: other, kind: Widget, group: example.com, port: 4}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GRPCRoute
metadata: {name: g, namespace: a}
spec:
  rules:
  - filters: [{type: RequestMirror, requestMirror: {backendRef: {name: m3, port: 5}}}]
    backendRefs: [{name: s3, port: 6}]
---
apiVersion: gateway.networking.k8s.io/v1alpha2
kind: TCPRoute
metadata: {name: t, namespace: a}
spec:
  rules: [{backendRefs: [{name: s4, port: 7}]}]
---
apiVersion: split.smi-spec.io/v1alpha4
kind: TrafficSplit
metadata: {name: x, namespace: a}
spec: {service: Root.a.svc.cluster.local, backends: [{service: one, weight: 1}, {service: two.a, weight: 0}, {service: three.b, weight: 1}]}
`

func TestTheUsesOfServicesAreFound(t *testing.T) {
	set, err := Load(everything, []string{"-"}, strings.NewReader(usedText))
	if err != nil || len(set.HTTPRoutes)+len(set.GRPCRoutes)+len(set.TCPRoutes)+len(set.TrafficSplits) != 4 {
		t.Fatal(err, set.Findings)
	}
	text := func(u Use) string {
		return fmt.Sprintf("%s: %s/%s:%d connections=%v mirror=%v idle=%v", u.By.Kind, u.Namespace, u.Service, u.Port, u.Connections, u.Mirror, u.Idle)
	}
	var got []string
	for u := range set.RouteUses() {
		got = append(got, text(u))
	}
	root, backends := SplitUses(set.TrafficSplits[0])
	for _, u := range backends {
		got = append(got, root+" "+text(u))
	}
	want := []string{
		"HTTPRoute: a/m1:1 connections=false mirror=true idle=false",
		"HTTPRoute: b/s1:2 connections=false mirror=false idle=false",
		"HTTPRoute: a/m2:3 connections=false mirror=true idle=false",
		"HTTPRoute: a/s2:4 connections=false mirror=false idle=true",
		"GRPCRoute: a/m3:5 connections=false mirror=true idle=false",
		"GRPCRoute: a/s3:6 connections=false mirror=false idle=false",
		"TCPRoute: a/s4:7 connections=true mirror=false idle=false",
		"root TrafficSplit: a/one:0 connections=false mirror=false idle=false",
		"root TrafficSplit: a/two:0 connections=false mirror=false idle=true",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for n := range want[:7] { // whoever has enough may stop anywhere
		left := n + 1
		for range set.RouteUses() {
			if left--; left == 0 {
				break
			}
		}
		if left != 0 {
			t.Errorf("%d uses come, and then %d fewer", n+1, left)
		}
	}
}
