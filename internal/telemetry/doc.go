// Package telemetry counts what happens and publishes it: sharded counters and latency histograms, the Prometheus
// exposition, the access log, and one reason code for each failure.
//
// The data plane writes through handles that it took when a configuration was applied (Exchange, Mirror, Listener).
// They never allocate, take no lock and share no cache line between shards. Handles are keyed by their labels, so
// series survive reloads. A shard is any number that the caller keeps for a while, such as one drawn for each
// connection.
//
// The package decides nothing, and does not serve HTTP by itself: a server mounts Handler.
package telemetry
