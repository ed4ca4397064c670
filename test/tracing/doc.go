// Package tracing tests that weir's traces arrive in an OpenTelemetry Collector. It is a module of its own, for what the
// Collector brings along.
package tracing
