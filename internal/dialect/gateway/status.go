package gateway

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weirmesh/weir/internal/resource"
)

// gatewayStatuses reports the Gateways and their listeners (GatewayConditionType, ListenerConditionType).
func (t *translator) gatewayStatuses() {
	for _, g := range t.order {
		status := resource.Status{Ref: g.ref, Generation: g.obj.Generation}
		if g.pending {
			message := fmt.Sprintf("spec.gatewayClassName: GatewayClass %s is not accepted; see its status", g.obj.Spec.GatewayClassName)
			for _, kind := range []string{"Accepted", "Programmed"} {
				status.Conditions = append(status.Conditions,
					resource.Condition{Type: kind, Status: metav1.ConditionUnknown, Reason: "Pending", Message: message})
			}
			t.statuses = append(t.statuses, status)
			continue
		}
		for _, l := range g.own {
			status.Listeners = append(status.Listeners, t.listenerStatus(l))
		}
		if len(g.sets) > 0 {
			status.AttachedListenerSets = g.attachedSets()
		}
		status.Conditions = g.conditions()
		if g.served() {
			status.Addresses = slices.Clone(g.assigned)
		}
		t.statuses = append(t.statuses, status)
	}
}

// conditions judges by the Gateway's own listeners; those of its ListenerSets also count as something to serve.
func (g *gateway) conditions() []resource.Condition {
	var good, bad, programmed, unresolved []string
	for _, l := range g.listeners {
		name := string(l.spec.Name)
		if l.set != nil {
			if l.programmed() {
				good, programmed = append(good, l.String()), append(programmed, name)
			}
			continue
		}
		if l.notAccepted == nil && l.conflict == nil {
			good = append(good, name)
		} else {
			bad = append(bad, name)
		}
		if l.programmed() {
			programmed = append(programmed, name)
		}
		if len(l.unresolved) > 0 {
			unresolved = append(unresolved, name)
		}
	}
	accepted := isTrue("Accepted", "Accepted", "")
	switch {
	case g.rejected != nil:
		accepted = isFalse("Accepted", g.rejected.reason, g.rejected.String())
	case len(good) == 0:
		accepted = isFalse("Accepted", "ListenersNotValid", "spec.listeners: none is accepted; see their conditions")
	case len(bad) > 0:
		accepted = isTrue("Accepted", "ListenersNotValid", fmt.Sprintf("spec.listeners: %s not accepted, %s accepted; see their conditions",
			strings.Join(bad, ", "), strings.Join(good, ", ")))
	}
	is := isTrue("Programmed", "Programmed", "")
	switch {
	case g.rejected != nil:
		is = isFalse("Programmed", "Invalid", "the Gateway is not accepted")
	case len(g.unusable) > 0:
		is = isFalse("Programmed", "AddressNotUsable", texts(g.unusable))
	case len(programmed) == 0:
		is = isFalse("Programmed", "Invalid", "spec.listeners: none can be served; see their conditions")
	}
	resolved := isTrue("ResolvedRefs", "ResolvedRefs", "")
	switch {
	case g.clientProblem != nil:
		resolved = isFalse("ResolvedRefs", g.clientProblem.reason, g.clientProblem.String())
	case len(unresolved) > 0:
		resolved = isFalse("ResolvedRefs", "ListenersNotResolved",
			fmt.Sprintf("spec.listeners: %s; see their conditions", strings.Join(unresolved, ", ")))
	}
	out := []resource.Condition{accepted, is, resolved}
	if len(g.insecure) > 0 {
		out = append(out, isTrue("InsecureFrontendValidationMode", "ConfigurationChanged",
			strings.Join(g.insecure, ", ")+": clients without a valid certificate are let in"))
	}
	return out
}

func (t *translator) listenerStatus(l *listener) resource.ListenerStatus {
	accepted := isTrue("Accepted", "Accepted", "")
	conflicted := isFalse("Conflicted", "NoConflicts", "")
	programmed := isTrue("Programmed", "Programmed", "")
	resolved := isTrue("ResolvedRefs", "ResolvedRefs", "")
	switch {
	case l.conflict != nil:
		accepted = isFalse("Accepted", l.conflict.reason, l.conflict.String())
		conflicted = isTrue("Conflicted", l.conflict.reason, l.conflict.String())
		programmed = isFalse("Programmed", l.conflict.reason, l.conflict.String())
	case l.notAccepted != nil:
		accepted = isFalse("Accepted", l.notAccepted.reason, l.notAccepted.String())
		programmed = isFalse("Programmed", "Invalid", "the listener is not accepted")
	case !l.gateway.served():
		programmed = isFalse("Programmed", "Invalid", "the Gateway is not served")
	case l.unusable:
		programmed = isFalse("Programmed", "Invalid", "the listener has no usable certificate")
	}
	if len(l.unresolved) > 0 {
		resolved = isFalse("ResolvedRefs", l.unresolved[0].reason, texts(l.unresolved))
	}
	conditions := []resource.Condition{accepted, conflicted, programmed, resolved}
	if len(l.overlaps) > 0 {
		conditions = append(conditions, isTrue("OverlappingTLSConfig", "OverlappingHostnames",
			l.field+".hostname: overlaps with listener "+strings.Join(l.overlaps, ", ")))
	}
	return resource.ListenerStatus{
		Name: string(l.spec.Name), SupportedKinds: l.kinds, AttachedRoutes: t.on(l).routes, Conditions: conditions,
	}
}

// routeStatuses reports the routes of a kind.
func (t *translator) routeStatuses(kind string) {
	for _, r := range t.listed {
		if r.ref.Kind == kind {
			t.statuses = append(t.statuses, r.outcome.status)
		}
	}
}

// status reports a route to each of its parents that is ours (RouteConditionType).
func (r *route) status() resource.Status {
	status := resource.Status{Ref: r.ref, Generation: r.meta.Generation}
	resolved := isTrue("ResolvedRefs", "ResolvedRefs", "")
	if len(r.unresolved) > 0 {
		resolved = isFalse("ResolvedRefs", r.unresolved[0].reason, texts(r.unresolved))
	}
	for _, p := range r.parents {
		conditions := []resource.Condition{isTrue("Accepted", "Accepted", texts(p.idleProblems())), resolved}
		if p.rejected != nil {
			conditions[0] = isFalse("Accepted", p.rejected.reason, p.rejected.String())
		} else if invalid := slices.Concat(r.broken, r.partial); len(invalid) > 0 {
			conditions = append(conditions, isTrue("PartiallyInvalid", invalid[0].reason, "Dropped Rule or part of it: "+texts(invalid)))
		}
		status.Parents = append(status.Parents, resource.ParentStatus{
			ParentRef: p.ref, ControllerName: ControllerName, Conditions: conditions,
		})
	}
	return status
}
