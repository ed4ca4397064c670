package gateway_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/weirmesh/weir/internal/dialect"
	"github.com/weirmesh/weir/internal/dialect/gateway"
	"github.com/weirmesh/weir/internal/resource"
)

// TestTranslatorFollowsNamedEndpoints only changes EndpointSlices, of which routes know no more than their names.
func TestTranslatorFollowsNamedEndpoints(t *testing.T) {
	file := filepath.Join(t.TempDir(), "input.yaml")
	if err := os.WriteFile(file, []byte(`apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: gw}
spec:
  gatewayClassName: weir
  listeners: [{name: http, port: 80, protocol: HTTP}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: route}
spec:
  parentRefs: [{name: gw}]
  rules: [{backendRefs: [{name: named, port: 80}]}]
---
apiVersion: v1
kind: Service
metadata: {name: named}
spec: {ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: names, labels: {kubernetes.io/service-name: named}}
addressType: FQDN
ports: [{port: 80}]
endpoints: [{addresses: [elsewhere.test]}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: addresses, labels: {kubernetes.io/service-name: named}}
addressType: IPv4
ports: [{port: 80}]
endpoints: [{addresses: [10.0.0.1]}]
`), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := resource.Load(dialect.Kinds(), []string{file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	with := func(names ...string) *resource.Set {
		set := &resource.Set{Gateways: all.Gateways, HTTPRoutes: all.HTTPRoutes, Services: all.Services}
		for _, s := range all.EndpointSlices {
			for _, name := range names {
				if s.Name == name {
					set.EndpointSlices = append(set.EndpointSlices, s)
				}
			}
		}
		return set
	}
	translator := gateway.Translator{Options: gateway.Options{Names: &resource.HostNames{}}}
	for _, step := range []struct {
		slices   []string
		resolved string
	}{
		{nil, "True"}, {[]string{"addresses"}, "True"}, {[]string{"names"}, "False"}, {[]string{"addresses", "names"}, "True"}, {[]string{"names"}, "False"}, {nil, "True"},
	} {
		_, statuses, _ := translator.Translate(with(step.slices...))
		for _, s := range statuses {
			if s.Ref.Kind != "HTTPRoute" {
				continue
			}
			for _, c := range s.Parents[0].Conditions {
				if c.Type == "ResolvedRefs" && string(c.Status) != step.resolved {
					t.Errorf("with slices %v: ResolvedRefs=%s: %s", step.slices, c.Status, c.Message)
				}
			}
		}
	}
}
