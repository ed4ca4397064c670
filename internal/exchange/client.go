package exchange

import (
	"time"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/upstream"
)

// Gather is how much of an answer a Client collects before it is written; larger pieces are not copied.
const Gather = 32 << 10

// Client is the side of an exchange that its request came from: an HTTP/1.1 connection or an HTTP/2 stream. One
// goroutine reads the body and one writes the answer; they may differ. Methods return errors as *Failure, except
// io.EOF.
type Client interface {
	// Buffered takes the part in memory of a body of known length. It takes a body of unknown length only if it is
	// whole and has no trailers. Otherwise it returns nil. The bytes stay valid as long as the exchange.
	Buffered() []byte
	// Ready reports whether Next will return without waiting.
	Ready() bool
	// Next returns the next piece of the body, valid until the next call; io.EOF after the last.
	Next() ([]byte, error)
	// Trailers returns the request's trailers, after Next has returned io.EOF.
	Trailers() []http1.Field
	// Interrupt makes a Next under way fail, and each later one until Resume. No part of the body is lost.
	Interrupt()
	Resume()
	// Proceed tells a waiting client to send the body.
	Proceed() error
	// WaitsToBegin reports whether the client may be waiting for permission to send its body.
	WaitsToBegin() bool
	// Gone reports whether the client is known to have left.
	Gone() bool
	// Watch aborts the call when the client leaves, until Unwatch, if the transport reports that without being asked.
	// Unwatch returns false if the client has left.
	Watch(c *upstream.Call)
	Unwatch() bool
	// Waited returns how long ago the system received the bytes of the client's connection that the proxy has not read
	// yet, and whether the client has closed its side since.
	Waited() (age time.Duration, left, known bool)

	// Inform sends an interim answer.
	Inform(status int, fields []http1.Field) error
	// Begin takes the head of the answer and copies what it needs. The client gets nothing before Write has gathered
	// enough, or before Flush or End.
	Begin(a *Answer) error
	Write(p []byte) error
	Flush() error
	// End completes the answer and sends the rest.
	End(trailers []http1.Field) error
	// Retract discards an answer that is still unsent. It returns false if it is too late.
	Retract() bool
	// TurnAway ends the request without an answer, if too many others wait on the connection for the client to read an
	// announced answer. It returns false if the answer must be given.
	TurnAway() bool
	// Abort ends the answer early in a way that the client notices.
	Abort()
}

// Splicer is a Client whose socket can receive an endpoint's bytes without passing them through the process.
type Splicer interface {
	// Splices reports whether bytes can go to the socket unchanged.
	Splices() bool
	// BeginSplice comes before the first Splice of an answer, EndSplice after the last.
	BeginSplice()
	EndSplice()
	// Splice moves up to most bytes of the call's answer. The error is upstream.ErrTimeout when the caller should check
	// for other events, a *Failure if the client is at fault, and otherwise the endpoint's. No bytes without an error
	// mean that the endpoint ended the answer.
	Splice(c *upstream.Call, most int64) (n int64, err error)
}

// Tunneler is a Client whose connection may become a tunnel.
type Tunneler interface {
	// Tunnel passes bytes in both directions until the endpoint ends, closes the endpoint, and returns the number of
	// bytes. The answer's head was sent before.
	Tunnel(up *upstream.Conn) (in, out int64)
}

// Request is what both protocols provide about a request. Its strings are valid as long as the exchange.
type Request struct {
	Proto     string // "HTTP/1.1", as the access log shows it
	Method    string
	Target    string // Target is as received
	Path      string // raw
	Query     string
	HasQuery  bool
	Authority string
	host      string // host of the authority: lower case, without port
	Fields    []http1.Field
	NamedHops bool // Connection names further fields
	Body      http1.Body
	Upgrade   string
	Expect100 bool
	Form      http1.Form
	Minor     int // of HTTP/1
	HTTP2     bool
	GRPC      bool
	// Unescaped means that the target contains bytes that are invalid in a URI.
	Unescaped bool
}

// Answer is what both protocols need from an answer's head.
type Answer struct {
	Status int
	Reason string
	Fields []http1.Field // end to end
	Body   http1.Body
	// Upgrade is the protocol of a 101 answer.
	Upgrade string
	// Close ends the client's connection after the answer.
	Close bool
	// Refusal is an answer whose body only explains the status. A client that gives no room for the body gets the head
	// alone: a refused request must not stay until its client wants to read why.
	Refusal bool
}
