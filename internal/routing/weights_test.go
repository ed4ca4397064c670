package routing

import (
	"fmt"
	"maps"
	"math"
	"testing"

	"github.com/weirmesh/weir/internal/model"
)

// TestWeightsAreWhatIsDrawn compares them with where whole blocks of requests go.
func TestWeightsAreWhatIsDrawn(t *testing.T) {
	ff := model.SplitMatch{Headers: []model.ValueMatch{{Type: model.Exact, Name: "User-Agent", Value: "Firefox"}}}
	for name, splits := range map[string][]model.Split{
		"no split":               nil,
		"a split":                {{Leaves: leaves(1, 2, 0)}},
		"a sole leaf":            {{Leaves: leaves(0, 5)}},
		"no leaf has a weight":   {{Leaves: leaves(0, 0)}},
		"one for some requests":  {{Matches: []model.SplitMatch{ff}, Leaves: leaves(1)}},
		"and one for the rest":   {{Matches: []model.SplitMatch{ff}, Leaves: leaves(1)}, {Leaves: leaves(3, 1, 2)}},
		"a fault keeps its part": {{Leaves: []model.Leaf{{Service: "ns/leaf0:80", Weight: 2}, {Weight: 1, Fault: &model.Fault{Status: 500, Reason: "BackendNotFound"}}}}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := splitConfig(splits...)
			cfg.Routes[0].Rules[0].Backends = append(cfg.Routes[0].Rules[0].Backends, model.Backend{Service: "ns/other:80", Weight: 3}, model.Backend{Service: "ns/none:80"})
			cfg.Routes[0].Rules[2].Backends[0].Weight = 0
			table := compiled(t, cfg, nil)
			for i, rule := range table.Rules() {
				const block = 24
				want := map[string]float64{}
				for range block {
					b := rule.Pick()
					if b == nil {
						continue
					}
					to := fmt.Sprint(b.ID)
					if l := b.Leaf(&Request{Method: "GET", Path: "/"}); l != nil {
						to += fmt.Sprint(" leaf ", l.ID)
					}
					want[to] += 1. / block
				}
				got := map[string]float64{}
				rule.Weights(func(b *Backend, leaf *Leaf, part float64) {
					to := fmt.Sprint(b.ID)
					if leaf != nil {
						to += fmt.Sprint(" leaf ", leaf.ID)
					}
					if _, twice := got[to]; twice {
						t.Errorf("rule %d: %s is there twice", i, to)
					}
					got[to] = part
				})
				maps.DeleteFunc(got, func(_ string, part float64) bool { return part == 0 })
				if !maps.EqualFunc(got, want, func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }) {
					t.Errorf("rule %d: the weights are %v, and %v was drawn", i, got, want)
				}
			}
		})
	}
}
