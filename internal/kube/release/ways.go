package release

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/kube/edit"
	"github.com/weirmesh/weir/internal/rollout"
)

func compare(a, b string) int { return cmp.Compare(a, b) }

// ways are the objects that route requests.
type ways struct {
	plan *rollouts.Plan
	// label of pods by which Services tell versions apart.
	label string
	// stable and canary are Services; nil if they do not exist. was is the stable one as its user wrote it.
	stable, canary *unstructured.Unstructured
	was            map[string]any
	// targets are the objects that the Rollout names, as they are; nil where one does not exist.
	targets []rollout.Target
	live    []*unstructured.Unstructured
	// others are what providers asked for, possible the objects that any step may have made.
	others   map[edit.Key]map[string]any
	possible *[]edit.Key
}

// observeTraffic reads the Services and the objects that route requests.
func (t *turn) observeTraffic(ctx context.Context) (*rollout.Traffic, error) {
	plan := t.r.Spec.Strategy.Plan()
	if plan == nil || plan.Traffic() == nil {
		return &rollout.Traffic{Settled: true}, nil
	}
	w := &ways{plan: plan, others: map[edit.Key]map[string]any{}, targets: rollout.Targets(&t.r.Spec.Strategy)}
	if t.kind != nil {
		w.label = t.kind.Label
	}
	t.ways = w
	f := &rollout.Traffic{}
	var err error
	if w.stable, err = t.service(ctx, plan.Traffic().Service); err != nil {
		return nil, err
	}
	canary := plan.CanaryService()
	if canary != plan.Traffic().Service {
		if w.canary, err = t.service(ctx, canary); err != nil {
			return nil, err
		}
	}
	if t.kind == nil {
		w.label = w.restricts()
	}
	if w.stable == nil {
		f.Missing = append(f.Missing, "Service "+plan.Traffic().Service)
	} else if err := t.observeStable(f); err != nil {
		f.Wrong = err.Error()
	}
	if canary != plan.Traffic().Service {
		switch {
		case w.canary == nil:
		case !t.ours(w.canary):
			f.Wrong = fmt.Sprintf("Service %s is not of this Rollout, which needs one of that name for the pods of the new version: rename it", canary)
			w.canary = nil
		default:
			f.Canary, _, _ = unstructured.NestedString(w.canary.Object, "spec", "selector", w.label)
		}
	}
	if err := t.observeTargets(ctx, f); err != nil {
		return nil, err
	}
	if f.Settled, f.Awaited, err = t.settled(ctx, f); err != nil {
		return nil, err
	}
	if f.Shared, err = t.count(ctx); err != nil {
		return nil, err
	}
	return f, nil
}

func (t *turn) service(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	return t.objects.Get(ctx, edit.Key{GroupVersionKind: serviceKind, Namespace: t.name.Namespace, Name: name})
}

// restricts is the label by which the Services were restricted while the workload's kind could be released; empty if they are not.
func (w *ways) restricts() string {
	if w.stable == nil {
		return ""
	}
	was, err := rollout.Original(w.stable.Object)
	if err != nil {
		return ""
	}
	own, _, _ := unstructured.NestedMap(was.Object, "spec", "selector")
	for _, u := range []*unstructured.Unstructured{w.stable, w.canary} {
		if u == nil {
			continue
		}
		selector, _, _ := unstructured.NestedMap(u.Object, "spec", "selector")
		for _, label := range slices.Sorted(maps.Keys(selector)) {
			if _, there := own[label]; !there {
				return label
			}
		}
	}
	return ""
}

// ours reports whether an object was made for this Rollout.
func (t *turn) ours(u *unstructured.Unstructured) bool {
	ref := metav1.GetControllerOfNoCopy(u)
	return ref != nil && ref.UID == t.live.GetUID()
}

// observeStable finds out to which pods the stable Service is restricted.
func (t *turn) observeStable(f *rollout.Traffic) error {
	w := t.ways
	u, err := rollout.Original(w.stable.Object)
	if err != nil {
		return err
	}
	w.was = u.Object
	selector, _, _ := unstructured.NestedMap(w.was, "spec", "selector")
	if len(selector) == 0 {
		return fmt.Errorf("the Service %s selects no pods: give it a selector", w.stable.GetName())
	}
	if _, own := selector[w.label]; own {
		return fmt.Errorf("the Service %s selects pods by %s, so it cannot have those of a version: remove that from its selector", w.stable.GetName(), w.label)
	}
	f.Pinned, _, _ = unstructured.NestedString(w.stable.Object, "spec", "selector", w.label)
	if clashes := rollout.Clashes(t.r.Spec.ExtraMetadata(), nil, w.was); len(clashes) > 0 {
		return errors.New(clashes[0].String())
	}
	return nil
}

// observeTargets reads the objects that route requests, and finds out which of the wants that may matter they carry.
func (t *turn) observeTargets(ctx context.Context, f *rollout.Traffic) error {
	w := t.ways
	w.live = make([]*unstructured.Unstructured, len(w.targets))
	for i, target := range w.targets {
		if _, ok := t.Providers.For(target); !ok {
			f.Wrong = fmt.Sprintf("%s is of no kind that steps can be laid over: see %s", target, target.Field)
			continue
		}
		u, err := t.objects.Get(ctx, keyOf(target, t.name.Namespace))
		if err != nil && !errors.Is(err, edit.ErrNoKind) {
			return err
		}
		if w.live[i] = u; u == nil {
			f.Missing = append(f.Missing, target.String())
		}
	}
	wants := []rollout.Want{rollout.WantNew, rollout.WantOriginal}
	if rel := t.r.Status.Release(); rel != nil && rel.CurrentStepIndex > 0 {
		wants = append(wants, rollout.Want(rel.CurrentStepIndex))
	}
	for _, want := range wants {
		laid, err := t.lay(ctx, want)
		if err != nil {
			return err
		}
		if want > 0 {
			f.Short, f.ShortOf = rollout.Short(laid.told), want
		}
		if laid.wrong != "" && want > 0 {
			f.Wrong = laid.wrong
		}
		if len(laid.update) == 0 && len(laid.owned) == 0 && len(laid.remove) == 0 {
			f.Carried = append(f.Carried, want)
		}
	}
	return nil
}

func keyOf(target rollout.Target, namespace string) edit.Key {
	return edit.Key{GroupVersionKind: edit.GVK(target.Group, target.Version, target.Kind), Namespace: namespace, Name: target.Name}
}

// laid is what has to be changed so that objects route as is wanted.
type laid struct {
	// update are objects of the user, owned those that have to exist beside them, as they have to be; remove are those that
	// must not exist.
	update, owned, remove []*unstructured.Unstructured
	told                  []rollout.Told
	// wrong says why it cannot be carried out at all.
	wrong string
}

// lay finds out what has to be changed so that objects route as is wanted.
func (t *turn) lay(ctx context.Context, want rollout.Want) (*laid, error) {
	w, out := t.ways, &laid{}
	routing := rollout.RoutingFor(w.plan, want)
	var failed error
	other := func(group, kind, name string) map[string]any {
		u, err := t.written(ctx, group, kind, name)
		if failed == nil {
			failed = err
		}
		return u
	}
	wanted := map[edit.Key]bool{}
	for i, target := range w.targets {
		live := w.live[i]
		if live == nil {
			continue
		}
		request := rollout.Request{
			Target: target, Rollout: t.name.Name, Namespace: t.name.Namespace, Stable: w.plan.Traffic().Service, Canary: w.plan.CanaryService(), Other: other,
		}
		l, ok := t.Providers.Over(live.Object, request, routing)
		if !ok {
			continue
		}
		out.told = append(out.told, l.Told...)
		for _, told := range l.Told {
			if told.Object && told.Short {
				out.wrong = told.Message + ": " + told.Fix
			}
		}
		if !carries(live.Object, l.Object) {
			out.update = append(out.update, &unstructured.Unstructured{Object: l.Object})
		}
		for _, u := range l.Owned {
			owned := t.own(u)
			wanted[keyOfObject(owned)] = true
			there, err := t.objects.Get(ctx, keyOfObject(owned))
			switch {
			case err != nil:
				return nil, err
			case there == nil:
				out.owned = append(out.owned, owned)
			case !t.ours(there):
				out.wrong = fmt.Sprintf("%s %s is not of this Rollout, which needs one of that name: rename it", there.GetKind(), there.GetName())
			case !contains(there.Object, owned.Object):
				out.owned = append(out.owned, over(there, owned))
			}
		}
	}
	if failed != nil {
		return nil, failed
	}
	for _, k := range t.possible(other) {
		if wanted[k] {
			continue
		}
		there, err := t.objects.Get(ctx, k)
		if err != nil && !errors.Is(err, edit.ErrNoKind) {
			return nil, err
		}
		if there != nil && t.ours(there) {
			out.remove = append(out.remove, there)
		}
	}
	return out, failed
}

// possible names the objects that any step may have made.
func (t *turn) possible(other func(group, kind, name string) map[string]any) (all []edit.Key) {
	w := t.ways
	if w.possible != nil {
		return *w.possible
	}
	defer func() { w.possible = &all }()
	for i, target := range w.targets {
		if w.live[i] == nil {
			continue
		}
		for n := range w.plan.Steps {
			l, ok := t.Providers.Over(w.live[i].Object, rollout.Request{
				Target: target, Rollout: t.name.Name, Namespace: t.name.Namespace, Stable: w.plan.Traffic().Service, Canary: w.plan.CanaryService(), Other: other,
			}, rollout.RoutingOf(&w.plan.Steps[n]))
			if !ok {
				break
			}
			for _, u := range l.Owned {
				if k := keyOfObject(t.own(u)); !slices.Contains(all, k) {
					all = append(all, k)
				}
			}
		}
	}
	return all
}

// written is another object of the namespace as its user wrote it.
func (t *turn) written(ctx context.Context, group, kind, name string) (map[string]any, error) {
	mapping, err := t.Client.RESTMapper().RESTMapping(schema.GroupKind{Group: group, Kind: kind})
	if meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	k := edit.Key{GroupVersionKind: mapping.GroupVersionKind, Namespace: t.name.Namespace, Name: name}
	if u, ok := t.ways.others[k]; ok {
		return u, nil
	}
	u, err := t.objects.Get(ctx, k)
	if err != nil || u == nil {
		return nil, err
	}
	original, err := rollout.Original(u.Object)
	if err != nil {
		return nil, err
	}
	t.ways.others[k] = original.Object
	return original.Object, nil
}

// route makes objects route as is wanted. What leads to the canary comes after what it leads to, and goes before it.
func (t *turn) route(ctx context.Context, want rollout.Want) error {
	l, err := t.lay(ctx, want)
	if err != nil {
		return err
	}
	for _, u := range l.owned {
		write := t.objects.Create
		if u.GetResourceVersion() != "" {
			write = t.objects.Update
		}
		if _, err := write(ctx, u); err != nil {
			return err
		}
	}
	for _, u := range l.update {
		if _, err := t.objects.Update(ctx, u); err != nil {
			return err
		}
	}
	for _, u := range l.remove {
		if err := t.objects.Delete(ctx, u); err != nil {
			return err
		}
	}
	if want > 0 {
		for _, e := range rollout.ShortEvents(l.told, want) {
			t.events.tell(t.live, e)
		}
	}
	return nil
}

// pin restricts the stable Service to the pods of a revision; an empty one gives it its own selector back.
func (t *turn) pin(ctx context.Context, hash string) error {
	w := t.ways
	if w.stable == nil || w.was == nil {
		return nil
	}
	out := w.was
	if hash != "" {
		pinned := runtime.DeepCopyJSON(w.was)
		if err := unstructured.SetNestedField(pinned, hash, "spec", "selector", w.label); err != nil {
			return err
		}
		var err error
		if out, err = rollout.Keep(w.was, pinned); err != nil {
			return err
		}
	}
	if sameObject(w.stable.Object, out) {
		return nil
	}
	_, err := t.objects.Update(ctx, &unstructured.Unstructured{Object: out})
	return err
}

// makeCanary makes the Service of the new version's pods: like the stable one, but within the cluster alone.
func (t *turn) makeCanary(ctx context.Context, hash string) error {
	w := t.ways
	if w.was == nil {
		return nil
	}
	spec := map[string]any{"type": "ClusterIP"}
	from, _ := w.was["spec"].(map[string]any)
	for _, field := range []string{"selector", "publishNotReadyAddresses", "sessionAffinity", "sessionAffinityConfig", "ipFamilyPolicy", "ipFamilies", "internalTrafficPolicy", "trafficDistribution"} {
		if v, ok := from[field]; ok {
			spec[field] = runtime.DeepCopyJSONValue(v)
		}
	}
	if from["clusterIP"] == "None" {
		spec["clusterIP"] = "None"
	}
	ports, _ := from["ports"].([]any)
	var list []any
	for _, p := range ports {
		port, _ := runtime.DeepCopyJSONValue(p).(map[string]any)
		delete(port, "nodePort")
		list = append(list, port)
	}
	spec["ports"] = list
	if err := unstructured.SetNestedField(spec, hash, "selector", w.label); err != nil {
		return err
	}
	labels := map[string]any{}
	if m, _ := w.was["metadata"].(map[string]any); m != nil {
		from, _ := m["labels"].(map[string]any)
		maps.Copy(labels, from)
	}
	u := t.own(map[string]any{
		"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": w.plan.CanaryService(), "namespace": t.name.Namespace, "labels": labels}, "spec": spec,
	})
	if w.canary != nil {
		_, err := t.objects.Update(ctx, over(w.canary, u))
		return err
	}
	_, err := t.objects.Create(ctx, u)
	return err
}

// own makes an object one of the Rollout's, with which it is deleted at the latest.
func (t *turn) own(u map[string]any) *unstructured.Unstructured {
	out := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(u)}
	out.SetNamespace(t.name.Namespace)
	yes := true
	out.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: rolloutKind.GroupVersion().String(), Kind: rolloutKind.Kind, Name: t.name.Name, UID: t.live.GetUID(), Controller: &yes,
	}})
	return out
}

func keyOfObject(u *unstructured.Unstructured) edit.Key {
	return edit.Key{GroupVersionKind: u.GroupVersionKind(), Namespace: u.GetNamespace(), Name: u.GetName()}
}
