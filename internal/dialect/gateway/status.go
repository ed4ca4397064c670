package gateway

import (
	"fmt"
	"slices"
	"strings"

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
					resource.Unknown(kind, "Pending", message))
			}
			t.statuses = append(t.statuses, status)
			continue
		}
		for _, l := range g.ownListeners {
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
	accepted := resource.True("Accepted", "Accepted", "")
	switch {
	case g.rejected != nil:
		accepted = resource.False("Accepted", g.rejected.Reason, g.rejected.Text())
	case len(good) == 0:
		accepted = resource.False("Accepted", "ListenersNotValid", "spec.listeners: none is accepted; see their conditions")
	case len(bad) > 0:
		accepted = resource.True("Accepted", "ListenersNotValid", fmt.Sprintf("spec.listeners: %s not accepted, %s accepted; see their conditions",
			strings.Join(bad, ", "), strings.Join(good, ", ")))
	}
	is := resource.True("Programmed", "Programmed", "")
	switch {
	case g.rejected != nil:
		is = resource.False("Programmed", "Invalid", "the Gateway is not accepted")
	case len(g.unusable) > 0:
		is = resource.False("Programmed", "AddressNotUsable", resource.Texts(g.unusable))
	case len(programmed) == 0:
		is = resource.False("Programmed", "Invalid", "spec.listeners: none can be served; see their conditions")
	}
	resolved := resource.True("ResolvedRefs", "ResolvedRefs", "")
	switch {
	case g.clientProblem != nil:
		resolved = resource.False("ResolvedRefs", g.clientProblem.Reason, g.clientProblem.Text())
	case len(unresolved) > 0:
		resolved = resource.False("ResolvedRefs", "ListenersNotResolved",
			fmt.Sprintf("spec.listeners: %s; see their conditions", strings.Join(unresolved, ", ")))
	}
	out := []resource.Condition{accepted, is, resolved}
	if len(g.insecure) > 0 {
		out = append(out, resource.True("InsecureFrontendValidationMode", "ConfigurationChanged",
			strings.Join(g.insecure, ", ")+": clients without a valid certificate are let in"))
	}
	return out
}

func (t *translator) listenerStatus(l *listener) resource.ListenerStatus {
	accepted := resource.True("Accepted", "Accepted", "")
	conflicted := resource.False("Conflicted", "NoConflicts", "")
	programmed := resource.True("Programmed", "Programmed", "")
	resolved := resource.True("ResolvedRefs", "ResolvedRefs", "")
	switch {
	case l.conflict != nil:
		accepted = resource.False("Accepted", l.conflict.Reason, l.conflict.Text())
		conflicted = resource.True("Conflicted", l.conflict.Reason, l.conflict.Text())
		programmed = resource.False("Programmed", l.conflict.Reason, l.conflict.Text())
	case l.notAccepted != nil:
		accepted = resource.False("Accepted", l.notAccepted.Reason, l.notAccepted.Text())
		programmed = resource.False("Programmed", "Invalid", "the listener is not accepted")
	case !l.gateway.served():
		programmed = resource.False("Programmed", "Invalid", "the Gateway is not served")
	case l.unusable:
		programmed = resource.False("Programmed", "Invalid", "the listener has no usable certificate")
	}
	if len(l.unresolved) > 0 {
		resolved = resource.False("ResolvedRefs", l.unresolved[0].Reason, resource.Texts(l.unresolved))
	}
	conditions := []resource.Condition{accepted, conflicted, programmed, resolved}
	if len(l.overlaps) > 0 {
		conditions = append(conditions, resource.True("OverlappingTLSConfig", "OverlappingHostnames",
			l.field+".hostname: overlaps with listener "+strings.Join(l.overlaps, ", ")))
	}
	return resource.ListenerStatus{
		Name: string(l.spec.Name), SupportedKinds: l.kinds, AttachedRoutes: t.on(l).routes, Conditions: conditions,
	}
}

// routeStatuses reports the routes of a kind.
func (t *translator) routeStatuses(kind string) {
	for _, r := range t.listed {
		if r.ref.Kind != kind {
			continue
		}
		status := r.outcome.status
		if last := len(t.statuses) - 1; r.mesh && last >= 0 && t.statuses[last].Ref == r.ref {
			t.statuses[last].Parents = slices.Concat(t.statuses[last].Parents, status.Parents)
			continue
		}
		t.statuses = append(t.statuses, status)
	}
}

// status reports a route to each of its parents that is ours (RouteConditionType).
func (r *route) status() resource.Status {
	status := resource.Status{Ref: r.ref, Generation: r.meta.Generation}
	resolved := resource.True("ResolvedRefs", "ResolvedRefs", "")
	if len(r.unresolved) > 0 {
		resolved = resource.False("ResolvedRefs", r.unresolved[0].Reason, resource.Texts(r.unresolved))
	}
	for _, p := range r.parents {
		conditions := []resource.Condition{resource.True("Accepted", "Accepted", resource.Texts(p.idleProblems())), resolved}
		if p.rejected != nil {
			conditions[0] = resource.False("Accepted", p.rejected.Reason, p.rejected.Text())
		} else if invalid := slices.Concat(r.broken, r.partial); len(invalid) > 0 {
			conditions = append(conditions, resource.True("PartiallyInvalid", invalid[0].Reason, "Dropped Rule or part of it: "+resource.Texts(invalid)))
		}
		status.Parents = append(status.Parents, resource.ParentStatus{
			ParentRef: p.ref, ControllerName: ControllerName, Conditions: conditions,
		})
	}
	return status
}
