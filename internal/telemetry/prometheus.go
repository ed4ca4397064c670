package telemetry

import (
	"net/http"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
)

// The families from which the traffic of edges can be told in Prometheus.
const (
	EdgeRequests  = "weir_edge_requests_total"
	EdgeDurations = "weir_edge_request_duration_seconds"
	// BeganTimestamp tells one run of a proxy from the next, as Report.Began.
	BeganTimestamp = "weir_began_timestamp_seconds"
)

// The families. README and dashboards name them: they are part of the interface.
var (
	descRequests = desc("weir_requests_total",
		"Finished exchanges, by the status sent to the client; code 0 is no answer.",
		"route", "rule", "backend", "code")
	descDuration = desc("weir_request_duration_seconds",
		"Time from the request's head to the response's end.",
		"route", "rule", "backend")
	descBytesIn = desc("weir_request_bytes_total",
		"Bytes of request bodies received from clients.",
		"route", "rule", "backend")
	descBytesOut = desc("weir_response_bytes_total",
		"Bytes of response bodies sent to clients.",
		"route", "rule", "backend")
	descRetries = desc("weir_request_retries_total",
		"Attempts to reach backends beyond the first of each exchange.",
		"route", "rule", "backend")
	descFailures = desc("weir_request_failures_total",
		"Failed exchanges, by the reason that the access log also has.",
		"route", "rule", "reason")
	descEdge = desc(EdgeRequests,
		"Requests with one other side: from it, or to it; a failure is an answer of 5xx, or none.",
		append(edgeLabels[:], "result")...)
	descEdgeDuration = desc(EdgeDurations,
		"Time of requests with one other side; to it, of each attempt.",
		edgeLabels[:]...)
	descMirror = desc("weir_mirror_requests_total",
		"Finished copies: sent, dropped by the proxy, or failed by the mirror's target.",
		"route", "rule", "mirror", "outcome")
	descConsidered = desc("weir_mirror_considered_total",
		"Requests that reached the mirror filter, before its fraction was applied.",
		"route", "rule", "mirror")
	descSelected = desc("weir_mirror_selected_total",
		"Requests that the mirror's fraction selected to be copied.",
		"route", "rule", "mirror")
	descMirrorInFlight = desc("weir_mirror_in_flight_requests",
		"Copies in flight to the mirror's target.", "mirror")
	descMirrorQueued = desc("weir_mirror_queued_bytes",
		"Bytes of copies held in memory for the mirror's target.", "mirror")
	descMirrorBreaker = desc("weir_mirror_breaker_open",
		"1 while the mirror's target is paused because it failed too often.", "mirror")
	descConnections = desc("weir_connections_total",
		"Client connections accepted.", "listener")
	descOpen = desc("weir_connections_open",
		"Open client connections.", "listener")
	descAccess = desc("weir_access_decisions_total",
		"Decisions of access control, by the workload that was asked for; audited ones had no permission and passed.",
		"workload", "action", "reason")
	descCertificate = desc("weir_certificate_expiry_timestamp_seconds",
		"When the first certificate of a chain that listeners present expires.", "certificate")
	descReloads = desc("weir_config_reloads_total",
		"Attempts to apply a configuration, by result.", "result")
	descReloadOK = desc("weir_config_last_reload_successful",
		"1 when the last configuration was applied, 0 when it was refused.")
	descReloadTime = desc("weir_config_last_reload_success_timestamp_seconds",
		"When a configuration was last applied.")
	descGeneration = desc("weir_config_generation",
		"Number of the configuration being served.")
	descLogDropped = desc("weir_access_log_dropped_records_total",
		"Access log records lost because the queue was full or the log could not be written.")
	descProcessLogDropped = desc("weir_log_dropped_lines_total",
		"Lines of the process's own log lost because the queue was full or the log could not be written.")
	descBegan = desc(BeganTimestamp,
		"When the counts began at zero.")
	descSpans = desc("weir_trace_spans_total",
		"Spans of traces: exported, rejected by the collector, failed to be sent, dropped as too many waited; limited are requests without one, as there were too many a second.", "result")
	descBuild = desc("weir_build_info",
		"Always 1; the labels describe the build.", "version", "revision", "goversion")
)

var allDescs = []*prometheus.Desc{
	descEdge, descEdgeDuration, descWeight, descRequests, descDuration, descBytesIn, descBytesOut, descRetries, descFailures,
	descMirror, descConsidered, descSelected, descMirrorInFlight, descMirrorQueued, descMirrorBreaker,
	descConnections, descOpen, descAccess, descCertificate, descReloads, descReloadOK, descReloadTime, descGeneration, descLogDropped, descProcessLogDropped, descSpans, descBegan, descBuild,
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// Describe implements prometheus.Collector.
func (r *Registry) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range slices.Concat(allDescs, loadDescs, memoryDescs) {
		ch <- d
	}
}

// Collect implements prometheus.Collector. Exchanges and mirrors without counts are left out.
func (r *Registry) Collect(ch chan<- prometheus.Metric) {
	r.mu.Lock()
	states, certificates, accessLog, processLog, traces := r.mirrorStates, r.certificates, r.accessLog, r.processLog, r.traces
	r.mu.Unlock()
	all := r.series()

	collectExchanges(ch, all.exchanges)
	collectEdges(ch, r.Edges())
	for _, m := range all.mirrors {
		if m.shards.used() {
			collectMirror(ch, m.Snapshot())
		}
	}
	for _, l := range all.listeners {
		if l.name == other && !l.shards.used() {
			continue
		}
		total, open := l.Connections()
		ch <- counter(descConnections, total, l.name)
		ch <- gauge(descOpen, float64(open), l.name)
	}
	for _, a := range all.access {
		a.each(func(r AccessResult, audited bool, n uint64) {
			ch <- counter(descAccess, n, a.workload, r.action(audited), r.String())
		})
	}
	if states != nil {
		collectStates(ch, states)
	}
	if certificates != nil {
		certificates(func(c Certificate) { ch <- gauge(descCertificate, float64(c.Expiry.Unix()), valid(c.Name)) })
	}
	r.collectWeights(ch)
	r.collectLoad(ch)
	r.collectMemory(ch)
	ch <- counter(descLogDropped, accessLog.Dropped())
	ch <- counter(descProcessLogDropped, processLog.Dropped())
	if traces != nil {
		t := traces()
		ch <- counter(descSpans, t.Exported, "exported")
		ch <- counter(descSpans, t.Rejected, "rejected")
		ch <- counter(descSpans, t.Failed, "failed")
		ch <- counter(descSpans, t.Dropped, "dropped")
		ch <- counter(descSpans, t.Limited, "limited")
	}
	r.collectConfig(ch)
}

func collectExchanges(ch chan<- prometheus.Metric, exchanges []*Exchange) {
	type failure struct {
		route, rule string
		reason      Reason
	}
	failures := map[failure]uint64{}
	for _, x := range exchanges {
		if !x.shards.used() {
			continue
		}
		s := x.Snapshot()
		for _, c := range s.Codes {
			ch <- counter(descRequests, c.Count, s.Route, s.Rule, s.Backend, strconv.Itoa(c.Code))
		}
		ch <- newHistogram(descDuration, s.Latency, s.Route, s.Rule, s.Backend)
		ch <- counter(descBytesIn, s.BytesIn, s.Route, s.Rule, s.Backend)
		ch <- counter(descBytesOut, s.BytesOut, s.Route, s.Rule, s.Backend)
		ch <- counter(descRetries, s.Retries, s.Route, s.Rule, s.Backend)
		for _, f := range s.Reasons {
			failures[failure{s.Route, s.Rule, f.Reason}] += f.Count
		}
	}
	for f, n := range failures {
		ch <- counter(descFailures, n, f.route, f.rule, string(f.reason))
	}
}

func collectMirror(ch chan<- prometheus.Metric, m MirrorSnapshot) {
	ch <- counter(descConsidered, m.Considered, m.Route, m.Rule, m.Mirror)
	ch <- counter(descSelected, m.Selected, m.Route, m.Rule, m.Mirror)
	if m.Sent == 0 {
		ch <- counter(descMirror, 0, m.Route, m.Rule, m.Mirror, MirrorSent.String())
	}
	for _, o := range m.Outcomes {
		ch <- counter(descMirror, o.Count, m.Route, m.Rule, m.Mirror, o.Outcome.String())
	}
}

func collectStates(ch chan<- prometheus.Metric, states func(func(MirrorState))) {
	seen := map[string]bool{} // twice the same series would fail the scrape
	states(func(s MirrorState) {
		if seen[s.Service] {
			return
		}
		seen[s.Service] = true
		s.Service = valid(s.Service)
		ch <- gauge(descMirrorInFlight, float64(s.InFlight), s.Service)
		ch <- gauge(descMirrorQueued, float64(s.QueuedBytes), s.Service)
		ch <- gauge(descMirrorBreaker, boolean(s.BreakerOpen), s.Service)
	})
}

func (r *Registry) collectConfig(ch chan<- prometheus.Metric) {
	ch <- counter(descReloads, r.reloads[0].Load(), "failure")
	ch <- counter(descReloads, r.reloads[1].Load(), "success")
	ch <- gauge(descReloadOK, boolean(r.lastSucceeded.Load()))
	ch <- gauge(descReloadTime, float64(r.lastReload.Load())/1e9)
	ch <- gauge(descGeneration, float64(r.generation.Load()))
	ch <- gauge(descBegan, float64(r.began.UnixNano())/1e9)
	ch <- gauge(descBuild, 1, r.options.Version, revision(), runtime.Version())
}

// revision is the commit the binary was built from.
func revision() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return "unknown"
}

func collectEdges(ch chan<- prometheus.Metric, all []EdgeSnapshot) {
	for i := range all {
		e := &all[i]
		values := e.values()
		ch <- counter(descEdge, e.Success, append(values[:], "success")...)
		ch <- counter(descEdge, e.Failure, append(values[:], "failure")...)
		pairs := make([]*dto.LabelPair, len(edgeLabels))
		for i, name := range edgeLabels {
			pairs[i] = pair(name, values[i])
		}
		ch <- histogram{descEdgeDuration, pairs, e.Latency}
	}
}

func counter(d *prometheus.Desc, n uint64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
}

func gauge(d *prometheus.Desc, v float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// Handler serves the metrics, with those of the Go runtime and of the process, in the Prometheus format or in
// OpenMetrics, as requested. Each call makes an independent handler.
func (r *Registry) Handler() http.Handler {
	reg := prometheus.NewRegistry()
	reg.MustRegister(r, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(reg, promhttp.HandlerOpts{EnableOpenMetrics: true})
}
