package proxy

import (
	"strings"
	"time"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/http2"
	"github.com/weirmesh/weir/internal/telemetry"
)

// fail answers a failure, if that is still possible, and notes it.
func (ex *exchange) fail(err error) {
	f := asFailure(err)
	ex.reason = f.reason
	if f.reason == telemetry.Overload && isShortage(f.err) {
		ex.srv.shortage.met(f.err)
	}
	if f.err != nil && f.reason.Party() != "client" {
		ex.srv.log.Debug("exchange failed", "reason", string(f.reason), "host", ex.req.authority, "path", ex.req.path,
			"endpoint", ex.endpointAddress(), "error", f.err)
	}
	if len(ex.picked) > 0 && !ex.copied {
		// No attempt was made. What is in memory of the request may still be all of it.
		ex.takeBody()
		ex.beginCopies()
	}
	if s, ok := ex.client.(*stream); ok && f.later && s.s.Crowded() {
		s.s.Reset(http2.RefusedStream) // nobody waits, with a place and with memory, for a client to read that it was refused
		return
	}
	if f.status == 0 || !ex.client.retract() {
		ex.client.abort()
		return
	}
	fields := ex.local[:0]
	if f.status == 405 {
		fields = append(fields, allow)
	}
	if f.later {
		fields = append(fields, http1.Field{Name: "Retry-After", Value: retryAfter[ex.shard%3]})
	}
	if ex.rule != nil && ex.rule.filters.cors != nil {
		fields = ex.markCORS(ex.rule.filters.cors, fields)
	}
	if ex.req.grpc && ex.req.http2 {
		err = ex.answerGRPC(f, fields)
	} else {
		mark := len(ex.scratch)
		ex.scratch = append(ex.scratch, f.reason...)
		ex.scratch = append(ex.scratch, ": "...)
		ex.scratch = append(ex.scratch, f.detail...)
		ex.scratch = append(ex.scratch, '\n')
		fields = append(fields, http1.Field{Name: "Content-Type", Value: "text/plain; charset=utf-8"})
		err = ex.reply(f.status, fields, ex.text(mark))
	}
	if err != nil {
		ex.client.abort()
		ex.status = 0
		return
	}
	ex.status = f.status
}

func (ex *exchange) endpointAddress() string {
	if ex.endpoint == nil {
		return ""
	}
	return ex.endpoint.Address
}

// allow are the methods that no route keeps from a client.
var allow = http1.Field{Name: "Allow", Value: "GET, HEAD, POST, PUT, DELETE, OPTIONS, PATCH, TRACE"}

// answerOptions answers OPTIONS for "*", which asks about the server it reaches and nothing behind (RFC 9110 §9.3.7).
func (ex *exchange) answerOptions() error {
	return ex.reply(204, append(ex.local[:0], allow), "")
}

// reply answers without a backend.
func (ex *exchange) reply(status int, fields []http1.Field, body string) error {
	mark := len(ex.scratch)
	ex.scratch = time.Now().UTC().AppendFormat(ex.scratch, "Mon, 02 Jan 2006 15:04:05 GMT")
	fields = ex.tellID(append(fields, http1.Field{Name: "Date", Value: ex.text(mark)}))
	ex.local = fields
	ex.answer = answer{status: status, fields: fields, body: http1.Body{Kind: http1.BodyLength, Length: int64(len(body))}}
	if status == 204 {
		ex.answer.body = http1.Body{}
	}
	if err := ex.beginAnswer(); err != nil {
		return err
	}
	if ex.req.method != "HEAD" && body != "" {
		if err := ex.client.write([]byte(body)); err != nil {
			return err
		}
		ex.out += int64(len(body))
	}
	if err := ex.client.end(nil); err != nil {
		return err
	}
	ex.status = status
	return nil
}

// answerGRPC answers with trailers only, as gRPC over HTTP/2 has it: status 200, the gRPC status among the fields.
func (ex *exchange) answerGRPC(f *failure, fields []http1.Field) error {
	code := grpcStatus(f)
	message := percentEncode(string(f.reason) + ": " + f.detail)
	fields = append(fields,
		http1.Field{Name: "Content-Type", Value: "application/grpc"},
		http1.Field{Name: "Grpc-Status", Value: code},
		http1.Field{Name: "Grpc-Message", Value: message})
	if f.later { // gRPC's own word for it (gRFC A6)
		fields = append(fields, http1.Field{Name: "Grpc-Retry-Pushback-Ms", Value: retryPushback[ex.shard%3]})
	}
	fields = ex.tellID(fields)
	ex.local = fields
	ex.answer = answer{status: 200, fields: fields, body: http1.Body{Kind: http1.BodyNone}}
	if err := ex.beginAnswer(); err != nil {
		return err
	}
	return ex.client.end(nil)
}

// grpcStatus is the gRPC status of a failure: Gateway API asks for UNIMPLEMENTED where no rule matches and UNAVAILABLE where no backend
// can be used (GRPCRouteRule); the rest is gRPC's own mapping of HTTP's statuses.
func grpcStatus(f *failure) string {
	switch f.reason.Party() {
	case "routing":
		switch f.status {
		case 404, 405, 421:
			return "12" // UNIMPLEMENTED
		case 508:
			return "9" // FAILED_PRECONDITION: it is not worth another try
		}
		return "14" // UNAVAILABLE
	}
	switch f.status {
	case 400, 413, 414, 431:
		return "13" // INTERNAL
	case 401:
		return "16" // UNAUTHENTICATED
	case 403:
		return "7" // PERMISSION_DENIED
	case 404, 405, 501:
		return "12" // UNIMPLEMENTED
	case 408, 504:
		return "4" // DEADLINE_EXCEEDED
	case 429, 502, 503:
		return "14" // UNAVAILABLE
	}
	return "2" // UNKNOWN
}

// isGRPC recognises the content types of gRPC.
func isGRPC(contentType string) bool {
	const grpc = "application/grpc"
	if len(contentType) < len(grpc) || !http1.EqualFold(contentType[:len(grpc)], grpc) {
		return false
	}
	return len(contentType) == len(grpc) || strings.IndexByte("+; ", contentType[len(grpc)]) >= 0
}

// percentEncode encodes a gRPC message.
func percentEncode(s string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '%' {
			b.WriteByte('%')
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
