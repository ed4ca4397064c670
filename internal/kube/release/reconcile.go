package release

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/kube/edit"
	"github.com/weirmesh/weir/internal/rollout"
	"github.com/weirmesh/weir/internal/rollout/workload"
)

const (
	// finalizer keeps a Rollout that is being deleted until everything is as it was. OpenKruise has the same one. A Rollout that
	// releases nothing has none.
	finalizer = rollouts.Group + "/rollout"
	// decisions bounds how many decisions on one Rollout follow each other without a pause.
	decisions = 64
	// later is how long to wait before a pod is evicted that may not be now.
	later = 2 * time.Second
	// telling is how often the status of a Rollout tells at most how many pods there are and what is awaited, unless more
	// is new: pods may come and go many times a second.
	telling = 2 * time.Second
)

// errLater means that a change cannot be made now.
var errLater = errors.New("not now")

// turn is one look at a Rollout.
type turn struct {
	*Controller
	name types.NamespacedName
	// live is the Rollout as it is stored, r what it says with the status of the draft.
	live  *unstructured.Unstructured
	r     *rollouts.Rollout
	draft *draft
	kind  *workload.Kind // nil if nothing of that kind can be released
	seen  *workload.Seen // nil if there is no such workload
	w     *rollout.Workload
	// unlisted says that the workload is of a kind that may not be released; empty otherwise.
	unlisted string
	// untoldKind means that the API server does not tell when what is wrong with the workload's kind changes.
	untoldKind bool
	ways       *ways // nil if no requests are routed
}

// reconcile goes on with a Rollout as far as it goes without waiting, and returns after which time to look again; zero is
// not before something changes.
func (c *Controller) reconcile(ctx context.Context, name types.NamespacedName) (again time.Duration, err error) {
	var d draft
	for range decisions {
		t := &turn{Controller: c, name: name, draft: &d}
		on, wait, err := t.run(ctx)
		if err != nil {
			return 0, errors.Join(err, t.obstructed(ctx, err)) // people see what does not succeed
		}
		if !on {
			t.mu.Lock()
			delete(t.obstructions, name)
			t.mu.Unlock()
			return wait, nil
		}
	}
	return 0, errBusy
}

// run looks and decides once. on means that something was changed or decided, and that there may be more to do.
func (t *turn) run(ctx context.Context) (on bool, wait time.Duration, err error) {
	t.live, err = t.objects.Get(ctx, edit.Key{GroupVersionKind: rolloutKind, Namespace: t.name.Namespace, Name: t.name.Name})
	if err != nil {
		return false, 0, err
	}
	if t.live == nil {
		t.concern(t.name, nil)
		t.sweepSoon()
		return false, 0, nil
	}
	if !t.read() {
		t.mu.Lock()
		t.stats.gone(t.name)
		t.mu.Unlock()
		return t.invalid(ctx)
	}
	t.draft.over(t)
	if why := rollout.LeftAlone(t.r); why != "" {
		t.mu.Lock()
		t.stats.gone(t.name)
		t.mu.Unlock()
		on, err := t.leave(ctx, why)
		return on, 0, err
	}
	t.concern(t.name, t.objectsOf()) // before they are read, so that no change of them goes unseen
	if on, taken, err := t.taken(ctx); err != nil || taken {
		return on, idle, err
	}
	if err := t.observeWorkload(ctx); err != nil {
		return false, 0, err
	}
	traffic, err := t.observeTraffic(ctx)
	if err != nil {
		return false, 0, err
	}
	now := time.Now()
	out := rollout.Decide(rollout.Facts{Rollout: t.r, Workload: t.w, Unlisted: t.unlisted, Traffic: *traffic, Now: now})
	t.stands(&out.Status, traffic, now)
	on, untold, err := t.carryOut(ctx, &out)
	if err == errLater {
		return false, later, nil
	}
	if err != nil || on {
		return on, 0, err
	}
	if !out.Again.IsZero() {
		wait = max(out.Again.Sub(now), 10*time.Millisecond)
	}
	if untold > 0 && (wait == 0 || wait > untold) {
		wait = untold
	}
	if (t.untoldKind || t.r.Status.Phase == rollouts.PhaseProgressing) && (wait == 0 || wait > idle) {
		wait = idle
	}
	return false, wait, nil
}

// read decodes the Rollout; false if it is not valid. What one changed that is not valid any more is put back all the same
// when it is deleted.
func (t *turn) read() bool {
	version := t.live.GroupVersionKind().Version
	r, errs := rollouts.Decode(version, t.live.Object)
	if len(errs) > 0 && t.live.GetDeletionTimestamp() != nil {
		r, errs = rollouts.Read(version, t.live.Object)
	}
	if len(errs) > 0 || r.Spec.Strategy.Plan() == nil {
		return false
	}
	t.r = r
	return true
}

// taken reports whether another Rollout, one that was made before, has the workload. Then nothing is done but to say so. A
// release that has begun goes on.
func (t *turn) taken(ctx context.Context) (on, taken bool, err error) {
	if t.r.DeletionTimestamp != nil || t.r.Spec.Disabled || t.r.Status.Phase == rollouts.PhaseProgressing {
		return false, false, nil
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(rolloutKind.GroupVersion().WithKind("RolloutList"))
	exemplar := &unstructured.Unstructured{}
	exemplar.SetGroupVersionKind(rolloutKind)
	if err := t.objects.List(ctx, exemplar, t.name.Namespace, list); err != nil {
		return false, false, err
	}
	ref := &t.r.Spec.WorkloadRef
	group, _ := rollout.SplitVersion(ref.APIVersion)
	for i := range list.Items {
		other := &list.Items[i]
		if other.GetName() == t.name.Name || other.GetDeletionTimestamp() != nil || !releases(other, group, ref.Kind, ref.Name) {
			continue
		}
		if disabled, _, _ := unstructured.NestedBool(other.Object, "spec", "disabled"); disabled || !before(other, t.live) {
			continue
		}
		t.concern(t.name, []object{{rolloutKind.GroupKind(), t.name.Namespace, other.GetName()}})
		status := rollout.CopyStatus(t.r.Status)
		status.ObservedGeneration = t.r.Generation
		status.Message = fmt.Sprintf("Rollout %s has the %s %s already: delete one of the two.", other.GetName(), ref.Kind, ref.Name)
		if reflect.DeepEqual(status, t.r.Status) {
			return false, true, nil
		}
		t.draft.add(t, status, rollout.Event{Reason: "WorkloadTaken", Warning: true, Message: status.Message})
		return true, true, t.store(ctx)
	}
	return false, false, nil
}

// releases reports whether a Rollout names a workload.
func releases(r *unstructured.Unstructured, group, kind, name string) bool {
	ref, _, _ := unstructured.NestedStringMap(r.Object, "spec", "workloadRef")
	of, _ := rollout.SplitVersion(ref["apiVersion"])
	return of == group && ref["kind"] == kind && ref["name"] == name
}

// before reports whether a Rollout was made before another one.
func before(a, b *unstructured.Unstructured) bool {
	x, y := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	if !x.Equal(&y) {
		return x.Before(&y)
	}
	return a.GetName() < b.GetName()
}

// invalid leaves a Rollout alone that is not valid, except that it may be deleted: the definition and the admission
// webhook let none begin a release.
func (t *turn) invalid(ctx context.Context) (on bool, wait time.Duration, err error) {
	_, errs := rollouts.Decode(t.live.GroupVersionKind().Version, t.live.Object)
	t.events.tell(t.live, rollout.Event{Reason: "Invalid", Warning: true, Message: "The Rollout is not valid, and is left alone: " + errs.ToAggregate().Error()})
	if t.live.GetDeletionTimestamp() != nil {
		return t.setFinalizer(ctx, false)
	}
	return false, 0, nil
}

// leave leaves a Rollout alone whose steps no object can carry out.
func (t *turn) leave(ctx context.Context, why string) (on bool, err error) {
	status, event := rollout.Leave(&t.r.Status, why)
	status.ObservedGeneration = t.r.Generation
	if reflect.DeepEqual(status, t.r.Status) {
		return false, nil
	}
	if event == nil {
		t.draft.add(t, status)
	} else {
		t.draft.add(t, status, *event)
	}
	return true, t.store(ctx)
}

func (t *turn) setFinalizer(ctx context.Context, want bool) (on bool, wait time.Duration, err error) {
	out := t.live.DeepCopy()
	if !finalized(out, want) {
		return false, 0, nil
	}
	switch err = t.update(ctx, out); {
	case !apierrors.IsNotFound(err):
		return true, 0, err
	case want: // it was deleted a moment ago: nothing is begun for it
		return false, 0, errLater
	}
	return false, 0, nil
}

// finalized adds the finalizer to a Rollout, or removes it; false if there is nothing to do.
func finalized(r *unstructured.Unstructured, want bool) bool {
	all := r.GetFinalizers()
	if slices.Contains(all, finalizer) == want {
		return false
	}
	if want {
		r.SetFinalizers(append(all, finalizer))
	} else {
		r.SetFinalizers(slices.DeleteFunc(all, func(f string) bool { return f == finalizer }))
	}
	return true
}

func (t *turn) workloadKey() edit.Key {
	ref := t.r.Spec.WorkloadRef
	group, version := rollout.SplitVersion(ref.APIVersion)
	return edit.Key{GroupVersionKind: edit.GVK(group, version, ref.Kind), Namespace: t.name.Namespace, Name: ref.Name}
}

// observeWorkload reads the workload and what it controls.
func (t *turn) observeWorkload(ctx context.Context) error {
	kind, ok := t.Workloads.For(t.r.Spec.WorkloadRef)
	if !ok {
		t.unlisted = workload.Unlisted(t.r.Spec.WorkloadRef)
		return nil
	}
	t.kind = kind
	record, err := workload.ReadRecord(t.live.GetAnnotations()[workload.RecordAnnotation])
	if err != nil {
		t.events.tell(t.live, rollout.Event{Reason: "RecordLost", Warning: true, Message: "What was remembered of the workload is lost: " + err.Error()})
	}
	u, err := t.objects.Get(ctx, t.workloadKey())
	if errors.Is(err, edit.ErrNoKind) {
		t.untoldKind = true
		return nil
	}
	if err != nil || u == nil {
		return err
	}
	t.seen = &workload.Seen{Object: u.Object, Record: record, Style: t.r.Spec.Style(), Metadata: t.r.Spec.ExtraMetadata(), Stable: t.r.Status.Replaces()}
	if kind.Sets {
		if t.seen.Sets, err = t.sets(ctx, u); err != nil {
			return err
		}
	}
	if kind.Revisions {
		if t.seen.Revisions, err = t.revisions(ctx, u); err != nil {
			return err
		}
	}
	if kind.Pods {
		if t.seen.Pods, err = t.pods(ctx, u); err != nil {
			return err
		}
	}
	if t.w, err = kind.Observe(t.seen); err != nil || kind.Definition() == "" {
		return err
	}
	why, err := t.definitions.Unfit(ctx, kind, t.workloadKey().Version)
	if why != "" {
		t.w.Unfit, t.untoldKind = why, true
	}
	return err
}

// sets are the ReplicaSets that a workload controls, as they were written last.
func (t *turn) sets(ctx context.Context, u *unstructured.Unstructured) (all []*appsv1.ReplicaSet, err error) {
	var list appsv1.ReplicaSetList
	if err := t.objects.Owned(ctx, replicaSets, t.name.Namespace, string(u.GetUID()), &list); err != nil {
		return nil, err
	}
	for i := range list.Items {
		if rs, ok := t.objects.Newest(&list.Items[i]).(*appsv1.ReplicaSet); ok && rs.DeletionTimestamp == nil {
			all = append(all, rs)
		}
	}
	slices.SortFunc(all, func(a, b *appsv1.ReplicaSet) int { return compare(a.Name, b.Name) })
	return all, nil
}

// revisions are the ControllerRevisions of a workload.
func (t *turn) revisions(ctx context.Context, u *unstructured.Unstructured) (all []*appsv1.ControllerRevision, err error) {
	var list appsv1.ControllerRevisionList
	if err := t.objects.Owned(ctx, &appsv1.ControllerRevision{}, t.name.Namespace, string(u.GetUID()), &list); err != nil {
		return nil, err
	}
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	return all, nil
}

// pods are those of a workload that are not on their way out, by name.
func (t *turn) pods(ctx context.Context, u *unstructured.Unstructured) (all []*corev1.Pod, err error) {
	var list corev1.PodList
	if err := t.objects.Owned(ctx, &corev1.Pod{}, t.name.Namespace, string(u.GetUID()), &list); err != nil {
		return nil, err
	}
	for i := range list.Items {
		if p, ok := t.objects.Newest(&list.Items[i]).(*corev1.Pod); ok && p.DeletionTimestamp == nil {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b *corev1.Pod) int { return compare(a.Name, b.Name) })
	return all, nil
}

// carryOut makes the change that was decided. The status is stored before, or as late as it may be: several decisions that
// follow each other are one write. on means that there may be more to do, untold after which time the status is to be told.
func (t *turn) carryOut(ctx context.Context, out *rollout.Outcome) (on bool, untold time.Duration, err error) {
	changed := !apiequality.Semantic.DeepEqual(out.Status, t.r.Status)
	if a := out.Action; a != nil && a.Do != rollout.Hold || a == nil && out.Finalizer && !changed { // what is held is remembered first, with the finalizer
		if on, _, err := t.setFinalizer(ctx, true); err != nil || on {
			return on, 0, err
		}
	}
	t.draft.add(t, out.Status, out.Events...)
	switch a := out.Action; {
	case a != nil:
		again := t.again()
		if !again && !a.Late() && t.draft.counts() {
			if err := t.store(ctx); err != nil {
				return false, 0, err
			}
		}
		if err := t.act(ctx, *a); err != nil {
			return false, 0, err
		}
		if again && !a.Late() {
			err = t.store(ctx)
		}
		return true, 0, err
	case changed:
		return true, 0, nil
	}
	if t.draft.counts() {
		if err := t.store(ctx); err != nil {
			return false, 0, err
		}
	}
	if t.seen != nil && t.kind != nil {
		changes, err := t.kind.Tend(t.seen, t.w)
		if err != nil {
			return false, 0, err
		}
		if err := t.change(ctx, changes); err != nil {
			return false, 0, err
		}
		on = len(changes) > 0
	}
	free := !on && !out.Finalizer && slices.Contains(t.live.GetFinalizers(), finalizer)
	if untold = t.untold(); untold == 0 && !(free && t.again()) {
		if err := t.store(ctx); err != nil {
			return false, 0, err
		}
	}
	if free {
		on, _, err = t.setFinalizer(ctx, false)
	}
	return on, untold, err
}

// act makes a change that was decided.
func (t *turn) act(ctx context.Context, a rollout.Action) error {
	switch a.Do {
	case rollout.Hold, rollout.Upgrade, rollout.Resume, rollout.Release:
		if t.seen == nil {
			return nil
		}
		return t.change(ctx, t.kind.Do(t.seen, t.w, a))
	case rollout.Pin, rollout.Unpin:
		return t.pin(ctx, a.Hash)
	case rollout.MakeCanary:
		return t.makeCanary(ctx, a.Hash)
	case rollout.RemoveCanary:
		return t.objects.Delete(ctx, t.ways.canary)
	case rollout.Route:
		return t.route(ctx, a.Want)
	}
	return fmt.Errorf("unknown action %q", a.Do)
}

// change makes changes of the workload, in their order.
func (t *turn) change(ctx context.Context, changes []workload.Change) error {
	for _, c := range changes {
		var err error
		switch {
		case c.Record != nil:
			err = t.remember(ctx, c.Record)
		case c.Update != nil:
			if !reflect.DeepEqual(c.Update, t.seen.Object) {
				_, err = t.objects.Update(ctx, &unstructured.Unstructured{Object: c.Update})
			}
		case c.Scale != nil:
			err = t.objects.Scale(ctx, c.Scale.Set, c.Scale.Replicas, workload.DesiredAnnotation)
		case c.Create != nil:
			_, err = t.objects.Create(ctx, &unstructured.Unstructured{Object: c.Create})
		case c.Evict != nil:
			if err = t.objects.Evict(ctx, c.Evict); apierrors.IsTooManyRequests(err) {
				t.events.tell(t.live, rollout.Event{Reason: "EvictionForbidden", Warning: true, Message: "The release waits: the API server does not let the pod " + c.Evict.Name + " be evicted: " + err.Error()})
				return errLater
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// remember writes the Record into the Rollout's annotation, with the finalizer; an empty one removes it.
func (t *turn) remember(ctx context.Context, rec *workload.Record) error {
	annotations := t.live.GetAnnotations()
	before, there := annotations[workload.RecordAnnotation]
	out := t.live.DeepCopy()
	all := out.GetAnnotations()
	if rec.UID == "" {
		if !there {
			return nil
		}
		if delete(all, workload.RecordAnnotation); len(all) == 0 {
			all = nil
		}
	} else {
		text, err := rec.Text()
		if err != nil {
			return err
		}
		if !finalized(out, true) && text == before {
			return nil
		}
		if all == nil {
			all = map[string]string{}
		}
		all[workload.RecordAnnotation] = text
	}
	out.SetAnnotations(all)
	return t.update(ctx, out)
}

// objectsOf are those that the Rollout is about.
func (t *turn) objectsOf() []object {
	k := t.workloadKey()
	all := []object{{k.GroupKind(), k.Namespace, k.Name}}
	if plan := t.r.Spec.Strategy.Plan(); plan != nil && plan.Traffic() != nil {
		for _, name := range []string{plan.Traffic().Service, plan.CanaryService()} {
			all = append(all, object{schema.GroupKind{Kind: "Service"}, t.name.Namespace, name})
		}
		for _, target := range rollout.Targets(&t.r.Spec.Strategy) {
			all = append(all, object{schema.GroupKind{Group: target.Group, Kind: target.Kind}, t.name.Namespace, target.Name})
		}
	}
	return all
}

var serviceKind = corev1.SchemeGroupVersion.WithKind("Service")
