package workload

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/weirmesh/weir/internal/rollout"
)

// A CloneSet of OpenKruise is held by its partition: how many of its pods keep an older revision, or which share of them,
// whichever pods they are (apps.kruise.io/v1alpha1, CloneSetUpdateStrategy). Its own controller replaces the others, as its
// updateStrategy.type says. A pod too many of the new revision is evicted, and comes back with the current one, as the
// partition says: only with the feature CloneSetPartitionRollback, off by default, does its controller see to that.
//
// Pods have the last part of their revision's name in the label pod-template-hash, from version 1.1 of OpenKruise on. Their
// label controller-revision-hash has the whole name or that part, as OpenKruise is configured.
var cloneSet = Kind{
	Group: "apps.kruise.io", Name: "CloneSet", Plural: "clonesets", Label: templateLabel, Pods: true,
	lay: func(object map[string]any, r *Record) fields {
		return fields{sharedField: kept(specOf(object), r), "updateStrategy.paused": nil}
	},
	admit: func(spec map[string]any) (fields, string) {
		before := fieldOf(spec, sharedField)
		if before == everyPod || fieldOf(spec, "updateStrategy.paused") == true {
			return nil, "" // no pod is replaced
		}
		return fields{sharedField: everyPod}, sharedLabel(before)
	},
	admitted: func(label string) fields { return fields{sharedField: sharedValue(label)} },
	vital:    []string{sharedField},
	defaults: fields{sharedField: int64(0), "updateStrategy.paused": nil},
	observe:  observeCloneSet,
	tend:     tendCloneSet,
}

const (
	// templateLabel is the label of pods with the last part of their revision's name.
	templateLabel = appsv1.DefaultDeploymentUniqueLabelKey
	// sharedField is a number of pods or a percentage.
	sharedField = "updateStrategy.partition"
	// everyPod is a partition that leaves every pod its revision, however many there will be.
	everyPod = "100%"
)

// kept is the partition that leaves the new revision the pods that it was told to have.
func kept(spec map[string]any, r *Record) any {
	if r.Pods == 0 {
		return everyPod
	}
	return max(0, int64(number(spec["replicas"], 1))-int64(r.Pods))
}

const (
	sharedPrefix = "partition-"
	// percentSuffix stands for a percent sign, which no value of a label may have.
	percentSuffix = "-percent"
	// sharedNone stands for no partition.
	sharedNone = "none"
)

// sharedLabel is a partition as the value of HeldLabel: "partition-2", "partition-20-percent", or "partition-none".
func sharedLabel(partition any) string {
	if partition == nil {
		return sharedPrefix + sharedNone
	}
	if text, ok := partition.(string); ok {
		if n, err := strconv.ParseUint(strings.TrimSuffix(text, "%"), 10, 31); err == nil && strings.HasSuffix(text, "%") {
			return sharedPrefix + strconv.FormatUint(n, 10) + percentSuffix
		}
	}
	return sharedPrefix + strconv.FormatInt(int64(number(partition, 0)), 10)
}

// sharedValue reads what sharedLabel wrote; 0 if it did not.
func sharedValue(label string) any {
	text, percent := strings.CutSuffix(strings.TrimPrefix(label, sharedPrefix), percentSuffix)
	n, err := strconv.ParseUint(text, 10, 31)
	switch {
	case text == sharedNone:
		return nil
	case err != nil:
		return int64(0)
	case percent:
		return strconv.FormatUint(n, 10) + "%"
	}
	return int64(n)
}

// lastPart is the part of a revision's name by which pods are labelled.
func lastPart(revision string) string { return revision[strings.LastIndexByte(revision, '-')+1:] }

func observeCloneSet(s *Seen, w *rollout.Workload) error {
	observed, _, _ := unstructured.NestedInt64(s.Object, "status", "observedGeneration")
	w.Settled = observed >= w.Generation
	w.Replicas = number(specOf(s.Object)["replicas"], 1)
	w.Update = lastPart(statusText(s, "updateRevision"))
	if w.Update == "" { // it has just been made
		w.Settled = false
		return nil
	}
	current := lastPart(statusText(s, "currentRevision"))
	w.Stable = stable(s, labelled(templateLabel), w.Update, current)
	count(s, w, labelled(templateLabel), current)
	return nil
}

func tendCloneSet(s *Seen, w *rollout.Workload) ([]Change, error) {
	return tendShared(s, w, labelled(templateLabel), lastPart(statusText(s, "currentRevision")), nil), nil
}

// tendShared has pods come back to the stable revision that are not to have another one, whichever they are, one at a time.
// Before the new revision has its pods, the workload's own controller may still replace those of a revision in between.
// Nothing is evicted once all pods of the current revision are gone: a pod would come back to that one, and not to what
// serves now. Pods of the new revision that are spared stay, too: they would come back as they are.
func tendShared(s *Seen, w *rollout.Workload, of revisions, current string, spared []*corev1.Pod) []Change {
	want := min(s.Record.Pods, w.Replicas)
	if current != w.Stable || w.Updated < want {
		return nil
	}
	var worst *corev1.Pod
	ready := int32(0)
	for _, p := range s.Pods {
		if podReady(p) {
			ready++
		}
		hash := of(p)
		if hash == w.Stable || hash == w.Update && (w.Updated == want || slices.Contains(spared, p)) {
			continue
		}
		if worst == nil || cmp.Or(compareBool(podReady(p), podReady(worst)), strings.Compare(p.Name, worst.Name)) < 0 {
			worst = p
		}
	}
	if worst == nil || podReady(worst) && ready < w.Replicas {
		return nil
	}
	return []Change{{Evict: worst}}
}
