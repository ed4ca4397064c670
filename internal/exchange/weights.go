package exchange

import (
	"maps"
	"slices"

	"github.com/weirmesh/weir/internal/routing"
	"github.com/weirmesh/weir/internal/telemetry"
)

// Weights yields which part of each rule's requests its weights and those of splits send to each backend, by the labels
// under which exchanges are counted. Of rules with the same labels, such as those of an HTTPRoute and a GRPCRoute of one
// name, the first one counts.
func (s *Snapshot) Weights(yield func(telemetry.ExchangeLabels, float64)) {
	seen := map[telemetry.ExchangeLabels]bool{}
	for i, r := range s.Table.Rules() {
		labels := telemetry.ExchangeLabels{Route: s.Rules[i].Route, Rule: s.Rules[i].Name}
		if seen[labels] {
			continue
		}
		seen[labels] = true
		parts := map[string]float64{} // a rule may have several backends of one name
		r.Weights(func(b *routing.Backend, leaf *routing.Leaf, part float64) {
			name := s.Backends[b.ID].Name
			if leaf != nil {
				name = s.Leaves[leaf.ID].Name
			}
			parts[name] += part
		})
		for _, name := range slices.Sorted(maps.Keys(parts)) {
			labels.Backend = name
			yield(labels, min(parts[name], 1))
		}
	}
}
