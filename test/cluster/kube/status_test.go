package kube

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/kube"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// writing is a source with a writer of statuses that leads.
func writing(t *testing.T) (*watched, *kube.StatusWriter) {
	t.Helper()
	var w *kube.StatusWriter
	s := watch(t, admin, func(s *kube.Source) { w = kube.NewStatusWriter(admin, s, controller, logger(t)) })
	background(t, w.Run)
	return s, w
}

func background(t *testing.T, run func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func condition(of, status, reason string) resource.Condition {
	return resource.Condition{Type: of, Status: metav1.ConditionStatus(status), Reason: reason}
}

// routeStatus is what is to be said of a route and its parents.
func routeStatus(route *gatewayv1.HTTPRoute, accepted string, parents ...string) resource.Status {
	s := resource.Status{Ref: model.Ref{Kind: "HTTPRoute", Namespace: route.Namespace, Name: route.Name}, Generation: route.Generation}
	for _, p := range parents {
		s.Parents = append(s.Parents, resource.ParentStatus{
			ParentRef: gatewayv1.ParentReference{Name: gatewayv1.ObjectName(p)}, ControllerName: controller,
			Conditions: []resource.Condition{condition("Accepted", accepted, "Accepted")},
		})
	}
	return s
}

// current reads an object until something holds of it.
func current[T client.Object](t *testing.T, o T, what string, holds func(T) bool) {
	t.Helper()
	err := within(t.Context(), func() error {
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		if !holds(o) {
			return fmt.Errorf("%s has no %s in time: %+v", o.GetName(), what, o)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func parent(name, controller string) gatewayv1.RouteParentStatus {
	return gatewayv1.RouteParentStatus{ParentRef: gatewayv1.ParentReference{Name: gatewayv1.ObjectName(name)}, ControllerName: gatewayv1.GatewayController(controller),
		Conditions: []metav1.Condition{{Type: "Accepted", Status: "False", Reason: "Other", Message: "m", LastTransitionTime: metav1.Unix(1000, 0)}}}
}

func TestParentsOfOthersStayInTheirPlaces(t *testing.T) {
	ns, c := namespace(t), class(t)
	create(t, gatewayOf(c, ns, "edge"))
	route := routeTo(ns, "a", "edge")
	create(t, route)
	route.Status.Parents = []gatewayv1.RouteParentStatus{parent("x", "example.com/x"), parent("gone", controller), parent("edge", controller), parent("y", "example.com/y")}
	if err := admin.Status().Update(t.Context(), route); err != nil {
		t.Fatal(err)
	}
	s, w := writing(t)
	s.until("the route", func(set *resource.Set) bool { return len(set.HTTPRoutes) == 1 })
	w.Set([]resource.Status{routeStatus(route, "True", "edge", "new")})
	current(t, route, "new parents", func(r *gatewayv1.HTTPRoute) bool {
		p := r.Status.Parents
		return len(p) == 4 && p[0].ParentRef.Name == "x" && p[1].ParentRef.Name == "edge" && p[2].ParentRef.Name == "y" && p[3].ParentRef.Name == "new"
	})
	if got := route.Status.Parents[0].Conditions[0]; got.Reason != "Other" || got.LastTransitionTime.Unix() != 1000 {
		t.Errorf("another's condition changed: %+v", got)
	}
	if got := route.Status.Parents[1].Conditions[0]; got.Status != "True" || got.LastTransitionTime.Unix() == 1000 || got.ObservedGeneration != 1 {
		t.Errorf("our condition: %+v", got)
	}
	w.Set(nil)
	current(t, route, "parents of others alone", func(r *gatewayv1.HTTPRoute) bool {
		return len(r.Status.Parents) == 2 && r.Status.Parents[0].ParentRef.Name == "x" && r.Status.Parents[1].ParentRef.Name == "y"
	})
}

func TestTheTimeOfAConditionChangesWithItsStatus(t *testing.T) {
	ns, c := namespace(t), class(t)
	create(t, gatewayOf(c, ns, "edge"))
	route := routeTo(ns, "a", "edge")
	create(t, route)
	old := parent("edge", controller)
	old.Conditions[0].Status = "True"
	route.Status.Parents = []gatewayv1.RouteParentStatus{old}
	if err := admin.Status().Update(t.Context(), route); err != nil {
		t.Fatal(err)
	}
	s, w := writing(t)
	s.until("the route", func(set *resource.Set) bool { return len(set.HTTPRoutes) == 1 })
	w.Set([]resource.Status{routeStatus(route, "True", "edge")})
	current(t, route, "the reason", func(r *gatewayv1.HTTPRoute) bool { return r.Status.Parents[0].Conditions[0].Reason == "Accepted" })
	if got := route.Status.Parents[0].Conditions[0].LastTransitionTime; got.Unix() != 1000 {
		t.Errorf("the time changed without the status: %v", got)
	}
	version := route.ResourceVersion
	again := routeStatus(route, "True", "edge")
	again.Parents[0].ParentRef.Kind = ptr(gatewayv1.Kind("Gateway")) // the same, written otherwise
	w.Set([]resource.Status{again})
	// Another object's status, written after, tells that the first has been looked at.
	mark := routeTo(ns, "mark", "edge")
	create(t, mark)
	s.until("the mark", func(set *resource.Set) bool { return len(set.HTTPRoutes) == 2 })
	w.Set([]resource.Status{again, routeStatus(mark, "True", "edge")})
	current(t, mark, "a status", func(r *gatewayv1.HTTPRoute) bool { return len(r.Status.Parents) == 1 })
	current(t, route, "anything", func(*gatewayv1.HTTPRoute) bool { return true })
	if route.ResourceVersion != version {
		t.Error("a status that did not differ was written")
	}
}

func TestForeignConditionsOfAGatewayStay(t *testing.T) {
	ns, c := namespace(t), class(t)
	gw := gatewayOf(c, ns, "edge")
	create(t, gw)
	gw.Status.Conditions = append(gw.Status.Conditions, metav1.Condition{Type: "example.com/Audited", Status: "True", Reason: "Done", LastTransitionTime: metav1.Unix(1000, 0)})
	if err := admin.Status().Update(t.Context(), gw); err != nil {
		t.Fatal(err)
	}
	s, w := writing(t)
	s.until("the Gateway", func(set *resource.Set) bool { return set.Gateway(ns, "edge") != nil })
	status := resource.Status{
		Ref: model.Ref{Kind: "Gateway", Namespace: ns, Name: "edge"}, Generation: gw.Generation,
		Conditions: []resource.Condition{condition("Accepted", "True", "Accepted"), condition("Programmed", "True", "Programmed")},
		Addresses:  []gatewayv1.GatewayStatusAddress{{Value: "10.1.2.3"}},
		Listeners: []resource.ListenerStatus{{Name: "web", AttachedRoutes: 3, SupportedKinds: []gatewayv1.RouteGroupKind{{Kind: "HTTPRoute"}},
			Conditions: []resource.Condition{condition("Accepted", "True", "Accepted")}}},
		AttachedListenerSets: ptr(int32(2)),
	}
	classStatus := resource.Status{Ref: model.Ref{Kind: "GatewayClass", Name: c.Name}, Generation: 1,
		Conditions: []resource.Condition{condition("Accepted", "True", "Accepted")}, SupportedFeatures: []string{"Gateway", "HTTPRoute"}}
	w.Set([]resource.Status{status, classStatus})
	current(t, gw, "a status", func(g *gatewayv1.Gateway) bool { return len(g.Status.Listeners) == 1 && len(g.Status.Addresses) == 1 })
	conditions := map[string]metav1.Condition{}
	for _, c := range gw.Status.Conditions {
		conditions[c.Type] = c
	}
	if got := conditions["example.com/Audited"]; len(conditions) != 3 || got.Reason != "Done" || got.LastTransitionTime.Unix() != 1000 || conditions["Programmed"].Status != "True" {
		t.Errorf("conditions %+v", conditions)
	}
	if l := gw.Status.Listeners[0]; l.AttachedRoutes != 3 || len(l.SupportedKinds) != 1 || l.Conditions[0].ObservedGeneration != 1 {
		t.Errorf("listener %+v", l)
	}
	current(t, c, "features", func(c *gatewayv1.GatewayClass) bool { return len(c.Status.SupportedFeatures) == 2 })

	// Another class takes the Gateway over.
	w.Set([]resource.Status{classStatus})
	current(t, gw, "no status of ours", func(g *gatewayv1.Gateway) bool { return len(g.Status.Listeners) == 0 && len(g.Status.Addresses) == 0 })
	if got := gw.Status.Conditions; len(got) != 3 {
		t.Errorf("conditions after all: %+v", got)
	}
}

// Another writer keeps writing the same routes' statuses: both get what is theirs.
func TestWritersDoNotUndoEachOther(t *testing.T) {
	ns, c := namespace(t), class(t)
	create(t, gatewayOf(c, ns, "edge"))
	const routes, rounds = 5, 10
	var all []*gatewayv1.HTTPRoute
	for i := range routes {
		all = append(all, routeTo(ns, "r"+strconv.Itoa(i), "edge"))
		create(t, all[i])
	}
	s, w := writing(t)
	s.until("the routes", func(set *resource.Set) bool { return len(set.HTTPRoutes) == routes })
	other := make(chan error, 1)
	go func() {
		for round := range rounds {
			for _, r := range all {
				err := within(context.Background(), func() error {
					now := &gatewayv1.HTTPRoute{}
					if err := admin.Get(context.Background(), client.ObjectKeyFromObject(r), now); err != nil {
						return err
					}
					kept := now.Status.Parents[:0:0]
					for _, p := range now.Status.Parents {
						if p.ControllerName != "example.com/x" {
							kept = append(kept, p)
						}
					}
					mine := parent("round"+strconv.Itoa(round), "example.com/x")
					now.Status.Parents = append(kept, mine)
					return admin.Status().Update(context.Background(), now)
				})
				if err != nil {
					other <- err
					return
				}
			}
		}
		other <- nil
	}()
	for round := range rounds {
		var statuses []resource.Status
		for _, r := range all {
			statuses = append(statuses, routeStatus(r, "True", "p"+strconv.Itoa(round)))
		}
		w.Set(statuses)
		time.Sleep(10 * time.Millisecond)
	}
	if err := <-other; err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		current(t, r, "the last parents of both", func(r *gatewayv1.HTTPRoute) bool {
			names := map[gatewayv1.ObjectName]bool{}
			for _, p := range r.Status.Parents {
				names[p.ParentRef.Name] = true
			}
			return len(names) == 2 && names["p"+gatewayv1.ObjectName(strconv.Itoa(rounds-1))] && names["round"+gatewayv1.ObjectName(strconv.Itoa(rounds-1))]
		})
	}
}

func TestAStatusThatOthersChangedIsRestored(t *testing.T) {
	ns, c := namespace(t), class(t)
	create(t, gatewayOf(c, ns, "edge"))
	route := routeTo(ns, "a", "edge")
	create(t, route)
	s, w := writing(t)
	s.until("the route", func(set *resource.Set) bool { return len(set.HTTPRoutes) == 1 })
	w.Set([]resource.Status{routeStatus(route, "True", "edge"), routeStatus(routeTo(ns, "missing", "edge"), "True", "edge")})
	current(t, route, "our parent", func(r *gatewayv1.HTTPRoute) bool { return len(r.Status.Parents) == 1 })
	route.Status.Parents = []gatewayv1.RouteParentStatus{}
	if err := admin.Status().Update(t.Context(), route); err != nil {
		t.Fatal(err)
	}
	current(t, route, "our parent again", func(r *gatewayv1.HTTPRoute) bool { return len(r.Status.Parents) == 1 })
}

func TestAnEventIsWrittenOnce(t *testing.T) {
	ns, c := namespace(t), class(t)
	create(t, gatewayOf(c, ns, "edge"))
	route := routeTo(ns, "a", "edge")
	create(t, route)
	s := watch(t, admin)
	s.until("the route", func(set *resource.Set) bool { return len(set.HTTPRoutes) == 1 })
	event := resource.Event{Ref: model.Ref{Kind: "HTTPRoute", Namespace: ns, Name: "a"}, Type: "Warning", Reason: "Odd", Message: "something is odd"}
	for _, instance := range []string{"weir-0", "weir-1"} {
		r := kube.NewRecorder(admin, s.Source, controller, instance, logger(t))
		background(t, r.Run)
		r.Set([]resource.Event{event})
		r.Set([]resource.Event{event, event})
		mark := event
		mark.Reason = "Mark" + instance[5:]
		r.Set([]resource.Event{event, mark})
		var events eventsv1.EventList
		err := within(t.Context(), func() error {
			if err := admin.List(t.Context(), &events, client.InNamespace(ns)); err != nil {
				return err
			}
			for _, e := range events.Items {
				if e.Reason == mark.Reason {
					return nil
				}
			}
			return fmt.Errorf("no %s", mark.Reason)
		})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, e := range events.Items {
			if e.Reason == "Odd" {
				n++
				if e.Regarding.UID != route.UID || e.Regarding.APIVersion != "gateway.networking.k8s.io/v1" || e.Note != event.Message || e.ReportingInstance != "weir-0" {
					t.Errorf("event %+v", e)
				}
			}
		}
		if n != 1 {
			t.Errorf("%d events", n)
		}
	}
}
