package core_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/dialect/core"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

func to[T any](v T) *T { return &v }

func service(ports ...corev1.ServicePort) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}
	s.Spec.Ports = ports
	return s
}

func slice(name string, ports []discoveryv1.EndpointPort, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: "a"}},
		Ports:      ports,
		Endpoints:  endpoints,
	}
}

func endpoint(conditions discoveryv1.EndpointConditions, addresses ...string) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{Addresses: addresses, Conditions: conditions}
}

var (
	unknown     = discoveryv1.EndpointConditions{}
	ready       = discoveryv1.EndpointConditions{Ready: to(true)}
	notReady    = discoveryv1.EndpointConditions{Ready: to(false)}
	terminating = discoveryv1.EndpointConditions{Ready: to(false), Serving: to(true), Terminating: to(true)}
	gone        = discoveryv1.EndpointConditions{Ready: to(false), Serving: to(false), Terminating: to(true)}
)

func addresses(s model.Service) string {
	var all []string
	for _, e := range s.Endpoints {
		all = append(all, e.Address)
	}
	return strings.Join(all, " ")
}

func TestEndpointsOfAPort(t *testing.T) {
	web := []discoveryv1.EndpointPort{{Name: to("web"), Port: to[int32](8080)}}
	for name, x := range map[string]struct {
		port   corev1.ServicePort
		slices []*discoveryv1.EndpointSlice
		want   string
	}{
		"ready or unknown": {corev1.ServicePort{Name: "web", Port: 80}, []*discoveryv1.EndpointSlice{
			slice("1", web, endpoint(ready, "10.0.0.2"), endpoint(unknown, "10.0.0.1"), endpoint(notReady, "10.0.0.3"))}, "10.0.0.1:8080 10.0.0.2:8080"},
		"several slices, each endpoint once": {corev1.ServicePort{Name: "web", Port: 80}, []*discoveryv1.EndpointSlice{
			slice("2", web, endpoint(ready, "10.0.0.2")), slice("1", web, endpoint(ready, "10.0.0.1"), endpoint(ready, "10.0.0.2"))}, "10.0.0.1:8080 10.0.0.2:8080"},
		"slices with different target ports": {corev1.ServicePort{Name: "web", Port: 80, TargetPort: intstr.FromString("http")}, []*discoveryv1.EndpointSlice{
			slice("1", web, endpoint(ready, "10.0.0.1")),
			slice("2", []discoveryv1.EndpointPort{{Name: to("web"), Port: to[int32](9090)}}, endpoint(ready, "10.0.0.2"))}, "10.0.0.1:8080 10.0.0.2:9090"},
		"IPv6": {corev1.ServicePort{Name: "web", Port: 80}, []*discoveryv1.EndpointSlice{
			slice("1", web, endpoint(ready, "fd00::1")), slice("2", web, endpoint(ready, "10.0.0.1"))}, "10.0.0.1:8080 [fd00::1]:8080"},
		"only the first of an endpoint's addresses": {corev1.ServicePort{Name: "web", Port: 80}, []*discoveryv1.EndpointSlice{
			slice("1", web, endpoint(ready, "10.0.0.1", "10.0.0.9"), endpoint(ready))}, "10.0.0.1:8080"},
		"terminating but serving, as nothing is ready": {corev1.ServicePort{Name: "web", Port: 80}, []*discoveryv1.EndpointSlice{
			slice("1", web, endpoint(notReady, "10.0.0.1"), endpoint(gone, "10.0.0.2")), slice("2", web, endpoint(terminating, "10.0.0.3"))}, "10.0.0.3:8080"},
		"not terminating, as one is ready": {corev1.ServicePort{Name: "web", Port: 80}, []*discoveryv1.EndpointSlice{
			slice("1", web, endpoint(terminating, "10.0.0.1")), slice("2", web, endpoint(ready, "10.0.0.2"))}, "10.0.0.2:8080"},
		"port of another name":     {corev1.ServicePort{Name: "admin", Port: 80}, []*discoveryv1.EndpointSlice{slice("1", web, endpoint(ready, "10.0.0.1"))}, ""},
		"port of another protocol": {corev1.ServicePort{Name: "web", Port: 80}, []*discoveryv1.EndpointSlice{slice("1", []discoveryv1.EndpointPort{{Name: to("web"), Port: to[int32](8080), Protocol: to(corev1.ProtocolUDP)}}, endpoint(ready, "10.0.0.1"))}, ""},
		"all ports, numeric target": {corev1.ServicePort{Port: 80, TargetPort: intstr.FromInt32(3000)}, []*discoveryv1.EndpointSlice{
			slice("1", []discoveryv1.EndpointPort{{}}, endpoint(ready, "10.0.0.1"))}, "10.0.0.1:3000"},
		"all ports, no target":    {corev1.ServicePort{Port: 80}, []*discoveryv1.EndpointSlice{slice("1", []discoveryv1.EndpointPort{{}}, endpoint(ready, "10.0.0.1"))}, "10.0.0.1:80"},
		"all ports, named target": {corev1.ServicePort{Port: 80, TargetPort: intstr.FromString("http")}, []*discoveryv1.EndpointSlice{slice("1", []discoveryv1.EndpointPort{{}}, endpoint(ready, "10.0.0.1"))}, ""},
		"no slices":               {corev1.ServicePort{Port: 80}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, clusterIP := range []string{"", "10.96.0.1", corev1.ClusterIPNone} {
				s := service(x.port)
				s.Spec.ClusterIP = clusterIP
				cfg, statuses, _ := (&core.Translator{}).Translate(&resource.Set{Services: []*corev1.Service{s}, EndpointSlices: x.slices})
				if len(cfg.Services) != 1 || len(statuses) != 0 {
					t.Fatalf("services %+v, statuses %+v", cfg.Services, statuses)
				}
				if got := addresses(cfg.Services[0]); got != x.want {
					t.Errorf("clusterIP %q: endpoints %q, want %q", clusterIP, got, x.want)
				}
			}
		})
	}
}

func TestSlicesOfOtherServicesDoNotCount(t *testing.T) {
	web := []discoveryv1.EndpointPort{{Port: to[int32](80)}}
	other, elsewhere, unlabelled := slice("1", web, endpoint(ready, "10.0.0.1")), slice("2", web, endpoint(ready, "10.0.0.2")), slice("3", web, endpoint(ready, "10.0.0.3"))
	other.Labels = map[string]string{discoveryv1.LabelServiceName: "b"}
	elsewhere.Namespace = "other"
	unlabelled.Labels = nil
	cfg, _, _ := (&core.Translator{}).Translate(&resource.Set{Services: []*corev1.Service{service(corev1.ServicePort{Port: 80})},
		EndpointSlices: []*discoveryv1.EndpointSlice{other, elsewhere, unlabelled}})
	if got := addresses(cfg.Services[0]); got != "" {
		t.Errorf("endpoints %q", got)
	}
}

func TestExternalNameIsTheEndpoint(t *testing.T) {
	s := service(corev1.ServicePort{Name: "a", Port: 80}, corev1.ServicePort{Name: "b", Port: 443, TargetPort: intstr.FromInt32(8443)})
	s.Spec.Type = corev1.ServiceTypeExternalName
	s.Spec.ExternalName = "api.example.com."
	cfg, _, _ := (&core.Translator{}).Translate(&resource.Set{Services: []*corev1.Service{s}})
	var got []string
	for _, s := range cfg.Services {
		got = append(got, s.Name+" "+addresses(s))
	}
	if want := []string{"default/a:443 api.example.com:8443", "default/a:80 api.example.com:80"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	s.Spec.ExternalName = ""
	if cfg, _, _ := (&core.Translator{}).Translate(&resource.Set{Services: []*corev1.Service{s}}); addresses(cfg.Services[0]) != "" {
		t.Errorf("an empty name gives %q", addresses(cfg.Services[0]))
	}
}

func TestOnlyTCPPortsAreServices(t *testing.T) {
	cfg, _, _ := (&core.Translator{}).Translate(&resource.Set{Services: []*corev1.Service{service(
		corev1.ServicePort{Name: "a", Port: 53, Protocol: corev1.ProtocolUDP}, corev1.ServicePort{Name: "b", Port: 54, Protocol: corev1.ProtocolTCP})}})
	if len(cfg.Services) != 1 || cfg.Services[0].Name != "default/a:54" || cfg.Services[0].Ref.Field != "spec.ports[1]" {
		t.Errorf("services %+v", cfg.Services)
	}
}

func TestAppProtocolDecidesTheProtocol(t *testing.T) {
	for name, want := range map[string]struct {
		protocol model.Protocol
		fault    bool
	}{
		"": {model.HTTP, false}, "http": {model.HTTP, false}, "HTTP": {model.HTTP, false}, "kubernetes.io/ws": {model.HTTP, false},
		"kubernetes.io/h2c": {model.H2C, false}, "grpc": {model.H2C, false}, "http2": {model.H2C, false},
		// These need a BackendTLSPolicy, which is laid over the service.
		"https": {model.HTTP, true}, "kubernetes.io/wss": {model.HTTP, true},
		"mysql": {model.HTTP, true}, "example.com/own": {model.HTTP, true},
	} {
		p := corev1.ServicePort{Port: 80}
		if name != "" {
			p.AppProtocol = to(name)
		}
		cfg, _, _ := (&core.Translator{}).Translate(&resource.Set{Services: []*corev1.Service{service(p)}})
		s := cfg.Services[0]
		if s.Protocol != want.protocol || (s.Fault != nil) != want.fault {
			t.Errorf("%q: %s, fault %+v", name, s.Protocol, s.Fault)
		}
		if s.Fault != nil && (s.Fault.Status != 500 || s.Fault.Reason != "UnsupportedProtocol") {
			t.Errorf("%q: fault %+v", name, s.Fault)
		}
	}
}

// usedBy is a set in which a route of each kind leads to Service a, one by a backend, one by a mirror.
func usedBy(kind string, s *corev1.Service, endpoints ...*discoveryv1.EndpointSlice) *resource.Set {
	set := &resource.Set{Services: []*corev1.Service{s}, EndpointSlices: endpoints}
	ref := gatewayv1.BackendObjectReference{Name: "a", Namespace: to[gatewayv1.Namespace]("default"), Port: to[int32](80)}
	mirror := &gatewayv1.HTTPRequestMirrorFilter{BackendRef: ref}
	meta := metav1.ObjectMeta{Namespace: "elsewhere", Name: "r"}
	switch kind {
	case "HTTPRoute":
		r := &gatewayv1.HTTPRoute{ObjectMeta: meta}
		r.Spec.Rules = []gatewayv1.HTTPRouteRule{{BackendRefs: []gatewayv1.HTTPBackendRef{{BackendRef: gatewayv1.BackendRef{BackendObjectReference: ref}}}}}
		set.HTTPRoutes = []*gatewayv1.HTTPRoute{r}
	case "HTTPRoute mirror":
		r := &gatewayv1.HTTPRoute{ObjectMeta: meta}
		r.Spec.Rules = []gatewayv1.HTTPRouteRule{{Filters: []gatewayv1.HTTPRouteFilter{{RequestMirror: mirror}}}}
		set.HTTPRoutes = []*gatewayv1.HTTPRoute{r}
	case "GRPCRoute":
		r := &gatewayv1.GRPCRoute{ObjectMeta: meta}
		r.Spec.Rules = []gatewayv1.GRPCRouteRule{{BackendRefs: []gatewayv1.GRPCBackendRef{{BackendRef: gatewayv1.BackendRef{BackendObjectReference: ref}}}}}
		set.GRPCRoutes = []*gatewayv1.GRPCRoute{r}
	case "GRPCRoute mirror":
		r := &gatewayv1.GRPCRoute{ObjectMeta: meta}
		r.Spec.Rules = []gatewayv1.GRPCRouteRule{{Filters: []gatewayv1.GRPCRouteFilter{{RequestMirror: mirror}}}}
		set.GRPCRoutes = []*gatewayv1.GRPCRoute{r}
	}
	return set
}

func TestWhatRoutesLeadToIsReported(t *testing.T) {
	external := service(corev1.ServicePort{Port: 80})
	external.Spec.Type = corev1.ServiceTypeExternalName
	web := []discoveryv1.EndpointPort{{Name: to("web"), Port: to[int32](80)}}
	for name, x := range map[string]struct {
		service       *corev1.Service
		slice         *discoveryv1.EndpointSlice
		code, message string
	}{
		"no slices":          {service(corev1.ServicePort{Port: 80}), slice("1", web), "WR480", `no EndpointSlice of the Service has a port named "" (they have "web")`},
		"none ready":         {service(corev1.ServicePort{Name: "web", Port: 80}), slice("1", web, endpoint(notReady, "10.0.0.1")), "WR480", "none of the Service's endpoints is ready"},
		"empty name":         {external, nil, "WR480", "the name is empty"},
		"unknown protocol":   {service(corev1.ServicePort{Name: "web", Port: 80, AppProtocol: to("mysql")}), slice("1", web, endpoint(ready, "10.0.0.1")), "WR481", `"mysql" is not supported`},
		"no ports":           {service(), nil, "WR482", "has no ports"},
		"no slices whatever": {service(corev1.ServicePort{Port: 80}), nil, "WR480", "the Service has no EndpointSlices"},
		"nothing":            {service(corev1.ServicePort{Name: "web", Port: 80}), slice("1", web, endpoint(ready, "10.0.0.1")), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var all []*discoveryv1.EndpointSlice
			if x.slice != nil {
				all = append(all, x.slice)
			}
			for _, kind := range []string{"HTTPRoute", "HTTPRoute mirror", "GRPCRoute", "GRPCRoute mirror"} {
				_, _, findings := (&core.Translator{}).Translate(usedBy(kind, x.service, all...))
				switch {
				case x.code == "" && len(findings) == 0:
				case len(findings) != 1 || findings[0].Code != x.code || findings[0].Severity != resource.Warning ||
					!strings.Contains(findings[0].Message, x.message) || findings[0].Fix == "" || findings[0].Ref.Name != "a":
					t.Errorf("%s: findings %+v, want %s %q", kind, findings, x.code, x.message)
				}
			}
			if _, _, findings := (&core.Translator{}).Translate(usedBy("", x.service, all...)); len(findings) > 0 {
				t.Errorf("without route: findings %+v", findings)
			}
		})
	}
}

func TestTranslateLeavesTheSetAloneWhateverItsOrder(t *testing.T) {
	build := func() *resource.Set {
		ports := []discoveryv1.EndpointPort{{Name: to("web"), Port: to[int32](8080)}}
		set := usedBy("HTTPRoute", service(corev1.ServicePort{Name: "web", Port: 80}),
			slice("1", ports, endpoint(ready, "10.0.0.3"), endpoint(ready, "10.0.0.1")), slice("2", ports, endpoint(ready, "10.0.0.2")))
		b := service(corev1.ServicePort{Name: "web", Port: 80}, corev1.ServicePort{Name: "x", Port: 79})
		b.Name = "b"
		set.Services = append(set.Services, b)
		return set
	}
	set, same := build(), build()
	want, _, _ := (&core.Translator{}).Translate(set)
	if !reflect.DeepEqual(set.Services, same.Services) || !reflect.DeepEqual(set.EndpointSlices, same.EndpointSlices) || !reflect.DeepEqual(set.HTTPRoutes, same.HTTPRoutes) {
		t.Error("the set was changed")
	}
	slices.Reverse(same.Services)
	slices.Reverse(same.EndpointSlices)
	got, _, _ := (&core.Translator{}).Translate(same)
	a, _ := json.Marshal(want)
	b, _ := json.Marshal(got)
	if string(a) != string(b) {
		t.Errorf("got %s, want %s", b, a)
	}
}

func TestCodesAreUniqueAndExplained(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range core.Codes() {
		if seen[c.ID] || c.Title == "" || c.Meaning == "" || c.Fix == "" {
			t.Errorf("%+v", c)
		}
		seen[c.ID] = true
	}
	for _, c := range resource.Codes() {
		if seen[c.ID] {
			t.Errorf("%s is a code of package resource too", c.ID)
		}
	}
}

func TestPodsOfEndpoints(t *testing.T) {
	web := []discoveryv1.EndpointPort{{Port: to[int32](80)}}
	of := func(address string, ref *corev1.ObjectReference) discoveryv1.Endpoint {
		e := endpoint(ready, address)
		e.TargetRef = ref
		return e
	}
	pod := func(namespace, name string) *corev1.ObjectReference {
		return &corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: name}
	}
	cfg, _, _ := (&core.Translator{}).Translate(&resource.Set{Services: []*corev1.Service{service(corev1.ServicePort{Port: 80})}, EndpointSlices: []*discoveryv1.EndpointSlice{
		slice("1", web, of("10.0.0.1", pod("default", "a-1")), of("10.0.0.2", pod("", "a-2")), of("10.0.0.3", pod("other", "b")), of("10.0.0.4", nil),
			of("10.0.0.5", &corev1.ObjectReference{Kind: "Node", Name: "n"}), of("10.0.0.6", pod("default", "no name")), of("10.0.0.7", pod("default", strings.Repeat("x", 300)))),
		slice("2", web, of("10.0.0.4", pod("default", "a-4")), of("10.0.0.1", nil)), // an endpoint is known by what knows it
	}})
	var got []string
	for _, e := range cfg.Services[0].Endpoints {
		got = append(got, e.Address+" "+e.Pod)
	}
	want := []string{"10.0.0.1:80 a-1", "10.0.0.2:80 a-2", "10.0.0.3:80 ", "10.0.0.4:80 a-4", "10.0.0.5:80 ", "10.0.0.6:80 ", "10.0.0.7:80 "}
	if !slices.Equal(got, want) {
		t.Errorf("endpoints %q, want %q", got, want)
	}
}
