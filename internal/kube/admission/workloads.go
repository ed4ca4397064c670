package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/rollout"
	"github.com/weirmesh/weir/internal/rollout/workload"
)

// WorkloadsPath is where API servers ask about workloads.
const WorkloadsPath = "/admit/workloads"

// findTimeout is for finding the Rollout of a workload: an API server waits 3 s for the whole answer.
const findTimeout = time.Second

// Workloads holds a workload in the moment in which its pod template changes, so that its own controller replaces no pod
// before the Rollout says so, and keeps it held if somebody else's change would let it go. The controller that carries
// Rollouts out does the same a little later where nobody asked here.
type Workloads struct {
	// Kinds are those that may be released.
	Kinds workload.Kinds
	// Unfit says why no object of a kind can be released as a version has it; empty if they can. It is asked about custom
	// kinds.
	Unfit func(ctx context.Context, kind *workload.Kind, version string) (string, error)
	// Rollouts returns the Rollouts of a namespace, in v1beta1; none where nothing carries them out. An error, such as while
	// they are not known yet, leaves it to the API server whether the workload is stored as it is.
	Rollouts func(ctx context.Context, namespace string) ([]map[string]any, error)

	answered, held atomic.Uint64
}

// Stats returns how many reviews were answered, and how many of them changed the workload. It may be called from any
// goroutine.
func (v *Workloads) Stats() (answered, held uint64) { return v.answered.Load(), v.held.Load() }

// Answer answers an AdmissionReview. An error says why the body is none, or that nothing is known.
func (v *Workloads) Answer(ctx context.Context, body []byte) ([]byte, error) {
	r, err := read(body)
	if err != nil {
		return nil, err
	}
	response, err := v.judge(ctx, r)
	if err != nil {
		return nil, err
	}
	v.answered.Add(1)
	if response.Patch != nil {
		v.held.Add(1)
	}
	return answered(response)
}

func (v *Workloads) judge(ctx context.Context, r *request) (*admissionv1.AdmissionResponse, error) {
	ref := rollouts.Ref{APIVersion: r.Resource.Group + "/" + r.Resource.Version, Kind: r.Kind.Kind, Name: r.Name}
	kind, ok := v.Kinds.For(ref)
	if !ok || r.Operation != admissionv1.Update || r.SubResource != "" {
		return r.allow(nil), nil
	}
	if err := whole(r.old, r.object); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	all, err := v.Rollouts(ctx, r.Namespace)
	if err != nil {
		return nil, fmt.Errorf("the Rollouts of namespace %s are not known: %w", r.Namespace, err)
	}
	of, record := releasing(all, ref, r.old)
	if of == nil {
		return r.allow(nil), nil
	}
	held := workload.IsHeld(r.old)
	if !held {
		if of.Spec.Disabled || of.DeletionTimestamp != nil || rollout.LeftAlone(of) != "" { // nobody would go on with it
			return r.allow(nil), nil
		}
		if unfit, err := v.unfit(ctx, r, kind, of); err != nil || unfit {
			return r.allow(nil), err
		}
	}
	out := kind.Admit(r.old, r.object, record)
	if out == nil {
		return r.allow(nil), nil
	}
	patch, err := json.Marshal(patchOf(nil, "", r.object, out))
	if err != nil {
		return nil, err
	}
	var warnings []string
	if held {
		warnings = []string{fmt.Sprintf("%s stays held while Rollout %s/%s releases it: approve its steps, or go back by the former template", r.called(), r.Namespace, of.Name)}
	}
	response := r.allow(warnings)
	kindOf := admissionv1.PatchTypeJSONPatch
	response.Patch, response.PatchType = patch, &kindOf
	return response, nil
}

// unfit reports whether a workload cannot be released, as far as that is known here.
func (v *Workloads) unfit(ctx context.Context, r *request, kind *workload.Kind, of *rollouts.Rollout) (bool, error) {
	// Who sends a whole object need not send its status.
	now := map[string]any{"metadata": r.object["metadata"], "spec": r.object["spec"], "status": r.old["status"]}
	if kind.Unfit(now, of.Spec.Style(), of.Spec.ExtraMetadata()) != "" || kind.Lacks(now, nil) != "" {
		return true, nil
	}
	if kind.Definition() == "" {
		return false, nil
	}
	why, err := v.Unfit(ctx, kind, r.Resource.Version)
	return why != "", err
}

// whole says that objects lack what each workload has.
func whole(objects ...map[string]any) error {
	for _, o := range objects {
		for _, name := range []string{"metadata", "spec"} {
			if _, ok := o[name].(map[string]any); !ok {
				return errors.New("request.object, request.oldObject: must have metadata and spec")
			}
		}
	}
	return nil
}

// releasing is the valid Rollout that releases a workload, with what it remembers of it; nil if there is none. Of two, the
// one counts that remembers this very workload.
func releasing(all []map[string]any, ref rollouts.Ref, object map[string]any) (of *rollouts.Rollout, record *workload.Record) {
	meta, _ := object["metadata"].(map[string]any)
	uid, _ := meta["uid"].(string)
	for _, u := range all {
		spec, _ := u["spec"].(map[string]any)
		named, _ := spec["workloadRef"].(map[string]any)
		if named["name"] != ref.Name {
			continue
		}
		r, errs := rollouts.Decode("v1beta1", u)
		if len(errs) > 0 || r.Spec.WorkloadRef.Key() != ref.Key() {
			continue
		}
		rec, _ := workload.ReadRecord(r.Annotations[workload.RecordAnnotation]) // one that cannot be read is lost
		mine := rec != nil && rec.UID == uid
		if of == nil || mine {
			if of, record = r, rec; mine {
				return of, record
			}
		}
	}
	return of, record
}
