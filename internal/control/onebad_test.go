package control_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/api/specs"
	"github.com/weirmesh/weir/api/split"
	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/dialect/gateway"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/routing"
)

func to[T any](v T) *T { return &v }

func objectMeta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

// tenants are two users of one Gateway. The second has written v in every place where a user may write text, whatever
// an API server would say to it, and n in those for numbers. All objects of the second are named bad.
func tenants(v string, n int, with bool) *resource.Set {
	set := &resource.Set{}
	set.GatewayClasses = []*gatewayv1.GatewayClass{{ObjectMeta: metav1.ObjectMeta{Name: "weir"}, Spec: gatewayv1.GatewayClassSpec{ControllerName: gateway.ControllerName}}}
	all := gatewayv1.NamespacesFromAll
	set.Gateways = []*gatewayv1.Gateway{{ObjectMeta: objectMeta("infra", "edge"), Spec: gatewayv1.GatewaySpec{
		GatewayClassName: "weir",
		Listeners: []gatewayv1.Listener{{Name: "http", Port: 80, Protocol: gatewayv1.HTTPProtocolType,
			AllowedRoutes: &gatewayv1.AllowedRoutes{Namespaces: &gatewayv1.RouteNamespaces{From: &all}}}},
	}}}
	service := func(namespace, name string) {
		set.Services = append(set.Services, &corev1.Service{ObjectMeta: objectMeta(namespace, name), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}})
		slice := &discoveryv1.EndpointSlice{ObjectMeta: objectMeta(namespace, name), AddressType: discoveryv1.AddressTypeIPv4,
			Ports: []discoveryv1.EndpointPort{{Port: to[int32](80)}}, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}}}
		slice.Labels = map[string]string{discoveryv1.LabelServiceName: name}
		set.EndpointSlices = append(set.EndpointSlices, slice)
	}
	parent := gatewayv1.CommonRouteSpec{ParentRefs: []gatewayv1.ParentReference{{Namespace: to(gatewayv1.Namespace("infra")), Name: "edge"}}}
	backends := func(name string) []gatewayv1.HTTPBackendRef {
		return []gatewayv1.HTTPBackendRef{{BackendRef: gatewayv1.BackendRef{BackendObjectReference: gatewayv1.BackendObjectReference{Name: gatewayv1.ObjectName(name), Port: to[int32](80)}}}}
	}
	good := &gatewayv1.HTTPRoute{ObjectMeta: objectMeta("good", "web"), Spec: gatewayv1.HTTPRouteSpec{CommonRouteSpec: parent, Hostnames: []gatewayv1.Hostname{"good.example"}}}
	for _, m := range []gatewayv1.HTTPPathMatch{
		{Type: to(gatewayv1.PathMatchExact), Value: to("/exact")}, {Type: to(gatewayv1.PathMatchPathPrefix), Value: to("/prefix")}, {Type: to(gatewayv1.PathMatchRegularExpression), Value: to("/r[0-9]+")},
	} {
		good.Spec.Rules = append(good.Spec.Rules, gatewayv1.HTTPRouteRule{Matches: []gatewayv1.HTTPRouteMatch{{Path: &m}}, BackendRefs: backends("web")})
	}
	set.HTTPRoutes = append(set.HTTPRoutes, good)
	service("good", "web")
	set.TrafficSplits = append(set.TrafficSplits, &split.TrafficSplit{ObjectMeta: objectMeta("good", "split"), Spec: split.Spec{Service: "web", Backends: []split.Backend{{Service: "web", Weight: 1000}}}})
	if with {
		service("bad", "web")
		bad(set, v, n, parent, backends)
	}
	byName := func(a, b *metav1.ObjectMeta) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	}
	slices.SortStableFunc(set.HTTPRoutes, func(a, b *gatewayv1.HTTPRoute) int { return byName(&a.ObjectMeta, &b.ObjectMeta) })
	slices.SortStableFunc(set.Services, func(a, b *corev1.Service) int { return byName(&a.ObjectMeta, &b.ObjectMeta) })
	slices.SortStableFunc(set.EndpointSlices, func(a, b *discoveryv1.EndpointSlice) int { return byName(&a.ObjectMeta, &b.ObjectMeta) })
	slices.SortStableFunc(set.TrafficSplits, func(a, b *split.TrafficSplit) int { return byName(&a.ObjectMeta, &b.ObjectMeta) })
	return set
}

func bad(set *resource.Set, v string, n int, parent gatewayv1.CommonRouteSpec, backends func(string) []gatewayv1.HTTPBackendRef) {
	route := &gatewayv1.HTTPRoute{ObjectMeta: objectMeta("bad", "web"), Spec: gatewayv1.HTTPRouteSpec{CommonRouteSpec: parent, Hostnames: []gatewayv1.Hostname{"bad.example"}}}
	if h := gatewayv1.Hostname("x" + v); !strings.ContainsAny(v, "*") {
		route.Spec.Hostnames = append(route.Spec.Hostnames, h)
	}
	header := gatewayv1.HTTPHeaderMatch{Type: to(gatewayv1.HeaderMatchRegularExpression), Name: "x-h", Value: v}
	query := gatewayv1.HTTPQueryParamMatch{Type: to(gatewayv1.QueryParamMatchRegularExpression), Name: "q", Value: v}
	modifier := gatewayv1.HTTPHeaderFilter{Set: []gatewayv1.HTTPHeader{{Name: "x-a", Value: v}}, Add: []gatewayv1.HTTPHeader{{Name: "x-b", Value: v}}}
	path := func(kind gatewayv1.HTTPPathModifierType) *gatewayv1.HTTPPathModifier {
		return &gatewayv1.HTTPPathModifier{Type: kind, ReplaceFullPath: &v, ReplacePrefixMatch: &v}
	}
	duration := gatewayv1.Duration(v)
	filter := func(f gatewayv1.HTTPRouteFilter) gatewayv1.HTTPRouteRule {
		return gatewayv1.HTTPRouteRule{Filters: []gatewayv1.HTTPRouteFilter{f}, BackendRefs: backends("web")}
	}
	match := func(m gatewayv1.HTTPRouteMatch) gatewayv1.HTTPRouteRule {
		return gatewayv1.HTTPRouteRule{Matches: []gatewayv1.HTTPRouteMatch{m}, BackendRefs: backends("web")}
	}
	route.Spec.Rules = []gatewayv1.HTTPRouteRule{
		match(gatewayv1.HTTPRouteMatch{Path: &gatewayv1.HTTPPathMatch{Value: &v}}),
		match(gatewayv1.HTTPRouteMatch{Path: &gatewayv1.HTTPPathMatch{Type: to(gatewayv1.PathMatchExact), Value: &v}}),
		match(gatewayv1.HTTPRouteMatch{Path: &gatewayv1.HTTPPathMatch{Type: to(gatewayv1.PathMatchRegularExpression), Value: &v}}),
		match(gatewayv1.HTTPRouteMatch{Path: &gatewayv1.HTTPPathMatch{Type: to(gatewayv1.PathMatchType(v))}}),
		match(gatewayv1.HTTPRouteMatch{Headers: []gatewayv1.HTTPHeaderMatch{header, {Name: gatewayv1.HTTPHeaderName(v), Value: v}}, Method: to(gatewayv1.HTTPMethod(v))}),
		match(gatewayv1.HTTPRouteMatch{Headers: []gatewayv1.HTTPHeaderMatch{header}, QueryParams: []gatewayv1.HTTPQueryParamMatch{query, {Name: gatewayv1.HTTPHeaderName(v)}}}),
		filter(gatewayv1.HTTPRouteFilter{Type: gatewayv1.HTTPRouteFilterRequestHeaderModifier, RequestHeaderModifier: &modifier}),
		filter(gatewayv1.HTTPRouteFilter{Type: gatewayv1.HTTPRouteFilterResponseHeaderModifier, ResponseHeaderModifier: &gatewayv1.HTTPHeaderFilter{Remove: []string{v}, Set: []gatewayv1.HTTPHeader{{Name: "host", Value: v}}}}),
		filter(gatewayv1.HTTPRouteFilter{Type: gatewayv1.HTTPRouteFilterURLRewrite, URLRewrite: &gatewayv1.HTTPURLRewriteFilter{Hostname: to(gatewayv1.PreciseHostname(v))}}),
		filter(gatewayv1.HTTPRouteFilter{Type: gatewayv1.HTTPRouteFilterURLRewrite, URLRewrite: &gatewayv1.HTTPURLRewriteFilter{Path: path(gatewayv1.FullPathHTTPPathModifier)}}),
		filter(gatewayv1.HTTPRouteFilter{Type: gatewayv1.HTTPRouteFilterURLRewrite, URLRewrite: &gatewayv1.HTTPURLRewriteFilter{Path: path(gatewayv1.PrefixMatchHTTPPathModifier)}}),
		filter(gatewayv1.HTTPRouteFilter{Type: gatewayv1.HTTPRouteFilterRequestRedirect, RequestRedirect: &gatewayv1.HTTPRequestRedirectFilter{Path: path(gatewayv1.FullPathHTTPPathModifier), Scheme: &v}}),
		filter(gatewayv1.HTTPRouteFilter{Type: gatewayv1.HTTPRouteFilterRequestRedirect, RequestRedirect: &gatewayv1.HTTPRequestRedirectFilter{Hostname: to(gatewayv1.PreciseHostname(v)), Port: to(int32(n)), StatusCode: &n}}),
		filter(gatewayv1.HTTPRouteFilter{Type: gatewayv1.HTTPRouteFilterCORS, CORS: &gatewayv1.HTTPCORSFilter{AllowOrigins: []gatewayv1.CORSOrigin{gatewayv1.CORSOrigin(v)},
			AllowMethods: []gatewayv1.HTTPMethodWithWildcard{gatewayv1.HTTPMethodWithWildcard(v)}, AllowHeaders: []gatewayv1.HTTPHeaderName{gatewayv1.HTTPHeaderName(v)}, MaxAge: int32(n)}}),
		filter(gatewayv1.HTTPRouteFilter{Type: gatewayv1.HTTPRouteFilterRequestMirror, RequestMirror: &gatewayv1.HTTPRequestMirrorFilter{BackendRef: backends("web")[0].BackendObjectReference, Percent: to(int32(n)),
			Fraction: &gatewayv1.Fraction{Numerator: int32(n), Denominator: to(int32(n))}}}),
		{BackendRefs: backends(v), Timeouts: &gatewayv1.HTTPRouteTimeouts{Request: &duration, BackendRequest: &duration}},
		{BackendRefs: backends("web"), Retry: &gatewayv1.HTTPRouteRetry{Attempts: &n, Backoff: &duration, Codes: []gatewayv1.HTTPRouteRetryStatusCode{gatewayv1.HTTPRouteRetryStatusCode(n)}}},
		{BackendRefs: backends("web"), SessionPersistence: &gatewayv1.SessionPersistence{SessionName: &v, Type: to(gatewayv1.SessionPersistenceType(v)), AbsoluteTimeout: &duration}},
		{BackendRefs: backends("web"), SessionPersistence: &gatewayv1.SessionPersistence{SessionName: &v}},
		{BackendRefs: []gatewayv1.HTTPBackendRef{{BackendRef: gatewayv1.BackendRef{BackendObjectReference: backends("web")[0].BackendObjectReference, Weight: to(int32(n))}}}},
	}
	set.HTTPRoutes = append(set.HTTPRoutes, route)
	grpc := &gatewayv1.GRPCRoute{ObjectMeta: objectMeta("bad", "grpc"), Spec: gatewayv1.GRPCRouteSpec{CommonRouteSpec: parent, Hostnames: []gatewayv1.Hostname{"grpc.bad.example"}}}
	for _, kind := range []gatewayv1.GRPCMethodMatchType{gatewayv1.GRPCMethodMatchExact, gatewayv1.GRPCMethodMatchRegularExpression, gatewayv1.GRPCMethodMatchType(v)} {
		for _, m := range []gatewayv1.GRPCMethodMatch{{Type: &kind, Service: &v}, {Type: &kind, Method: &v}, {Type: &kind, Service: &v, Method: &v}} {
			grpc.Spec.Rules = append(grpc.Spec.Rules, gatewayv1.GRPCRouteRule{
				Matches:     []gatewayv1.GRPCRouteMatch{{Method: &m}, {Headers: []gatewayv1.GRPCHeaderMatch{{Type: to(gatewayv1.GRPCHeaderMatchRegularExpression), Name: "x", Value: v}}}},
				BackendRefs: []gatewayv1.GRPCBackendRef{{BackendRef: backends("web")[0].BackendRef}}})
		}
	}
	set.GRPCRoutes = append(set.GRPCRoutes, grpc)
	set.HTTPRouteGroups = append(set.HTTPRouteGroups, &specs.HTTPRouteGroup{ObjectMeta: objectMeta("bad", "group"), Spec: specs.HTTPRouteGroupSpec{Matches: []specs.HTTPMatch{
		{Name: "a", PathRegex: v}, {Name: "b", Headers: []specs.Header{{Name: "x", Value: v}}}, {Name: "c", Methods: []string{v}, Headers: []specs.Header{{Name: v, Value: ".*"}}}, {Name: "d", Methods: []string{v}},
	}}})
	for i, matches := range [][]split.Match{nil, {{Kind: "HTTPRouteGroup", Name: "group"}}, {{Kind: "HTTPRouteGroup", Name: v}}} {
		set.TrafficSplits = append(set.TrafficSplits, &split.TrafficSplit{ObjectMeta: objectMeta("bad", fmt.Sprint("split", i)),
			Spec: split.Spec{Service: "web", Matches: matches, Backends: []split.Backend{{Service: "web", Weight: 1000}, {Service: v, Weight: split.Weight(max(0, n))}}}})
	}
	for _, name := range []string{"health-check", "health-check-path", "health-check-host", "health-check-statuses", "health-check-interval", "max-requests", "retry-budget", "max-ejected"} {
		for _, s := range set.Services {
			if s.Namespace == "bad" {
				if s.Annotations == nil {
					s.Annotations = map[string]string{}
				}
				s.Annotations["weirmesh.github.io/"+name] = v
			}
		}
	}
	for _, s := range set.Services {
		if s.Namespace == "bad" {
			s.Annotations["weirmesh.github.io/health-check"] = "http"
			s.Spec.Ports[0].AppProtocol = &v
		}
	}
	for _, s := range set.EndpointSlices {
		if s.Namespace == "bad" {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{v}})
		}
	}
}

// decided returns what happens to the first user's requests.
func decided(t *testing.T, cfg *model.Config) (all []string, left []model.Omission) {
	t.Helper()
	table, left := routing.Compile(cfg, nil)
	port := table.Port("tcp", "", 80)
	if port == nil {
		t.Fatal("the port is gone")
	}
	l := port.Listener("good.example")
	for _, path := range []string{"/exact", "/exact/x", "/prefix", "/prefix/x", "/r1", "/r", "/"} {
		var d routing.Decision
		if !l.Match(&routing.Request{Host: "good.example", Method: "GET", Path: path}, &d) {
			all = append(all, path+" none")
			continue
		}
		all = append(all, fmt.Sprint(path, " ", d.Rule.Route.Ref, d.Rule.Index, d.Match.Path, d.Rule.Backends[0].Backend.Service, len(d.Rule.Backends[0].Leaves())))
	}
	return all, left
}

var hostile = []string{
	"", "/x%00", "/a/..;b", "/a/..%5cb", "/%252e%252e", `/a\Q.b`, `\Q`, strings.Repeat("(", 999) + "a" + strings.Repeat(")", 999), strings.Repeat("(?:b", 500) + "a" + strings.Repeat(")*", 500),
	strings.Repeat(".{0,1000}", 455) + "!", strings.Repeat(".{0,900}", 5), "(", "a)(b", "[", "/100%", "/%zz", "/a?b", "/a#b", "/a b", "a\r\nb: c", "/a\x00", "\xff", "caf\u00e9", "a..b", "UPPER", "host:99999", "[::1",
	"Exact", "Cookie", "content-length", "1s", "-1s", "9999999h", "web", "group", "http", "h2c", "10.0.0.1", "a/b", "a b", "GET", "\u2028", "200-299",
}

// FuzzOneBadObject checks that whatever one user writes, in whatever place, the front ends make a valid model of it,
// the data plane leaves nothing of it out, and the other user's requests are decided as without it.
func FuzzOneBadObject(f *testing.F) {
	for i, v := range hostile {
		f.Add(v, []int{0, -1, 1, 301, 600, 70000, 1 << 30}[i%7])
	}
	f.Fuzz(func(t *testing.T, v string, n int) {
		for _, o := range []control.Options{{}, {ProxyPerGateway: true, Serve: []string{"none"}}} {
			alone, err := o.Translate(tenants(v, n, false))
			if err != nil {
				t.Fatal(err)
			}
			want, left := decided(t, alone.Config)
			if left != nil {
				t.Fatal(left)
			}
			out, err := o.Translate(tenants(v, n, true))
			if err != nil {
				t.Fatal(err)
			}
			for _, finding := range out.Findings {
				if strings.HasPrefix(finding.Code, "WR8") {
					t.Errorf("a front end lets it pass, and the check of the model does not: %+v", finding)
				}
			}
			got, left := decided(t, out.Config)
			if left != nil {
				t.Errorf("Validate accepts it, and Compile leaves out %v", left)
			}
			if !slices.Equal(got, want) {
				t.Errorf("the other user's requests differ:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
	})
}
