package workload

import (
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
)

// Admit returns a workload as it has to be stored when somebody changes it from before to now, so that none of its pods is
// replaced before the Rollout says so; nil if it may be stored as it is. The Record is the Rollout's, nil if it has none.
//
// A field by which the workload is held is given back its value if pods would be replaced at once without, or if it comes
// as it was before the release, as it does when the user applies his file again. What else he writes there stays: whoever
// holds the workload takes it over.
func (k *Kind) Admit(before, now map[string]any, rec *Record) map[string]any {
	if rec != nil && (rec.UID != uidOf(before) || rec.Was == nil) {
		rec = nil
	}
	label, held := labelOf(before)
	changed := !reflect.DeepEqual(specOf(before)["template"], specOf(now)["template"])
	if changed {
		rec = rec.none()
	}
	out := runtime.DeepCopyJSON(now)
	spec := specOf(out)
	switch {
	case held && rec != nil:
		// Who sends a whole object need not send its status.
		for path, laid := range k.lay(map[string]any{"spec": spec, "status": before["status"]}, rec) {
			v := fieldOf(spec, path)
			if slices.Contains(k.vital, path) || reflect.DeepEqual(v, rec.Was[path]) {
				setField(spec, path, laid)
			}
		}
	case held && label != ByController:
		set, _ := k.admit(spec)
		set.into(spec)
	case changed && !held:
		set, value := k.admit(spec)
		if set == nil {
			return nil
		}
		set.into(spec)
		label, held = value, true
	}
	if setLabel(out, label, held); reflect.DeepEqual(out, now) {
		return nil
	}
	return out
}

// IsHeld reports whether a workload is held, whoever holds it.
func IsHeld(object map[string]any) bool {
	_, held := labelOf(object)
	return held
}
