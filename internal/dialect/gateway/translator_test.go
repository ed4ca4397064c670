package gateway_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/dialect/gateway"
	"github.com/weirmesh/weir/internal/dialect/goldentest"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/test/size"
)

// history makes sets that follow from each other as those of a cluster do: objects come, go and are replaced, and what
// stays is the same object.
type history struct {
	*rand.Rand
	all *resource.Set // what there is to draw from
}

// next returns the set with something changed.
func (h *history) next(s *resource.Set) *resource.Set {
	out := &resource.Set{
		GatewayClasses: s.GatewayClasses, Gateways: s.Gateways, ListenerSets: s.ListenerSets,
		HTTPRoutes: s.HTTPRoutes, GRPCRoutes: s.GRPCRoutes, TCPRoutes: s.TCPRoutes,
		ReferenceGrants: s.ReferenceGrants, BackendTLSPolicies: s.BackendTLSPolicies, TrafficSplits: s.TrafficSplits,
		Services: s.Services, EndpointSlices: s.EndpointSlices, Secrets: s.Secrets, ConfigMaps: s.ConfigMaps, Namespaces: s.Namespaces,
		Origins: s.Origins, Fields: s.Fields, Rejected: s.Rejected, Expiries: s.Expiries,
	}
	switch h.IntN(12) {
	case 0:
		out.Gateways = toggle(h, h.all.Gateways, s.Gateways)
	case 1:
		out.Services = toggle(h, h.all.Services, s.Services)
	case 2:
		out.ReferenceGrants = toggle(h, h.all.ReferenceGrants, s.ReferenceGrants)
		out.BackendTLSPolicies = toggle(h, h.all.BackendTLSPolicies, s.BackendTLSPolicies)
	case 3:
		out.ListenerSets = toggle(h, h.all.ListenerSets, s.ListenerSets)
		out.TrafficSplits = toggle(h, h.all.TrafficSplits, s.TrafficSplits)
	case 4:
		out.EndpointSlices = toggle(h, h.all.EndpointSlices, s.EndpointSlices)
	case 5, 6:
		out.HTTPRoutes = toggle(h, h.all.HTTPRoutes, s.HTTPRoutes)
	case 7, 8:
		out.GRPCRoutes = toggle(h, h.all.GRPCRoutes, s.GRPCRoutes)
	case 9:
		out.TCPRoutes = toggle(h, h.all.TCPRoutes, s.TCPRoutes)
	case 10:
		out.HTTPRoutes = replaced(h, s.HTTPRoutes, func(r *gatewayv1.HTTPRoute) { r.Spec.Hostnames = h.hostnames(); r.Generation++ })
	case 11:
		out.GRPCRoutes = replaced(h, s.GRPCRoutes, func(r *gatewayv1.GRPCRoute) { r.Spec.Hostnames = h.hostnames(); r.Generation++ })
	}
	return out
}

func (h *history) hostnames() []gatewayv1.Hostname {
	all := []gatewayv1.Hostname{"a.example", "b.example", "*.example", "www.a.example"}
	return slices.Clone(all[h.IntN(len(all)):])
}

// toggle takes an object out, or puts one in again, in the order of all.
func toggle[T comparable](h *history, all, now []T) []T {
	if len(all) == 0 {
		return now
	}
	one := all[h.IntN(len(all))]
	if i := slices.Index(now, one); i >= 0 {
		return slices.Delete(slices.Clone(now), i, i+1)
	}
	return slices.DeleteFunc(slices.Clone(all), func(o T) bool { return o != one && !slices.Contains(now, o) })
}

type copied[T any] interface {
	*T
	DeepCopy() *T
}

func replaced[T any, P copied[T]](h *history, now []P, change func(P)) []P {
	if len(now) == 0 {
		return now
	}
	now = slices.Clone(now)
	i := h.IntN(len(now))
	o := P(now[i].DeepCopy())
	change(o)
	now[i] = o
	return now
}

// follow compares a Translator's results over many changes with translations without memory.
func follow(t *testing.T, seed uint64, options gateway.Options, all *resource.Set, steps int) {
	h := &history{Rand: rand.New(rand.NewPCG(seed, 1)), all: all}
	translator := gateway.Translator{Options: options}
	type result struct {
		Config   model.Config
		Services []model.ServiceRoute
		Statuses []resource.Status
		Findings []resource.Finding
	}
	var got, want result
	for i, set := 0, all; i < steps; i, set = i+1, h.next(set) {
		got.Config, got.Statuses, got.Findings = translator.Translate(set)
		got.Services = translator.ServiceRoutes()
		once := &gateway.Translator{Options: options}
		want.Config, want.Statuses, want.Findings = once.Translate(set)
		want.Services = once.ServiceRoutes()
		if !reflect.DeepEqual(want, got) {
			t.Fatalf("step %d of seed %d: what is remembered made a difference:\n%s", i, seed,
				goldentest.Diff(goldentest.Marshal(t, want), goldentest.Marshal(t, got)))
		}
	}
}

func TestTranslatorSaysWhatTranslateSays(t *testing.T) {
	for _, g := range goldentest.All(t, leastGoldens) {
		set := goldentest.Load(t, g)
		for seed, separate := range []bool{false, true} {
			options := gateway.Options{ProxyPerGateway: separate, Mesh: separate}
			if separate {
				options.Names = &resource.HostNames{Suffixes: []string{"example.com"}}
			}
			follow(t, uint64(seed), options, set, size.Of(8, 40))
		}
	}
}

// TestTranslatorWhereRoutesCompete has routes of all kinds, of few hostnames and ages, at the same few listeners and Services.
func TestTranslatorWhereRoutesCompete(t *testing.T) {
	for seed := range uint64(size.Of(4, 40)) {
		r := rand.New(rand.NewPCG(seed, 2))
		h := &history{Rand: r}
		all := &resource.Set{GatewayClasses: []*gatewayv1.GatewayClass{{
			ObjectMeta: metav1.ObjectMeta{Name: "weir"}, Spec: gatewayv1.GatewayClassSpec{ControllerName: gateway.ControllerName},
		}}}
		for i := range 2 {
			g := &gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("g%d", i)}}
			g.Spec.GatewayClassName = "weir"
			g.Spec.Listeners = []gatewayv1.Listener{
				{Name: "any", Port: gatewayv1.PortNumber(80 + i), Protocol: gatewayv1.HTTPProtocolType},
				{Name: "tcp", Port: gatewayv1.PortNumber(90 + i), Protocol: gatewayv1.TCPProtocolType},
			}
			all.Gateways = append(all.Gateways, g)
		}
		for i := range 2 {
			s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("s%d", i)}}
			s.Spec.Ports = []corev1.ServicePort{{Port: 81}, {Port: 82}}
			all.Services = append(all.Services, s)
		}
		meta := func(kind string, i int) metav1.ObjectMeta {
			return metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("%s%d", strings.ToLower(kind), i), CreationTimestamp: metav1.Unix(r.Int64N(5), 0)}
		}
		parents := func() gatewayv1.CommonRouteSpec {
			var out gatewayv1.CommonRouteSpec
			for i := range 1 + r.IntN(2) {
				out.ParentRefs = append(out.ParentRefs, gatewayv1.ParentReference{Name: gatewayv1.ObjectName(fmt.Sprintf("g%d", i))})
			}
			for i := range r.IntN(3) {
				group, kind := gatewayv1.Group(""), gatewayv1.Kind("Service")
				ref := gatewayv1.ParentReference{Group: &group, Kind: &kind, Name: gatewayv1.ObjectName(fmt.Sprintf("s%d", i))}
				if port := gatewayv1.PortNumber(80 + r.IntN(3)); port > 80 {
					ref.Port = &port
				}
				out.ParentRefs = append(out.ParentRefs, ref)
			}
			return out
		}
		for i := range 4 {
			path := "/"
			if r.IntN(4) == 0 {
				path = "no path: no rule is valid"
			}
			all.HTTPRoutes = append(all.HTTPRoutes, &gatewayv1.HTTPRoute{ObjectMeta: meta("H", i), Spec: gatewayv1.HTTPRouteSpec{
				CommonRouteSpec: parents(), Hostnames: h.hostnames(),
				Rules: []gatewayv1.HTTPRouteRule{{Matches: []gatewayv1.HTTPRouteMatch{{Path: &gatewayv1.HTTPPathMatch{Value: &path}}}}},
			}})
			service := "s"
			method := &gatewayv1.GRPCMethodMatch{Service: &service}
			if r.IntN(8) == 0 {
				method = &gatewayv1.GRPCMethodMatch{Method: &service}
			}
			all.GRPCRoutes = append(all.GRPCRoutes, &gatewayv1.GRPCRoute{ObjectMeta: meta("G", i), Spec: gatewayv1.GRPCRouteSpec{
				CommonRouteSpec: parents(), Hostnames: h.hostnames(),
				Rules: []gatewayv1.GRPCRouteRule{{Matches: []gatewayv1.GRPCRouteMatch{{Method: method}}}},
			}})
			all.TCPRoutes = append(all.TCPRoutes, &gatewayv1.TCPRoute{ObjectMeta: meta("T", i), Spec: gatewayv1.TCPRouteSpec{
				CommonRouteSpec: parents(), Rules: []gatewayv1.TCPRouteRule{{}},
			}})
		}
		follow(t, seed, gateway.Options{ProxyPerGateway: seed%2 == 0, ExclusiveHostnames: seed%3 == 0, Mesh: seed%4 > 0}, all, 100)
	}
}

// TestTranslatorRemembers makes sure that what a route is made of is not made again when another one changes.
func TestTranslatorRemembers(t *testing.T) {
	g := goldentest.All(t, leastGoldens)
	var translator gateway.Translator
	shared := 0
	for _, one := range g {
		set := goldentest.Load(t, one)
		before, _, _ := translator.Translate(set)
		h := &history{Rand: rand.New(rand.NewPCG(1, 1)), all: set}
		next := h.next(set)
		next.HTTPRoutes = replaced(h, set.HTTPRoutes, func(r *gatewayv1.HTTPRoute) { r.Generation++ })
		after, _, _ := translator.Translate(next)
		for i := range min(len(before.Routes), len(after.Routes)) {
			if a, b := before.Routes[i].Rules, after.Routes[i].Rules; len(a) > 0 && len(b) > 0 && &a[0] == &b[0] {
				shared++
			}
		}
	}
	if shared < 20 {
		t.Errorf("%d routes were taken over, too few", shared)
	}
}
