package control_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/dialect"
	"github.com/weirmesh/weir/internal/resource"
)

// BenchmarkTranslate10000Routes is what a change of a large cluster costs the control plane before it is published:
// 10,000 HTTPRoutes, 2,000 Services, 20,000 endpoints.
func BenchmarkTranslate10000Routes(b *testing.B) {
	const routes, services, teams = 10_000, 2_000, 20
	c := resource.NewCollection(dialect.Kinds())
	put := func(o metav1.ObjectMetaAccessor) { c.Put(resource.Adopt(dialect.Kinds(), o)) }
	meta := func(service int, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: fmt.Sprintf("team-%d", service%teams), Name: name}
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
	s := c.Set()
	s.GatewayClasses = []*gatewayv1.GatewayClass{{ObjectMeta: metav1.ObjectMeta{Name: "weir"}, Spec: gatewayv1.GatewayClassSpec{ControllerName: "weirmesh.github.io/gateway-controller"}}}
	all := gatewayv1.NamespacesFromAll
	s.Gateways = []*gatewayv1.Gateway{{ObjectMeta: metav1.ObjectMeta{Namespace: "weir-system", Name: "edge"}, Spec: gatewayv1.GatewaySpec{
		GatewayClassName: "weir", Listeners: []gatewayv1.Listener{{
			Name: "http", Port: 8080, Protocol: gatewayv1.HTTPProtocolType, AllowedRoutes: &gatewayv1.AllowedRoutes{Namespaces: &gatewayv1.RouteNamespaces{From: &all}},
		}}}}}
	in, prefix := gatewayv1.Namespace("weir-system"), gatewayv1.PathMatchPathPrefix
	for i := range routes {
		service := i / 5 % services
		r := &gatewayv1.HTTPRoute{ObjectMeta: meta(service, fmt.Sprintf("r%d", i))}
		r.Spec.ParentRefs = []gatewayv1.ParentReference{{Namespace: &in, Name: "edge"}}
		r.Spec.Hostnames = []gatewayv1.Hostname{gatewayv1.Hostname(fmt.Sprintf("r%d.example.com", i))}
		for _, path := range []string{"/api", "/"} {
			port := gatewayv1.PortNumber(80)
			ref := gatewayv1.HTTPBackendRef{BackendRef: gatewayv1.BackendRef{BackendObjectReference: gatewayv1.BackendObjectReference{
				Name: gatewayv1.ObjectName(fmt.Sprintf("s%d", service)), Port: &port,
			}}}
			r.Spec.Rules = append(r.Spec.Rules, gatewayv1.HTTPRouteRule{
				Matches:     []gatewayv1.HTTPRouteMatch{{Path: &gatewayv1.HTTPPathMatch{Type: &prefix, Value: &path}}},
				BackendRefs: []gatewayv1.HTTPBackendRef{ref},
			})
		}
		s.HTTPRoutes = append(s.HTTPRoutes, r)
	}
	slices.SortFunc(s.HTTPRoutes, func(a, b *gatewayv1.HTTPRoute) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	o := control.Options{ProxyPerGateway: true, Serve: []string{"none"}}
	for _, change := range []struct {
		of   string
		make func(*resource.Set, int)
	}{
		{"everything", nil},
		{"route", func(s *resource.Set, i int) {
			r := s.HTTPRoutes[i%routes].DeepCopy()
			r.Spec.Hostnames = []gatewayv1.Hostname{gatewayv1.Hostname(fmt.Sprintf("changed%d.example.com", i))}
			s.HTTPRoutes = slices.Clone(s.HTTPRoutes)
			s.HTTPRoutes[i%routes] = r
		}},
		{"endpoint", func(s *resource.Set, i int) {
			e := s.EndpointSlices[i%services].DeepCopy()
			e.Endpoints = e.Endpoints[1:]
			s.EndpointSlices = slices.Clone(s.EndpointSlices)
			s.EndpointSlices[i%services] = e
		}},
	} {
		b.Run(change.of, func(b *testing.B) {
			translator := control.NewTranslator(o)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				next := &resource.Set{
					GatewayClasses: s.GatewayClasses, Gateways: s.Gateways, HTTPRoutes: s.HTTPRoutes, Services: s.Services, EndpointSlices: s.EndpointSlices,
				}
				if change.make == nil {
					translator = control.NewTranslator(o)
				} else {
					change.make(next, i)
				}
				result, err := translator.Translate(next)
				if err != nil || len(result.Config.Routes) != routes || len(result.Config.Services) != services {
					b.Fatal(err, len(result.Config.Routes), len(result.Config.Services))
				}
			}
		})
	}
}
