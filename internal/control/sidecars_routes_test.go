package control_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/model"
)

const servicesWithRoutes = `
apiVersion: v1
kind: Service
metadata: {namespace: shop, name: web}
spec: {clusterIP: 10.96.0.10, clusterIPs: [10.96.0.10, "fd00::10"], ports: [{name: http, port: 80}, {name: other, port: 9000}, {name: tls, port: 443}]}
---
apiVersion: v1
kind: Service
metadata: {namespace: shop, name: web-v2}
spec: {clusterIP: 10.96.0.11, ports: [{port: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {namespace: shop, name: queue}
spec: {clusterIP: 10.96.0.12, ports: [{port: 5672}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: shop, name: web-v2-1, labels: {kubernetes.io/service-name: web-v2}}
addressType: IPv4
ports: [{name: "", port: 8080}]
endpoints: [{addresses: [10.0.0.20], targetRef: {kind: Pod, namespace: shop, name: meshed-1}}]
---
apiVersion: v1
kind: Pod
metadata: {namespace: shop, name: meshed-1, annotations: {weirmesh.github.io/sidecar: '{}'}}
spec: {serviceAccountName: meshed, containers: [{name: c, ports: [{containerPort: 8080}]}], initContainers: [{name: weir-sidecar, restartPolicy: Always}]}
status: {podIP: 10.0.0.20}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: producer, namespace: shop}
spec:
  parentRefs: [{group: "", kind: Service, name: web}]
  rules: [{matches: [{path: {value: /v2}}], backendRefs: [{name: web-v2, port: 8080}]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: consumer, namespace: office}
spec:
  parentRefs: [{group: "", kind: Service, name: web, namespace: shop, port: 80}]
  rules: [{backendRefs: [{name: web, namespace: shop, port: 80}]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: TCPRoute
metadata: {name: queue, namespace: shop}
spec:
  parentRefs: [{group: "", kind: Service, name: queue}]
  rules: [{backendRefs: [{name: web-v2, port: 8080}]}]
`

// routesTo are the routes of a configuration by name, with what they carry, sorted.
func routesTo(c *model.Config) (all []string) {
	for _, r := range c.Routes {
		all = append(all, string(r.Ref.Kind)+" "+r.Ref.Name+" "+r.Kind.String())
	}
	slices.Sort(all)
	return all
}

// TestRoutesOfServicesAreTheirClients goes through who gets which routes where.
func TestRoutesOfServicesAreTheirClients(t *testing.T) {
	s := sidecarsOf(t, servicesWithRoutes, func(o *control.Options) { o.Mesh = true }).Sidecars
	for _, x := range []struct {
		clients, to string
		protocol    model.Protocol
		detect      bool
		routes      []string
		services    int
	}{
		{"shop", "10.96.0.10:80", model.HTTP, false, []string{"HTTPRoute producer HTTP"}, 1},
		{"elsewhere", "[fd00::10]:80", model.HTTP, false, []string{"HTTPRoute producer HTTP"}, 1},
		{"office", "10.96.0.10:80", model.HTTP, false, []string{"HTTPRoute consumer HTTP"}, 1},
		// Nobody says what the port carries, nor does the route name it: other connections pass.
		{"office", "10.96.0.10:9000", model.HTTP, true, []string{"HTTPRoute producer HTTP", "Service web TCP"}, 2},
		// A port of no HTTP, which the route does not name.
		{"shop", "10.96.0.10:443", model.TCP, false, []string{"Service web TCP"}, 1},
		{"shop", "10.96.0.12:5672", model.TCP, false, []string{"TCPRoute queue TCP"}, 1},
		// A backend leads to its endpoints, not to routes of its own.
		{"shop", "10.96.0.11:8080", model.HTTP, true, []string{"Service web-v2 HTTP", "Service web-v2 TCP"}, 1},
	} {
		to := netip.MustParseAddrPort(x.to)
		c := s.To(x.clients, to)
		if c == nil || len(c.Listeners) != 1 {
			t.Fatalf("%s to %s: %+v", x.clients, x.to, c)
		}
		l := c.Listeners[0]
		if err := c.Validate(); err != nil || l.Protocol != x.protocol || l.Detect != x.detect || !slices.Equal(routesTo(c), x.routes) || len(c.Services) != x.services {
			t.Errorf("%s to %s: %v, %s, detects %t, routes %q, %d services", x.clients, x.to, err, l.Protocol, l.Detect, routesTo(c), len(c.Services))
		}
		for _, r := range c.Routes {
			if len(r.Attachments) != 1 || r.Attachments[0].Hostnames[0] != "*" {
				t.Errorf("%s to %s: %+v", x.clients, x.to, r)
			}
			secured := slices.ContainsFunc(c.Services, func(s model.Service) bool {
				return s.Name == r.Rules[0].Backends[0].Service && s.TLS != nil && len(s.TLS.Pods) == 1
			})
			if meshed := r.Rules[0].Backends[0].Service == "shop/web-v2:8080"; secured != meshed || meshed != (r.ClientCertificate == model.WorkloadIdentity) {
				t.Errorf("%s to %s: by the pods' identities %t, certificate %q", x.clients, x.to, secured, r.ClientCertificate)
			}
		}
		all, left := s.Outbound(x.clients)
		if err := all.Validate(); err != nil || len(left) > 0 {
			t.Errorf("%v, %v", err, left)
		}
		var at []string
		for _, r := range all.Routes {
			if r.Attachments[0].Listener == l.Name {
				at = append(at, string(r.Ref.Kind)+" "+r.Ref.Name+" "+r.Kind.String())
			}
		}
		if slices.Sort(at); !slices.Equal(at, x.routes) {
			t.Errorf("%s to %s: %q of %q with everything", x.clients, x.to, at, x.routes)
		}
	}
	// Those without routes of their own share what is made.
	to := netip.MustParseAddrPort("10.96.0.10:80")
	if s.To("shop", to) != s.To("elsewhere", to) || s.To("shop", to) == s.To("office", to) {
		t.Error("the same is made twice, or one for both")
	}
	one, _ := s.Outbound("shop")
	if two, _ := s.Outbound("elsewhere"); one != two {
		t.Error("everything is made twice")
	}
}

// TestPartsOfRoutesOfServicesKeepApart has a route of two addresses and ports as parts that do not displace each other.
func TestPartsOfRoutesOfServicesKeepApart(t *testing.T) {
	s := sidecarsOf(t, servicesWithRoutes, func(o *control.Options) { o.Mesh = true }).Sidecars
	seen := map[model.Ref]string{}
	for _, to := range []string{"10.96.0.10:80", "[fd00::10]:80", "10.96.0.10:9000", "[fd00::10]:9000"} {
		for _, r := range s.To("shop", netip.MustParseAddrPort(to)).Routes {
			if before := seen[r.Ref]; before != "" && r.Kind == model.RouteHTTP {
				t.Errorf("%s has the part of %s: %v", to, before, r.Ref)
			}
			seen[r.Ref] = to
		}
	}
}
