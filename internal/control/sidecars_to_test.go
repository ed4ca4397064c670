package control_test

import (
	"net/netip"
	"reflect"
	"testing"

	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/model"
)

// TestADestinationIsWhatEverySidecarHasOfIt compares what is made for one with what is made of all.
func TestADestinationIsWhatEverySidecarHasOfIt(t *testing.T) {
	text := mesh + `
---
apiVersion: v1
kind: Service
metadata: {namespace: shop, name: front}
spec: {clusterIP: 10.96.0.10, selector: {app: pay}, ports: [{name: http, port: 80, targetPort: 8080}, {name: db, port: 3306}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: shop, name: front-1, labels: {kubernetes.io/service-name: front}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.0.0.8], targetRef: {kind: Pod, namespace: shop, name: pay-1}}]
---
apiVersion: v1
kind: Pod
metadata: {namespace: shop, name: meshed-1, annotations: {weirmesh.github.io/sidecar: '{}'}}
spec: {serviceAccountName: meshed, containers: [{name: c, ports: [{containerPort: 8080}]}], initContainers: [{name: weir-sidecar, restartPolicy: Always}]}
status: {podIP: 10.0.0.20}
`
	s := sidecarsOf(t, text, func(o *control.Options) { o.Mesh = true }).Sidecars
	all, _ := s.Outbound("shop")
	n := 0
	for _, l := range all.Listeners {
		if l.Address == "" {
			continue
		}
		n++
		one := s.To("shop", netip.AddrPortFrom(netip.MustParseAddr(l.Address), uint16(l.Port)))
		if one == nil || len(one.Listeners) != 1 || !reflect.DeepEqual(one.Listeners[0], l) {
			t.Fatalf("%s: %+v", l.Name, one)
		}
		of := func(c *model.Config, name string) any {
			for _, r := range c.Routes {
				if r.Attachments[0].Listener == name {
					return r
				}
			}
			return nil
		}
		if !reflect.DeepEqual(of(one, l.Name), of(all, l.Name)) || len(one.Certificates) != 0 {
			t.Errorf("%s: other routes", l.Name)
		}
		for _, service := range one.Services {
			found := false
			for _, other := range all.Services {
				found = found || reflect.DeepEqual(service, other)
			}
			if !found {
				t.Errorf("%s: the service %s is another", l.Name, service.Name)
			}
		}
		if err := one.Validate(); err != nil || len(one.Services) != 1 {
			t.Errorf("%s: %v, %d services", l.Name, err, len(one.Services))
		}
	}
	if n < 2 {
		t.Errorf("%d destinations: %+v", n, all.Listeners)
	}
	if c := s.To("shop", netip.MustParseAddrPort("10.96.0.10:81")); c != nil {
		t.Errorf("nothing is known there, but %+v", c)
	}
	// A pod with a sidecar has its identity at all its ports, one without has none.
	at := s.To("shop", netip.MustParseAddrPort("10.0.0.20:9999"))
	if at == nil || len(at.Services) != 1 || at.Services[0].TLS == nil || len(at.Services[0].TLS.Pods) != 1 || at.Services[0].TLS.Pods[0].Pod != "meshed-1" || at.Listeners[0].Port != 0 || at.Validate() != nil {
		t.Errorf("the pod: %+v", at)
	}
	if c := s.To("shop", netip.MustParseAddrPort("10.0.0.8:9999")); c != nil {
		t.Errorf("a pod without a sidecar: %+v", c)
	}
	base := s.Base()
	if err := base.Validate(); err != nil || len(base.Listeners) != 1 || base.Services[0].TLS != nil {
		t.Errorf("%v: %+v", err, base)
	}
}
