package control

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/api/split"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// end is the end of a release as Argo Rollouts has it: the stable Service gets the pods of the canary, and then all requests.
type end struct {
	stable, other        *corev1.Service
	stableEnds, otherEnd *discoveryv1.EndpointSlice
	split, elsewhere     *split.TrafficSplit
	route                *gatewayv1.HTTPRoute
}

func serviceOf(name, hash string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "1"},
		Spec: corev1.ServiceSpec{Selector: map[string]string{"hash": hash}, Ports: []corev1.ServicePort{{Port: 80}}}}
}

func endsOf(service, address string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: service + "-1", Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address}}}}
}

func splitOf(name, first, second string, weight split.Weight) *split.TrafficSplit {
	return &split.TrafficSplit{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec: split.Spec{Service: "web", Backends: []split.Backend{{Service: first, Weight: 100 - weight}, {Service: second, Weight: weight}}}}
}

func routeTo(service string, weight int32) *gatewayv1.HTTPRoute {
	r := &gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: "web"}}
	shop := gatewayv1.Namespace("shop")
	ref := gatewayv1.HTTPBackendRef{}
	ref.Name, ref.Namespace, ref.Weight = gatewayv1.ObjectName(service), &shop, &weight
	r.Spec.Rules = []gatewayv1.HTTPRouteRule{{BackendRefs: []gatewayv1.HTTPBackendRef{ref}}}
	return r
}

func newEnd() end {
	return end{
		stable: serviceOf("stable", "old"), other: serviceOf("other", "old"), stableEnds: endsOf("stable", "10.0.0.1"), otherEnd: endsOf("other", "10.0.0.1"),
		split: splitOf("web", "stable", "canary", 100), elsewhere: splitOf("elsewhere", "other", "more", 1), route: routeTo("stable", 1),
	}
}

func (e end) set() *resource.Set {
	return resource.NewSet(Options{}.Kinds(), e.other, e.stable, e.otherEnd, e.stableEnds, e.elsewhere, e.split, e.route)
}

func TestSharesWaitForThePodsOfAService(t *testing.T) {
	for _, c := range []struct {
		name    string
		changes func(e *end)
		waits   bool // the split and the route
	}{
		{"selector and shares", func(e *end) { e.stable = serviceOf("stable", "new") }, true},
		{"with other endpoints at once", func(e *end) {
			e.stable, e.stableEnds = serviceOf("stable", "new"), endsOf("stable", "10.0.0.2")
		}, false},
		{"shares alone", func(*end) {}, false},
		{"another Service's selector", func(e *end) { e.other = serviceOf("other", "new") }, false},
		{"a Service of that name that is new", func(e *end) {
			e.stable = serviceOf("stable", "new")
			e.stable.UID = "2"
		}, false},
		{"a Service that has no pods of its own any more", func(e *end) {
			e.stable = serviceOf("stable", "new")
			e.stable.Spec.Selector = nil
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b behind
			now := time.Now()
			e := newEnd()
			before := e.set()
			if got, again := b.hold(before, now); got != before || !again.IsZero() {
				t.Fatal("the first set is not as it is")
			}
			was := e
			c.changes(&e)
			e.split, e.elsewhere, e.route = splitOf("web", "stable", "canary", 0), splitOf("elsewhere", "third", "more", 2), routeTo("stable", 2)
			got, again := b.hold(e.set(), now.Add(time.Millisecond))
			if c.waits {
				if got.TrafficSplits[1] != was.split || got.HTTPRoutes[0] != was.route || got.TrafficSplits[0] != e.elsewhere || got.Services[1] != e.stable {
					t.Errorf("%+v, %+v: want the split and the route as they were, and all else as it is", got.TrafficSplits, got.HTTPRoutes)
				}
				if want := now.Add(time.Millisecond + behindMost); again != want {
					t.Errorf("asks again at %s, want %s", again, want)
				}
				e.stableEnds = endsOf("stable", "10.0.0.2")
				got, again = b.hold(e.set(), now.Add(2*time.Millisecond))
			}
			if got.TrafficSplits[1] != e.split || got.HTTPRoutes[0] != e.route || !again.IsZero() {
				t.Errorf("%+v, %+v, again at %s: want all as it is", got.TrafficSplits, got.HTTPRoutes, again)
			}
		})
	}
}

// TestNobodyHoldsSharesBack has a selector that changes all the time: shares that are written meanwhile count after a while.
func TestNobodyHoldsSharesBack(t *testing.T) {
	var b behind
	now := time.Now()
	e := newEnd()
	b.hold(e.set(), now)
	wrote := now
	e.split = splitOf("web", "stable", "canary", 0)
	for n := range 100 {
		now = now.Add(100 * time.Millisecond)
		e.stable = serviceOf("stable", string(rune('a'+n%2)))
		got, _ := b.hold(e.set(), now)
		if got.TrafficSplits[1] == e.split {
			if late := now.Sub(wrote); late > behindMost+200*time.Millisecond {
				t.Errorf("the shares count after %s", late)
			}
			return
		}
	}
	t.Error("the shares are held back for ever")
}

// TestSharesCountWhenNothingComesAnyMore has the loop ask again by itself, for endpoints that stay the same.
func TestSharesCountWhenNothingComesAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &harness{source: newScripted(), done: make(chan error, 1)}
		l := &Loop{Source: h.source, Options: InCluster(), Report: h.report,
			Publish: func(map[model.Owner]*model.Config) map[model.Owner]error { return nil }}
		ctx, cancel := context.WithCancel(t.Context())
		h.cancel = cancel
		go func() { h.done <- l.Run(ctx) }()
		e := newEnd()
		h.source.sets <- e.set()
		synctest.Wait()
		e.stable, e.split = serviceOf("stable", "new"), splitOf("web", "stable", "canary", 0)
		h.source.sets <- e.set()
		synctest.Wait()
		if h.last().Set.TrafficSplits[1] == e.split {
			t.Error("the shares count before the endpoints are known")
		}
		time.Sleep(behindMost)
		synctest.Wait()
		if h.last().Set.TrafficSplits[1] != e.split {
			t.Error("the shares do not count, although nothing else is to come")
		}
		h.stop(t)
	})
}
