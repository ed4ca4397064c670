package tracing

import (
	"context"
	"log/slog"
	"net/netip"
	"time"
)

// DefaultQueue is the default of Export.Queue.
const DefaultQueue = 4096

// Export configures an Exporter.
type Export struct {
	// Endpoint is the collector's URL; see the function Endpoint.
	Endpoint string
	// Refuse, if set, returns why an address may not be connected to, or "". It is asked for each connection, after names
	// were resolved.
	Refuse func(netip.AddrPort) string
	// Header are fields for each message, which may be secret.
	Header map[string]string
	// Queue bounds the spans that ended and are not sent. Others are dropped. 0 means DefaultQueue.
	Queue int
	// Timeout bounds sending a message, with all attempts; 0 means 10 s.
	Timeout time.Duration
	// Delay is how long a span waits for others; 0 means 2 s.
	Delay time.Duration
	// Version is the version of the service.
	Version string
	// Attributes describe the process, such as its pod.
	Attributes map[string]string
	// Logger; nil discards.
	Logger *slog.Logger
}

// Counts are the spans that ended, by what became of them. The collector got those that were rejected, and did not accept
// them.
type Counts struct{ Exported, Rejected, Failed, Dropped uint64 }

// Exporter is a Sink that sends its spans to a collector.
type Exporter interface {
	Sink
	Counts() Counts
	// Close, called once, sends what waits, and returns when that is done or ctx ends. Spans that end later are dropped.
	Close(ctx context.Context) error
}
