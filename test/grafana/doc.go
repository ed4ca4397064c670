// Package grafana tests that Grafana's own model of boards takes those of deploy/grafana. It is a module of its own, for that
// model.
package grafana
