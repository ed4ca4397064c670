package core_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/dialect/core"
	"github.com/weirmesh/weir/internal/resource"
)

// randomService is one of a few kinds: good, without ports, with an unknown protocol, with an annotation that means nothing, for another name.
func randomService(name string) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}, {Name: "more", Port: 81}}}}
	app := "example.com/unknown"
	switch rand.IntN(8) {
	case 0:
		s.Spec.Ports = nil
	case 1:
		s.Spec.Ports[0].AppProtocol = &app
	case 2:
		s.Annotations = map[string]string{"weirmesh.github.io/max-requests": "many"}
	case 3:
		s.Annotations = map[string]string{"weirmesh.github.io/max-requests": "7"}
	case 4:
		s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeExternalName, "api.example.com"
	}
	if name == "s0-canary" && rand.IntN(4) > 0 {
		made(s)
	}
	return s
}

// made has a release have made a Service.
func made(s *corev1.Service) {
	s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "rollouts.kruise.io/v1beta1", Kind: "Rollout", Name: "s", Controller: to(true)}}
}

func randomSlice(service string) *discoveryv1.EndpointSlice {
	port, name, more, ready := int32(8000), "http", "more", rand.IntN(4) > 0
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: service, Labels: map[string]string{discoveryv1.LabelServiceName: service}}, AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port}, {Name: &more, Port: &port}},
	}
	for i := range rand.IntN(4) {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("192.0.2.%d", 1+i)}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}})
	}
	if rand.IntN(5) == 0 {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{"169.254.169.254"}})
	}
	return s
}

func randomRoute(services int) *gatewayv1.HTTPRoute {
	r := &gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "r"}}
	for range rand.IntN(6) {
		port := gatewayv1.PortNumber(80 + rand.IntN(2))
		r.Spec.Rules = append(r.Spec.Rules, gatewayv1.HTTPRouteRule{BackendRefs: []gatewayv1.HTTPBackendRef{{BackendRef: gatewayv1.BackendRef{
			BackendObjectReference: gatewayv1.BackendObjectReference{Name: gatewayv1.ObjectName(fmt.Sprint("s", rand.IntN(services))), Port: &port},
		}}}})
	}
	return r
}

// TestATranslatorMakesOnlyWhatChanged compares with translating each set anew, over random histories of Services, slices and routes.
func TestATranslatorMakesOnlyWhatChanged(t *testing.T) {
	const services = 6
	name := func(i int) string {
		if i == services-1 {
			return "s0-canary"
		}
		return fmt.Sprint("s", i)
	}
	for _, options := range []core.Options{{}, {Cluster: true, Names: &resource.HostNames{}}} {
		x := core.Translator{Options: options}
		set := &resource.Set{HTTPRoutes: []*gatewayv1.HTTPRoute{randomRoute(services)}}
		for i := range services {
			set.Services, set.EndpointSlices = append(set.Services, randomService(name(i))), append(set.EndpointSlices, randomSlice(name(i)))
		}
		shared := 0
		before, _, _ := x.Translate(set)
		for range 500 {
			next := &resource.Set{HTTPRoutes: set.HTTPRoutes}
			next.Services, next.EndpointSlices = append(next.Services, set.Services...), append(next.EndpointSlices, set.EndpointSlices...)
			switch i := rand.IntN(services); rand.IntN(3) {
			case 0:
				next.Services[i] = randomService(name(i))
			case 1:
				next.EndpointSlices[i] = randomSlice(name(i))
			case 2:
				next.HTTPRoutes = []*gatewayv1.HTTPRoute{randomRoute(services)}
			}
			got, _, findings := x.Translate(next)
			want, _, wanted := (&core.Translator{Options: options}).Translate(next)
			if !got.Equal(&want) || !reflect.DeepEqual(findings, wanted) {
				t.Fatalf("got\n%+v\n%v\nwant\n%+v\n%v", got, findings, want, wanted)
			}
			for _, a := range got.Services {
				for _, b := range before.Services {
					if len(a.Endpoints) > 0 && a.Name == b.Name && unsafe.SliceData(a.Endpoints) == unsafe.SliceData(b.Endpoints) {
						shared++
					}
				}
			}
			set, before = next, got
		}
		if shared < 500 {
			t.Errorf("%d services share memory with what they were, of about 2000", shared)
		}
	}
}
