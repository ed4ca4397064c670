package controller

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/kube/release"
)

// phases are those of a Rollout in the order of their numbers in metricPhase.
var phases = []rollouts.Phase{
	rollouts.PhaseInitial, rollouts.PhaseHealthy, rollouts.PhaseProgressing, rollouts.PhaseTerminating, rollouts.PhaseDisabling, rollouts.PhaseDisabled,
}

// collectReleases tells how releases stand, if this replica carries them out, and otherwise why it does not, if it is to.
func collectReleases(to chan<- prometheus.Metric, s release.Stats, now time.Time) {
	if !s.Carrying && s.Away == "" {
		return
	}
	tell := func(d *prometheus.Desc, of prometheus.ValueType, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, of, v, labels...)
	}
	for _, o := range release.Obstacles {
		v := 0.0
		if s.Away == o {
			v = 1
		}
		tell(metricAway, prometheus.GaugeValue, v, string(o))
	}
	if !s.Carrying {
		return
	}
	tell(metricRollouts, prometheus.GaugeValue, float64(len(s.Rollouts)+s.Unshown))
	tell(metricRolloutsMore, prometheus.GaugeValue, float64(s.Unshown))
	for t, n := range s.Passed {
		tell(metricPassed, prometheus.CounterValue, float64(n), string(t))
	}
	tell(metricRolloutErrs, prometheus.CounterValue, float64(s.Failed), "release")
	tell(metricRolloutErrs, prometheus.CounterValue, float64(s.Unmeasured), "measurement")
	for i := range s.Rollouts {
		r := &s.Rollouts[i]
		gauge := func(d *prometheus.Desc, v float64) { tell(d, prometheus.GaugeValue, v, r.String()) }
		gauge(metricPhase, float64(max(0, slices.Index(phases, r.Phase))))
		gauge(metricStep, float64(r.Step))
		gauge(metricSteps, float64(r.Steps))
		if !r.Since.IsZero() {
			gauge(metricStepAge, max(0, now.Sub(r.Since).Seconds()))
		}
		if r.Set != nil {
			gauge(metricSet, *r.Set)
		}
		if r.Measured != nil {
			gauge(metricMeasured, *r.Measured)
		}
	}
}
