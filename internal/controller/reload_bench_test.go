package controller

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/dialect"
	"github.com/weirmesh/weir/internal/dialect/gateway"
	"github.com/weirmesh/weir/internal/feed"
	"github.com/weirmesh/weir/internal/resource"
)

// largeSet has 20 Gateways, 10,000 HTTPRoutes, 2,000 Services and 20,000 endpoints.
func largeSet() *resource.Set {
	const gateways, routes, services = 20, 10_000, 2_000
	c := resource.NewCollection(dialect.Kinds())
	put := func(o metav1.ObjectMetaAccessor) { c.Put(resource.Adopt(dialect.Kinds(), o)) }
	meta := func(i int, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: fmt.Sprintf("team-%02d", i%gateways), Name: name, Generation: 1}
	}
	class := &gatewayv1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: "weir"}, Spec: gatewayv1.GatewayClassSpec{ControllerName: gateway.ControllerName}}
	var gatewayObjects []*gatewayv1.Gateway
	var routeObjects []*gatewayv1.HTTPRoute
	for i := range gateways {
		gatewayObjects = append(gatewayObjects, &gatewayv1.Gateway{ObjectMeta: meta(i, "edge"), Spec: gatewayv1.GatewaySpec{
			GatewayClassName: "weir", Listeners: []gatewayv1.Listener{{Name: "http", Port: 8080, Protocol: gatewayv1.HTTPProtocolType}},
		}})
	}
	for i := range services {
		name := fmt.Sprintf("s%d", i)
		put(&corev1.Service{ObjectMeta: meta(i, name), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}}})
		http, port := "http", int32(8000)
		slice := &discoveryv1.EndpointSlice{ObjectMeta: meta(i, name), AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &http, Port: &port}}}
		slice.Labels = map[string]string{discoveryv1.LabelServiceName: name}
		for n := range 10 {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.64.%d.%d", i/25, i%25*10+n+1)}})
		}
		put(slice)
	}
	prefix, port := gatewayv1.PathMatchPathPrefix, gatewayv1.PortNumber(80)
	for i := range routes {
		service := i / 5 % services
		r := &gatewayv1.HTTPRoute{ObjectMeta: meta(service, fmt.Sprintf("r%d", i))}
		r.Spec.ParentRefs = []gatewayv1.ParentReference{{Name: "edge"}}
		r.Spec.Hostnames = []gatewayv1.Hostname{gatewayv1.Hostname(fmt.Sprintf("r%d.example.com", i))}
		for _, path := range []string{"/api", "/"} {
			r.Spec.Rules = append(r.Spec.Rules, gatewayv1.HTTPRouteRule{
				Matches: []gatewayv1.HTTPRouteMatch{{Path: &gatewayv1.HTTPPathMatch{Type: &prefix, Value: &path}}},
				BackendRefs: []gatewayv1.HTTPBackendRef{{BackendRef: gatewayv1.BackendRef{BackendObjectReference: gatewayv1.BackendObjectReference{
					Name: gatewayv1.ObjectName(fmt.Sprintf("s%d", service)), Port: &port,
				}}}},
			})
		}
		routeObjects = append(routeObjects, r)
	}
	slices.SortFunc(routeObjects, func(a, b *gatewayv1.HTTPRoute) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	set := c.Set()
	set.GatewayClasses, set.Gateways, set.HTTPRoutes = []*gatewayv1.GatewayClass{class}, gatewayObjects, routeObjects
	return set
}

// fed is a source that a benchmark gives one set after another.
type fed chan *resource.Set

func (f fed) Run(ctx context.Context, emit func(*resource.Set)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case set := <-f:
			emit(set)
		}
	}
}

// BenchmarkReload is what a change costs a replica of the controller from the set to what proxies are to be sent: 20 Gateways, 10,000 HTTPRoutes, 2,000
// Services, 20,000 endpoints, of which one object changes, or none.
func BenchmarkReload(b *testing.B) {
	first := largeSet()
	for _, change := range []struct {
		of   string
		make func(*resource.Set, int)
	}{
		{"nothing", func(*resource.Set, int) {}},
		{"route", func(s *resource.Set, i int) {
			i %= len(s.HTTPRoutes)
			r := s.HTTPRoutes[i].DeepCopy()
			r.Spec.Hostnames[0] = "changed-" + r.Spec.Hostnames[0]
			s.HTTPRoutes = slices.Clone(s.HTTPRoutes)
			s.HTTPRoutes[i] = r
		}},
		{"endpoint", func(s *resource.Set, i int) {
			i %= len(s.EndpointSlices)
			e := s.EndpointSlices[i].DeepCopy()
			e.Endpoints = e.Endpoints[1:]
			s.EndpointSlices = slices.Clone(s.EndpointSlices)
			s.EndpointSlices[i] = e
		}},
	} {
		b.Run(change.of, func(b *testing.B) {
			source, reported := make(fed), make(chan control.Report, 1)
			server := &feed.Server{}
			loop := reloadLoop(server, func(r control.Report) { reported <- r })
			loop.Source, loop.Options = source, control.InCluster()
			ctx, cancel := context.WithCancel(b.Context())
			done := make(chan error, 1)
			go func() { done <- loop.Run(ctx) }()
			source <- first
			if r := <-reported; r.Err != nil || len(r.Config.Routes) != len(first.HTTPRoutes) || server.Version("team-19/edge") == "" {
				b.Fatal(r.Err, len(r.Config.Routes))
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				next := &resource.Set{
					GatewayClasses: first.GatewayClasses, Gateways: first.Gateways, HTTPRoutes: first.HTTPRoutes, Services: first.Services, EndpointSlices: first.EndpointSlices,
				}
				change.make(next, i)
				source <- next
				if r := <-reported; r.Err != nil || r.Changed != (change.of != "nothing") {
					b.Fatal(r.Err, r.Changed)
				}
			}
			b.StopTimer()
			cancel()
			if err := <-done; err != nil {
				b.Fatal(err)
			}
		})
	}
}

// reloadLoop publishes as a control plane does.
func reloadLoop(server *feed.Server, report func(control.Report)) *control.Loop {
	return &control.Loop{Publish: server.Publish, Report: report}
}
