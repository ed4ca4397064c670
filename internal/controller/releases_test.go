package controller

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/weirmesh/weir/internal/kube/release"
	"github.com/weirmesh/weir/internal/metrics"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/rollout"
	"github.com/weirmesh/weir/internal/telemetry"
)

// counts is a Store of one answer.
type counts struct {
	asked  []metrics.Question
	answer metrics.Answer
	err    error
}

func (c *counts) Ask(_ context.Context, q metrics.Question) (metrics.Answer, error) {
	c.asked = append(c.asked, q)
	return c.answer, c.err
}

func routing(kind, name string, parents ...any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "x/v1", "kind": kind, "metadata": map[string]any{"namespace": "shop", "name": name}, "spec": map[string]any{"parentRefs": parents},
	}}
}

func TestRequestsOfAStepAreCounted(t *testing.T) {
	now := time.Now()
	store := &counts{answer: metrics.Answer{Time: now.Add(-time.Second), Window: 15 * time.Second}}
	sent := func(route, service, backend string, n uint64) {
		store.answer.Traffic = append(store.answer.Traffic, metrics.Traffic{
			EdgeLabels: telemetry.EdgeLabels{Out: true, Route: route, Service: service, Backend: backend}, Success: n, Failure: 1,
		})
	}
	sent("shop/web", "shop/web:80", "shop/web:80", 79)
	sent("shop/web", "shop/web:80", "shop/web-canary:80", 19)
	sent("shop/other", "shop/web:80", "shop/web:80", 999)
	sent("blog/web", "blog/web:80", "blog/web:80", 999)
	sent("shop/web", "shop/images:80", "shop/images:80", 999)
	store.answer.Traffic = append(store.answer.Traffic, metrics.Traffic{EdgeLabels: telemetry.EdgeLabels{Route: "shop/web", Backend: "shop/web:80"}, Success: 999})

	c := &controlPlane{traffic: &traffic{store: store}}
	accounts := map[string]model.Owner{"a": model.GatewayOwner("shop", "edge")}
	c.accounts.Store(&accounts)
	ask := func(since time.Duration, objects ...*unstructured.Unstructured) *rollout.Shared {
		shared, err := c.counted(t.Context(), release.Count{
			Namespace: "shop", Stable: "web", Canary: "web-canary", Objects: objects, Pods: []string{"web-1", "web-2"}, Since: now.Add(-since),
		})
		if err != store.err || err != nil && shared != nil {
			t.Errorf("%+v, %v", shared, err)
		}
		return shared
	}
	route := routing("HTTPRoute", "web", map[string]any{"name": "edge"})
	if got, want := ask(20*time.Second, route), (&rollout.Shared{Stable: 80, Canary: 20, Window: 15 * time.Second}); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	q := store.asked[0]
	if with := []telemetry.Side{{Kind: "Pod", Namespace: "shop", Name: "web-1"}, {Kind: "Pod", Namespace: "shop", Name: "web-2"}}; !slices.Equal(q.With, with) || q.Window < 17*time.Second || q.Window > 20*time.Second {
		t.Errorf("asked %+v", q)
	}
	// A split shares out the requests of every route.
	if got := ask(20*time.Second, routing("TrafficSplit", "web")); got == nil || got.Stable != 1080 || got.Canary != 20 {
		t.Errorf("a split: %+v", got)
	}
	if got := ask(time.Hour, route); got == nil || store.asked[2].Window != countMost {
		t.Errorf("after an hour: %+v of %v", got, store.asked[2].Window)
	}

	n := len(store.asked)
	if got := ask(3*time.Second, route); got == nil || *got != (rollout.Shared{}) {
		t.Errorf("too early: %+v", got)
	}
	for _, objects := range [][]*unstructured.Unstructured{nil, {routing("HTTPRoute", "web", map[string]any{"name": "another"})}} {
		if got := ask(time.Minute, objects...); got != nil {
			t.Errorf("nothing of ours: %+v", got)
		}
	}
	if len(store.asked) != n {
		t.Errorf("asked in vain: %+v", store.asked[n:])
	}
	if got := ask(14*time.Second, route); got == nil || got.Unknown == "" {
		t.Errorf("an answer from before the step: %+v", got)
	}
	store.err = errors.New("no proxy")
	ask(time.Minute, route)
	store.err = nil
	c.accounts.Store(&map[string]model.Owner{})
	if got := ask(time.Minute, routing("TrafficSplit", "web")); got != nil {
		t.Errorf("no proxies: %+v", got)
	}
}

// readings are a Store of proxies that were read at some times: a window begins with the reading that is nearest to its beginning.
type readings []time.Time

func (r readings) Ask(_ context.Context, q metrics.Question) (metrics.Answer, error) {
	begin, end := time.Now().Add(-q.Window), r[len(r)-1]
	from := slices.MinFunc(r[:len(r)-1], func(a, b time.Time) int { return cmp.Compare(a.Sub(begin).Abs(), b.Sub(begin).Abs()) })
	return metrics.Answer{Time: end, Window: end.Sub(from)}, nil
}

// TestAStepIsCountedFromTheFirstReadingInIt though proxies were read late.
func TestAStepIsCountedFromTheFirstReadingInIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		at := func(seconds ...float64) (r readings) {
			for _, s := range seconds {
				r = append(r, now.Add(-time.Duration(s*float64(time.Second))))
			}
			return r
		}
		for _, x := range []struct {
			readings readings
			window   time.Duration // of which it is known; 0 if nothing is known
		}{
			{at(45, 40, 35, 30, 25, 20, 15, 10, 5), 25 * time.Second},
			{at(60, 33, 16, 1), 15 * time.Second}, // the second one is nearer to the step's begin
			{at(60, 33, 8, 1), 7 * time.Second},
			{at(60, 33, 1), 0},
		} {
			c := &controlPlane{traffic: &traffic{store: x.readings}}
			accounts := map[string]model.Owner{"a": model.GatewayOwner("shop", "edge")}
			c.accounts.Store(&accounts)
			got, err := c.counted(t.Context(), release.Count{
				Namespace: "shop", Stable: "web", Canary: "web-canary", Since: now.Add(-32 * time.Second),
				Objects: []*unstructured.Unstructured{routing("HTTPRoute", "web", map[string]any{"name": "edge"})},
			})
			if err != nil || got == nil || got.Window != x.window || (got.Unknown != "") != (x.window == 0) {
				t.Errorf("%v: %+v, %v, want a window of %v", x.readings, got, err, x.window)
			}
		}
	})
}

// TestWhoIsConcernedByRoutes has routes at Gateways, at Services and at both, a split, and endpoints.
func TestWhoIsConcernedByRoutes(t *testing.T) {
	gateway := map[string]any{"name": "edge"}
	service := map[string]any{"group": "", "kind": "Service", "name": "web"}
	elsewhere := map[string]any{"group": "", "kind": "Service", "name": "web", "namespace": "blog"}
	split := &unstructured.Unstructured{Object: map[string]any{
		"kind": "TrafficSplit", "metadata": map[string]any{"namespace": "shop", "name": "web"}, "spec": map[string]any{"service": "web.shop"},
	}}
	slice := &unstructured.Unstructured{Object: map[string]any{
		"kind": "EndpointSlice", "metadata": map[string]any{"namespace": "shop", "name": "web-1", "labels": map[string]any{"kubernetes.io/service-name": "web"}},
	}}
	for _, x := range []struct {
		objects     []*unstructured.Unstructured
		edge, other bool
		services    []string
	}{
		{[]*unstructured.Unstructured{routing("HTTPRoute", "web", gateway)}, true, false, nil},
		{[]*unstructured.Unstructured{routing("HTTPRoute", "web", service)}, false, false, []string{"shop/web"}},
		{[]*unstructured.Unstructured{routing("HTTPRoute", "web", gateway, elsewhere)}, true, false, []string{"blog/web"}},
		{[]*unstructured.Unstructured{routing("HTTPRoute", "web", map[string]any{"kind": "ListenerSet", "name": "edge"})}, true, true, nil},
		{[]*unstructured.Unstructured{split}, true, true, []string{"shop/web"}},
		{[]*unstructured.Unstructured{slice}, false, false, []string{"shop/web"}},
		{nil, false, false, nil},
	} {
		var of concerned
		for _, u := range x.objects {
			of.add(u)
		}
		services := slices.Sorted(maps.Keys(of.services))
		if of.gateway(model.GatewayOwner("shop", "edge")) != x.edge || of.gateway(model.GatewayOwner("shop", "other")) != x.other || !slices.Equal(services, x.services) {
			t.Errorf("%v: %+v", x.objects, of)
		}
	}
}
