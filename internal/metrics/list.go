package metrics

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	api "github.com/weirmesh/weir/api/metrics"
	"github.com/weirmesh/weir/internal/telemetry"
)

// MaxItems is how many items a list has at most, the first in their order; the list says how many it leaves out.
const MaxItems = 10_000

// maxSides bounds the sides that a Question names. Instead of for more of them, it asks for all traffic.
const maxSides = 500

// Selection says what a list has. The zero value is everything, in the Store's shortest window.
type Selection struct {
	Window time.Duration
	// Selector chooses items: objects by their labels; of a list of edges those whose other side has the labels. It
	// restricts nothing that was measured. nil is all. Objects of which no labels are known have none.
	Selector *Selector
	// Kind is what the other sides of edges are told in terms of. By default it is the kind of the object itself.
	Kind *api.Resource
	// Shown, if set, says in which of some namespaces, "" for what is in none, the names of other sides may be told. The
	// traffic with all others is told together, as with somebody unknown. It is asked at most once for a list, and fails
	// if it cannot be said.
	Shown func(ctx context.Context, namespaces []string) (shown func(namespace string) bool, err error)
}

// Missing is the error about an object that does not exist.
type Missing struct {
	Resource        api.Resource
	Namespace, Name string
}

func (e *Missing) Error() string { return fmt.Sprintf("%s %q not found", e.Resource.Plural, e.Name) }

// List returns the traffic that each object of a kind received, of one namespace or, with "", of all.
func (x *Index) List(ctx context.Context, store Store, of api.Resource, namespace string, s Selection) (api.TrafficMetricsList, error) {
	chosen := x.choose(of, namespace, s.Selector)
	list := api.NewList(of.Reference(namespace, ""), s.Selector.object(), nil)
	chosen = cut(&list, chosen)
	items, err := x.totals(ctx, store, chosen, s.Window)
	if err != nil {
		return api.TrafficMetricsList{}, err
	}
	list.Items = items
	return list, nil
}

// Get returns the traffic that an object received. It fails with a *Missing if there is no such object.
func (x *Index) Get(ctx context.Context, store Store, of api.Resource, namespace, name string, window time.Duration) (api.TrafficMetrics, error) {
	o, err := x.find(of, namespace, name)
	if err != nil {
		return api.TrafficMetrics{}, err
	}
	items, err := x.totals(ctx, store, []*object{o}, window)
	if err != nil {
		return api.TrafficMetrics{}, err
	}
	return items[0], nil
}

// Edges returns the traffic of an object with each of the others that it exchanged traffic with. It fails with a *Missing
// if there is no such object.
func (x *Index) Edges(ctx context.Context, store Store, of api.Resource, namespace, name string, s Selection) (api.TrafficMetricsList, error) {
	o, err := x.find(of, namespace, name)
	if err != nil {
		return api.TrafficMetricsList{}, err
	}
	sides := sidesOf([]*object{o})
	answer, err := store.Ask(ctx, Question{Window: s.Window, At: sides, With: sides})
	if err != nil {
		return api.TrafficMetricsList{}, err
	}
	v := x.newView(answer.Traffic)
	kind := o.kind
	if s.Kind != nil {
		if k, ok := kindOf[s.Kind.Kind]; ok {
			kind = k
		}
	}
	others := v.othersOf(o, kind)
	if err := s.hide(ctx, others); err != nil {
		return api.TrafficMetricsList{}, err
	}
	for side, all := range others {
		others[side] = slices.DeleteFunc(all, func(w other) bool { return !s.Selector.matches(w.labels) })
	}
	edges := v.edgesOf(o, others)
	list := api.NewList(o.reference(), s.Selector.object(), nil)
	var sum summing
	for _, e := range cut(&list, sorted(edges, edge.compare)) {
		list.Items = append(list.Items, sum.item(o, e.direction, &e.reference, answer, edges[e]))
	}
	return list, nil
}

// hide leaves unknown who may not be told. It comes before all that depends on who it is.
func (s *Selection) hide(ctx context.Context, others map[telemetry.Side][]other) error {
	if s.Shown == nil {
		return nil
	}
	asked := map[string]bool{}
	for _, all := range others {
		for _, w := range all {
			if w.named() {
				asked[w.home] = true
			}
		}
	}
	if len(asked) == 0 {
		return nil
	}
	shown, err := s.Shown(ctx, slices.Sorted(maps.Keys(asked)))
	if err != nil {
		return err
	}
	for side, all := range others {
		if slices.ContainsFunc(all, func(w other) bool { return w.named() && !shown(w.home) }) {
			others[side] = []other{{}} // once, however many they are
		}
	}
	return nil
}

func (x *Index) ofKind(of api.Resource) []*object {
	if kind, ok := kindOf[of.Kind]; ok {
		return x.objects[kind]
	}
	return nil
}

func (x *Index) find(of api.Resource, namespace, text string) (*object, error) {
	kind, ok := kindOf[of.Kind]
	if o := x.byName[kind][name{namespace, text}]; ok && o != nil {
		return o, nil
	}
	return nil, &Missing{of, namespace, text}
}

// Sides returns what an object's pods are reported as. It fails with a *Missing if there is no such object.
func (x *Index) Sides(of api.Resource, namespace, name string) (telemetry.TapSides, error) {
	o, err := x.find(of, namespace, name)
	if err != nil {
		return nil, err
	}
	sides := telemetry.TapSides{}
	for _, p := range o.places {
		for _, s := range p.sides {
			if s.Kind != telemetry.KindSidecar { // as nobody reports requests
				sides[s] = true
			}
		}
	}
	return sides, nil
}

// Received is what an object received in a window.
type Received struct {
	// Of is the object.
	Of corev1.ObjectReference
	api.Measured
	// Timed is that there are durations, and Took their sum. Without them the percentiles mean nothing.
	Timed bool
	Took  time.Duration
}

// Received returns what each object of a kind received, of a namespace or, with "", of all, in the order of their names;
// with a name, what that one did. It tells the answer that this was computed of, without its traffic. It fails with a
// *Missing if there is no such object. Objects beyond MaxItems are left out.
func (x *Index) Received(ctx context.Context, store Store, of api.Resource, namespace, name string, s Selection) ([]Received, Answer, error) {
	chosen := x.choose(of, namespace, s.Selector)
	if name != "" {
		o, err := x.find(of, namespace, name)
		if err != nil {
			return nil, Answer{}, err
		}
		chosen = []*object{o}
	}
	chosen = chosen[:min(len(chosen), MaxItems)]
	answer, rows, err := x.received(ctx, store, chosen, Question{Window: s.Window, Took: true})
	if err != nil {
		return nil, Answer{}, err
	}
	out := make([]Received, len(chosen))
	var sum summing
	for i, o := range chosen {
		sum.add(rows(o))
		out[i].Of = o.reference()
		out[i].Measured, out[i].Timed, out[i].Took = sum.measured()
	}
	return out, Answer{Time: answer.Time, Window: answer.Window}, nil
}

// choose returns the objects of a kind, of one namespace or, with "", of all.
func (x *Index) choose(of api.Resource, namespace string, s *Selector) (chosen []*object) {
	for _, o := range x.ofKind(of) {
		if (namespace == "" || o.namespace == namespace) && s.matches(o.labels) {
			chosen = append(chosen, o)
		}
	}
	return chosen
}

// totals are what objects received, as items.
func (x *Index) totals(ctx context.Context, store Store, of []*object, window time.Duration) ([]api.TrafficMetrics, error) {
	answer, rows, err := x.received(ctx, store, of, Question{Window: window})
	if err != nil {
		return nil, err
	}
	items := make([]api.TrafficMetrics, len(of))
	var sum summing
	for i, o := range of {
		items[i] = sum.item(o, api.From, nil, answer, rows(o))
	}
	return items, nil
}

// received asks for what objects received, q without its sides; rows are those of one of them. It asks for sums, and for
// more only if at some places nothing was observed.
func (x *Index) received(ctx context.Context, store Store, of []*object, q Question) (answer Answer, rows func(*object) []*Traffic, err error) {
	sums := q
	sums.At, sums.Sum = sidesOf(of), true
	answer, err = store.Ask(ctx, sums)
	if err != nil {
		return answer, nil, err
	}
	v := x.newView(answer.Traffic)
	if silent := v.silent(of); len(silent) > 0 {
		q.With = bounded(silent)
		more, err := store.Ask(ctx, q)
		if err != nil {
			return answer, nil, err
		}
		v.addSent(more.Traffic)
	}
	received := v.receivedBy()
	return answer, func(o *object) (rows []*Traffic) {
		for _, p := range o.places {
			rows = append(rows, received[p.id]...)
		}
		return rows
	}, nil
}

// item is the sum of traffic of an object.
func (s *summing) item(o *object, d api.Direction, with *corev1.ObjectReference, of Answer, all []*Traffic) api.TrafficMetrics {
	s.add(all)
	m, timed, _ := s.measured()
	item := api.New(o.reference(), d, with, of.Time, of.Window.Round(time.Millisecond), m)
	if !timed { // requests whose durations nobody counted took no known time
		item.Metrics = slices.DeleteFunc(item.Metrics, func(m api.Metric) bool { return m.Unit != "" })
	}
	return item
}

// cut leaves out what is too much, and says so in the list.
func cut[T any](list *api.TrafficMetricsList, all []T) []T {
	if left := int64(len(all) - MaxItems); left > 0 {
		list.RemainingItemCount = &left
		return all[:MaxItems]
	}
	return all
}

// sidesOf are what the places of objects are reported as, for a Question.
func sidesOf(all []*object) []telemetry.Side {
	sides := []telemetry.Side{}
	known := map[*place]bool{}
	for _, o := range all {
		for _, p := range o.places {
			if !known[p] {
				known[p] = true
				sides = append(sides, p.sides...)
			}
		}
	}
	return bounded(sides)
}

// bounded are sides in their order, nil if they are too many.
func bounded(sides []telemetry.Side) []telemetry.Side {
	if len(sides) > maxSides {
		return nil
	}
	slices.SortFunc(sides, telemetry.Side.Compare)
	return sides
}
