package telemetry

import "time"

// Record is one line of the access log. Its strings only need to be valid during Log. Empty fields are left out.
type Record struct {
	// Time is when the request's head was complete.
	Time     time.Time
	Listener string
	Route    string
	Rule     string
	Backend  string
	// Endpoint is the address of the last attempt.
	Endpoint string
	// Client is the client's address: the peer's, or the one that trusted proxies in front report. Peer is the peer's
	// address if it differs.
	Client string
	Peer   string
	Method string
	Host   string
	// Path is the path as received, Query the text after the '?'. Target is both, in HTTP/1 exactly as in the request
	// line.
	Path   string
	Query  string
	Target string
	// Protocol is "HTTP/1.1", "HTTP/2.0".
	Protocol string
	// Status is the status of the answer; 0 if there was none.
	Status int
	Reason Reason
	// PathReading is the reading because of which the path is ambiguous, such as "escaped_slash", if Reason is
	// AmbiguousPath.
	PathReading string
	// Access is what access control found, such as "allowed" or "unknown_source"; empty where there is none. Source is the
	// client's SPIFFE ID, Policy what allowed it.
	Access string
	Source string
	Policy string
	// Duration is from the end of the request's head to the end of the answer, as the client got it.
	Duration time.Duration
	// Durations of the last attempt, each from the moment when its endpoint was picked. Zero means none. They are only
	// valid if Attempts is not 0.
	//
	// BackendConnect ends when there is a usable connection, including TLS; it is zero if an existing connection was
	// used. BackendFirstByte ends when the head of the final answer was read. BackendDuration ends when the last byte
	// of the answer was read, or the attempt failed.
	BackendConnect, BackendFirstByte, BackendDuration time.Duration
	// Attempts is how often a backend was tried.
	Attempts int
	// BytesIn and BytesOut are the sizes of the bodies.
	BytesIn  int64
	BytesOut int64
	Mirrors  []MirrorResult
	// RequestID is the request's id, in X-Request-Id or another field. TraceParent is the field of W3C Trace Context.
	RequestID   string
	TraceParent string
	UserAgent   string
	Referer     string
	// RequestFields and ResponseFields are the lines of the fields that AccessLog.RequestFields and ResponseFields ask for, in their order. Several
	// lines of a field are told as one, with commas.
	RequestFields  []Field
	ResponseFields []Field
}

// Field is a line of a header field. Index is the field's index in AccessLog.RequestFields or ResponseFields.
type Field struct {
	Index int
	Value string
}

// MirrorResult is one mirror of an exchange, with the state of its copy when the line was written.
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
	// Extended is Text, followed by name=value pairs of the rest of the record.
	Extended
)
