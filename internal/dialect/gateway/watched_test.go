package gateway_test

import (
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/dialect"
	"github.com/weirmesh/weir/internal/dialect/gateway"
	"github.com/weirmesh/weir/internal/resource"
)

const acrossNamespaces = `
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: weir}
spec: {controllerName: weirmesh.github.io/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: shop}
spec:
  gatewayClassName: weir
  tls: {frontend: {default: {validation: {caCertificateRefs: [{group: "", kind: ConfigMap, name: ca, namespace: other}]}}}}
  listeners:
  - {name: web, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: cert, namespace: other}]}}
  - {name: plain, port: 80, protocol: HTTP}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: cart, namespace: shop}
spec:
  parentRefs: [{name: edge, sectionName: plain}, {name: edge, namespace: other}]
  rules: [{backendRefs: [{name: cart, namespace: other, port: 80}]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: ListenerSet
metadata: {name: more, namespace: shop}
spec:
  parentRef: {name: edge, namespace: other}
  listeners: [{name: more, port: 81, protocol: HTTP}]
`

// TestReferencesToNamespacesThatAreNotWatched are told apart from those to objects that are missing or not granted.
func TestReferencesToNamespacesThatAreNotWatched(t *testing.T) {
	for _, watched := range [][]string{nil, {"shop"}} {
		set, err := resource.Load(dialect.Kinds(), []string{"-"}, strings.NewReader(acrossNamespaces))
		if err != nil {
			t.Fatal(err)
		}
		set.Watched = watched
		_, statuses, findings := new(gateway.Translator).Translate(set)
		got := map[string]int{}
		for _, f := range findings {
			got[f.Code]++
			if told := strings.Contains(f.Message, "namespace other is not watched by this controller, which watches only shop"); told != (f.Code == "WR519" || f.Code == "WR529") {
				t.Errorf("%s", f)
			}
		}
		want := map[string]int{"WR511": 3, "WR520": 2}
		if watched != nil {
			want = map[string]int{"WR519": 3, "WR529": 2}
		}
		for _, code := range []string{"WR511", "WR519", "WR520", "WR529"} {
			if got[code] != want[code] {
				t.Errorf("watched %q: %d findings %s, want %d: %v", watched, got[code], code, want[code], findings)
			}
		}
		refused := 0
		for _, s := range statuses {
			for _, p := range s.Parents {
				for _, c := range p.Conditions {
					if c.Type == "ResolvedRefs" && c.Status == "False" && c.Reason == "RefNotPermitted" && strings.Contains(c.Message, "not watched") == (watched != nil) {
						refused++
					}
				}
			}
		}
		if refused != 1 {
			t.Errorf("watched %q: %d conditions of routes say so: %+v", watched, refused, statuses)
		}
	}
}
