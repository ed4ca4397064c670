package telemetry

import "time"

// Record is one line of the access log. Its strings need to be valid only during Log. Empty fields are left out.
type Record struct {
	// Time is when the request's head was complete.
	Time     time.Time
	Listener string
	Route    string
	Rule     string
	Backend  string
	// Endpoint is the address of the last attempt.
	Endpoint string
	// Client is the client's address: the peer's, or what trusted proxies in front say. Peer is the peer's where that is another.
	Client string
	Peer   string
	Method string
	Host   string
	// Path is the path as received, Query what follows the '?'.
	Path  string
	Query string
	// Protocol is "HTTP/1.1", "HTTP/2.0".
	Protocol string
	// Status is what the client was answered with; 0 when there was no answer.
	Status int
	Reason Reason
	// PathReading is what made the path ambiguous where Reason is AmbiguousPath, such as "escaped_slash".
	PathReading string
	// Duration is that of the exchange, BackendDuration from the last attempt's start to the end of its answer.
	Duration        time.Duration
	BackendDuration time.Duration
	// Attempts is how often a backend was tried.
	Attempts int
	// BytesIn and BytesOut are the sizes of the bodies.
	BytesIn  int64
	BytesOut int64
	Mirrors  []MirrorResult
	// RequestID is the field X-Request-Id, TraceParent the field of W3C Trace Context.
	RequestID   string
	TraceParent string
	UserAgent   string
	Referer     string
}

// MirrorResult is one mirror of an exchange and what was known of its copy when the line was written.
type MirrorResult struct {
	// Mirror is the service, "namespace/name:port".
	Mirror  string
	Outcome MirrorOutcome
}

// Format is the form of a line.
type Format uint8

const (
	// JSON is one object a line.
	JSON Format = iota
	// Text is the combined log format, followed by name=value pairs.
	Text
)
