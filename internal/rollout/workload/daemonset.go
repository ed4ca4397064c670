package workload

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/weirmesh/weir/internal/rollout"
)

// A DaemonSet is held by the strategy OnDelete: its own controller makes pods of the newest revision alone, and only where one
// is gone. So pods are evicted, as many at a time as its maxUnavailable says. None can come back to the stable revision
// before its user goes back.
var daemonSet = Kind{
	Group: "apps", Name: "DaemonSet", Plural: "daemonsets", Label: revisionLabel, Revisions: true, Pods: true,
	lay: func(map[string]any, *Record) fields {
		return fields{typeField: string(appsv1.OnDeleteDaemonSetStrategyType)}
	},
	admit: func(spec map[string]any) (fields, string) {
		if fieldOf(spec, typeField) == string(appsv1.OnDeleteDaemonSetStrategyType) {
			return nil, ""
		}
		return fields{typeField: string(appsv1.OnDeleteDaemonSetStrategyType)}, "RollingUpdate"
	},
	admitted: func(string) fields { return fields{typeField: string(appsv1.RollingUpdateDaemonSetStrategyType)} },
	vital:    []string{typeField},
	defaults: fields{typeField: string(appsv1.RollingUpdateDaemonSetStrategyType)},
	observe:  observeDaemonSet,
	tend:     tendDaemonSet,
}

func observeDaemonSet(s *Seen, w *rollout.Workload) error {
	observed, _, _ := unstructured.NestedInt64(s.Object, "status", "observedGeneration")
	w.Settled, w.Replicas, w.Stays = observed >= w.Generation, scheduled(s.Object), true
	var newest *appsv1.ControllerRevision
	for _, r := range s.Revisions {
		if newest == nil || r.Revision > newest.Revision {
			newest = r
		}
	}
	if newest == nil { // it has just been made
		w.Settled = false
		return nil
	}
	w.Update = newest.Labels[revisionLabel]
	w.Stable = stable(s, labelled(revisionLabel), w.Update, w.Update)
	count(s, w, labelled(revisionLabel), w.Update)
	return nil
}

// tendDaemonSet has pods replaced that are not of the new revision, as many as it was told to have.
func tendDaemonSet(s *Seen, w *rollout.Workload) ([]Change, error) {
	var ready, here int32
	var old []*corev1.Pod
	for _, p := range s.Pods {
		here++
		if podReady(p) {
			ready++
		}
		if p.Labels[revisionLabel] != w.Update {
			old = append(old, p)
		}
	}
	slices.SortFunc(old, func(a, b *corev1.Pod) int {
		if c := compareBool(podReady(a), podReady(b)); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	// Pods that are missing come with the new revision.
	n := min(s.Record.Pods, w.Replicas) - w.Updated - max(0, w.Replicas-here)
	var changes []Change
	for _, p := range old {
		if n <= 0 {
			break
		}
		if podReady(p) {
			if w.Replicas-ready >= unavailable(s, w) {
				break
			}
			ready--
		}
		n--
		changes = append(changes, Change{Evict: p})
	}
	return changes, nil
}

// unavailable is how many pods of a DaemonSet may be missing at a time: maxUnavailable, rounded up, 1 by default (apps/v1,
// RollingUpdateDaemonSet).
func unavailable(s *Seen, w *rollout.Workload) int32 {
	v := intstr.FromInt32(1)
	switch t := fieldOf(specOf(s.Object), "updateStrategy.rollingUpdate.maxUnavailable").(type) {
	case int64:
		v = intstr.FromInt32(int32(t))
	case string:
		v = intstr.FromString(t)
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(&v, int(w.Replicas), true)
	if err != nil {
		return 1
	}
	return int32(max(1, n))
}
