// Package sluice is a provider of rollouts that Weir does not have, for an invented kind: what it takes to add a provider
// is in this folder. Its test holds that nothing else has to know of it.
//
// A Sluice divides requests among Services by how far their gates are open.
package sluice

import (
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/weirmesh/weir/internal/rollout"
)

// Group is that of Sluices.
const Group = "toys.weirmesh.test"

// Provider is the provider.
var Provider = rollout.Provider{
	Name:  "sluice",
	Kinds: []rollout.Kind{{Group: Group, Name: "Sluice", Plural: "sluices"}},
	Lay:   lay,
}

func lay(r rollout.Request) rollout.Laid {
	if len(r.Routing.Matches) > 0 {
		return rollout.Laid{Object: r.Object, Told: []rollout.Told{rollout.Shortf("matches", "write traffic", "%s has gates for all requests alike, so none goes to the canary", r.Target)}}
	}
	out := runtime.DeepCopyJSON(r.Object)
	spec, _ := out["spec"].(map[string]any)
	gates, _ := spec["gates"].([]any)
	var all []any
	var open []int64
	for _, v := range gates {
		gate, _ := v.(map[string]any)
		width, _ := gate["open"].(int64)
		all = append(all, gate)
		if gate["service"] != r.Stable {
			open = append(open, width*100)
			continue
		}
		canary := runtime.DeepCopyJSON(gate)
		canary["service"] = r.Canary
		all = append(all, canary)
		percent := int64(r.Routing.Percent)
		open = append(open, width*(100-percent), width*percent)
	}
	if len(all) == len(gates) {
		return rollout.Laid{Object: r.Object, Told: []rollout.Told{rollout.Objectf("name a Sluice with a gate to the Service", "no gate of %s leads to Service %s", r.Target, r.Stable)}}
	}
	open, _ = rollout.Scale(open, 1<<31)
	for i, gate := range all {
		gate.(map[string]any)["open"] = open[i]
	}
	spec["gates"] = all
	return rollout.Laid{Object: out}
}
