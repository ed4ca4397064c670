package gateway

import (
	"fmt"
	"slices"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

const listenerSetKind = "ListenerSet"

// listenerSet is a ListenerSet whose parent is a Gateway that is ours.
type listenerSet struct {
	key
	obj     *gatewayv1.ListenerSet
	ref     model.Ref
	gateway *gateway
	// rejected says that the Gateway does not let it attach: it has no listeners then.
	rejected  *resource.Finding
	listeners []*listener
	// pathPolicy is that of the listeners, if the annotation is there.
	pathPolicy model.PathPolicy
}

// readListenerSets gives each of our Gateways the ListenerSets that name it, oldest first, and the listeners of the
// allowed ones (GatewaySpec.allowedListeners).
func (t *translator) readListenerSets() {
	for _, obj := range t.set.ListenerSets {
		s := &listenerSet{
			key: key{obj.Namespace, obj.Name}, obj: obj,
			ref: model.Ref{Kind: listenerSetKind, Namespace: obj.Namespace, Name: obj.Name},
		}
		t.sets[s.key] = nil
		if s.gateway = t.gatewayOf(s); s.gateway != nil {
			t.sets[s.key] = s
			s.gateway.sets = append(s.gateway.sets, s)
		}
	}
	for _, g := range t.order {
		if len(g.sets) == 0 {
			continue
		}
		slices.SortFunc(g.sets, func(a, b *listenerSet) int { return older(&a.obj.ObjectMeta, &b.obj.ObjectMeta) })
		from, err := readListenerNamespaces(g.obj.Spec.AllowedListeners, g.namespace)
		if err != nil {
			t.report(g.ref, resource.Problem(codeValue, "", "spec.allowedListeners.namespaces", err.Error(),
				"use from All, Same, Selector or None, Selector with a valid selector"))
		}
		for _, s := range g.sets {
			t.readListenerSet(s, from)
		}
	}
}

// gatewayOf finds the parent of a ListenerSet; nil if it is not ours.
func (t *translator) gatewayOf(s *listenerSet) *gateway {
	parent, ok := resource.ParentOf(s.obj)
	if !ok {
		t.report(s.ref, resource.Problem(codeParentKind, "", "spec.parentRef.kind",
			fmt.Sprintf("a parent of kind %s is ignored", kindName(parent.Group, parent.Kind)), "name a Gateway"))
		return nil
	}
	at := key{parent.Namespace, parent.Name}
	g := t.gateways[at]
	if g == nil && !t.set.Watches(at.namespace) {
		t.report(s.ref, resource.Problem(codeParentUnwatched, "", "spec.parentRef", fmt.Sprintf("Gateway %s: %s", at, t.unwatched(at.namespace)), watchIt))
		return nil
	}
	if g == nil && t.set.Gateway(at.namespace, at.name) == nil {
		code, why, fix := t.absent(codeParentNotFound, gatewayv1.GroupName, "Gateway", at)
		t.report(s.ref, resource.Problem(code, "", "spec.parentRef", why, fix))
	}
	return g
}

func (t *translator) readListenerSet(s *listenerSet, from namespaces) {
	g := s.gateway
	if !from.contain(t, s.namespace) {
		s.rejected = new(resource.Problem(codeSetNotAllowed, "NotAllowed", "spec.parentRef",
			fmt.Sprintf("Gateway %s allows no ListenerSet from namespace %s", g, s.namespace), "extend spec.allowedListeners of the Gateway"))
		t.report(s.ref, *s.rejected)
		return
	}
	s.pathPolicy = t.annotated(s.ref, &s.obj.ObjectMeta)
	for i := range s.obj.Spec.Listeners {
		spec := gatewayv1.Listener(s.obj.Spec.Listeners[i])
		s.listeners = append(s.listeners, t.newListener(g, s, i, &spec))
	}
	g.listeners = append(g.listeners, s.listeners...)
}

// attachedSets counts the ListenerSets that are accepted (GatewayStatus.attachedListenerSets).
func (g *gateway) attachedSets() *int32 {
	var n int32
	for _, s := range g.sets {
		if len(s.programmed()) > 0 {
			n++
		}
	}
	return &n
}

// programmed returns the names of the listeners that can be served. A set without any is not accepted.
func (s *listenerSet) programmed() []string {
	var names []string
	for _, l := range s.listeners {
		if l.programmed() {
			names = append(names, string(l.spec.Name))
		}
	}
	return names
}

// listenerSetStatuses reports the ListenerSets and their listeners (ListenerSetConditionType).
func (t *translator) listenerSetStatuses() {
	for _, g := range t.order {
		for _, s := range g.sets {
			status := resource.Status{Ref: s.ref, Generation: s.obj.Generation, Conditions: s.conditions()}
			for _, l := range s.listeners {
				status.Listeners = append(status.Listeners, t.listenerStatus(l))
			}
			t.statuses = append(t.statuses, status)
		}
	}
}

func (s *listenerSet) conditions() []resource.Condition {
	no := func(reason, programmed, message string) []resource.Condition {
		return []resource.Condition{resource.False("Accepted", reason, message), resource.False("Programmed", programmed, message)}
	}
	good := s.programmed()
	switch {
	case s.rejected != nil:
		return no(s.rejected.Reason, s.rejected.Reason, s.rejected.Text())
	case !s.gateway.served():
		return no("ParentNotAccepted", "ParentNotProgrammed", fmt.Sprintf("spec.parentRef: Gateway %s is not served; see its status", s.gateway))
	case len(good) == 0:
		return no("ListenersNotValid", "ListenersNotValid", "spec.listeners: none can be served; see their conditions")
	case len(good) < len(s.listeners):
		return []resource.Condition{
			resource.True("Accepted", "ListenersNotValid", fmt.Sprintf("spec.listeners: only %s can be served; see the conditions of the others",
				strings.Join(good, ", "))),
			resource.True("Programmed", "Programmed", ""),
		}
	}
	return []resource.Condition{resource.True("Accepted", "Accepted", ""), resource.True("Programmed", "Programmed", "")}
}
