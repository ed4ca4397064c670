package release

import (
	"context"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/rollout"
)

// draft is a status that was decided on and is not stored yet, with the Events that are told once it is. It lasts as long as
// nobody else writes the Rollout: then all is decided anew. The zero draft is none.
type draft struct {
	// version is that of the Rollout for which it was decided on; empty for none.
	version string
	stored  rollouts.Status
	status  rollouts.Status
	events  []rollout.Event
	// passed are the transitions from stored to status.
	passed []Transition
}

// over gives the Rollout of a turn the status of the draft, if it is still one of that Rollout.
func (d *draft) over(t *turn) {
	if d.version == "" || d.version != t.live.GetResourceVersion() {
		*d = draft{}
		return
	}
	t.r.Status = d.status
}

// add notes what was decided in a turn.
func (d *draft) add(t *turn, status rollouts.Status, events ...rollout.Event) {
	if d.version == "" {
		*d = draft{version: t.live.GetResourceVersion(), stored: t.r.Status, status: t.r.Status}
	}
	stays := t.w != nil && t.w.Update != t.w.Stable
	d.passed = append(d.passed, passed(&d.status, &status, stays)...)
	d.status, d.events = status, append(d.events, events...)
}

// news reports whether there is something to store.
func (d *draft) news() bool {
	return d.version != "" && !apiequality.Semantic.DeepEqual(d.status, d.stored)
}

// counts reports whether the next controller has to know of the draft before a change that it decided on.
func (d *draft) counts() bool {
	return len(d.events) > 0 || d.news() && !rollout.Progress(d.status, d.stored)
}

// untold is how long the draft is not to be stored yet, as it says little that is new and another one was stored just now.
func (t *turn) untold() time.Duration {
	if !t.draft.news() || t.draft.counts() {
		return 0
	}
	every := telling
	if same := rollout.CopyStatus(t.draft.status); same.Release() != nil && t.draft.stored.Release() != nil {
		same.Release().ObservedWorkloadGeneration = t.draft.stored.Release().ObservedWorkloadGeneration
		if apiequality.Semantic.DeepEqual(same, t.draft.stored) { // it goes with what is told next
			every = idle
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return max(0, every-time.Since(t.told[t.name]))
}

// store writes the status of the draft, if it differs from the one that is stored, and tells its Events.
func (t *turn) store(ctx context.Context) error {
	if t.draft.news() {
		text, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&t.draft.status)
		if err != nil {
			return err
		}
		out := t.live.DeepCopy()
		out.Object["status"] = text
		if out, err = t.objects.UpdateStatus(ctx, out); err != nil {
			return err
		}
		t.live = out
		t.mu.Lock()
		t.told[t.name] = time.Now()
		t.mu.Unlock()
	}
	t.pass(t.draft.passed)
	for _, e := range t.draft.events {
		t.events.tell(t.live, e)
	}
	*t.draft = draft{}
	return nil
}

// update writes the Rollout, but for its status.
func (t *turn) update(ctx context.Context, out *unstructured.Unstructured) error {
	out, err := t.objects.Update(ctx, out)
	if err != nil {
		return err
	}
	if t.live = out; t.draft.version != "" {
		t.draft.version = out.GetResourceVersion()
	}
	return nil
}
