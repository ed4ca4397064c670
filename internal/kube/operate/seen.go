package operate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/kube/edit"
	"github.com/weirmesh/weir/internal/rollout"
	"github.com/weirmesh/weir/internal/rollout/command"
	"github.com/weirmesh/weir/internal/rollout/workload"
)

// seen is a Rollout with its workload, as they were read.
type seen struct {
	live *unstructured.Unstructured
	r    *rollouts.Rollout
	// object is the workload; nil if there is none.
	object *unstructured.Unstructured
	// w is nil if there is no workload, or none of a kind that Weir can release.
	w         *rollout.Workload
	revisions []revision
	// extra are the revisions of ReplicaSets that have extra pods of one and are none by themselves.
	extra map[types.UID]string
	// pods are those of all revisions that are not on their way out; hash is the revision of each by its name.
	pods []*corev1.Pod
	hash map[string]string
	// selector selects the pods; nil without a workload.
	selector labels.Selector
}

// revision is a ReplicaSet or a ControllerRevision.
type revision struct {
	command.Revision
	created metav1.Time
	cause   string
	uid     types.UID
}

// rollout reads a Rollout alone.
func (c *Cluster) rollout(ctx context.Context, namespace, name string) (*seen, error) {
	s := &seen{live: &unstructured.Unstructured{}}
	s.live.SetGroupVersionKind(rolloutKind)
	switch err := c.read(ctx, namespace, name, s.live); {
	case meta.IsNoMatchError(err):
		return nil, errNone
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("%w: Rollout %s/%s", ErrNotFound, namespace, name)
	case err != nil:
		return nil, err
	}
	r, errs := rollouts.Read(rolloutKind.Version, s.live.Object)
	if len(errs) > 0 {
		return nil, fmt.Errorf("the Rollout is not valid: %w", errs.ToAggregate())
	}
	s.r = r
	return s, nil
}

// object reads what the Rollout releases, if it is there.
func (c *Cluster) object(ctx context.Context, s *seen) error {
	ref := s.r.Spec.WorkloadRef
	group, version := rollout.SplitVersion(ref.APIVersion)
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(edit.GVK(group, version, ref.Kind))
	if err := c.read(ctx, s.r.Namespace, ref.Name, u); apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return nil
	} else if err != nil {
		return err
	}
	text, _, _ := unstructured.NestedMap(u.Object, "spec", "selector")
	selector := &metav1.LabelSelector{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(text, selector); err != nil {
		return fmt.Errorf("the selector of %s %s cannot be read: %w", ref.Kind, ref.Name, err)
	}
	pods, err := metav1.LabelSelectorAsSelector(selector)
	if _, fixed := workload.Fixed().For(ref); !fixed && len(text) == 0 { // what it controls is told by owners
		pods = labels.Everything()
	} else if err != nil || pods.Empty() {
		return fmt.Errorf("the selector of %s %s selects no pods", ref.Kind, ref.Name)
	}
	s.object, s.selector = u, pods
	return nil
}

// workload reads what the Rollout releases, with its revisions and pods.
func (c *Cluster) workload(ctx context.Context, s *seen) error {
	if err := c.object(ctx, s); err != nil || s.object == nil {
		return err
	}
	ref := s.r.Spec.WorkloadRef
	kind, fixed := workload.Fixed().For(ref)
	if !fixed {
		kind = workload.Guess(ref, s.object.Object, nil)
	}
	look := &workload.Seen{Object: s.object.Object, Style: s.r.Spec.Style(), Metadata: s.r.Spec.ExtraMetadata(), Stable: s.r.Status.Replaces()}
	look.Record, _ = workload.ReadRecord(s.r.Annotations[workload.RecordAnnotation]) // the controller says what is wrong with it
	if err := c.kept(ctx, s, kind, look); err != nil {
		return err
	}
	if err := c.pods(ctx, s, kind); err != nil {
		return err
	}
	if look.Pods = s.pods; !fixed {
		kind = workload.Guess(ref, s.object.Object, s.pods)
	}
	w, err := kind.Observe(look)
	if err != nil {
		return err
	}
	if fixed || w.Update != "" { // nobody tells versions of others apart
		s.w = w
	}
	if !kind.Sets {
		s.label(kind, look.Stable)
	}
	return nil
}

// label notes of which revision pods are that the workload controls itself.
func (s *seen) label(kind *workload.Kind, stable string) {
	known := []string{stable}
	if s.w != nil {
		known = append(known, s.w.Update, s.w.Stable)
	}
	for _, r := range s.revisions {
		known = append(known, r.Name)
	}
	of := kind.RevisionsOf(known...)
	for _, p := range s.pods {
		s.hash[p.Name] = of(p)
	}
}

// kept reads the revisions of a workload: ReplicaSets of a Deployment, ControllerRevisions of others. Templates stay as the
// API server has them, with fields that are not known here.
func (c *Cluster) kept(ctx context.Context, s *seen, kind *workload.Kind, look *workload.Seen) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(edit.GVK("apps", "v1", "ControllerRevisionList"))
	if kind.Sets {
		list.SetGroupVersionKind(edit.GVK("apps", "v1", "ReplicaSetList"))
	}
	var failed error
	s.extra = map[types.UID]string{}
	err := c.list(ctx, list, func() int {
		for i := range list.Items {
			u := &list.Items[i]
			if !controls(s.object, u) || u.GetDeletionTimestamp() != nil {
				continue
			}
			var err error
			if kind.Sets {
				rs := &appsv1.ReplicaSet{}
				err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, rs)
				look.Sets = append(look.Sets, rs)
				if of := workload.ExtraOf(u); of != "" {
					s.extra[u.GetUID()] = of
				} else {
					s.revisions = append(s.revisions, setRevision(u))
				}
			} else {
				cr := &appsv1.ControllerRevision{}
				err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, cr)
				look.Revisions = append(look.Revisions, cr)
				s.revisions = append(s.revisions, controllerRevision(u, kind))
			}
			if err != nil && failed == nil {
				failed = fmt.Errorf("%s %s cannot be read: %w", u.GetKind(), u.GetName(), err)
			}
		}
		return len(list.Items)
	}, client.InNamespace(s.r.Namespace), client.MatchingLabelsSelector{Selector: s.selector})
	slices.SortFunc(look.Sets, func(a, b *appsv1.ReplicaSet) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(s.revisions, func(a, b revision) int {
		return cmp.Or(cmp.Compare(b.Number, a.Number), b.created.Compare(a.created.Time), strings.Compare(a.Name, b.Name))
	})
	return cmp.Or(err, failed)
}

// controls reports whether one object is the controller of another.
func controls(owner, of *unstructured.Unstructured) bool {
	ref := metav1.GetControllerOfNoCopy(of)
	return ref != nil && ref.UID == owner.GetUID()
}

const causeAnnotation = "kubernetes.io/change-cause"

func setRevision(u *unstructured.Unstructured) revision {
	annotations := u.GetAnnotations()
	number, _ := strconv.ParseInt(annotations["deployment.kubernetes.io/revision"], 10, 64)
	template, _, _ := unstructured.NestedMap(u.Object, "spec", "template")
	unstructured.RemoveNestedField(template, "metadata", "labels", appsv1.DefaultDeploymentUniqueLabelKey)
	return revision{
		Revision: command.Revision{Number: number, Name: u.GetLabels()[appsv1.DefaultDeploymentUniqueLabelKey], Template: template},
		created:  u.GetCreationTimestamp(), cause: annotations[causeAnnotation], uid: u.GetUID(),
	}
}

// controllerRevision reads one whose data is a patch of the workload that has its whole template (apps/v1). Rollouts name it
// as pods are labelled: by its own name, by its label, or by the last part of its name.
func controllerRevision(u *unstructured.Unstructured, kind *workload.Kind) revision {
	number, _, _ := unstructured.NestedInt64(u.Object, "revision")
	template, _, _ := unstructured.NestedMap(u.Object, "data", "spec", "template")
	delete(template, "$patch")
	name := u.GetName()
	switch {
	case kind.Label == appsv1.DefaultDeploymentUniqueLabelKey:
		name = name[strings.LastIndexByte(name, '-')+1:]
	case kind.Revisions && u.GetLabels()[kind.Label] != "":
		name = u.GetLabels()[kind.Label]
	}
	return revision{
		Revision: command.Revision{Number: number, Name: name, Template: template},
		created:  u.GetCreationTimestamp(), cause: u.GetAnnotations()[causeAnnotation], uid: u.GetUID(),
	}
}

// pods reads those that the workload controls, for a Deployment by its ReplicaSets.
func (c *Cluster) pods(ctx context.Context, s *seen, kind *workload.Kind) error {
	owners := map[types.UID]string{s.object.GetUID(): ""}
	if kind.Sets {
		owners = maps.Clone(s.extra)
		for _, r := range s.revisions {
			owners[r.uid] = r.Name
		}
	}
	s.hash = map[string]string{}
	list := &corev1.PodList{}
	err := c.list(ctx, list, func() int {
		for i := range list.Items {
			p := list.Items[i].DeepCopy()
			ref := metav1.GetControllerOfNoCopy(p)
			if ref == nil {
				continue
			}
			hash, ours := owners[ref.UID]
			if !ours || p.DeletionTimestamp != nil {
				continue
			}
			s.pods = append(s.pods, p)
			s.hash[p.Name] = hash
		}
		return len(list.Items)
	}, client.InNamespace(s.r.Namespace), client.MatchingLabelsSelector{Selector: s.selector})
	slices.SortFunc(s.pods, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return err
}

// hashes are the revisions that have pods, in the order of their names.
func (s *seen) hashes() []string {
	all := map[string]bool{}
	for _, h := range s.hash {
		all[h] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// facts are what a command has to know.
func (s *seen) facts(away string) command.Facts {
	f := command.Facts{Rollout: s.r, Away: away, Workload: s.w}
	for _, r := range s.revisions {
		f.Revisions = append(f.Revisions, r.Revision)
	}
	return f
}
