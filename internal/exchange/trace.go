package exchange

import (
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/tracing"
	"github.com/weirmesh/weir/internal/upstream"
)

// spanned is the trace of an exchange. The names of attributes are those of OpenTelemetry's conventions for HTTP, and the
// proxy's own. No query and no header field is among them, as they may be secret.
type spanned struct {
	span   tracing.Span // nil: the exchange is not traced
	trying tracing.Span // the attempt under way, or nil
	// fresh means that the trace begins here, so the client's fields about one are dropped.
	fresh bool
	// sent is the value of traceparent that was put among the fields for the backend.
	sent string
}

// beginTrace begins the exchange's span if the request is to be traced.
func (ex *Exchange) beginTrace(t *tracing.Tracer) {
	parent := ex.traceParent()
	if !t.Sample(parent, ex.from.Start) {
		return
	}
	ex.spanned = spanned{span: t.Begin(parent, ex.method(), ex.from.Start), fresh: !parent.Valid()}
}

// traceParent returns what the request says about its trace. It is invalid unless there is one valid line.
func (ex *Exchange) traceParent() (c tracing.Context) {
	r := &ex.req
	lines := 0
	for i := range r.Fields {
		f := &r.Fields[i]
		if !isTraceParent(f) || r.NamedHops && http1.HopByHop(f, r.Fields) {
			continue
		}
		if lines++; lines > 1 {
			return tracing.Context{}
		}
		c, _ = tracing.Parse(f.Value)
	}
	return c
}

func isTraceParent(f *http1.Field) bool {
	return f.ID == http1.FieldOther && len(f.Name) == len(tracing.Field) && http1.EqualFold(f.Name, tracing.Field)
}

// retraced reports whether the proxy replaces or drops a field of the client's, as the exchange is traced.
func (ex *Exchange) retraced(f *http1.Field) bool {
	return isTraceParent(f) || ex.fresh && f.ID == http1.FieldOther && len(f.Name) == len("tracestate") && http1.EqualFold(f.Name, "tracestate")
}

// traceField is the field for the backend, before there is an attempt.
func (ex *Exchange) traceField() http1.Field {
	ex.sent = ex.span.Context().String()
	return http1.Field{Name: tracing.Field, Value: ex.sent, ID: http1.FieldOther}
}

// sendTrace makes the span the parent of what the backend does. It changes nothing if a filter has changed the field.
func (ex *Exchange) sendTrace(s tracing.Span) {
	value := s.Context().String()
	for i := range ex.fields {
		if f := &ex.fields[i]; f.Value == ex.sent && isTraceParent(f) {
			f.Value = value
		}
	}
	ex.call.Replace(ex.sent, value)
	ex.sent = value
}

// traceAttempt begins the span of an attempt at e.
func (ex *Exchange) traceAttempt(e *upstream.Endpoint) {
	s := ex.pipe.Tracer.BeginAttempt(ex.span.Context(), ex.method(), ex.attempt.start)
	ex.trying = s
	ex.sendTrace(s)
	s.Set("http.request.method", ex.method())
	s.Set("weir.endpoint", e.Address)
	setAddress(s, e.Address)
	s.SetInt("weir.attempt", int64(ex.attempts))
	if ex.attempts > 1 {
		s.SetInt("http.request.resend_count", int64(ex.attempts-1))
	}
	ex.traceRoute(s)
}

// endTraced ends the span of the attempt under way, if there is one. status is the answer's, if err is nil.
func (ex *Exchange) endTraced(at time.Time, status int, err error) {
	s := ex.trying
	if s == nil {
		return
	}
	ex.trying = nil
	failure := ""
	switch {
	case err != nil:
		failure = string(AsFailure(err).Reason)
	case status >= 400:
		failure = strconv.Itoa(status)
	}
	if status > 0 && err == nil {
		s.SetInt("http.response.status_code", int64(status))
	}
	version := "1.1"
	if ex.call.Request.HTTP2 {
		version = "2"
	}
	s.Set("network.protocol.version", version)
	s.End(at, failure)
}

// endTrace ends the exchange's span when the exchange has ended.
func (ex *Exchange) endTrace() {
	r, s := &ex.req, ex.span
	var failed error
	failure := string(ex.reason)
	if failure != "" {
		failed = &Failure{Reason: ex.reason}
	} else if ex.status >= 500 {
		failure = strconv.Itoa(ex.status)
	}
	ex.endTraced(ex.finished, ex.resp.Status, failed)
	s.Set("http.request.method", ex.method())
	s.Set("url.path", r.Path)
	s.Set("url.scheme", ex.scheme())
	setAddress(s, r.Authority)
	s.Set("network.protocol.version", strings.TrimSuffix(strings.TrimPrefix(r.Proto, "HTTP/"), ".0"))
	if ex.status > 0 {
		s.SetInt("http.response.status_code", int64(ex.status))
	}
	ex.traceRoute(s)
	if ex.endpoint != nil {
		s.Set("weir.endpoint", ex.endpoint.Address)
	}
	s.SetInt("weir.attempts", int64(ex.attempts))
	if len(ex.legs) > 0 {
		names := make([]string, len(ex.legs))
		for i := range ex.legs {
			names[i] = ex.legs[i].target.Name
		}
		s.SetList("weir.mirrors", names)
	}
	if ex.rule != nil {
		s.Name(ex.method() + " " + ex.rule.Route)
	}
	s.End(ex.finished, failure)
}

// traceRoute says where the request went.
func (ex *Exchange) traceRoute(s tracing.Span) {
	if ex.rule != nil {
		s.Set("weir.route", ex.rule.Route)
		s.Set("weir.rule", ex.rule.Name)
	}
	if ex.backend != nil {
		s.Set("weir.backend", ex.backend.Name)
	}
}

// setAddress sets the parts of host:port, where the port may be missing.
func setAddress(s tracing.Span, address string) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		host = strings.Trim(address, "[]")
	}
	if host != "" {
		s.Set("server.address", host)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err == nil {
		s.SetInt("server.port", int64(n))
	}
}

// method is the request's method, or "_OTHER", since a client may send any.
func (ex *Exchange) method() string {
	switch m := ex.req.Method; m {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodConnect, http.MethodOptions, http.MethodTrace, http.MethodPatch:
		return m
	}
	return "_OTHER"
}
