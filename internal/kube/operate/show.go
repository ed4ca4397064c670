package operate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/rollout/view"
)

// List reads the Rollouts of a namespace, or of all if it is empty, by namespace and name, with what was measured of releases
// that are under way.
func (c *Cluster) List(ctx context.Context, namespace string) (view.List, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(rolloutKind.GroupVersion().WithKind("RolloutList"))
	all := view.List{Rollouts: []view.Rollout{}}
	under := map[string]*rollouts.Rollout{} // releases
	err := c.list(ctx, list, func() int {
		for i := range list.Items {
			r, errs := rollouts.Read(rolloutKind.Version, list.Items[i].Object)
			if len(errs) > 0 {
				all.Rollouts = append(all.Rollouts, view.Rollout{Namespace: list.Items[i].GetNamespace(), Name: list.Items[i].GetName(), State: view.Initial, Message: "It is not valid: " + errs.ToAggregate().Error()})
				continue
			}
			all.Rollouts = append(all.Rollouts, view.Cluster(r))
			if v := &all.Rollouts[len(all.Rollouts)-1]; v.Routing != nil && !v.Pending {
				under[v.Namespace+"/"+v.Name] = r
			}
		}
		return len(list.Items)
	}, client.InNamespace(namespace))
	if meta.IsNoMatchError(err) {
		err = errNone
	}
	if err != nil {
		return view.List{}, err
	}
	slices.SortFunc(all.Rollouts, func(a, b view.Rollout) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	c.measure(ctx, all.Rollouts, under)
	return all, nil
}

// Get reads a Rollout with its versions, their pods, what was measured of them, and the last Events. What the user may not
// read is left out, and Unread says so.
func (c *Cluster) Get(ctx context.Context, namespace, name string) (view.Rollout, error) {
	s, err := c.rollout(ctx, namespace, name)
	if err != nil {
		return view.Rollout{}, err
	}
	v := view.Cluster(s.r)
	if err := c.workload(ctx, s); apierrors.IsForbidden(err) {
		v.Unread = append(v.Unread, err.Error())
	} else if err != nil {
		return view.Rollout{}, err
	}
	s.versions(&v)
	if v.Events, err = c.events(ctx, s); apierrors.IsForbidden(err) {
		v.Unread = append(v.Unread, err.Error())
	} else if err != nil {
		return view.Rollout{}, err
	}
	if v.Routing != nil && s.object != nil {
		v.Measured = c.measured(ctx, s, &v)
	}
	return v, nil
}

// History reads the revisions that are kept of a Rollout's workload.
func (c *Cluster) History(ctx context.Context, namespace, name string) (view.Revisions, error) {
	s, err := c.rollout(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	if err := c.workload(ctx, s); err != nil {
		return nil, err
	}
	if s.object == nil {
		return nil, fmt.Errorf("there is no %s %s", s.r.Spec.WorkloadRef.Kind, s.r.Spec.WorkloadRef.Name)
	}
	v := view.Cluster(s.r)
	s.versions(&v)
	all := view.Revisions{}
	for _, r := range s.revisions {
		row := view.Revision{Revision: int(r.Number), Name: r.Name, Created: r.created.Time, Images: images(r.Template), Cause: r.cause}
		switch {
		case r.Name == v.Stable.Name:
			row.Role = "stable"
		case v.Canary != nil && r.Name == v.Canary.Name:
			row.Role = "canary"
		}
		for _, h := range s.hash {
			if h == r.Name {
				row.Pods++
			}
		}
		all = append(all, row)
	}
	return all, nil
}

// versions puts pods and revisions into a view. What is stable and what new is by the workload itself, if it can be known.
func (s *seen) versions(v *view.Rollout) {
	if s.object == nil {
		return
	}
	ref := s.r.Spec.WorkloadRef
	v.Workload = &view.Workload{Kind: ref.Kind, Name: ref.Name, Replicas: int32(len(s.pods))}
	if w := s.w; w != nil {
		v.Workload.Replicas = w.Replicas
		v.Stable.Name = w.Stable
		switch {
		case w.Update == w.Stable:
			v.Canary = nil
		case v.Canary == nil:
			v.Canary = &view.Version{Endpoints: []string{}}
			fallthrough
		default:
			v.Canary.Name = w.Update
		}
	}
	s.version(&v.Stable)
	if v.Canary != nil {
		s.version(v.Canary)
	}
	for _, h := range s.hashes() {
		if h == v.Stable.Name || v.Canary != nil && h == v.Canary.Name {
			continue
		}
		other := view.Version{Name: h, Endpoints: []string{}}
		s.version(&other)
		v.Others = append(v.Others, other)
	}
}

// version fills in what is known of a revision by its name.
func (s *seen) version(v *view.Version) {
	for _, r := range s.revisions {
		if r.Name == v.Name {
			v.Revision, v.Images = int(r.Number), images(r.Template)
		}
	}
	for _, p := range s.pods {
		if s.hash[p.Name] == v.Name {
			v.Pods = append(v.Pods, podOf(p))
		}
	}
}

// images are those of a template's containers, each once.
func images(template map[string]any) []string {
	list, _, _ := unstructured.NestedSlice(template, "spec", "containers")
	all := []string{}
	for _, c := range list {
		m, _ := c.(map[string]any)
		if image, _ := m["image"].(string); image != "" && !slices.Contains(all, image) {
			all = append(all, image)
		}
	}
	return all
}

// podOf says of a pod what kubectl says: the phase, or why a container does not run.
func podOf(p *corev1.Pod) view.Pod {
	v := view.Pod{Name: p.Name, Status: string(p.Status.Phase), Created: p.CreationTimestamp.Time}
	if p.Status.Reason != "" {
		v.Status = p.Status.Reason
	}
	for _, c := range p.Status.Conditions {
		v.Ready = v.Ready || c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	}
	for _, all := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for _, c := range all {
			v.Restarts += c.RestartCount
			switch w, t := c.State.Waiting, c.State.Terminated; {
			case w != nil && w.Reason != "" && w.Reason != "PodInitializing":
				v.Status = w.Reason
			case t != nil && t.Reason != "" && t.ExitCode != 0:
				v.Status = t.Reason
			}
		}
	}
	return v
}

// maxEvents is how many Events of a Rollout are kept of those that the API server has.
const maxEvents = 50

// events reads the Events about a Rollout, the oldest first.
func (c *Cluster) events(ctx context.Context, s *seen) (all []view.Event, err error) {
	list := &corev1.EventList{}
	err = c.list(ctx, list, func() int {
		for i := range list.Items {
			e := &list.Items[i]
			at := e.LastTimestamp.Time
			switch {
			case e.Series != nil:
				at = e.Series.LastObservedTime.Time
			case at.IsZero():
				at = e.EventTime.Time
			}
			all = append(all, view.Event{Time: at, Warning: e.Type == corev1.EventTypeWarning, Message: e.Message})
		}
		return len(list.Items)
	}, client.InNamespace(s.r.Namespace), client.MatchingFieldsSelector{Selector: fields.Set{"involvedObject.kind": "Rollout", "involvedObject.uid": string(s.r.UID)}.AsSelector()})
	slices.SortStableFunc(all, func(a, b view.Event) int { return a.Time.Compare(b.Time) })
	return all[max(0, len(all)-maxEvents):], err
}
