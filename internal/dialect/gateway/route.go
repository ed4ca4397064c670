package gateway

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// route is an HTTPRoute, a GRPCRoute or a TCPRoute.
type route struct {
	key
	// object is the route in the set; one of http, grpc and tcp is the same object.
	object    any
	http      *gatewayv1.HTTPRoute
	grpc      *gatewayv1.GRPCRoute
	tcp       *gatewayv1.TCPRoute
	meta      *metav1.ObjectMeta
	spec      *gatewayv1.CommonRouteSpec
	hostnames []string // lower case; never empty, "" is any
	ref       model.Ref
	carries   model.RouteKind
	mesh      bool // it is what clients in a mesh have of the object, whose parents are Services
	parents   []*parent

	// pathPolicy is the route's own, if the annotation is there.
	pathPolicy model.PathPolicy
	rules      []model.Rule
	// patterns bounds the patterns of all rules.
	patterns model.PatternBudget
	// ruleCount is the number of rules, brokenRules the number of invalid ones; their problems are in broken.
	ruleCount, brokenRules int
	costs                  cost
	broken                 []resource.Finding
	// partial are parts of rules that are left out while the rest of the rule is served.
	partial []resource.Finding
	// unresolved are references that lead nowhere.
	unresolved []resource.Finding
	uses       []use
	// said are the findings about the route by itself.
	findings []resource.Finding

	// outcome is the result of the route among the others, nil until it is known. contested means that others changed
	// its parents, so that the route must be read again the next time.
	outcome   *outcome
	contested bool
}

// faultStatus is the route's answer for what it cannot serve: a GRPCRoute answers UNAVAILABLE, which is the status code
// 503 (GRPCRouteRule.backendRefs), an HTTPRoute 500 (HTTPRouteRule.backendRefs).
func (r *route) faultStatus() int {
	if r.carries == model.RouteGRPC {
		return 503
	}
	return 500
}

func (r *route) fault(p resource.Finding) *model.Fault {
	return &model.Fault{Status: r.faultStatus(), Reason: p.Reason, Message: p.Message}
}

// served reports whether any rule works as written; if none does, the route is not accepted.
func (r *route) served() bool { return r.brokenRules < r.ruleCount || r.ruleCount == 0 }

// readRoutes reads the routes, oldest first. It reuses routes of an earlier translation on the same basis if they are
// the same objects and got what they asked for.
func (t *translator) readRoutes(earlier []*route) {
	known := make(map[read]*route, len(earlier))
	for _, r := range earlier {
		if !r.contested {
			known[read{r.object, r.mesh}] = r
		}
	}
	var fresh []*route
	kept := make(map[*route]bool, len(known))
	one := func(o any, mesh bool) *route {
		r := known[read{o, mesh}]
		if r == nil {
			r = newRoute(o)
			r.mesh = mesh
			t.readRoute(r)
			fresh = append(fresh, r)
		} else {
			kept[r] = true
		}
		t.listed = append(t.listed, r)
		return r
	}
	list := func(o any, spec *gatewayv1.CommonRouteSpec) {
		services, others := t.twice(spec)
		var said []resource.Finding
		if others {
			said = one(o, false).findings
			t.findings = append(t.findings, said...)
		}
		if services {
			for _, f := range one(o, true).findings {
				if !slices.Contains(said, f) {
					t.findings = append(t.findings, f)
				}
			}
		}
	}
	for _, o := range t.set.GRPCRoutes {
		list(o, &o.Spec.CommonRouteSpec)
	}
	for _, o := range t.set.HTTPRoutes {
		list(o, &o.Spec.CommonRouteSpec)
	}
	for _, o := range t.set.TCPRoutes {
		list(o, &o.Spec.CommonRouteSpec)
	}
	slices.SortFunc(fresh, olderRoute)
	t.routes = make([]*route, 0, len(t.listed))
	for _, r := range earlier {
		if !kept[r] {
			continue
		}
		for len(fresh) > 0 && olderRoute(fresh[0], r) < 0 {
			t.routes, fresh = append(t.routes, fresh[0]), fresh[1:]
		}
		t.routes = append(t.routes, r)
	}
	t.routes = append(t.routes, fresh...)
}

// read is a route of an object, as one of the two that it may be.
type read struct {
	object any
	mesh   bool
}

func olderRoute(a, b *route) int {
	if c := older(a.meta, b.meta); c != 0 {
		return c
	}
	return strings.Compare(a.ref.Kind, b.ref.Kind)
}

// readRoute reads a route and where it may attach, without regard to other routes.
func (t *translator) readRoute(r *route) {
	before := t.findings
	t.findings = nil
	r.pathPolicy = t.annotated(r.ref, r.meta)
	switch r.carries {
	case model.RouteTCP:
		t.tcpRules(r)
	case model.RouteHTTP:
		r.ruleCount = len(r.http.Spec.Rules)
		for i := range r.http.Spec.Rules {
			t.httpRule(r, i, &r.http.Spec.Rules[i])
		}
	case model.RouteGRPC:
		r.ruleCount = len(r.grpc.Spec.Rules)
		for i := range r.grpc.Spec.Rules {
			t.grpcRule(r, i, &r.grpc.Spec.Rules[i])
		}
	}
	for _, all := range [][]resource.Finding{r.broken, r.unresolved} {
		for _, p := range all {
			t.report(r.ref, p)
		}
	}
	r.joinSessions()
	for i := range r.rules {
		t.lintMirrors(r, &r.rules[i])
		t.lintSession(r, i)
	}
	if r.mesh {
		t.readServices(r)
	} else {
		t.readParents(r)
		for _, p := range r.parents {
			t.attach(r, p)
		}
	}
	r.findings, t.findings = t.findings, before
}

// newRoute begins the route of an object: a *HTTPRoute, a *GRPCRoute or a *TCPRoute.
func newRoute(object any) *route {
	r := &route{object: object}
	var hostnames []gatewayv1.Hostname
	switch o := object.(type) {
	case *gatewayv1.HTTPRoute:
		r.http, r.meta, r.spec, r.ref.Kind, hostnames = o, &o.ObjectMeta, &o.Spec.CommonRouteSpec, "HTTPRoute", o.Spec.Hostnames
	case *gatewayv1.GRPCRoute:
		r.grpc, r.meta, r.spec, r.ref.Kind, hostnames = o, &o.ObjectMeta, &o.Spec.CommonRouteSpec, "GRPCRoute", o.Spec.Hostnames
	case *gatewayv1.TCPRoute:
		r.tcp, r.meta, r.spec, r.ref.Kind = o, &o.ObjectMeta, &o.Spec.CommonRouteSpec, "TCPRoute"
	}
	r.key = key{r.meta.Namespace, r.meta.Name}
	r.ref.Namespace, r.ref.Name = r.key.namespace, r.key.name
	r.carries = Carries(r.ref.Kind)
	for _, h := range hostnames {
		r.hostnames = append(r.hostnames, strings.ToLower(string(h)))
	}
	if len(r.hostnames) == 0 {
		r.hostnames = []string{""}
	}
	return r
}

// ruleParts are the parts that rules of both kinds of route have.
type ruleParts struct {
	field    string
	name     *gatewayv1.SectionName
	matches  []model.Match
	filters  []gatewayv1.HTTPRouteFilter
	backends []gatewayv1.HTTPBackendRef
	sticky   *gatewayv1.SessionPersistence
	timeouts model.Timeouts
	retry    *model.Retry
	// unmatched are what is wrong with matches, problems with the rest.
	unmatched, problems []resource.Finding
}

// addRule takes a rule over, unless it has problems: then it is left out (condition PartiallyInvalid, "Drop Rule").
// A filter that cannot be applied must not be passed by (HTTPRouteFilter.type), so its rule stays and answers 500.
func (t *translator) addRule(r *route, i int, parts ruleParts) {
	out := model.Rule{
		Ref:      r.ref,
		Name:     string(value(parts.name, "")),
		Matches:  parts.matches,
		Timeouts: parts.timeouts,
		Retry:    parts.retry,
		Session:  parts.session(r, i),
	}
	out.Ref.Field = parts.field
	ruleFilters := t.filters(r, parts.field, parts.filters)
	problems := slices.Concat(parts.unmatched, parts.problems, ruleFilters.problems)
	if len(parts.matches) == 0 {
		out.Matches = []model.Match{{Path: model.PathMatch{Type: model.Prefix, Value: "/"}}}
	}
	problems = append(problems, prefixProblems(parts.field+".filters", ruleFilters.Filters, out.Matches)...)
	out.Filters = ruleFilters.Filters
	for i, ref := range parts.backends {
		b, more := t.backendRef(r, model.FieldAt(parts.field+".backendRefs", i), ref, out.Matches)
		out.Backends = append(out.Backends, b)
		problems = append(problems, more...)
	}
	closed := ruleFilters.closed
	if closed != nil {
		if closed.Reason == "UnsupportedValue" {
			problems = append(problems, *closed)
		} else {
			r.unresolved = append(r.unresolved, *closed)
		}
		out.Fault = r.fault(*closed)
		out.Filters, out.Backends = model.Filters{}, nil
	}
	if len(problems) > 0 {
		r.brokenRules++
		r.broken = append(r.broken, problems...)
		if closed == nil || len(parts.unmatched) > 0 {
			return
		}
	}
	t.emptyRule(r, &out, closed != nil)
	r.rules = append(r.rules, out)
}

// emptyRule gives a rule that has no backend to choose the answer that the API asks for.
func (t *translator) emptyRule(r *route, rule *model.Rule, closed bool) {
	if closed || rule.Filters.Redirect != nil {
		return
	}
	var p resource.Finding
	if len(rule.Backends) == 0 {
		p = resource.Problem(codeNoBackends, "NoBackends", rule.Ref.Field+".backendRefs", "the rule has no backends", "add one, or a RequestRedirect filter")
	} else if !slices.ContainsFunc(rule.Backends, func(b model.Backend) bool { return b.Weight > 0 }) {
		p = resource.Problem(codeZeroWeights, "NoBackends", rule.Ref.Field+".backendRefs", "the weights of all backends are 0", "give one of them a weight")
	} else {
		return
	}
	if rule.Session == nil || len(rule.Backends) == 0 {
		rule.Fault = r.fault(p) // otherwise sessions continue although the weights are 0 (GEP-1619)
	}
	t.report(r.ref, p)
}

// backendRef translates one weighted reference. An invalid one keeps its weight and answers 500 for its share.
func (t *translator) backendRef(r *route, field string, ref gatewayv1.HTTPBackendRef, matches []model.Match) (model.Backend, []resource.Finding) {
	b := model.Backend{Ref: r.ref, Weight: uint32(max(0, value(ref.Weight, 1)))}
	b.Ref.Field = field
	name, p := t.backend(r, ref.BackendObjectReference, field)
	if p != nil {
		r.unresolved = append(r.unresolved, *p)
		b.Fault = r.fault(*p)
	}
	b.Service = name
	f := t.filters(r, field, ref.Filters)
	problems := append(f.problems, prefixProblems(field+".filters", f.Filters, matches)...)
	b.Filters = f.Filters
	if f.closed != nil {
		if f.closed.Reason == "UnsupportedValue" {
			r.partial = append(r.partial, *f.closed)
			t.report(r.ref, *f.closed)
		} else {
			r.unresolved = append(r.unresolved, *f.closed)
		}
		b.Service, b.Fault, b.Filters = "", r.fault(*f.closed), model.Filters{}
	}
	return b, problems
}
