package cli

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	dialect "github.com/weirmesh/weir/internal/dialect/gateway"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// liveStatuses returns what is written on the objects of a cluster that the statuses given are about. An object on which nothing of ours is written has
// an empty status.
func liveStatuses(set *resource.Set, of []resource.Status) []resource.Status {
	written := map[model.Ref]resource.Status{}
	add := func(kind string, o metav1.Object, s resource.Status) {
		s.Ref = model.Ref{Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName()}
		written[s.Ref] = s
	}
	for _, o := range set.GatewayClasses {
		add("GatewayClass", o, resource.Status{Conditions: values(o.Status.Conditions)})
	}
	for _, o := range set.Gateways {
		s := resource.Status{Conditions: values(o.Status.Conditions), Addresses: o.Status.Addresses}
		for _, l := range o.Status.Listeners {
			s.Listeners = append(s.Listeners, resource.ListenerStatus{
				Name: string(l.Name), SupportedKinds: l.SupportedKinds, AttachedRoutes: l.AttachedRoutes, Conditions: values(l.Conditions),
			})
		}
		add("Gateway", o, s)
	}
	for _, o := range set.ListenerSets {
		s := resource.Status{Conditions: values(o.Status.Conditions)}
		for _, l := range o.Status.Listeners {
			s.Listeners = append(s.Listeners, resource.ListenerStatus{
				Name: string(l.Name), SupportedKinds: l.SupportedKinds, AttachedRoutes: l.AttachedRoutes, Conditions: values(l.Conditions),
			})
		}
		add("ListenerSet", o, s)
	}
	for _, o := range set.HTTPRoutes {
		add("HTTPRoute", o, resource.Status{Parents: parents(o.Status.Parents)})
	}
	for _, o := range set.GRPCRoutes {
		add("GRPCRoute", o, resource.Status{Parents: parents(o.Status.Parents)})
	}
	for _, o := range set.TCPRoutes {
		add("TCPRoute", o, resource.Status{Parents: parents(o.Status.Parents)})
	}
	for _, o := range set.BackendTLSPolicies {
		var s resource.Status
		for _, a := range o.Status.Ancestors {
			if string(a.ControllerName) == dialect.ControllerName {
				s.Ancestors = append(s.Ancestors, resource.AncestorStatus{
					AncestorRef: a.AncestorRef, ControllerName: dialect.ControllerName, Conditions: values(a.Conditions),
				})
			}
		}
		add("BackendTLSPolicy", o, s)
	}
	out := make([]resource.Status, 0, len(of))
	for _, s := range of {
		if w, ok := written[s.Ref]; ok {
			w.Generation = s.Generation
			out = append(out, w)
		}
	}
	return out
}

func parents(of []gatewayv1.RouteParentStatus) []resource.ParentStatus {
	var out []resource.ParentStatus
	for _, p := range of {
		if string(p.ControllerName) == dialect.ControllerName {
			out = append(out, resource.ParentStatus{ParentRef: p.ParentRef, ControllerName: dialect.ControllerName, Conditions: values(p.Conditions)})
		}
	}
	return out
}

// values are conditions without their times.
func values(of []metav1.Condition) []resource.Condition {
	out := make([]resource.Condition, 0, len(of))
	for _, c := range of {
		out = append(out, resource.Condition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message, Generation: c.ObservedGeneration})
	}
	return out
}
