package workload

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/weirmesh/weir/internal/rollout"
)

// A StatefulSet is held by its partition: pods with an ordinal below it keep their revision, those from it on get the new
// one, the last ones first (apps/v1, RollingUpdateStatefulSetStrategy). Its own controller replaces them. A pod below it
// that has another revision is evicted, and comes back with the stable one.
var statefulSet = Kind{
	Group: "apps", Name: "StatefulSet", Plural: "statefulsets", Label: revisionLabel, Pods: true,
	lay: func(object map[string]any, r *Record) fields {
		return fields{typeField: string(appsv1.RollingUpdateStatefulSetStrategyType), partitionField: partition(specOf(object), r)}
	},
	admit: func(spec map[string]any) (fields, string) {
		before := fieldOf(spec, partitionField)
		if fieldOf(spec, typeField) == string(appsv1.OnDeleteStatefulSetStrategyType) || before == int64(all) {
			return nil, "" // no pod is replaced
		}
		return fields{partitionField: int64(all)}, sharedLabel(before)
	},
	admitted: func(label string) fields { return fields{partitionField: sharedValue(label)} },
	vital:    []string{typeField, partitionField},
	defaults: fields{typeField: string(appsv1.RollingUpdateStatefulSetStrategyType), partitionField: int64(0)},
	observe:  observeStatefulSet,
	tend:     tendStatefulSet,
	recover:  recoverStatefulSet,
}

const (
	// revisionLabel is the label of pods and ControllerRevisions (apps/v1).
	revisionLabel  = appsv1.ControllerRevisionHashLabelKey
	typeField      = "updateStrategy.type"
	partitionField = "updateStrategy.rollingUpdate.partition"
	// all is a partition that leaves every pod its revision, however many there will be.
	all = math.MaxInt32
)

// partition leaves the new revision the pods that it was told to have.
func partition(spec map[string]any, r *Record) int64 {
	if r.Pods == 0 {
		return all
	}
	return max(0, int64(number(spec["replicas"], 1))-int64(r.Pods))
}

func number(v any, otherwise int32) int32 {
	if n, ok := v.(int64); ok && n >= 0 && n <= math.MaxInt32 {
		return int32(n)
	}
	return otherwise
}

func statusText(s *Seen, name string) string {
	text, _, _ := unstructured.NestedString(s.Object, "status", name)
	return text
}

func observeStatefulSet(s *Seen, w *rollout.Workload) error {
	observed, _, _ := unstructured.NestedInt64(s.Object, "status", "observedGeneration")
	w.Settled = observed >= w.Generation
	w.Replicas = number(specOf(s.Object)["replicas"], 1)
	w.Update, w.Stable = statusText(s, "updateRevision"), statusText(s, "currentRevision")
	if w.Update == "" { // it has just been made
		w.Settled = false
		return nil
	}
	current := w.Stable
	w.Stable = stable(s, labelled(revisionLabel), w.Update, current)
	count(s, w, labelled(revisionLabel), current)
	return nil
}

// revisions say of which revision a pod is.
type revisions func(*corev1.Pod) string

// labelled takes a label's value for it.
func labelled(label string) revisions { return func(p *corev1.Pod) string { return p.Labels[label] } }

// stable is the revision that served before the newest one: as it is remembered, as long as there are pods of it or of no
// other; else otherwise, as long as there are pods of that; else the one of which there are the most.
func stable(s *Seen, of revisions, newest, otherwise string) string {
	remembered := s.remembered()
	pods := map[string]int{}
	best := ""
	for _, p := range s.Pods {
		hash := of(p)
		if hash == newest {
			continue
		}
		if pods[hash]++; best == "" || pods[hash] > pods[best] || pods[hash] == pods[best] && hash < best {
			best = hash
		}
	}
	switch {
	case remembered == newest && newest != "": // its user went back
		return newest
	case remembered != "" && (pods[remembered] > 0 || best == ""):
		return remembered
	case pods[otherwise] == 0 && best != "":
		return best
	}
	return otherwise
}

// count counts pods of the revisions. The current revision is the one, beside the newest, of which the workload's
// own controller makes pods.
func count(s *Seen, w *rollout.Workload, of revisions, current string) {
	w.UpdateHash, w.StableHash = w.Update, w.Stable
	var others int32
	for _, p := range s.Pods {
		switch ready := podReady(p); of(p) {
		case w.Update:
			w.Updated++
			if ready {
				w.Ready++
			}
		case w.Stable:
			others++
			if ready {
				w.StableReady++
			}
		default:
			others++
		}
	}
	if w.Update == w.Stable {
		w.StableReady = w.Ready
	}
	w.Complete = others == 0 && w.Updated == w.Replicas && w.Ready == w.Replicas
	told := s.Record != nil && s.Record.Revision == w.Update && s.Record.Pods > 0
	w.Gone = w.Complete && w.Update != w.Stable && current == w.Update && !told
}

func podReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue })
}

// tendStatefulSet has pods come back to the stable revision that are not to have another one, one at a time.
func tendStatefulSet(s *Seen, w *rollout.Workload) ([]Change, error) {
	if statusText(s, "currentRevision") != w.Stable {
		return nil, nil // they would not come back to that
	}
	older, err := lower(s, w)
	if err != nil {
		return nil, err
	}
	var worst *corev1.Pod
	ready := int32(0)
	for _, p := range s.Pods {
		if podReady(p) {
			ready++
		}
	}
	for _, p := range older {
		if p.Labels[revisionLabel] == w.Stable {
			continue
		}
		if worst == nil || cmp.Or(compareBool(podReady(p), podReady(worst)), strings.Compare(worst.Name, p.Name)) < 0 {
			worst = p
		}
	}
	if worst == nil || podReady(worst) && ready < w.Replicas {
		return nil, nil
	}
	return []Change{{Evict: worst}}, nil
}

// recoverStatefulSet evicts a pod that does not serve, of a version that was taken back: with the policy OrderedReady the
// workload's own controller waits until it does, for ever if it cannot (Kubernetes, StatefulSets, "Forced rollback").
func recoverStatefulSet(s *Seen, w *rollout.Workload) []Change {
	for _, p := range slices.Backward(s.Pods) {
		if p.Labels[revisionLabel] != w.Update && !podReady(p) && p.DeletionTimestamp == nil {
			return []Change{{Evict: p}}
		}
	}
	return nil
}

// lower are the pods that are not to have the new revision: all but the last ones. An Advanced StatefulSet may leave numbers
// out, and both may begin with another one than 0, so that their order counts. None are returned while there are too many.
func lower(s *Seen, w *rollout.Workload) ([]*corev1.Pod, error) {
	type numbered struct {
		n   int
		pod *corev1.Pod
	}
	var pods []numbered
	for _, p := range s.Pods {
		n, err := ordinal(p.Name)
		if err != nil {
			return nil, err
		}
		pods = append(pods, numbered{n, p})
	}
	if len(pods) > int(w.Replicas) {
		return nil, nil
	}
	slices.SortFunc(pods, func(a, b numbered) int { return cmp.Compare(a.n, b.n) })
	var out []*corev1.Pod
	for _, p := range pods[:max(0, len(pods)-int(s.Record.Pods))] {
		out = append(out, p.pod)
	}
	return out, nil
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

func ordinal(pod string) (int, error) {
	n, err := strconv.Atoi(pod[strings.LastIndexByte(pod, '-')+1:])
	if err != nil {
		return 0, fmt.Errorf("the pod %s of a StatefulSet has no number", pod)
	}
	return n, nil
}
