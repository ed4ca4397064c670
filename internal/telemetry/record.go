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
	// Path is the path as received, Query what follows the '?'. Target is both, and in HTTP/1 the request line's own word.
	Path   string
	Query  string
	Target string
	// Protocol is "HTTP/1.1", "HTTP/2.0".
	Protocol string
	// Status is what the client was answered with; 0 when there was no answer.
	Status int
	Reason Reason
	// PathReading is what made the path ambiguous where Reason is AmbiguousPath, such as "escaped_slash".
	PathReading string
	// Duration is from the end of the request's head to the end of the answer, as the client got it.
	Duration time.Duration
	// What the last attempt took, each from the moment in which its endpoint was picked. Zero is none; they mean something where Attempts is not 0.
	//
	// BackendConnect is until there was a connection that could be used, with TLS; zero where one was there already. BackendFirstByte is until the
	// head of the final answer was read. BackendDuration is until the last byte of the answer was read, or the attempt failed.
	BackendConnect, BackendFirstByte, BackendDuration time.Duration
	// Attempts is how often a backend was tried.
	Attempts int
	// BytesIn and BytesOut are the sizes of the bodies.
	BytesIn  int64
	BytesOut int64
	Mirrors  []MirrorResult
	// RequestID is what the request is known by, in X-Request-Id or another field; TraceParent is the field of W3C Trace Context.
	RequestID   string
	TraceParent string
	UserAgent   string
	Referer     string
	// RequestFields and ResponseFields are the lines of the fields that AccessLog.RequestFields and ResponseFields ask for, in their order. Several
	// lines of a field are told as one, with commas.
	RequestFields  []Field
	ResponseFields []Field
}

// Field is a line of a header field: Index says of which, in AccessLog.RequestFields or ResponseFields.
type Field struct {
	Index int
	Value string
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
	// Text is the combined log format of NCSA httpd and Apache httpd, followed only by header fields that were asked for.
	Text
	// Extended is Text, followed by name=value pairs of what else is in the record.
	Extended
)
