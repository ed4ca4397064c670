package inspect

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	return fleet.Overlay(in.Set, in.Statuses, func(gateway model.Owner) infra.State {
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
func written(set *resource.Set, controllerName string, ref model.Ref) (resource.Status, int64, bool) {
	ref.Field = ""
	s := resource.Status{Ref: ref}
	k := set.Kinds().Of(ref)
	if k == nil || k.Status == nil {
		return s, 0, false
	}
	o := set.Object(k.Key(ref.Namespace, ref.Name))
	if o == nil {
		return s, 0, false
	}
	has := read(o)
	if k.Status.Conditions {
		s.Conditions = values(has.Conditions)
	}
	if k.Status.Addresses {
		s.AttachedListenerSets = has.AttachedListenerSets
		for _, a := range has.Addresses {
			s.Addresses = append(s.Addresses, gatewayv1.GatewayStatusAddress{Type: a.Type, Value: a.Value})
		}
	}
	if k.Status.Listeners {
		for _, l := range has.Listeners {
			s.Listeners = append(s.Listeners, resource.ListenerStatus{
				Name: string(l.Name), SupportedKinds: l.SupportedKinds, AttachedRoutes: l.AttachedRoutes, Conditions: values(l.Conditions),
			})
		}
	}
	if k.Status.Parents {
		for _, p := range has.Parents {
			if string(p.ControllerName) == controllerName {
				s.Parents = append(s.Parents, resource.ParentStatus{
					ParentRef: p.ParentRef, ControllerName: controllerName, Conditions: values(p.Conditions),
				})
			}
		}
	}
	if k.Status.Ancestors {
		for _, a := range has.Ancestors {
			if string(a.ControllerName) == controllerName {
				s.Ancestors = append(s.Ancestors, resource.AncestorStatus{
					AncestorRef: a.AncestorRef, ControllerName: controllerName, Conditions: values(a.Conditions),
				})
			}
		}
	}
	s.Generation = o.GetGeneration()
	return s, s.Generation, len(s.Conditions)+len(s.Parents)+len(s.Ancestors) > 0
}

// statusParts are those that statuses of any kind have.
type statusParts struct {
	Conditions           []metav1.Condition
	AttachedListenerSets *int32
	Addresses            []gatewayv1.GatewayStatusAddress
	Listeners            []gatewayv1.ListenerStatus
	Parents              []gatewayv1.RouteParentStatus
	Ancestors            []gatewayv1.PolicyAncestorStatus
}

// read returns the parts of an object's status. One that cannot be read is as none.
func read(object metav1.Object) statusParts {
	var of struct {
		Status statusParts `json:"status"`
	}
	text, err := json.Marshal(object)
	if err != nil || json.Unmarshal(text, &of) != nil {
		return statusParts{}
	}
	return of.Status
}

// Written are the statuses that the objects of others have in the cluster, by our controller; objects without one are left
// out.
func Written(set *resource.Set, controllerName string, of []resource.Status) []resource.Status {
	var out []resource.Status
	for i := range of {
		if s, _, ok := written(set, controllerName, of[i].Ref); ok {
			out = append(out, s)
		}
	}
	return out
}

func values(conditions []metav1.Condition) []resource.Condition {
	var out []resource.Condition
	for _, c := range conditions {
		out = append(out, resource.ConditionOf(c))
	}
	return out
}

// stale says in what a written status is not as expected; both empty if it is.
func stale(set *resource.Set, controllerName string, want *resource.Status, programmed bool) (field, message string) {
	have, generation, ok := written(set, controllerName, want.Ref)
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
