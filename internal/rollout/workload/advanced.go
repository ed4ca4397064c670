package workload

import (
	"maps"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/weirmesh/weir/internal/rollout"
)

// The Advanced StatefulSet and the Advanced DaemonSet of OpenKruise (apps.kruise.io) have the fields of those of apps/v1, and
// more of them: their user can pause both, and both have a partition.

const (
	pausedField    = "updateStrategy.rollingUpdate.paused"
	unorderedField = "updateStrategy.rollingUpdate.unorderedUpdate"
)

// An Advanced StatefulSet is held by its partition, as one of apps/v1: how many pods keep an older revision. These are the
// first ones, whichever numbers reserveOrdinals leaves out; with unorderedUpdate they are any.
var advancedStatefulSet = Kind{
	Group: "apps.kruise.io", Name: "StatefulSet", Plural: "statefulsets", Label: revisionLabel, Pods: true,
	lay: func(object map[string]any, r *Record) fields {
		return unpaused(statefulSet.lay(object, r))
	},
	admit:    unlessPaused(statefulSet.admit),
	admitted: statefulSet.admitted,
	vital:    statefulSet.vital,
	defaults: unpaused(statefulSet.defaults),
	observe:  observeStatefulSet,
	recover:  recoverStatefulSet,
	tend: func(s *Seen, w *rollout.Workload) ([]Change, error) {
		if fieldOf(specOf(s.Object), unorderedField) != nil {
			return tendShared(s, w, labelled(revisionLabel), statusText(s, "currentRevision"), nil), nil
		}
		return tendStatefulSet(s, w)
	},
}

// An Advanced DaemonSet is held by its partition: how many of its pods keep an older revision. Its own controller replaces the
// others, on the nodes that its rollingUpdate.selector names, and a pod that is gone anywhere comes with the newest revision.
// So none can come back to the stable revision before its user goes back.
var advancedDaemonSet = Kind{
	Group: "apps.kruise.io", Name: "DaemonSet", Plural: "daemonsets", Label: revisionLabel, Revisions: true, Pods: true,
	lay: func(object map[string]any, r *Record) fields {
		kept := int64(all)
		if r.Pods > 0 {
			kept = max(0, int64(scheduled(object))-int64(r.Pods))
		}
		return unpaused(fields{typeField: string(appsv1.RollingUpdateDaemonSetStrategyType), partitionField: kept})
	},
	admit: unlessPaused(func(spec map[string]any) (fields, string) {
		before := fieldOf(spec, partitionField)
		if fieldOf(spec, typeField) == string(appsv1.OnDeleteDaemonSetStrategyType) || before == int64(all) {
			return nil, "" // no pod is replaced
		}
		return fields{partitionField: int64(all)}, sharedLabel(before)
	}),
	admitted: func(label string) fields { return fields{partitionField: sharedValue(label)} },
	vital:    statefulSet.vital,
	defaults: unpaused(fields{typeField: string(appsv1.RollingUpdateDaemonSetStrategyType), partitionField: nil}),
	observe:  observeDaemonSet,
}

// unpaused are fields, and that the workload is not paused.
func unpaused(f fields) fields {
	f = maps.Clone(f)
	f[pausedField] = nil
	return f
}

// unlessPaused holds a workload at admission as admit does, unless its user has paused it.
func unlessPaused(admit func(map[string]any) (fields, string)) func(map[string]any) (fields, string) {
	return func(spec map[string]any) (fields, string) {
		if fieldOf(spec, pausedField) == true {
			return nil, ""
		}
		return admit(spec)
	}
}

// scheduled is how many pods a DaemonSet is to have.
func scheduled(object map[string]any) int32 {
	status, _ := object["status"].(map[string]any)
	return number(status["desiredNumberScheduled"], 0)
}
