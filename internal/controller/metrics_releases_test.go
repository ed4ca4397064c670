package controller

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/kube/release"
)

// told are the metrics of some Stats.
type told struct {
	release.Stats
	now time.Time
}

// Describe has the registry take whatever comes.
func (told) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (t told) Collect(to chan<- prometheus.Metric) { collectReleases(to, t.Stats, t.now) }

func TestReleasesAreMeasured(t *testing.T) {
	now := time.Unix(1000, 0)
	fifth, less := 0.2, 0.19
	s := release.Stats{
		Carrying: true, Unshown: 3, Failed: 7, Unmeasured: 2, Passed: map[release.Transition]uint64{release.Begun: 5, release.Aborted: 0},
		Rollouts: []release.Standing{
			{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "web"}, Phase: rollouts.PhaseProgressing, Step: 2, Steps: 3, Since: now.Add(-90 * time.Second), Set: &fifth, Measured: &less},
			{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "cart"}, Phase: rollouts.PhaseDisabled, Steps: 1},
			{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "new"}, Steps: 1},
		},
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(told{s, now})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, f := range families {
		for _, m := range f.Metric {
			all.WriteString(f.GetName())
			for _, l := range m.Label {
				all.WriteString(" " + l.GetValue())
			}
			all.WriteString(" " + strconv.FormatFloat(m.GetGauge().GetValue()+m.GetCounter().GetValue(), 'g', -1, 64) + "\n")
		}
	}
	const want = `weir_controller_rollout_errors_total measurement 2
weir_controller_rollout_errors_total release 7
weir_controller_rollout_measured_ratio shop/web 0.19
weir_controller_rollout_phase shop/cart 5
weir_controller_rollout_phase shop/new 0
weir_controller_rollout_phase shop/web 2
weir_controller_rollout_set_ratio shop/web 0.2
weir_controller_rollout_step shop/cart 0
weir_controller_rollout_step shop/new 0
weir_controller_rollout_step shop/web 2
weir_controller_rollout_step_age_seconds shop/web 90
weir_controller_rollout_steps shop/cart 1
weir_controller_rollout_steps shop/new 1
weir_controller_rollout_steps shop/web 3
weir_controller_rollout_transitions_total aborted 0
weir_controller_rollout_transitions_total begun 5
weir_controller_rollouts 6
weir_controller_rollouts_away openkruise 0
weir_controller_rollouts_away undefined 0
weir_controller_rollouts_unshown 3
`
	if all.String() != want {
		t.Errorf("told is\n%s\nwant\n%s", all.String(), want)
	}
	registry = prometheus.NewPedanticRegistry()
	registry.MustRegister(told{release.Stats{Away: release.OpenKruise}, now})
	families, err = registry.Gather()
	if err != nil || len(families) != 1 || families[0].GetName() != "weir_controller_rollouts_away" || len(families[0].Metric) != 2 {
		t.Fatalf("a leader that stands back tells %v, %v", families, err)
	}
	for _, m := range families[0].Metric {
		if reason := m.Label[0].GetValue(); (reason == "openkruise") != (m.GetGauge().GetValue() == 1) {
			t.Errorf("a leader that stands back tells %v", m)
		}
	}
	registry = prometheus.NewPedanticRegistry()
	registry.MustRegister(told{release.Stats{}, now})
	if families, err := registry.Gather(); err != nil || len(families) > 0 {
		t.Errorf("a replica that does not lead tells %v, %v", families, err)
	}
}
