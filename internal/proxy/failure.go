package proxy

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

// failure is why an exchange ends without the backend's answer, and what the client is told instead.
type failure struct {
	// status is what the client is answered with; 0 for nothing, because it is gone or the answer is under way.
	status int
	reason telemetry.Reason
	// detail is for the client; it names nothing of the inside.
	detail string
	// err is for the log.
	err error
	// retry says that another attempt may do better.
	retry bool
	// unreached: no connection came about, so nothing was sent. free: nor did trying cost the endpoint anything.
	unreached, free bool
	// later tells the client when to come back.
	later bool
}

func (f *failure) Error() string {
	if f.err != nil {
		return string(f.reason) + ": " + f.err.Error()
	}
	return string(f.reason) + ": " + f.detail
}

func (f *failure) Unwrap() error { return f.err }

var (
	failNoListener   = &failure{status: 404, reason: telemetry.NoListener, detail: "no listener serves this host"}
	failMisdirected  = &failure{status: 421, reason: telemetry.Misdirected, detail: "this connection is not for this host"}
	failNoRoute      = &failure{status: 404, reason: telemetry.NoRoute, detail: "no rule matches the request"}
	failConnect      = &failure{status: 405, reason: telemetry.Unsupported, detail: "CONNECT is not served here"}
	failNoBackend    = &failure{status: 500, reason: telemetry.NoBackend, detail: "the rule has no backend"}
	failNoEndpoint   = &failure{status: 503, reason: telemetry.NoEndpoint, detail: "the backend has no endpoint"}
	failRequestTime  = &failure{status: 504, reason: telemetry.RequestTimeout, detail: "the request took too long"}
	failBackendTime  = &failure{status: 504, reason: telemetry.BackendTimeout, detail: "the backend did not answer in time", retry: true}
	failClientClosed = &failure{reason: telemetry.ClientClosed, detail: "the client left"}
	failMalformed    = &failure{status: 400, reason: telemetry.BadRequest, detail: "the request is malformed"}
	failForeign      = &failure{reason: telemetry.BadRequest, detail: "the connection is not of HTTP"}
	failExpectation  = &failure{status: 417, reason: telemetry.Unsupported, detail: "something else than 100-continue is expected"}
	failHeadSize     = &failure{status: 431, reason: telemetry.HeadTooLarge, detail: "the request's fields are too large"}
	failLineSize     = &failure{status: 414, reason: telemetry.HeadTooLarge, detail: "the request's target is too long"}
	failPatternPath  = &failure{status: 414, reason: telemetry.HeadTooLarge, detail: "the request path is too long for the patterns"}
	failPatternQuery = &failure{status: 414, reason: telemetry.HeadTooLarge, detail: "the request's query is too long for the patterns it has to be matched with"}
	failPatternField = &failure{status: 431, reason: telemetry.HeadTooLarge, detail: "the request's fields are too long for the patterns they have to be matched with"}
	failBodyTime     = &failure{status: 408, reason: telemetry.ClientTimeout, detail: "the request's body did not come in time"}
	failBodySize     = &failure{status: 413, reason: telemetry.BodyTooLarge, detail: "the request's body is too large"}
	failHeadTime     = &failure{status: 408, reason: telemetry.ClientTimeout, detail: "the request's head did not come in time"}
	failInterrupted  = &failure{reason: telemetry.ClientClosed, detail: "the body is not read any further"}
)

// asFailure is the failure an error stands for.
func asFailure(err error) *failure {
	var f *failure
	if errors.As(err, &f) {
		return f
	}
	return &failure{status: http.StatusInternalServerError, reason: telemetry.Internal, detail: "the proxy failed", err: err}
}

// excess is the failure of a request that would take too much work to match; nil if it does not.
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

// parseFailure is what a request deserves that http1 refuses.
func parseFailure(err error) *failure {
	var e *http1.Error
	if !errors.As(err, &e) {
		return asFailure(err)
	}
	f := &failure{status: e.Status, reason: telemetry.BadRequest, detail: e.Detail, err: err}
	switch e.Status {
	case http.StatusRequestURITooLong, http.StatusRequestHeaderFieldsTooLarge:
		f.reason = telemetry.HeadTooLarge
	case http.StatusNotImplemented, http.StatusExpectationFailed:
		f.reason = telemetry.Unsupported
	}
	return f
}

// bodyFailure is why reading a client's body failed.
func bodyFailure(err error) *failure {
	var e *http1.Error
	switch {
	case errors.As(err, &e):
		return &failure{status: e.Status, reason: telemetry.BadBody, detail: e.Detail, err: err}
	case upstream.IsTimeout(err):
		return failBodyTime
	}
	return &failure{reason: telemetry.ClientClosed, detail: "the client left", err: err}
}

// writeFailure is why writing to a client failed.
func writeFailure(err error) *failure {
	if upstream.IsTimeout(err) {
		return &failure{reason: telemetry.ClientTimeout, detail: "the client does not take its answer", err: err}
	}
	return &failure{reason: telemetry.ClientClosed, detail: "the client left", err: err}
}

// connectFailure is why an endpoint could not be reached.
func connectFailure(err error) *failure {
	var te *upstream.TLSError
	if errors.As(err, &te) {
		if te.Reason == upstream.TLSNoHTTP2 {
			return &failure{status: 502, reason: telemetry.BackendProtocol, detail: "the backend does not speak HTTP/2", err: err, retry: true, unreached: true}
		}
		return &failure{status: 502, reason: telemetry.BackendTLS, detail: "no TLS connection to the backend", err: err, retry: true, unreached: true}
	}
	var ce *upstream.ConnectError
	if errors.As(err, &ce) {
		switch ce.Reason {
		case upstream.ConnectBusy:
			return failConnecting
		case upstream.ConnectForbidden:
			return &failure{status: 500, reason: telemetry.AddressRefused, detail: "the backend's address is refused", err: err, retry: true}
		case upstream.ConnectLocal:
			f := *failShortage
			f.err = err
			return &f
		}
	}
	if ce != nil && ce.Timeout {
		return &failure{status: 504, reason: telemetry.ConnectTimeout, detail: "the backend did not accept a connection in time", err: err, retry: true,
			unreached: true}
	}
	f := &failure{status: 502, reason: telemetry.ConnectFailed, detail: "the backend could not be reached", err: err, retry: true}
	if ce != nil {
		switch ce.Reason {
		case upstream.ConnectRefused, upstream.ConnectUnreachable, upstream.ConnectUnresolved:
			f.unreached, f.free = true, true
		}
	}
	return f
}

// callFailure is what an error of a call means, after it was opened.
func callFailure(err error) *failure {
	var f *failure
	var malformed *http1.Error
	var se *http2.StreamError
	var ce *http2.ConnError
	switch {
	case errors.As(err, &f):
		return f
	case err == upstream.ErrInterim:
		return failInterim
	case errors.Is(err, upstream.ErrNoMemory), errors.Is(err, http2.ErrNoMemory):
		return failAnswerRoom
	case errors.As(err, &malformed), errors.Is(err, upstream.ErrBufferFull), errors.As(err, &se) && !se.Remote,
		errors.As(err, &ce) && !ce.Remote && ce.Code != http2.NoError:
		return &failure{status: 502, reason: telemetry.MalformedResponse, detail: "the backend's answer is not valid HTTP", err: err}
	case se == nil && ce == nil && upstream.IsTimeout(err):
		return failBackendTime
	}
	return &failure{status: 502, reason: telemetry.BackendReset, detail: "the backend closed the connection", err: err, retry: true}
}

// unexpected makes an early end an error.
func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
