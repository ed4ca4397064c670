package gateway_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/dialect/gateway"
	"github.com/weirmesh/weir/internal/resource"
)

func to[T any](v T) *T { return &v }

// tiny is a set with one Gateway, one HTTPRoute with two rules, the second of which is valid, and its Service.
func tiny() *resource.Set {
	backend := func() []gatewayv1.HTTPBackendRef {
		return []gatewayv1.HTTPBackendRef{{BackendRef: gatewayv1.BackendRef{BackendObjectReference: gatewayv1.BackendObjectReference{Name: "a", Port: to[int32](80)}}}}
	}
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "default", Name: name} }
	route := &gatewayv1.HTTPRoute{ObjectMeta: meta("route")}
	route.Spec.ParentRefs = []gatewayv1.ParentReference{{Name: "gw"}}
	route.Spec.Rules = []gatewayv1.HTTPRouteRule{
		{Matches: []gatewayv1.HTTPRouteMatch{{Path: &gatewayv1.HTTPPathMatch{Value: to("/first")}}}, BackendRefs: backend()},
		{BackendRefs: backend()},
	}
	gw := &gatewayv1.Gateway{ObjectMeta: meta("gw")}
	gw.Spec.Listeners = []gatewayv1.Listener{{Name: "http", Port: 80, Protocol: gatewayv1.HTTPProtocolType}}
	service := &corev1.Service{ObjectMeta: meta("a")}
	service.Spec.Ports = []corev1.ServicePort{{Port: 80}}
	return &resource.Set{
		Gateways: []*gatewayv1.Gateway{gw}, HTTPRoutes: []*gatewayv1.HTTPRoute{route}, Services: []*corev1.Service{service},
	}
}

// The API server's schemas refuse these values. If one gets in nevertheless, for example from a cluster with newer
// definitions, its rule is left out, or answers 500 if leaving it out would bypass a filter, and the route's status
// reports it.
func TestValuesOutsideTheSchemaCostTheirRuleAlone(t *testing.T) {
	filter := func(f gatewayv1.HTTPRouteFilter) func(*gatewayv1.HTTPRouteRule) {
		return func(r *gatewayv1.HTTPRouteRule) { r.Filters = append(r.Filters, f) }
	}
	redirect := func(f gatewayv1.HTTPRequestRedirectFilter) func(*gatewayv1.HTTPRouteRule) {
		return filter(gatewayv1.HTTPRouteFilter{Type: gatewayv1.HTTPRouteFilterRequestRedirect, RequestRedirect: &f})
	}
	rewrite := func(kind gatewayv1.HTTPPathModifierType) gatewayv1.HTTPRouteFilter {
		return gatewayv1.HTTPRouteFilter{Type: gatewayv1.HTTPRouteFilterURLRewrite,
			URLRewrite: &gatewayv1.HTTPURLRewriteFilter{Path: &gatewayv1.HTTPPathModifier{Type: kind, ReplacePrefixMatch: to("/x")}}}
	}
	match := func(m gatewayv1.HTTPRouteMatch) func(*gatewayv1.HTTPRouteRule) {
		return func(r *gatewayv1.HTTPRouteRule) { r.Matches = []gatewayv1.HTTPRouteMatch{m} }
	}
	session := func(s gatewayv1.SessionPersistence) func(*gatewayv1.HTTPRouteRule) {
		return func(r *gatewayv1.HTTPRouteRule) { r.SessionPersistence = &s }
	}
	for name, x := range map[string]struct {
		change        func(*gatewayv1.HTTPRouteRule)
		reason, field string
		closed        bool
	}{
		"path type":     {match(gatewayv1.HTTPRouteMatch{Path: &gatewayv1.HTTPPathMatch{Type: to(gatewayv1.PathMatchType("Glob")), Value: to("/")}}), "UnsupportedValue", "matches[0].path.type", false},
		"relative path": {match(gatewayv1.HTTPRouteMatch{Path: &gatewayv1.HTTPPathMatch{Value: to("x")}}), "UnsupportedValue", "matches[0].path.value", false},
		"method":        {match(gatewayv1.HTTPRouteMatch{Method: to(gatewayv1.HTTPMethod("get"))}), "UnsupportedValue", "matches[0].method", false},
		"header type":   {match(gatewayv1.HTTPRouteMatch{Headers: []gatewayv1.HTTPHeaderMatch{{Type: to(gatewayv1.HeaderMatchType("Glob")), Name: "x"}}}), "UnsupportedValue", "matches[0].headers[0].type", false},
		"query type":    {match(gatewayv1.HTTPRouteMatch{QueryParams: []gatewayv1.HTTPQueryParamMatch{{Type: to(gatewayv1.QueryParamMatchType("Glob")), Name: "x"}}}), "UnsupportedValue", "matches[0].queryParams[0].type", false},
		"timeout": {func(r *gatewayv1.HTTPRouteRule) {
			r.Timeouts = &gatewayv1.HTTPRouteTimeouts{Request: to(gatewayv1.Duration("soon"))}
		}, "UnsupportedValue", "timeouts.request", false},
		"backoff": {func(r *gatewayv1.HTTPRouteRule) {
			r.Retry = &gatewayv1.HTTPRouteRetry{Backoff: to(gatewayv1.Duration("-1s"))}
		}, "UnsupportedValue", "retry.backoff", false},
		"session type": {session(gatewayv1.SessionPersistence{Type: to(gatewayv1.SessionPersistenceType("Query"))}), "UnsupportedValue", "sessionPersistence.type", false},
		"session cookie in a header": {session(gatewayv1.SessionPersistence{Type: to(gatewayv1.HeaderBasedSessionPersistence),
			CookieConfig: &gatewayv1.CookieConfig{}}), "UnsupportedValue", "sessionPersistence.cookieConfig", false},
		"session lifetime": {session(gatewayv1.SessionPersistence{
			CookieConfig: &gatewayv1.CookieConfig{LifetimeType: to(gatewayv1.CookieLifetimeType("Short"))}}), "UnsupportedValue", "sessionPersistence.cookieConfig.lifetimeType", false},
		"session for ever": {session(gatewayv1.SessionPersistence{
			CookieConfig: &gatewayv1.CookieConfig{LifetimeType: to(gatewayv1.PermanentCookieLifetimeType)}}), "UnsupportedValue", "sessionPersistence.absoluteTimeout", false},
		"session timeout": {session(gatewayv1.SessionPersistence{AbsoluteTimeout: to(gatewayv1.Duration("long"))}), "UnsupportedValue", "sessionPersistence.absoluteTimeout", false},
		"scheme":          {redirect(gatewayv1.HTTPRequestRedirectFilter{Scheme: to("ftp")}), "UnsupportedValue", "filters[0].requestRedirect.scheme", false},
		"status code":     {redirect(gatewayv1.HTTPRequestRedirectFilter{StatusCode: to(200)}), "UnsupportedValue", "filters[0].requestRedirect.statusCode", false},
		"redirect path":   {redirect(gatewayv1.HTTPRequestRedirectFilter{Path: &gatewayv1.HTTPPathModifier{Type: "Other"}}), "UnsupportedValue", "filters[0].requestRedirect.path.type", false},
		"rewrite path":    {filter(rewrite("Other")), "UnsupportedValue", "filters[0].urlRewrite.path.type", false},
		"prefix without prefix": {func(r *gatewayv1.HTTPRouteRule) {
			r.Matches[0].Path.Type = to(gatewayv1.PathMatchExact)
			r.Filters = []gatewayv1.HTTPRouteFilter{rewrite(gatewayv1.PrefixMatchHTTPPathModifier)}
		}, "IncompatibleFilters", "filters", false},
		"prefix without prefix on a backend": {func(r *gatewayv1.HTTPRouteRule) {
			r.Matches[0].Path.Type = to(gatewayv1.PathMatchExact)
			r.BackendRefs[0].Filters = []gatewayv1.HTTPRouteFilter{rewrite(gatewayv1.PrefixMatchHTTPPathModifier)}
		}, "IncompatibleFilters", "backendRefs[0].filters", false},
		"redirect and rewrite": {func(r *gatewayv1.HTTPRouteRule) {
			redirect(gatewayv1.HTTPRequestRedirectFilter{})(r)
			filter(rewrite(gatewayv1.PrefixMatchHTTPPathModifier))(r)
		}, "IncompatibleFilters", "filters", false},
		"a filter twice": {func(r *gatewayv1.HTTPRouteRule) {
			redirect(gatewayv1.HTTPRequestRedirectFilter{})(r)
			redirect(gatewayv1.HTTPRequestRedirectFilter{})(r)
		}, "IncompatibleFilters", "filters[1].type", false},
		"filter type":             {filter(gatewayv1.HTTPRouteFilter{Type: "Teleport"}), "UnsupportedValue", "filters[0].type", true},
		"filter without settings": {filter(gatewayv1.HTTPRouteFilter{Type: gatewayv1.HTTPRouteFilterCORS}), "UnsupportedValue", "filters[0].type", true},
	} {
		t.Run(name, func(t *testing.T) {
			set := tiny()
			x.change(&set.HTTPRoutes[0].Spec.Rules[0])
			out := translate(set)
			if err := out.cfg.Validate(); err != nil {
				t.Error(err)
			}
			rules := out.cfg.Routes[0].Rules
			if sound := rules[len(rules)-1]; sound.Ref.Field != "spec.rules[1]" || sound.Fault != nil {
				t.Errorf("the sound rule is %+v", sound)
			}
			if x.closed {
				if len(rules) != 2 || rules[0].Fault == nil || rules[0].Fault.Status != 500 || rules[0].Filters.CORS != nil {
					t.Errorf("the rule does not answer 500: %+v", rules)
				}
			} else if len(rules) != 1 {
				t.Errorf("the rule is served: %+v", rules[0])
			}
			field := "spec.rules[0]." + x.field
			conditions := out.statuses[1].Parents[0].Conditions
			i := slices.IndexFunc(conditions, func(c resource.Condition) bool { return c.Type == "PartiallyInvalid" })
			if i < 0 || conditions[i].Reason != x.reason || !strings.HasPrefix(conditions[i].Message, "Dropped Rule") ||
				!strings.Contains(conditions[i].Message, field+": ") {
				t.Errorf("conditions %+v, want PartiallyInvalid %s for %s", conditions, x.reason, field)
			}
			if !slices.ContainsFunc(out.findings, func(f resource.Finding) bool {
				return f.Ref.Field == field && f.Severity == resource.Error && f.Message != "" && f.Fix != ""
			}) {
				t.Errorf("no finding for %s in %v", field, out.findings)
			}
		})
	}
}

func TestBackendWithoutPortKeepsItsWeight(t *testing.T) {
	set := tiny()
	set.HTTPRoutes[0].Spec.Rules[0].BackendRefs[0].Port = nil
	set.HTTPRoutes[0].Spec.Rules[0].BackendRefs[0].Weight = to[int32](7)
	b := translate(set).cfg.Routes[0].Rules[0].Backends[0]
	if b.Weight != 7 || b.Fault == nil || b.Fault.Reason != "BackendNotFound" || b.Service != "" {
		t.Errorf("got %+v", b)
	}
}

func TestExternalAuthOnABackendAnswersForItsShare(t *testing.T) {
	set := tiny()
	set.HTTPRoutes[0].Spec.Rules[0].BackendRefs[0].Filters = []gatewayv1.HTTPRouteFilter{{Type: gatewayv1.HTTPRouteFilterExternalAuth}}
	out := translate(set)
	rules := out.cfg.Routes[0].Rules
	if b := rules[0].Backends[0]; len(rules) != 2 || b.Fault == nil || b.Fault.Status != 500 || b.Service != "" {
		t.Errorf("got %+v", rules)
	}
	if c := out.statuses[1].Parents[0].Conditions; len(c) != 3 || c[2].Type != "PartiallyInvalid" {
		t.Errorf("conditions %+v", c)
	}
}

// A filter that nobody may bypass outweighs other mistakes in its rule, unless it is unknown what the rule matches.
func TestARuleWithUnsupportedFilterStaysClosed(t *testing.T) {
	set := tiny()
	rule := &set.HTTPRoutes[0].Spec.Rules[0]
	rule.Filters = []gatewayv1.HTTPRouteFilter{{Type: gatewayv1.HTTPRouteFilterExternalAuth}}
	rule.Timeouts = &gatewayv1.HTTPRouteTimeouts{Request: to(gatewayv1.Duration("soon"))}
	if rules := translate(set).cfg.Routes[0].Rules; len(rules) != 2 || rules[0].Fault == nil {
		t.Errorf("the rule is open: %+v", rules)
	}
	rule.Matches[0].Path = &gatewayv1.HTTPPathMatch{Type: to(gatewayv1.PathMatchRegularExpression), Value: to("(")}
	if rules := translate(set).cfg.Routes[0].Rules; len(rules) != 1 {
		t.Errorf("the rule is served: %+v", rules)
	}
}

func TestUnknownNamespacesLetNobodyAttach(t *testing.T) {
	for name, n := range map[string]*gatewayv1.RouteNamespaces{
		"value":            {From: to(gatewayv1.FromNamespaces("Friends"))},
		"no selector":      {From: to(gatewayv1.NamespacesFromSelector)},
		"invalid selector": {From: to(gatewayv1.NamespacesFromSelector), Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			set := tiny()
			set.Gateways[0].Spec.Listeners[0].AllowedRoutes = &gatewayv1.AllowedRoutes{Namespaces: n}
			out := translate(set)
			if len(out.cfg.Listeners)+len(out.cfg.Routes) > 0 {
				t.Errorf("served: %+v", out.cfg)
			}
			if c := out.statuses[0].Listeners[0].Conditions[0]; c.Status != metav1.ConditionFalse || c.Reason != "UnsupportedValue" {
				t.Errorf("condition %+v", c)
			}
			if c := out.statuses[1].Parents[0].Conditions[0]; c.Reason != "NotAllowedByListeners" {
				t.Errorf("condition %+v", c)
			}
		})
	}
}

func TestHTTPSWithoutCertificateIsNotServed(t *testing.T) {
	set := tiny()
	set.Gateways[0].Spec.Listeners[0].Protocol = gatewayv1.HTTPSProtocolType
	out := translate(set)
	if len(out.cfg.Listeners) > 0 {
		t.Errorf("served: %+v", out.cfg.Listeners)
	}
	l := out.statuses[0].Listeners[0]
	if l.AttachedRoutes != 1 || l.Conditions[2].Reason != "Invalid" || l.Conditions[3].Reason != "InvalidCertificateRef" {
		t.Errorf("status %+v", l)
	}
}

func TestAddressesThatCannotBeBound(t *testing.T) {
	set := tiny()
	set.Gateways[0].Spec.Addresses = []gatewayv1.GatewaySpecAddress{{Value: "lb.example"}, {Value: "::ffff:127.0.0.1"}}
	out := translate(set)
	if l := out.cfg.Listeners; len(l) != 1 || l[0].Address != "127.0.0.1" {
		t.Errorf("listeners %+v", l)
	}
	if c := out.statuses[0].Conditions[1]; c.Status != metav1.ConditionFalse || c.Reason != "AddressNotUsable" {
		t.Errorf("condition %+v", c)
	}
	// One address for all makes the others superfluous, and the kernel would refuse them.
	set.Gateways[0].Spec.Addresses = []gatewayv1.GatewaySpecAddress{{Value: "0.0.0.0"}, {Value: "127.0.0.1"}}
	if l := translate(set).cfg.Listeners; len(l) != 1 || l[0].Address != "" {
		t.Errorf("listeners %+v", l)
	}
}

func TestPoliciesOutsideTheSchemaFailClosed(t *testing.T) {
	system := gatewayv1.WellKnownCACertificatesSystem
	ca := []gatewayv1.LocalObjectReference{{Kind: "ConfigMap", Name: "ca"}}
	for name, v := range map[string]gatewayv1.BackendTLSPolicyValidation{
		"no CA":         {Hostname: "a"},
		"no hostname":   {WellKnownCACertificates: &system},
		"two kinds":     {Hostname: "a", WellKnownCACertificates: &system, CACertificateRefs: ca},
		"unknown name":  {Hostname: "a", WellKnownCACertificates: &system, SubjectAltNames: []gatewayv1.SubjectAltName{{Type: "Email"}}},
		"name is empty": {Hostname: "a", WellKnownCACertificates: &system, SubjectAltNames: []gatewayv1.SubjectAltName{{Type: gatewayv1.URISubjectAltNameType}}},
	} {
		t.Run(name, func(t *testing.T) {
			set := tiny()
			p := &gatewayv1.BackendTLSPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}}
			p.Spec.TargetRefs = []gatewayv1.LocalPolicyTargetReferenceWithSectionName{{LocalPolicyTargetReference: gatewayv1.LocalPolicyTargetReference{Kind: "Service", Name: "a"}}}
			p.Spec.Validation = v
			set.BackendTLSPolicies = []*gatewayv1.BackendTLSPolicy{p}
			out := translate(set)
			for _, r := range out.cfg.Routes[0].Rules {
				if b := r.Backends[0]; b.Fault == nil || b.Fault.Status != 500 {
					t.Errorf("served: %+v", b)
				}
			}
			if c := out.statuses[0].Ancestors[0].Conditions[0]; c.Status != metav1.ConditionFalse || c.Reason != "Invalid" {
				t.Errorf("condition %+v", c)
			}
			// Whoever else leads requests to the Service gets no further.
			cfg, _, _ := new(gateway.Translator).Translate(set)
			if len(cfg.Services) != 1 || cfg.Services[0].Fault == nil || cfg.Services[0].Extends != "default/a:80" {
				t.Errorf("services %+v", cfg.Services)
			}
		})
	}
}

func TestGRPCValuesOutsideTheSchema(t *testing.T) {
	for name, m := range map[string]gatewayv1.GRPCMethodMatch{
		"type":  {Type: to(gatewayv1.GRPCMethodMatchType("Glob")), Service: to("a")},
		"slash": {Service: to("a/b")},
		"regex": {Type: to(gatewayv1.GRPCMethodMatchRegularExpression), Method: to("a)|(b")},
	} {
		t.Run(name, func(t *testing.T) {
			set := tiny()
			r := &gatewayv1.GRPCRoute{ObjectMeta: set.HTTPRoutes[0].ObjectMeta}
			r.Spec.ParentRefs = set.HTTPRoutes[0].Spec.ParentRefs
			ref := gatewayv1.GRPCBackendRef{BackendRef: set.HTTPRoutes[0].Spec.Rules[0].BackendRefs[0].BackendRef}
			r.Spec.Rules = []gatewayv1.GRPCRouteRule{{Matches: []gatewayv1.GRPCRouteMatch{{Method: &m}}, BackendRefs: []gatewayv1.GRPCBackendRef{ref}}}
			set.GRPCRoutes, set.HTTPRoutes = []*gatewayv1.GRPCRoute{r}, nil
			out := translate(set)
			if len(out.cfg.Routes) > 0 {
				t.Errorf("served: %+v", out.cfg.Routes)
			}
			if c := out.statuses[0].Parents[0].Conditions[0]; c.Status != metav1.ConditionFalse || c.Reason != "UnsupportedValue" {
				t.Errorf("condition %+v", c)
			}
		})
	}
}

func TestCodesAreUniqueAndExplained(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range gateway.Codes() {
		if seen[c.ID] || !strings.HasPrefix(c.ID, "WR5") || c.Title == "" || c.Meaning == "" || c.Fix == "" {
			t.Errorf("%+v", c)
		}
		seen[c.ID] = true
	}
}
