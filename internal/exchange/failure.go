package exchange

import (
	"errors"
	"io"
	"net/http"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/http2"
	"github.com/weirmesh/weir/internal/routing"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/upstream"
)

// Failure is why an exchange ends without the backend's answer, and what the proxy answers instead.
type Failure struct {
	// Status is the status of the answer. It is 0 if there is no answer, because the client is gone or the answer is
	// under way.
	Status int
	Reason telemetry.Reason
	// Detail is for the client; it reveals nothing internal.
	Detail string
	// Err is for the log.
	Err error
	// retry reports that another attempt may succeed.
	retry bool
	// unreached: no connection was established, so nothing was sent. free: the attempt did not cost the endpoint
	// anything either.
	unreached, free bool
	// final: other endpoints would do the same.
	final bool
	// Later means that the answer tells the client when to try again.
	Later bool
}

func (f *Failure) Error() string {
	if f.Err != nil {
		return string(f.Reason) + ": " + f.Err.Error()
	}
	return string(f.Reason) + ": " + f.Detail
}

// Refused reports whether an endpoint could not be reached, and found it out at once: another connection costs it nothing.
func (f *Failure) Refused() bool { return f.unreached && f.free }

// Absent reports whether there is no endpoint, or none that can be reached.
func (f *Failure) Absent() bool {
	return f.Reason == telemetry.NoEndpoint || f.unreached && f.Reason != telemetry.BackendTLS
}

func (f *Failure) Unwrap() error { return f.Err }

// These are the failures of exchanges, and of clients' connections and relays before an exchange begins.
var (
	failNoListener   = &Failure{Status: 404, Reason: telemetry.NoListener, Detail: "no listener serves this host"}
	failMisdirected  = &Failure{Status: 421, Reason: telemetry.Misdirected, Detail: "this connection is not for this host"}
	FailNoRoute      = &Failure{Status: 404, Reason: telemetry.NoRoute, Detail: "no rule matches the request"}
	FailConnect      = &Failure{Status: 405, Reason: telemetry.Unsupported, Detail: "CONNECT is not served here"}
	FailNoBackend    = &Failure{Status: 500, Reason: telemetry.NoBackend, Detail: "the rule has no backend"}
	failNoEndpoint   = &Failure{Status: 503, Reason: telemetry.NoEndpoint, Detail: "the backend has no endpoint"}
	failReturned     = &Failure{Status: 502, Reason: telemetry.ConnectFailed, Detail: "the backend could not be reached", Err: errReturned, retry: true, unreached: true, free: true}
	failStranded     = &Failure{Status: 502, Reason: telemetry.ConnectFailed, Detail: "the backend could not be reached", Err: errReturned}
	failRequestTime  = &Failure{Status: 504, Reason: telemetry.RequestTimeout, Detail: "the request took too long"}
	failBackendTime  = &Failure{Status: 504, Reason: telemetry.BackendTimeout, Detail: "the backend did not answer in time", retry: true}
	failClientClosed = &Failure{Reason: telemetry.ClientClosed, Detail: "the client left"}
	FailMalformed    = &Failure{Status: 400, Reason: telemetry.BadRequest, Detail: "the request is malformed"}
	FailForeign      = &Failure{Reason: telemetry.BadRequest, Detail: "the connection is not of HTTP"}
	FailExpectation  = &Failure{Status: 417, Reason: telemetry.Unsupported, Detail: "something else than 100-continue is expected"}
	FailHeadSize     = &Failure{Status: 431, Reason: telemetry.HeadTooLarge, Detail: "the request's fields are too large"}
	FailLineSize     = &Failure{Status: 414, Reason: telemetry.HeadTooLarge, Detail: "the request's target is too long"}
	failPatternPath  = &Failure{Status: 414, Reason: telemetry.HeadTooLarge, Detail: "the request path is too long for the patterns"}
	failPatternQuery = &Failure{Status: 414, Reason: telemetry.HeadTooLarge, Detail: "the request's query is too long for the patterns it has to be matched with"}
	failPatternField = &Failure{Status: 431, Reason: telemetry.HeadTooLarge, Detail: "the request's fields are too long for the patterns they have to be matched with"}
	failBodyTime     = &Failure{Status: 408, Reason: telemetry.ClientTimeout, Detail: "the request's body did not come in time"}
	failBodySize     = &Failure{Status: 413, Reason: telemetry.BodyTooLarge, Detail: "the request's body is too large"}
	FailAnswerRoom   = &Failure{Status: 503, Reason: telemetry.Overload, Detail: "the proxy has no memory left for the answer's head", Later: true}
	FailHeadTime     = &Failure{Status: 408, Reason: telemetry.ClientTimeout, Detail: "the request's head did not come in time"}
	FailInterrupted  = &Failure{Reason: telemetry.ClientClosed, Detail: "the body is not read any further"}
)

// errReturned: see upstream.Call.Returned.
var errReturned = errors.New("the endpoint's sidecar does not reach its application")

// AsFailure returns the failure for an error.
func AsFailure(err error) *Failure {
	var f *Failure
	if errors.As(err, &f) {
		return f
	}
	return &Failure{Status: http.StatusInternalServerError, Reason: telemetry.Internal, Detail: "the proxy failed", Err: err}
}

// excess returns the failure of a request that takes too much work to match; nil if it does not.
func excess(r *routing.Request) error {
	switch r.Excess() {
	case routing.NoExcess:
		return nil
	case routing.ExcessPath:
		return failPatternPath
	case routing.ExcessQuery:
		return failPatternQuery
	}
	return failPatternField
}

// ParseFailure returns the failure for a request that http1 rejects.
func ParseFailure(err error) *Failure {
	var e *http1.Error
	if !errors.As(err, &e) {
		return AsFailure(err)
	}
	f := &Failure{Status: e.Status, Reason: telemetry.BadRequest, Detail: e.Detail, Err: err}
	switch e.Status {
	case http.StatusRequestURITooLong, http.StatusRequestHeaderFieldsTooLarge:
		f.Reason = telemetry.HeadTooLarge
	case http.StatusNotImplemented, http.StatusExpectationFailed:
		f.Reason = telemetry.Unsupported
	}
	return f
}

// BodyFailure returns why reading a client's body failed.
func BodyFailure(err error) *Failure {
	var f *Failure
	var e *http1.Error
	switch {
	case errors.As(err, &f):
		return f
	case errors.As(err, &e):
		return &Failure{Status: e.Status, Reason: telemetry.BadBody, Detail: e.Detail, Err: err}
	case upstream.IsTimeout(err):
		return failBodyTime
	}
	return &Failure{Reason: telemetry.ClientClosed, Detail: "the client left", Err: err}
}

// WriteFailure returns why writing to a client failed.
func WriteFailure(err error) *Failure {
	if upstream.IsTimeout(err) {
		return &Failure{Reason: telemetry.ClientTimeout, Detail: "the client does not take its answer", Err: err}
	}
	return &Failure{Reason: telemetry.ClientClosed, Detail: "the client left", Err: err}
}

// ConnectFailure returns why an endpoint could not be reached.
func ConnectFailure(err error) *Failure {
	var te *upstream.TLSError
	if errors.As(err, &te) {
		if errors.Is(err, upstream.ErrNoIdentity) {
			return &Failure{Status: 503, Reason: telemetry.BackendTLS, Detail: "the proxy has no identity yet, which the backend requires", Err: err, retry: true}
		}
		if te.Reason == upstream.TLSNoHTTP2 {
			return &Failure{Status: 502, Reason: telemetry.BackendProtocol, Detail: "the backend does not speak HTTP/2", Err: err, retry: true, unreached: true}
		}
		return &Failure{Status: 502, Reason: telemetry.BackendTLS, Detail: "no TLS connection to the backend", Err: err, retry: true, unreached: true}
	}
	var ce *upstream.ConnectError
	if errors.As(err, &ce) {
		switch ce.Reason {
		case upstream.ConnectBusy:
			return failConnecting
		case upstream.ConnectFull:
			return failFull
		case upstream.ConnectForbidden:
			return &Failure{Status: 500, Reason: telemetry.AddressRefused, Detail: "the backend's address is refused", Err: err, retry: true}
		case upstream.ConnectDenied:
			return &Failure{Reason: telemetry.BackendReset, Detail: "the backend refuses the connection", Err: err, final: true}
		case upstream.ConnectLocal:
			f := *failShortage
			f.Err = err
			return &f
		}
	}
	if ce != nil && ce.Timeout {
		return &Failure{Status: 504, Reason: telemetry.ConnectTimeout, Detail: "the backend did not accept a connection in time", Err: err, retry: true,
			unreached: true}
	}
	f := &Failure{Status: 502, Reason: telemetry.ConnectFailed, Detail: "the backend could not be reached", Err: err, retry: true}
	if ce != nil {
		switch ce.Reason {
		case upstream.ConnectRefused, upstream.ConnectUnreachable, upstream.ConnectUnresolved:
			f.unreached, f.free = true, true
		case upstream.ConnectFailed: // such as an end before the first settings of HTTP/2
			f.unreached = true
		}
	}
	return f
}

// callFailure returns the failure for an error of a call that was opened.
func callFailure(err error) *Failure {
	var f *Failure
	var malformed *http1.Error
	var se *http2.StreamError
	var ce *http2.ConnError
	switch {
	case errors.As(err, &f):
		return f
	case err == upstream.ErrInterim:
		return failInterim
	case errors.Is(err, upstream.ErrNoMemory), errors.Is(err, http2.ErrNoMemory):
		return FailAnswerRoom
	case errors.As(err, &malformed), errors.Is(err, upstream.ErrBufferFull), errors.As(err, &se) && !se.Remote,
		errors.As(err, &ce) && !ce.Remote && ce.Code != http2.NoError:
		return &Failure{Status: 502, Reason: telemetry.MalformedResponse, Detail: "the backend's answer is not valid HTTP", Err: err}
	case se == nil && ce == nil && upstream.IsTimeout(err):
		return failBackendTime
	}
	return &Failure{Status: 502, Reason: telemetry.BackendReset, Detail: "the backend closed the connection", Err: err, retry: true}
}

// unexpected turns an early end into an error.
func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
