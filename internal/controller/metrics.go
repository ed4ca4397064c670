package controller

import (
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/process"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/task"
	"github.com/weirmesh/weir/internal/telemetry"
)

// controllerMetrics are the counters of a replica of the controller; docs/metrics.md explains them.
type controllerMetrics struct {
	registry  *prometheus.Registry
	translate prometheus.Histogram
	publish   prometheus.Histogram
	failed    prometheus.Counter
	log       *telemetry.Lines // nil: there is none that loses lines

	mu     sync.Mutex
	latest control.Report
}

// rolloutLabels are those of a Rollout. It is namespace/name: Prometheus has a label namespace of its own, that of the pod.
var rolloutLabels = []string{"rollout"}

var (
	metricInfo         = prometheus.NewDesc("weir_build_info", "Which build this is; always 1.", []string{"version"}, nil)
	metricGeneration   = prometheus.NewDesc("weir_controller_config_generation", "Configurations published since the start.", nil, nil)
	metricUnpublished  = prometheus.NewDesc("weir_controller_config_unpublished", "1 while the newest state of the cluster is not what is published.", nil, nil)
	metricFindings     = prometheus.NewDesc("weir_controller_findings", "Findings about the objects of the cluster.", []string{"severity"}, nil)
	metricObjects      = prometheus.NewDesc("weir_controller_model_objects", "What the published configuration holds.", []string{"kind"}, nil)
	metricLeader       = prometheus.NewDesc("weir_controller_leader", "1 on the replica that leads, 0 on others.", nil, nil)
	metricProxies      = prometheus.NewDesc("weir_controller_proxies_connected", "Proxies that are connected to this replica.", nil, nil)
	metricSidecars     = prometheus.NewDesc("weir_controller_sidecars_connected", "Sidecars among the proxies that are connected to this replica.", nil, nil)
	metricSidecarsDue  = prometheus.NewDesc("weir_controller_sidecars_due", "Sidecars whose configuration was not made yet of the newest state of the cluster.", nil, nil)
	metricResponses    = prometheus.NewDesc("weir_controller_feed_responses_total", "Responses sent to proxies.", nil, nil)
	metricBytes        = prometheus.NewDesc("weir_controller_feed_sent_bytes_total", "Bytes of responses sent to proxies, before encryption.", nil, nil)
	metricParts        = prometheus.NewDesc("weir_controller_feed_sent_parts_total", "Parts of configurations, such as a route or a service, sent to proxies.", nil, nil)
	metricStatuses     = prometheus.NewDesc("weir_controller_status_writes_total", "Statuses written to objects of the cluster.", nil, nil)
	metricUnwritten    = prometheus.NewDesc("weir_controller_status_errors_total", "Statuses that could not be written and are tried again.", nil, nil)
	metricRefusals     = prometheus.NewDesc("weir_controller_feed_refusals_total", "Responses that proxies did not apply.", nil, nil)
	metricRefused      = prometheus.NewDesc("weir_controller_feed_unauthenticated_total", "Streams refused for their token.", nil, nil)
	metricConversions  = prometheus.NewDesc("weir_controller_conversions_total", "Reviews of the API server, in which objects are converted between versions, that were answered.", nil, nil)
	metricConvFailed   = prometheus.NewDesc("weir_controller_conversion_failures_total", "Reviews answered that an object could not be converted.", nil, nil)
	metricConvRefused  = prometheus.NewDesc("weir_controller_conversion_refusals_total", "Requests of which the API server sends reviews, for conversions and admission, that were no review, too large or too many at once.", nil, nil)
	metricAdmissions   = prometheus.NewDesc("weir_controller_admissions_total", "Reviews of the API server, which asks whether an object may be stored, that were answered.", []string{"of"}, nil)
	metricDenials      = prometheus.NewDesc("weir_controller_admission_denials_total", "Reviews answered that the object may not be stored.", []string{"of"}, nil)
	metricHeld         = prometheus.NewDesc("weir_controller_admission_holds_total", "Reviews answered by a change that holds a workload for its Rollout.", nil, nil)
	metricLogDropped   = prometheus.NewDesc("weir_log_dropped_lines_total", "Lines of the process's own log lost because the queue was full or the log could not be written.", nil, nil)
	metricTask         = prometheus.NewDesc("weir_controller_task_running", "1 while a task of this replica runs, 0 while it waits or has failed.", []string{"task"}, nil)
	metricTaskFailed   = prometheus.NewDesc("weir_controller_task_failures_total", "Failures of a task, after each of which it begins anew.", []string{"task"}, nil)
	metricScraped      = prometheus.NewDesc("weir_controller_traffic_proxies", "Proxies that told this replica in the last minute what traffic they counted.", nil, nil)
	metricUnscraped    = prometheus.NewDesc("weir_controller_traffic_proxies_failing", "Proxies that did not when this replica last asked them.", nil, nil)
	metricEdges        = prometheus.NewDesc("weir_controller_traffic_edges", "Series of traffic between two sides that this replica keeps.", nil, nil)
	metricScrapes      = prometheus.NewDesc("weir_controller_traffic_readings_total", "Reports that this replica has asked proxies for.", []string{"result"}, nil)
	metricReportAge    = prometheus.NewDesc("weir_controller_traffic_newest_report_seconds", "How long ago the newest of them came.", nil, nil)
	metricTaps         = prometheus.NewDesc("weir_controller_taps", "Taps of requests that are open at this replica, those of other replicas included.", nil, nil)
	metricTapLines     = prometheus.NewDesc("weir_controller_tap_lines_total", "Requests that proxies and other replicas sent to taps; rejected ones were not asked for.", []string{"result"}, nil)
	metricRollouts     = prometheus.NewDesc("weir_controller_rollouts", "Rollouts that the leader carries out.", nil, nil)
	metricAway         = prometheus.NewDesc("weir_controller_rollouts_away", "1 if the leader carries no Rollouts out for this reason.", []string{"reason"}, nil)
	metricRolloutsMore = prometheus.NewDesc("weir_controller_rollouts_unshown", "Those of them that have no series of their own, as there are too many.", nil, nil)
	metricPhase        = prometheus.NewDesc("weir_controller_rollout_phase", "Phase of a Rollout: 0 Initial, 1 Healthy, 2 Progressing, 3 Terminating, 4 Disabling, 5 Disabled.", rolloutLabels, nil)
	metricStep         = prometheus.NewDesc("weir_controller_rollout_step", "Step of the release, from 1; 0 without one.", rolloutLabels, nil)
	metricSteps        = prometheus.NewDesc("weir_controller_rollout_steps", "Steps that the Rollout has.", rolloutLabels, nil)
	metricStepAge      = prometheus.NewDesc("weir_controller_rollout_step_age_seconds", "How long ago the step began.", rolloutLabels, nil)
	metricSet          = prometheus.NewDesc("weir_controller_rollout_set_ratio", "Which part of the requests, 0 to 1, routes give the new version.", rolloutLabels, nil)
	metricMeasured     = prometheus.NewDesc("weir_controller_rollout_measured_ratio", "Which part of the requests, 0 to 1, the new version got when the step's share was measured last.", rolloutLabels, nil)
	metricPassed       = prometheus.NewDesc("weir_controller_rollout_transitions_total", "What happened to releases.", []string{"transition"}, nil)
	metricRolloutErrs  = prometheus.NewDesc("weir_controller_rollout_errors_total", "Attempts that failed, to carry a Rollout on or to measure a step's share, and are made again.", []string{"of"}, nil)
	metricIdentities   = prometheus.NewDesc("weir_controller_identities_total", "Requests of pods for an identity, by what became of them: refused is the pod's fault, failed this replica's or the API server's.", []string{"result"}, nil)
	metricIdentityEnd  = prometheus.NewDesc("weir_controller_identity_authority_expiry_timestamp_seconds", "When the authority ends that signs identities, in seconds since 1970.", nil, nil)
	metricPods         = prometheus.NewDesc("weir_controller_pods_total", "Pods that API servers asked about, by what became of them: injected, again if asked about again; excluded, without a sidecar; refused.", []string{"result"}, nil)
	metricTurned       = prometheus.NewDesc("weir_controller_feed_turned_away_total", "Connections to the feed closed at once, as their address had too many without a token.", nil, nil)
)

func newControllerMetrics(c *controlPlane, processLog *telemetry.Lines) *controllerMetrics {
	seconds := []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	m := &controllerMetrics{
		registry: prometheus.NewRegistry(), log: processLog,
		translate: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "weir_controller_translate_seconds", Help: "How long the state of the cluster took to translate.", Buckets: seconds,
		}),
		publish: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "weir_controller_publish_seconds", Help: "How long a changed configuration took to publish.", Buckets: seconds,
		}),
		failed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_controller_publish_failures_total", Help: "Attempts to publish a configuration that failed for some Gateway.",
		}),
	}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		m.translate, m.publish, m.failed, &controllerCollector{c, m})
	return m
}

func (m *controllerMetrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}

// report takes note of how the loop stands.
func (m *controllerMetrics) report(r control.Report) {
	m.translate.Observe(r.TranslateTime.Seconds())
	m.mu.Lock()
	defer m.mu.Unlock()
	m.latest = r
}

// controllerCollector reads counters of other packages.
type controllerCollector struct {
	plane   *controlPlane
	metrics *controllerMetrics
}

// Describe implements prometheus.Collector.
func (c *controllerCollector) Describe(to chan<- *prometheus.Desc) {
	prometheus.DescribeByCollect(c, to)
	to <- metricTask
	to <- metricTaskFailed
	for _, d := range []*prometheus.Desc{metricScraped, metricUnscraped, metricEdges, metricScrapes, metricReportAge, metricTaps, metricTapLines, metricAdmissions, metricDenials, metricHeld,
		metricRollouts, metricRolloutsMore, metricPhase, metricStep, metricSteps, metricStepAge, metricSet, metricMeasured, metricPassed, metricRolloutErrs, metricIdentities, metricIdentityEnd, metricSidecars, metricSidecarsDue, metricPods} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *controllerCollector) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count := func(d *prometheus.Desc, v uint64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge(metricInfo, 1, process.Build().Version)
	leads := false
	if g := c.plane.group; g != nil { // nil while the collector is registered
		leads = g.Leading()
		for _, t := range g.Status() {
			gauge(metricTask, oneIf(t.State == task.Running), t.Name)
			count(metricTaskFailed, t.Failures, t.Name)
		}
	}
	gauge(metricLeader, oneIf(leads))
	if c.metrics.log != nil {
		count(metricLogDropped, c.metrics.log.Dropped())
	}
	s := c.plane.feeds.Stats()
	gauge(metricProxies, float64(s.Proxies))
	count(metricResponses, s.Responses)
	count(metricParts, s.Parts)
	count(metricBytes, s.Bytes)
	count(metricRefusals, s.Refusals)
	count(metricRefused, s.Unauthenticated)
	count(metricTurned, s.TurnedAway)
	conversions := c.plane.conversions.Stats()
	count(metricConversions, conversions.Answered)
	count(metricConvFailed, conversions.Failed)
	count(metricConvRefused, c.plane.reviews.Refused())
	if t := c.plane.traffic; t != nil {
		s := t.taps.Stats()
		gauge(metricTaps, float64(s.Open))
		count(metricTapLines, s.Lines, "accepted")
		count(metricTapLines, s.Rejected, "rejected")
	}
	if i := c.plane.identities; i != nil {
		i.collect(to)
	}
	if s := c.plane.sidecars.status(); s != nil {
		gauge(metricSidecars, float64(s.Connected))
		gauge(metricSidecarsDue, float64(s.Due))
	}
	if r := c.plane.releases; r != nil {
		collectReleases(to, r.Stats(), time.Now())
	}
	if p := c.plane.pods; p != nil {
		collectPods(p, to)
	}
	if r := c.plane.judge; r != nil {
		s := r.Stats()
		count(metricAdmissions, s.Answered, "rollouts")
		count(metricDenials, s.Denied, "rollouts")
		answered, held := c.plane.workloads.Stats()
		count(metricAdmissions, answered, "workloads")
		count(metricHeld, held)
	}
	if t := c.plane.traffic; t != nil && t.embedded != nil {
		s := t.embedded.Stats()
		gauge(metricScraped, float64(s.Proxies))
		gauge(metricUnscraped, float64(s.Failing))
		gauge(metricEdges, float64(s.Edges))
		count(metricScrapes, s.Readings, "success")
		count(metricScrapes, s.Failures, "failure")
		if !s.Newest.IsZero() {
			gauge(metricReportAge, time.Since(s.Newest).Seconds())
		}
	}
	count(metricStatuses, c.plane.statusWriter.Written())
	count(metricUnwritten, c.plane.statusWriter.Failed())

	c.metrics.mu.Lock()
	r := c.metrics.latest
	c.metrics.mu.Unlock()
	gauge(metricGeneration, float64(r.Generation))
	gauge(metricUnpublished, oneIf(r.Err != nil))
	findings := map[resource.Severity]int{}
	for _, f := range r.Findings {
		findings[f.Severity]++
	}
	for _, severity := range []resource.Severity{resource.Error, resource.Warning, resource.Info} {
		gauge(metricFindings, float64(findings[severity]), severity.String())
	}
	if cfg := r.Config; cfg != nil {
		for _, l := range model.Lists {
			gauge(metricObjects, float64(l.Len(cfg)), l.Element())
		}
	}
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
