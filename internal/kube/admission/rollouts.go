package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weirmesh/weir/api/rollouts"
	dialect "github.com/weirmesh/weir/internal/dialect/rollouts"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/rollout"
	"github.com/weirmesh/weir/internal/rollout/workload"
)

// RolloutsPath is where API servers ask about Rollouts.
const RolloutsPath = "/admit/rollouts"

const (
	// listTimeout is for reading the Rollouts of a namespace, and again for what selects pods: an API server waits 5 s for the
	// whole answer.
	listTimeout = 2 * time.Second
	// listsAtOnce is how many read at a time: anyone may ask, so that many could.
	listsAtOnce = 4
)

// Rollouts judges the Rollouts that are about to be stored. What is wrong with one by itself, or must not change during a
// release, is refused; what "weir check" only warns of is allowed with warnings. So is what cannot be known now. The
// zero value with List and Find is ready for use.
type Rollouts struct {
	// List returns the Rollouts of a namespace, as a version has them. It is not asked about a Rollout that keeps its
	// workload.
	List func(ctx context.Context, version, namespace string) ([]map[string]any, error)
	// Find returns a Deployment or a Service of a namespace; nil if there is none. It is asked about Rollouts whose extra pods
	// have labels of their own.
	Find func(ctx context.Context, kind, namespace, name string) (map[string]any, error)
	// Kinds are the kinds of workloads that may be released.
	Kinds workload.Kinds

	lists            atomic.Int64
	answered, denied atomic.Uint64
}

// Stats count since the start.
type Stats struct {
	// Answered counts reviews, Denied those of them whose object may not be stored.
	Answered, Denied uint64
}

// Stats returns the counts. It may be called from any goroutine.
func (v *Rollouts) Stats() Stats { return Stats{v.answered.Load(), v.denied.Load()} }

// Answer answers an AdmissionReview. An error says why the body is none, or not about a Rollout.
func (v *Rollouts) Answer(ctx context.Context, body []byte) ([]byte, error) {
	r, err := read(body)
	if err != nil {
		return nil, err
	}
	if r.Resource.Group != rollouts.Group || r.Resource.Resource != "rollouts" || !slices.Contains(rollouts.Versions, r.Resource.Version) {
		return nil, fmt.Errorf("request.resource: %s %s of %s is none that is judged here", r.Resource.Resource, r.Resource.Version, r.Resource.Group)
	}
	response := v.judge(ctx, r)
	v.answered.Add(1)
	if !response.Allowed {
		v.denied.Add(1)
	}
	return answered(response)
}

// judge decides. A deletion, a status, and a change of metadata alone pass whatever the Rollout is: so one that is not
// valid loses its finalizers all the same.
func (v *Rollouts) judge(ctx context.Context, r *request) *admissionv1.AdmissionResponse {
	version := r.Resource.Version
	update := r.Operation == admissionv1.Update
	switch {
	case r.SubResource != "", r.Operation != admissionv1.Create && !update:
		return r.allow(nil)
	case update && rollouts.SameSpec(version, r.old, r.object):
		return r.allow(nil)
	}
	now, problems := rollouts.Read(version, r.object)
	if now == nil {
		return r.deny(problems)
	}
	problems = rollouts.Problems(version, &now.Spec)
	for _, m := range rollout.Mistakes(now) {
		problems = append(problems, field.Invalid(field.NewPath(m.Field), field.OmitValueType{}, m.Message+": "+m.Fix))
	}
	ref := now.Spec.WorkloadRef
	moved := true
	if update {
		if before, _ := rollouts.Read(version, r.old); before != nil {
			problems = append(problems, rollouts.ValidateChange(version, before, now)...)
			moved = before.Spec.WorkloadRef.Key() != ref.Key()
		}
	}
	var warnings []string
	if _, released := v.Kinds.For(ref); !released && rollouts.MayBeNamed(ref.GroupKind()) {
		problems = append(problems, field.Forbidden(workloadField(version).Child("kind"), workload.Unlisted(ref)))
	}
	if moved && ref.Name != "" {
		problem, warning := v.taken(ctx, r, ref)
		if problem != nil {
			problems = append(problems, problem)
		}
		if warning != "" {
			warnings = append(warnings, warning)
		}
	}
	clashes, warning := v.clashes(ctx, r.Namespace, &now.Spec)
	if warning != "" {
		warnings = append(warnings, warning)
	}
	if problems = append(problems, clashes...); len(problems) > 0 {
		return r.deny(problems)
	}
	for _, f := range dialect.Steps(nil, version, now) {
		if f.Severity == resource.Info {
			continue
		}
		warnings = append(warnings, fmt.Sprintf("%s: %s: %s (%s)", f.Ref.Field, f.Message, f.Fix, f.Code))
	}
	return r.allow(warnings)
}

var errBusy = errors.New("too many reviews at once")

// taken reports that another Rollout of the namespace releases the workload, or warns that nobody knows.
func (v *Rollouts) taken(ctx context.Context, r *request, ref rollouts.Ref) (*field.Error, string) {
	at := workloadField(r.Resource.Version)
	others, err := v.list(ctx, r)
	if err != nil {
		return nil, fmt.Sprintf("%s: it is not known whether another Rollout releases %s %s; if one does, WR912 says so later: %v", at, ref.Kind, ref.Name, err)
	}
	for _, u := range others {
		meta, _ := u["metadata"].(map[string]any)
		name, _ := meta["name"].(string)
		if name == "" || name == objectName(r) {
			continue
		}
		if o, _ := rollouts.Read(r.Resource.Version, u); o != nil && o.Spec.WorkloadRef.Key() == ref.Key() {
			return field.Forbidden(at, fmt.Sprintf("Rollout %s/%s releases %s %s already: delete one of the two, or name another workload", r.Namespace, name, ref.Kind, ref.Name)), ""
		}
	}
	return nil, ""
}

// clashes returns labels of extra pods that their Deployment or the stable Service would not select, or warns that nobody knows.
func (v *Rollouts) clashes(ctx context.Context, namespace string, spec *rollouts.Spec) (problems field.ErrorList, warning string) {
	m := spec.ExtraMetadata()
	if m == nil || len(m.Labels) == 0 {
		return nil, ""
	}
	names := map[string]string{"Deployment": spec.WorkloadRef.Name}
	if traffic := spec.Strategy.Plan().Traffic(); traffic != nil {
		names["Service"] = traffic.Service
	}
	found := map[string]map[string]any{}
	err := v.ask(ctx, func(ctx context.Context) (err error) {
		for kind, name := range names {
			if found[kind], err = v.Find(ctx, kind, namespace, name); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Sprintf("%s.labels: it is not known whether selectors match pods with these labels; if one does not, the Rollout's status says so later: %v", rollout.MetadataField, err)
	}
	for _, c := range rollout.Clashes(m, found["Deployment"], found["Service"]) {
		problems = append(problems, &field.Error{Type: field.ErrorTypeForbidden, Field: c.Field(), Detail: c.Why + ": " + c.Fix})
	}
	return problems, ""
}

// list asks for the Rollouts of the namespace.
func (v *Rollouts) list(ctx context.Context, r *request) (all []map[string]any, err error) {
	err = v.ask(ctx, func(ctx context.Context) error {
		all, err = v.List(ctx, r.Resource.Version, r.Namespace)
		return err
	})
	return all, err
}

// ask asks the API server, if not many do.
func (v *Rollouts) ask(ctx context.Context, what func(context.Context) error) error {
	defer v.lists.Add(-1)
	if v.lists.Add(1) > listsAtOnce {
		return errBusy
	}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	return what(ctx)
}

func workloadField(version string) *field.Path {
	if version == "v1alpha1" {
		return field.NewPath("spec", "objectRef", "workloadRef")
	}
	return field.NewPath("spec", "workloadRef")
}

// objectName is the object's name; an API server has made one by now where only its beginning is written.
func objectName(r *request) string {
	meta, _ := r.object["metadata"].(map[string]any)
	name, _ := meta["name"].(string)
	return name
}
