// Package telemetry counts what happened and says it: sharded counters and latency histograms, the Prometheus
// exposition, the access log, and the one reason code of each failure.
//
// The data plane writes through handles it took when a configuration was applied (Exchange, Mirror, Listener): they
// never allocate, take no lock and share no cache line between shards. Handles are keyed by their labels, so the
// series survive reloads. A shard is any number the caller keeps for a while, such as one drawn for each connection.
//
// It decides nothing, and it does not serve HTTP by itself: Handler is mounted by whoever has a server.
package telemetry
