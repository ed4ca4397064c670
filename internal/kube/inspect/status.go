package inspect

import (
	"fmt"
	"reflect"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/kube/infra"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// Expected are the statuses that should be written: the translator's, corrected by the actual state of the cluster, as
// the controller does it. If that could not be read, they are the translator's.
func (c *Cluster) Expected(in Input, controllerName string) []resource.Status {
	if !c.Seen {
		return in.Statuses
	}
	fleet := infra.Fleet{ControllerName: controllerName}
	return fleet.Overlay(in.Set, in.Statuses, func(gateway model.GatewayKey) infra.State {
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

// written is the status that our controller wrote on an object of a Set; false if there is none.
func written(set *resource.Set, controllerName string, ref resource.Key) (resource.Status, int64, bool) {
	s := resource.Status{Ref: ref.Ref()}
	listener := func(l gatewayv1.ListenerStatus) {
		s.Listeners = append(s.Listeners, resource.ListenerStatus{
			Name: string(l.Name), SupportedKinds: l.SupportedKinds, AttachedRoutes: l.AttachedRoutes, Conditions: values(l.Conditions),
		})
	}
	var generation int64
	route := func(of int64, parents []gatewayv1.RouteParentStatus) {
		generation = of
		for _, p := range parents {
			if string(p.ControllerName) == controllerName {
				s.Parents = append(s.Parents, resource.ParentStatus{
					ParentRef: p.ParentRef, ControllerName: controllerName, Conditions: values(p.Conditions),
				})
			}
		}
	}
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
			listener(l)
		}
	case "ListenerSet":
		o := find(set.ListenerSets, ref)
		if o == nil {
			return s, 0, false
		}
		generation, s.Conditions = o.Generation, values(o.Status.Conditions)
		for _, l := range o.Status.Listeners {
			listener(gatewayv1.ListenerStatus(l))
		}
	case "HTTPRoute":
		if o := find(set.HTTPRoutes, ref); o != nil {
			route(o.Generation, o.Status.Parents)
		}
	case "GRPCRoute":
		if o := find(set.GRPCRoutes, ref); o != nil {
			route(o.Generation, o.Status.Parents)
		}
	case "TCPRoute":
		if o := find(set.TCPRoutes, ref); o != nil {
			route(o.Generation, o.Status.Parents)
		}
	case "TrafficSplit":
		if o := find(set.TrafficSplits, ref); o != nil {
			generation, s.Conditions = o.Generation, treeValues(o.Status)
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

// treeValues are the conditions of a status that has no Go type. Unreadable ones count as missing.
func treeValues(status map[string]any) []resource.Condition {
	var typed struct {
		Conditions []metav1.Condition `json:"conditions"`
	}
	if runtime.DefaultUnstructuredConverter.FromUnstructured(status, &typed) != nil {
		return nil
	}
	return values(typed.Conditions)
}

// stale describes how a written status differs from the expected one; both are empty if it does not.
func stale(set *resource.Set, controllerName string, want *resource.Status, programmed bool) (field, message string) {
	have, generation, ok := written(set, controllerName, keyOf(want))
	if !ok && len(want.Conditions)+len(want.Parents)+len(want.Ancestors) > 0 {
		return "status", "Weir's controller has written nothing"
	}
	d := difference{generation: generation, programmed: programmed}
	d.conditions("status.conditions", have.Conditions, want.Conditions)
	compare(&d, "listener", have.Listeners, want.Listeners, func(l resource.ListenerStatus) part {
		return part{key: l.Name, name: l.Name, conditions: l.Conditions}
	}, func(field string, h, w resource.ListenerStatus) {
		if h.AttachedRoutes != w.AttachedRoutes {
			d.note(field+".attachedRoutes", fmt.Sprintf("is %d, and should be %d", h.AttachedRoutes, w.AttachedRoutes))
		}
	})
	compare(&d, "parent", have.Parents, want.Parents, func(p resource.ParentStatus) part {
		return part{key: p.ParentRef, name: string(p.ParentRef.Name), conditions: p.Conditions}
	}, nil)
	compare(&d, "ancestor", have.Ancestors, want.Ancestors, func(a resource.AncestorStatus) part {
		return part{key: a.AncestorRef, name: string(a.AncestorRef.Name), conditions: a.Conditions}
	}, nil)
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

// part is the common part of statuses of listeners, parents and ancestors. Those of one object with equal keys are
// about one thing.
type part struct {
	key        any
	name       string
	conditions []resource.Condition
}

// compare finds each wanted entry of a list among the present ones, and compares their conditions; what is the kind of
// entry. more, if not nil, compares the rest.
func compare[T any](d *difference, what string, have, want []T, of func(T) part, more func(field string, have, want T)) {
	for i, w := range want {
		wanted := of(w)
		field := fmt.Sprintf("status.%ss[%d]", what, i)
		at := slices.IndexFunc(have, func(h T) bool { return reflect.DeepEqual(of(h).key, wanted.key) })
		if at < 0 {
			d.note(field, fmt.Sprintf("%s %s is missing", what, wanted.name))
			continue
		}
		if more != nil {
			more(field, have[at], w)
		}
		d.conditions(field+".conditions", of(have[at]).conditions, wanted.conditions)
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
