package gateway

import (
	"fmt"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// tcpRules takes over the rule of a TCPRoute. v1alpha2 permits several, but connections cannot be assigned to them.
func (t *translator) tcpRules(r *route) {
	r.ruleCount = len(r.tcp.Spec.Rules)
	for i := range r.tcp.Spec.Rules {
		field := model.FieldAt("spec.rules", i)
		if i > 0 {
			r.brokenRules++
			r.broken = append(r.broken, resource.Problem(codeValue, "UnsupportedValue", field,
				"a TCPRoute has only one rule, as connections cannot be told apart", "put its backendRefs into the first rule"))
			continue
		}
		t.tcpRule(r, field, &r.tcp.Spec.Rules[i])
	}
}

// tcpRule takes a rule over. The share of a backend that is invalid, or has no endpoint, is rejected
// (TCPRouteRule.backendRefs).
func (t *translator) tcpRule(r *route, field string, rule *gatewayv1.TCPRouteRule) {
	out := model.Rule{Ref: r.ref, Name: string(value(rule.Name, ""))}
	out.Ref.Field = field
	for i, ref := range rule.BackendRefs {
		b, _ := t.backendRef(r, model.FieldAt(field+".backendRefs", i), gatewayv1.HTTPBackendRef{BackendRef: ref}, nil)
		out.Backends = append(out.Backends, b)
	}
	t.emptyRule(r, &out, false)
	r.rules = append(r.rules, out)
}

// takenListeners are the listeners of a parent that an older TCPRoute has (Listener.allowedRoutes).
func (t *translator) takenListeners(r *route, p *parent) (taken []loss) {
	for _, l := range p.listeners() {
		claims := t.on(l).claims[r.ref.Kind]
		if _, ok := p.attached[l]; !ok || len(claims) == 0 {
			continue
		}
		taken = append(taken, loss{l, resource.Problem(codeListenerTaken, "ListenerTaken", p.field,
			fmt.Sprintf("on listener %s, TCPRoute %s is older and has all connections", l, claims[0].route),
			"merge the two routes, or give each a listener of its own")})
	}
	return taken
}

// idleProblems are why the route gets nothing of some listeners, in their order.
func (p *parent) idleProblems() (all []resource.Finding) {
	if p.ports != nil {
		return p.ports.idleProblems()
	}
	for _, l := range p.listeners() {
		if why, idle := p.idle[l]; idle {
			all = append(all, why)
		}
	}
	return all
}
