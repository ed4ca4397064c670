package gateway

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

func TestEveryKindOfTheModelHasOneOfTheAPI(t *testing.T) {
	for _, k := range model.RouteKinds() {
		if !slices.ContainsFunc(routeKinds, func(r struct {
			kind    gatewayv1.Kind
			carries model.RouteKind
		}) bool {
			return r.carries == k
		}) {
			t.Errorf("no kind of route carries %s", k)
		}
	}
	var protocols []model.Protocol
	for _, p := range listenerProtocols {
		if protocolOf(p.written) != p.protocol {
			t.Errorf("%s is %q", p.written, protocolOf(p.written))
		}
		protocols = append(protocols, p.protocol)
		kinds, names := kindsFor(p.protocol)
		if len(kinds) == 0 || len(kinds) != len(names) {
			t.Errorf("%s takes %v, %q", p.written, kinds, names)
		}
		for _, name := range names {
			if !p.protocol.Takes(Carries(name)) {
				t.Errorf("%s does not take %s", p.written, name)
			}
		}
	}
	// The API's protocol TLS takes TLSRoutes, which are not served. The model's has no name in the API.
	want := slices.DeleteFunc(model.ListenerProtocols(), func(p model.Protocol) bool { return p == model.TLS })
	if !slices.Equal(protocols, want) {
		t.Errorf("protocols %q, want %q", protocols, want)
	}
	if p := protocolOf(gatewayv1.TLSProtocolType); p != "" {
		t.Errorf("TLS is %q", p)
	}
}

// TestARouteOfEachKindIsTranslated has a listener of each protocol, and one route of each kind.
func TestARouteOfEachKindIsTranslated(t *testing.T) {
	g := &gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "g"}}
	for i, p := range listenerProtocols {
		g.Spec.Listeners = append(g.Spec.Listeners, gatewayv1.Listener{Name: gatewayv1.SectionName(p.protocol), Port: gatewayv1.PortNumber(1000 + i), Protocol: p.written})
	}
	set := &resource.Set{Gateways: []*gatewayv1.Gateway{g}}
	meta := metav1.ObjectMeta{Namespace: "n", Name: "r"}
	common := gatewayv1.CommonRouteSpec{ParentRefs: []gatewayv1.ParentReference{{Name: "g"}}}
	set.HTTPRoutes = []*gatewayv1.HTTPRoute{{ObjectMeta: meta, Spec: gatewayv1.HTTPRouteSpec{
		CommonRouteSpec: common, Hostnames: []gatewayv1.Hostname{"http.example"}, Rules: make([]gatewayv1.HTTPRouteRule, 1)}}}
	set.GRPCRoutes = []*gatewayv1.GRPCRoute{{ObjectMeta: meta, Spec: gatewayv1.GRPCRouteSpec{
		CommonRouteSpec: common, Hostnames: []gatewayv1.Hostname{"grpc.example"}, Rules: make([]gatewayv1.GRPCRouteRule, 1)}}}
	set.TCPRoutes = []*gatewayv1.TCPRoute{{ObjectMeta: meta, Spec: gatewayv1.TCPRouteSpec{CommonRouteSpec: common, Rules: make([]gatewayv1.TCPRouteRule, 1)}}}
	cfg, statuses, _ := (&Translator{}).Translate(set)
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	for _, k := range routeKinds {
		i := slices.IndexFunc(cfg.Routes, func(r model.Route) bool { return r.Ref.Kind == string(k.kind) })
		if i < 0 || cfg.Routes[i].Kind != k.carries || len(cfg.Routes[i].Rules) != 1 || len(cfg.Routes[i].Attachments) == 0 {
			t.Errorf("%s: %+v", k.kind, cfg.Routes)
		}
		if !slices.ContainsFunc(statuses, func(s resource.Status) bool { return s.Ref.Kind == string(k.kind) }) {
			t.Errorf("%s has no status", k.kind)
		}
	}
	for _, l := range cfg.Listeners {
		if string(l.Protocol) != l.Name[strings.LastIndexByte(l.Name, '/')+1:] {
			t.Errorf("listener %s has the protocol %q", l.Name, l.Protocol)
		}
	}
}

func TestWhatIsNoKindIsTakenByNoListener(t *testing.T) {
	for _, kind := range []string{"", "UDPRoute", "TLSRoute", "Service", "unknown"} {
		for _, p := range model.ListenerProtocols() {
			if p.Takes(Carries(kind)) {
				t.Errorf("%q: a listener of %q takes it", kind, p)
			}
		}
	}
	if p := protocolOf(gatewayv1.UDPProtocolType); p != "" {
		t.Errorf("UDP is %q", p)
	}
}

func TestOneOfListsNames(t *testing.T) {
	for want, names := range map[string]string{"": "", "a": "a", "a or b": "a b", "a, b or c": "a b c"} {
		if got := oneOf(strings.Fields(names)); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
