package telemetry

import "github.com/prometheus/client_golang/prometheus"

var descWeight = desc("weir_backend_weight_ratio",
	"Part of the rule's requests, 0 to 1, that the configuration sends to the backend by the weights of rules and splits; splits with matches are left out.",
	"route", "rule", "backend")

// WatchWeights shows which part of a rule's requests, 0 to 1, the configuration sends to each backend. weights is called at
// each scrape, and yields the labels of an exchange once.
func (r *Registry) WatchWeights(weights func(yield func(ExchangeLabels, float64))) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.weights = weights
}

// collectWeights shows as many as there may be series of exchanges.
func (r *Registry) collectWeights(ch chan<- prometheus.Metric) {
	r.mu.Lock()
	weights, left := r.weights, r.options.MaxSeries
	r.mu.Unlock()
	if weights == nil {
		return
	}
	weights(func(l ExchangeLabels, part float64) {
		if left--; left >= 0 {
			ch <- gauge(descWeight, part, valid(l.Route), valid(l.Rule), valid(l.Backend))
		}
	})
}
