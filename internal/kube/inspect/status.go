package inspect

import (
	"fmt"
	"reflect"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/kube/infra"
	"github.com/weirmesh/weir/internal/resource"
)

// Expected are the statuses that should be written: the translator's, corrected by what there is in the cluster, as the
// controller does it. Where that could not be seen they are the translator's.
func (c *Cluster) Expected(in Input, controllerName string) []resource.Status {
	if !c.Seen {
		return in.Statuses
	}
	fleet := infra.Fleet{ControllerName: controllerName}
	return fleet.Overlay(in.Set, in.Statuses, func(gateway string) infra.State {
		g := c.Gateways[gateway]
		if g == nil {
			return infra.State{}
		}
		s := infra.State{Found: g.Found, Version: g.Version}
		for _, p := range g.Proxies {
			version := p.Version
			if g.Version == "" {
				version = "" // not known: what runs is taken to be right
			}
			s.Proxies = append(s.Proxies, infra.Proxy{Name: p.Name, Version: version, Err: p.Err})
		}
		return s
	})
}

// written is the status that an object of a Set has in the cluster, by our controller; false if it has none of ours.
func written(set *resource.Set, controllerName string, ref resource.Key) (resource.Status, int64, bool) {
	s := resource.Status{Ref: ref.Ref()}
	parents := func(of []gatewayv1.RouteParentStatus) {
		for _, p := range of {
			if string(p.ControllerName) == controllerName {
				s.Parents = append(s.Parents, resource.ParentStatus{
					ParentRef: p.ParentRef, ControllerName: controllerName, Conditions: values(p.Conditions),
				})
			}
		}
	}
	var generation int64
	switch ref.Kind {
	case "GatewayClass":
		o := set.GatewayClass(ref.Name)
		if o == nil {
			return s, 0, false
		}
		generation, s.Conditions = o.Generation, values(o.Status.Conditions)
	case "Gateway":
		o := set.Gateway(ref.Namespace, ref.Name)
		if o == nil {
			return s, 0, false
		}
		generation, s.Conditions = o.Generation, values(o.Status.Conditions)
		s.AttachedListenerSets = o.Status.AttachedListenerSets
		for _, a := range o.Status.Addresses {
			s.Addresses = append(s.Addresses, gatewayv1.GatewayStatusAddress{Type: a.Type, Value: a.Value})
		}
		for _, l := range o.Status.Listeners {
			s.Listeners = append(s.Listeners, resource.ListenerStatus{
				Name: string(l.Name), SupportedKinds: l.SupportedKinds, AttachedRoutes: l.AttachedRoutes, Conditions: values(l.Conditions),
			})
		}
	case "ListenerSet":
		o := find(set.ListenerSets, ref)
		if o == nil {
			return s, 0, false
		}
		generation, s.Conditions = o.Generation, values(o.Status.Conditions)
		for _, l := range o.Status.Listeners {
			s.Listeners = append(s.Listeners, resource.ListenerStatus{
				Name: string(l.Name), SupportedKinds: l.SupportedKinds, AttachedRoutes: l.AttachedRoutes, Conditions: values(l.Conditions),
			})
		}
	case "HTTPRoute":
		if o := find(set.HTTPRoutes, ref); o != nil {
			generation = o.Generation
			parents(o.Status.Parents)
		}
	case "GRPCRoute":
		if o := find(set.GRPCRoutes, ref); o != nil {
			generation = o.Generation
			parents(o.Status.Parents)
		}
	case "TCPRoute":
		if o := find(set.TCPRoutes, ref); o != nil {
			generation = o.Generation
			parents(o.Status.Parents)
		}
	case "BackendTLSPolicy":
		if o := find(set.BackendTLSPolicies, ref); o != nil {
			generation = o.Generation
			for _, a := range o.Status.Ancestors {
				if string(a.ControllerName) == controllerName {
					s.Ancestors = append(s.Ancestors, resource.AncestorStatus{
						AncestorRef: a.AncestorRef, ControllerName: controllerName, Conditions: values(a.Conditions),
					})
				}
			}
		}
	default:
		return s, 0, false
	}
	s.Generation = generation
	return s, generation, len(s.Conditions)+len(s.Parents)+len(s.Ancestors) > 0
}

// Written are the statuses that the objects of others have in the cluster, by our controller; objects without one are left
// out.
func Written(set *resource.Set, controllerName string, of []resource.Status) []resource.Status {
	var out []resource.Status
	for i := range of {
		if s, _, ok := written(set, controllerName, keyOf(&of[i])); ok {
			out = append(out, s)
		}
	}
	return out
}

func keyOf(s *resource.Status) resource.Key {
	return resource.Key{Kind: s.Ref.Kind, Namespace: s.Ref.Namespace, Name: s.Ref.Name}
}

func find[T metav1.Object](objects []T, ref resource.Key) (found T) {
	for _, o := range objects {
		if o.GetNamespace() == ref.Namespace && o.GetName() == ref.Name {
			return o
		}
	}
	return found
}

func values(conditions []metav1.Condition) []resource.Condition {
	var out []resource.Condition
	for _, c := range conditions {
		out = append(out, resource.Condition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message, Generation: c.ObservedGeneration})
	}
	return out
}

// stale says in what a written status is not as expected; both empty if it is.
func stale(set *resource.Set, controllerName string, want *resource.Status, programmed bool) (field, message string) {
	have, generation, ok := written(set, controllerName, keyOf(want))
	if !ok && len(want.Conditions)+len(want.Parents)+len(want.Ancestors) > 0 {
		return "status", "nothing is written by Weir's controller"
	}
	d := difference{generation: generation, programmed: programmed}
	d.conditions("status.conditions", have.Conditions, want.Conditions)
	for i, l := range want.Listeners {
		at := slices.IndexFunc(have.Listeners, func(h resource.ListenerStatus) bool { return h.Name == l.Name })
		field := fmt.Sprintf("status.listeners[%d]", i)
		if at < 0 {
			d.note(field, fmt.Sprintf("listener %s is missing", l.Name))
			continue
		}
		if h := have.Listeners[at]; h.AttachedRoutes != l.AttachedRoutes {
			d.note(field+".attachedRoutes", fmt.Sprintf("is %d, and should be %d", h.AttachedRoutes, l.AttachedRoutes))
		}
		d.conditions(field+".conditions", have.Listeners[at].Conditions, l.Conditions)
	}
	for i, p := range want.Parents {
		at := slices.IndexFunc(have.Parents, func(h resource.ParentStatus) bool { return reflect.DeepEqual(h.ParentRef, p.ParentRef) })
		field := fmt.Sprintf("status.parents[%d]", i)
		if at < 0 {
			d.note(field, fmt.Sprintf("parent %s is missing", p.ParentRef.Name))
			continue
		}
		d.conditions(field+".conditions", have.Parents[at].Conditions, p.Conditions)
	}
	for i, a := range want.Ancestors {
		at := slices.IndexFunc(have.Ancestors, func(h resource.AncestorStatus) bool { return reflect.DeepEqual(h.AncestorRef, a.AncestorRef) })
		field := fmt.Sprintf("status.ancestors[%d]", i)
		if at < 0 {
			d.note(field, fmt.Sprintf("ancestor %s is missing", a.AncestorRef.Name))
			continue
		}
		d.conditions(field+".conditions", have.Ancestors[at].Conditions, a.Conditions)
	}
	if programmed && want.Ref.Kind == "Gateway" && !sameAddresses(have.Addresses, want.Addresses) {
		d.note("status.addresses", fmt.Sprintf("has %d addresses, and should have %d, or others", len(have.Addresses), len(want.Addresses)))
	}
	return d.field, d.message
}

func sameAddresses(a, b []gatewayv1.GatewayStatusAddress) bool {
	return slices.EqualFunc(a, b, func(x, y gatewayv1.GatewayStatusAddress) bool { return x.Value == y.Value })
}

// difference keeps the first that was found.
type difference struct {
	generation     int64
	programmed     bool // Programmed can be judged
	field, message string
}

func (d *difference) note(field, message string) {
	if d.field == "" {
		d.field, d.message = field, message
	}
}

func (d *difference) conditions(field string, have, want []resource.Condition) {
	for _, w := range want {
		if w.Type == string(gatewayv1.GatewayConditionProgrammed) && !d.programmed {
			continue
		}
		at := slices.IndexFunc(have, func(h resource.Condition) bool { return h.Type == w.Type })
		if at < 0 {
			d.note(field, w.Type+" is missing")
			continue
		}
		h := have[at]
		generation := d.generation
		if w.Generation != 0 {
			generation = w.Generation
		}
		switch {
		case h.Status != w.Status || h.Reason != w.Reason:
			d.note(field, fmt.Sprintf("%s is %s (%s), and should be %s (%s)", w.Type, h.Status, h.Reason, w.Status, w.Reason))
		case h.Generation != generation:
			d.note(field, fmt.Sprintf("%s is of generation %d, and the object of %d", w.Type, h.Generation, generation))
		}
	}
}

// replicas that a Deployment is to have.
func replicas(d *appsv1.Deployment) int32 {
	if d.Spec.Replicas == nil {
		return 1
	}
	return *d.Spec.Replicas
}
