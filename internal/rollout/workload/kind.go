package workload

import (
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/rollout"
)

// Kind is how the pods of one kind of workload are replaced.
type Kind struct {
	Group, Name, Plural string
	// Label of pods has their revision, by which Services tell versions apart.
	Label string
	// Beside means that pods of the new revision can come beside all stable ones, as blue-green releases want it.
	Beside bool
	// Sets, Revisions and Pods say what of a workload has to be read beside it.
	Sets, Revisions, Pods bool

	// lay says which fields of an object's spec keep the workload's own controller from replacing other pods than the Record
	// says.
	lay func(object map[string]any, r *Record) fields
	// admit says what has to be changed of a spec at admission, when nothing is known but the object, so that no pod is
	// replaced, and the value of HeldLabel; nil if nothing has to be. admitted says how the user has these fields, by that
	// value.
	admit    func(spec map[string]any) (set fields, label string)
	admitted func(label string) fields
	// vital are fields of lay that nobody may change meanwhile, as pods would be replaced at once.
	vital []string
	// defaults are the fields of lay if nobody knows any more how they were.
	defaults fields
	// observe fills in what is known of the revisions and the pods.
	observe func(s *Seen, w *rollout.Workload) error
	// tend returns what has to be done while the workload is held; nil if nothing.
	tend func(s *Seen, w *rollout.Workload) ([]Change, error)
	// recover returns what has to be done when a release was taken back, and the workload was let go for its own controller to
	// replace the pods; nil if nothing.
	recover func(s *Seen, w *rollout.Workload) []Change
	// custom means that whoever runs Weir's controller named the kind.
	custom bool
}

// Kinds are some that can be released.
type Kinds []*Kind

// Fixed returns the kinds that are released everywhere.
func Fixed() Kinds {
	return Kinds{&deployment, &statefulSet, &daemonSet, &cloneSet, &advancedStatefulSet, &advancedDaemonSet}
}

// For returns the kind that a Rollout names; ok is false if it is none of them.
func (all Kinds) For(ref rollouts.Ref) (k *Kind, ok bool) {
	group, _ := rollout.SplitVersion(ref.APIVersion)
	for _, k := range all {
		if k.Group == group && k.Name == ref.Kind {
			return k, true
		}
	}
	return nil, false
}

// Seen is a workload as it was read, with what it controls. Objects are shared and read-only.
type Seen struct {
	// Object is the workload.
	Object map[string]any
	// Record is what the Rollout remembers; nil if nothing.
	Record *Record
	// Style says where pods of the new version come from.
	Style rollouts.Style
	// Metadata is what extra pods have beside that of the workload's template; nil if nothing.
	Metadata *rollouts.PodTemplateMetadata
	// Sets, Revisions and Pods are those that the workload controls, as its Kind needs them.
	Sets      []*appsv1.ReplicaSet
	Revisions []*appsv1.ControllerRevision
	Pods      []*corev1.Pod
	// Stable is the revision that is being replaced, as far as the Rollout's status says so. A Record says it, too, but the
	// workload's own controller may have replaced all pods before there is one.
	Stable string
}

// remembered is the revision that is being replaced; empty if that is not remembered.
func (s *Seen) remembered() string {
	if s.Record != nil && s.Record.Stable != "" {
		return s.Record.Stable
	}
	return s.Stable
}

// Change is one of the following.
type Change struct {
	// Record is what the Rollout is to remember; an empty one is none.
	Record *Record
	// Update is what the workload becomes.
	Update map[string]any
	// Scale changes how many pods a ReplicaSet has, and removes DesiredAnnotation.
	Scale *Scale
	// Create is an object to make.
	Create map[string]any
	// Evict is a pod to replace.
	Evict *corev1.Pod
}

// Scale says how many pods a ReplicaSet is to have.
type Scale struct {
	Set      *appsv1.ReplicaSet
	Replicas int32
}

// Observe returns the facts about a workload. The error says what of the objects cannot be understood.
func (k *Kind) Observe(s *Seen) (*rollout.Workload, error) {
	w := &rollout.Workload{}
	meta := metaOf(s.Object)
	w.Generation, _ = meta["generation"].(int64)
	labels, _ := meta["labels"].(map[string]any)
	w.ID, _ = labels[rollouts.IDLabel].(string)
	s = s.own()
	if err := k.observe(s, w); err != nil {
		return nil, err
	}
	rec := s.Record
	if w.Unfit = k.Unfit(s.Object, s.Style, s.Metadata); w.Unfit == "" && rec == nil { // a release that has begun goes on
		w.Unfit = k.Lacks(s.Object, s.Pods)
	}
	w.Marked = rec != nil
	laid := k.laid(s.Object, rec)
	w.Held = laid || k.laid(s.Object, rec.none())
	if laid && rec != nil && rec.Revision == w.Update {
		w.Target = rec.Pods
	}
	return w, nil
}

// Unfit says why a workload cannot be released in a style, with metadata of extra pods; empty if it can.
func (k *Kind) Unfit(object map[string]any, style rollouts.Style, m *rollouts.PodTemplateMetadata) string {
	if style == rollouts.BlueGreenStyle && !k.Beside {
		return "A " + k.Name + " cannot be released blue-green, as its own controller may delete pods of the stable version meanwhile: use the strategy canary."
	}
	if clashes := rollout.Clashes(m, object, nil); len(clashes) > 0 {
		return clashes[0].String() + "."
	}
	return ""
}

// own is Seen without a Record of an earlier workload of that name.
func (s *Seen) own() *Seen {
	if s.Record == nil || s.Record.UID == uidOf(s.Object) {
		return s
	}
	out := *s
	out.Record = nil
	return &out
}

// laid reports whether a workload is held as a Record says; without one, whether it was at admission.
func (k *Kind) laid(object map[string]any, rec *Record) bool {
	value, there := labelOf(object)
	switch {
	case !there:
		return false
	case rec == nil || rec.Was == nil:
		set, _ := k.admit(specOf(object))
		return value != ByController && set == nil
	}
	return k.lay(object, rec).in(specOf(object))
}

// Do returns the changes that carry out an action on a workload, in their order: whoever is cut off between two of them
// finds by observing what is missing. Other actions than those on workloads are none.
func (k *Kind) Do(s *Seen, w *rollout.Workload, a rollout.Action) []Change {
	rec := s.own().Record.copy()
	switch a.Do {
	case rollout.Hold:
		if rec == nil {
			rec = &Record{UID: uidOf(s.Object), Stable: w.Stable}
		}
		if rec.Revision != w.Update {
			rec.Revision, rec.Pods = w.Update, 0
		}
		return k.hold(s, rec)
	case rollout.Upgrade:
		if rec == nil {
			return nil
		}
		rec.Revision, rec.Pods = w.Update, a.Pods
		return k.hold(s, rec)
	case rollout.Resume:
		return k.letGo(s, rec)
	case rollout.Release:
		return append(k.letGo(s, rec), Change{Record: &Record{}})
	}
	return nil
}

// hold lays a Record over the workload. What was is remembered before it is changed.
func (k *Kind) hold(s *Seen, rec *Record) []Change {
	out := runtime.DeepCopyJSON(s.Object)
	spec, laid := specOf(out), k.lay(out, rec)
	before := rec.Was
	if value, there := labelOf(out); there && before == nil { // at admission, or the Record is lost
		if before = k.defaults; value != ByController {
			before = k.admitted(value)
		}
	}
	rec.Was = laid.user(spec, before, k.vital)
	maps.Copy(rec.Was, laid.around(spec, before))
	laid.into(spec)
	setLabel(out, ByController, true)
	return []Change{{Record: rec}, {Update: out}}
}

// Tend returns what has to be done while a workload is held, so that it gets the pods that it was told to have; nil if
// nothing has to be done now.
func (k *Kind) Tend(s *Seen, w *rollout.Workload) ([]Change, error) {
	s = s.own()
	if k.recover != nil && w.Marked && !w.Held && w.Settled && w.Update == w.Stable && s.Record.Revision != w.Update {
		return k.recover(s, w), nil
	}
	if !w.Held || !w.Marked || !w.Settled || k.tend == nil || s.Record.Revision != w.Update {
		return nil, nil
	}
	return k.tend(s, w)
}

// letGo puts the workload's fields back, and then has the Record say so.
func (k *Kind) letGo(s *Seen, rec *Record) (all []Change) {
	value, held := labelOf(s.Object)
	known := rec != nil && rec.Was != nil
	if held || known {
		out := runtime.DeepCopyJSON(s.Object)
		spec := specOf(out)
		switch {
		case known:
			laid := k.lay(out, rec)
			back := laid.user(spec, rec.Was, k.vital)
			maps.Copy(back, laid.around(spec, rec.Was))
			back.into(spec)
		case value != ByController:
			k.admitted(value).into(spec)
		default: // the Record is lost
			k.defaults.into(spec)
		}
		setLabel(out, "", false)
		all = append(all, Change{Update: out})
	}
	if known {
		rec.Was = nil
		all = append(all, Change{Record: rec})
	}
	return all
}
