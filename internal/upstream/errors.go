package upstream

import (
	"errors"
	"fmt"
	"os"
)

// ErrClosed is why a connection cannot be had from a closed Set.
var ErrClosed = errors.New("upstream set is closed")

// errUnasked: the endpoint sent something behind its last answer.
var errUnasked = errors.New("bytes arrived on the idle connection")

// ErrBufferFull means that a Conn's read buffer has no room left: call Discard or Grow first.
var ErrBufferFull = errors.New("read buffer is full")

// ConnectReason is why a connection to an endpoint failed.
type ConnectReason string

const (
	// ConnectRefused is a refusal or a reset by the endpoint's host.
	ConnectRefused ConnectReason = "refused"
	// ConnectTimedOut is no answer within the deadline or Options.ConnectTimeout.
	ConnectTimedOut ConnectReason = "timeout"
	// ConnectUnresolved is a host name that the resolver does not know, or not in time.
	ConnectUnresolved ConnectReason = "unresolved"
	// ConnectUnreachable is a network or host without a route.
	ConnectUnreachable ConnectReason = "unreachable"
	// ConnectBusy is as many connections as allowed being opened already; it does not count against the endpoint, and others may do.
	ConnectBusy ConnectReason = "busy"
	// ConnectFull is as many exchanges in flight at the endpoint as allowed; it does not count against the endpoint, and others may have room.
	ConnectFull ConnectReason = "full"
	// ConnectLocal is a shortage on this side, such as of descriptors or ports; it does not count against the endpoint.
	ConnectLocal ConnectReason = "local"
	// ConnectClosed means that the Set was closed in the meantime; it does not count against the endpoint.
	ConnectClosed ConnectReason = "closed"
	// ConnectForbidden is an address that Options.Refuse refuses, or one of this machine's own with Options.Isolated.
	ConnectForbidden ConnectReason = "forbidden"
	// ConnectDenied is a proxy of the mesh that lets this client have no connection to its application. It does not count against
	// the endpoint, and others would refuse it, too.
	ConnectDenied ConnectReason = "denied"
	// ConnectFailed is anything else.
	ConnectFailed ConnectReason = "failed"
)

// IsFull reports whether err is a ConnectError of ConnectFull.
func IsFull(err error) bool {
	var ce *ConnectError
	return errors.As(err, &ce) && ce.Reason == ConnectFull
}

// ConnectError is a connection that did not come about.
type ConnectError struct {
	Address string
	Reason  ConnectReason
	// Timeout is true when time ran out, in resolving, connecting or waiting for a connection.
	Timeout bool
	Err     error
}

func (e *ConnectError) Error() string {
	return fmt.Sprintf("connect to endpoint %s: %s: %v", e.Address, e.Reason, e.Err)
}

func (e *ConnectError) Unwrap() error { return e.Err }

// TLSReason is why a TLS handshake with an endpoint failed.
type TLSReason string

const (
	// TLSNotTLS is an endpoint that does not answer in TLS, such as a plaintext server.
	TLSNotTLS TLSReason = "not_tls"
	// TLSUnknownAuthority means that no trusted authority signed the certificate.
	TLSUnknownAuthority TLSReason = "unknown_authority"
	// TLSWrongName means that the certificate has none of the expected names.
	TLSWrongName TLSReason = "wrong_name"
	// TLSExpired is a certificate that is expired or not yet valid.
	TLSExpired TLSReason = "expired"
	// TLSBadCertificate is a certificate refused for another reason.
	TLSBadCertificate TLSReason = "bad_certificate"
	// TLSNoHTTP2 is an endpoint that did not agree to HTTP/2 by ALPN where HTTP/2 is needed.
	TLSNoHTTP2 TLSReason = "no_http2"
	// TLSRefused is a handshake that the endpoint refused by an alert, such as for a missing client certificate or no common protocol.
	TLSRefused TLSReason = "refused"
	// TLSTimedOut is a handshake that did not end in time.
	TLSTimedOut TLSReason = "timeout"
	// TLSConfig is a TLS identity that cannot be used: no certificate in the CA bundle, an unknown or unusable client certificate.
	TLSConfig TLSReason = "config"
	// TLSFailed is anything else, such as a connection that broke.
	TLSFailed TLSReason = "failed"
)

// TLSError is a failed TLS handshake with an endpoint. It contains no secrets.
type TLSError struct {
	Address    string
	ServerName string
	Reason     TLSReason
	Err        error
}

func (e *TLSError) Error() string {
	return fmt.Sprintf("TLS to endpoint %s as %q: %s: %v", e.Address, e.ServerName, e.Reason, e.Err)
}

func (e *TLSError) Unwrap() error { return e.Err }

// IsTimeout says whether err came from a deadline: ErrTimeout, or a connection's or a context's that passed.
func IsTimeout(err error) bool {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return true
	}
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}
