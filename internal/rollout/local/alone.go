package local

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/weirmesh/weir/api/rollouts"
	dialect "github.com/weirmesh/weir/internal/dialect/rollouts"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/rollout"
)

// all are the Rollouts of the files. In the place of one that is not valid any more is the one that was: it is left alone.
func (k *keeper) all() []*rollouts.Rollout {
	all := slices.Clone(dialect.List.In(k.set))
	k.alone = map[string]string{}
	valid := make(map[string]*rollouts.Rollout, len(all))
	for _, r := range all {
		valid[id(r)] = r
	}
	for key, f := range k.set.Rejected {
		if key.Group != rollouts.Group || key.Kind != "Rollout" {
			continue
		}
		if r := k.valid[key.Namespace+"/"+key.Name]; r != nil {
			all, valid[id(r)] = append(all, r), r
			k.alone[id(r)] = fmt.Sprintf("it is not valid, and is left alone: %s: %s: %s", f.Ref.Field, f.Message, f.Fix)
		}
	}
	slices.SortFunc(all, func(a, b *rollouts.Rollout) int { return strings.Compare(id(a), id(b)) })
	k.valid = valid
	return all
}

// leftAlone says why a Rollout is not carried out; empty if it is.
func (k *keeper) leftAlone(r *rollouts.Rollout) string {
	return cmp.Or(k.alone[id(r)], rollout.LeftAlone(r))
}

// forget drops what is known of Rollouts that are gone: what they laid over objects goes with them.
func (k *keeper) forget(all []*rollouts.Rollout) {
	for key, st := range k.states {
		namespace, name, _ := strings.Cut(key, "/")
		if _, invalid := k.set.Rejected[resource.Key{Group: rollouts.Group, Kind: "Rollout", Namespace: namespace, Name: name}]; invalid {
			continue
		}
		if !slices.ContainsFunc(all, func(r *rollouts.Rollout) bool { return id(r) == key }) {
			if st.Routing != nil {
				k.emitted = nil
			}
			delete(k.states, key)
		}
	}
}
