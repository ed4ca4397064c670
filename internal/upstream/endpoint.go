package upstream

import (
	"net/http"
	"time"
)

// Endpoint is one address with what is known of it and the connections to it. The same Endpoint serves every service and snapshot that
// names its address with the same protocol and TLS identity.
//
// In flight are the connections handed out by Get, GetAlive and Dial (from the call until Put or Close, so that slow connects weigh too) and
// the exchanges of HTTP2 (until the response's body ended or was closed).
type Endpoint struct {
	// Address is "ip:port" or "host:port".
	Address string
}

// Get returns a connection: the one used last if any is idle, else a new one, within the earlier of deadline (zero: none) and
// Options.ConnectTimeout. A connection that was idle for more than about a second was checked with Alive. A reused connection may still have been closed
// by the other side in this moment: a request that may be repeated is then repeated on a connection from Dial, one that may not uses
// GetAlive in the first place. The connection carries its predecessor's deadlines: call ReadBy and WriteBy, with zero for none.
// Errors are *ConnectError or *TLSError and have been counted by the health check.
func (e *Endpoint) Get(deadline time.Time) (c *Conn, reused bool, err error) { return nil, false, nil }

// GetAlive is Get, but every reused connection is checked with Alive, at the cost of a system call.
func (e *Endpoint) GetAlive(deadline time.Time) (c *Conn, reused bool, err error) {
	return nil, false, nil
}

// Dial is Get, but always opens a new connection.
func (e *Endpoint) Dial(deadline time.Time) (*Conn, error) { return nil, nil }

// Put gives back a connection whose exchange ended well, to be used again. It is closed instead if bytes remain in its buffer (the other
// side sent more than it should), it was aborted, the endpoint is drained, or enough are idle. c must not be used afterwards.
func (e *Endpoint) Put(c *Conn) {}

// HTTP2 returns the round tripper for this endpoint over HTTP/2: with prior knowledge in cleartext (h2c), or over TLS with ALPN "h2". It works for
// every service, also one whose Protocol is HTTP, which gRPC needs. Any *http.Request can be carried:
//   - req.URL.Scheme is "http" or "https" and becomes :scheme; URL.Path, RawPath/Opaque and RawQuery become :path; req.Host :authority. URL.Host is only a
//     fallback for an empty req.Host and never dialled.
//   - req.Header must hold no connection-specific fields (RFC 9113 §8.2.2); req.Trailer must hold the trailers' names before, the values when the body
//     reaches EOF. req.ContentLength is -1 for unknown. The body streams both ways: the response may come before the request's body ended.
//   - The request's context bounds the whole exchange, including waiting for a stream when the endpoint's limit is reached.
//   - No User-Agent, Accept-Encoding or decompression is added. 1xx responses go to httptrace.ClientTrace.Got1xxResponse.
//   - The response's body must be closed. resp.Trailer is complete once it reached EOF.
//
// In-flight and health accounting are done inside. Errors of connecting are *ConnectError or *TLSError (by errors.As).
func (e *Endpoint) HTTP2() http.RoundTripper { return nil }

// Succeeded notes that the endpoint answered: consecutive failures start again at zero and an ejection ends.
func (e *Endpoint) Succeeded() {}

// Failed notes a failure that is the endpoint's: a connection reset or closed before a response, a malformed response. Failures to connect and those of
// HTTP2 are noted inside. Never call it for what the client did or for a reused connection that had been closed while idle.
func (e *Endpoint) Failed() {}

// Healthy is true unless the endpoint is ejected.
func (e *Endpoint) Healthy() bool { return true }

// InFlight is the number of exchanges and connects under way.
func (e *Endpoint) InFlight() int { return 0 }

// Stats are an endpoint's counters since it came into being, and gauges.
type Stats struct {
	InFlight  int    // exchanges and connects under way
	Idle      int    // idle HTTP/1.1 connections
	Open      int    // HTTP/1.1 connections, idle or used
	Dials     uint64 // connections attempted, of both protocols
	DialFails uint64 // of these failed
	Reuses    uint64 // idle connections handed out again
	Failures  uint64 // failures noted by the health check, failed dials included
	Ejections uint64
	Healthy   bool
	Drained   bool // in no service any more
}

// Stats reads the counters; not one moment's, but each by itself.
func (e *Endpoint) Stats() Stats { return Stats{} }
