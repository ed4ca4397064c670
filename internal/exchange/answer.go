package exchange

import (
	"strings"
	"time"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/socket"
	"github.com/weirmesh/weir/internal/telemetry"
)

// fail answers and records a failure, if an answer is still possible.
func (ex *Exchange) fail(err error) {
	f := AsFailure(err)
	ex.reason = f.Reason
	if f.Reason == telemetry.Overload && socket.IsShortage(f.Err) {
		ex.pipe.around.Shortage(f.Err)
	}
	if f.Err != nil && f.Reason.Party() != "client" {
		ex.pipe.Logger.Debug("exchange failed", "reason", string(f.Reason), "host", ex.req.Authority, "path", ex.req.Path,
			"endpoint", ex.endpointAddress(), "error", f.Err)
	}
	if len(ex.picked) > 0 && !ex.copied {
		// No attempt was made. The part of the request in memory may still be the whole request.
		ex.takeBody()
		ex.beginCopies()
	}
	if f.Later && ex.from.Client.TurnAway() {
		return
	}
	if f.Status == 0 || !ex.from.Client.Retract() {
		ex.from.Client.Abort()
		return
	}
	fields := ex.local[:0]
	if f.Status == 405 {
		fields = append(fields, allow)
	}
	if f.Later {
		fields = append(fields, http1.Field{Name: "Retry-After", Value: retryAfter[ex.from.Shard%3]})
	}
	if ex.rule != nil && ex.rule.filters.cors != nil {
		fields = ex.markCORS(ex.rule.filters.cors, fields)
	}
	if ex.req.GRPC && ex.req.HTTP2 {
		err = ex.answerGRPC(f, fields)
	} else {
		mark := len(ex.scratch)
		ex.scratch = append(ex.scratch, f.Reason...)
		ex.scratch = append(ex.scratch, ": "...)
		ex.scratch = append(ex.scratch, f.Detail...)
		ex.scratch = append(ex.scratch, '\n')
		fields = append(fields, http1.Field{Name: "Content-Type", Value: "text/plain; charset=utf-8"})
		err = ex.answerOwn(f.Status, fields, ex.text(mark), true)
	}
	if err != nil {
		ex.from.Client.Abort()
		ex.status = 0
		return
	}
	ex.status = f.Status
}

func (ex *Exchange) endpointAddress() string {
	if ex.endpoint == nil {
		return ""
	}
	return ex.endpoint.Address
}

// allow lists the methods that the proxy accepts for any route.
var allow = http1.Field{Name: "Allow", Value: "GET, HEAD, POST, PUT, DELETE, OPTIONS, PATCH, TRACE"}

// answerOptions answers OPTIONS for "*". The request asks about the server that it reaches, and about nothing behind it
// (RFC 9110 §9.3.7).
func (ex *Exchange) answerOptions() error {
	return ex.reply(204, append(ex.local[:0], allow), "")
}

// reply answers without a backend.
func (ex *Exchange) reply(status int, fields []http1.Field, body string) error {
	return ex.answerOwn(status, fields, body, false)
}

func (ex *Exchange) answerOwn(status int, fields []http1.Field, body string, refusal bool) error {
	mark := len(ex.scratch)
	ex.scratch = time.Now().UTC().AppendFormat(ex.scratch, "Mon, 02 Jan 2006 15:04:05 GMT")
	fields = ex.tellID(append(fields, http1.Field{Name: "Date", Value: ex.text(mark)}))
	ex.local = fields
	ex.answer = Answer{Status: status, Fields: fields, Body: http1.Body{Kind: http1.BodyLength, Length: int64(len(body))}, Refusal: refusal}
	if status == 204 {
		ex.answer.Body = http1.Body{}
	}
	if err := ex.beginAnswer(); err != nil {
		return err
	}
	if ex.req.Method != "HEAD" && body != "" {
		if err := ex.from.Client.Write([]byte(body)); err != nil {
			return err
		}
		ex.out += int64(len(body))
	}
	if err := ex.from.Client.End(nil); err != nil {
		return err
	}
	ex.status = status
	return nil
}

// answerGRPC answers with trailers only, as gRPC over HTTP/2 does: status 200, with the gRPC status among the fields.
func (ex *Exchange) answerGRPC(f *Failure, fields []http1.Field) error {
	code := grpcStatus(f)
	message := percentEncode(string(f.Reason) + ": " + f.Detail)
	fields = append(fields,
		http1.Field{Name: "Content-Type", Value: "application/grpc"},
		http1.Field{Name: "Grpc-Status", Value: code},
		http1.Field{Name: "Grpc-Message", Value: message})
	if f.Later { // gRPC's own field for that (gRFC A6)
		fields = append(fields, http1.Field{Name: "Grpc-Retry-Pushback-Ms", Value: retryPushback[ex.from.Shard%3]})
	}
	fields = ex.tellID(fields)
	ex.local = fields
	ex.answer = Answer{Status: 200, Fields: fields, Body: http1.Body{Kind: http1.BodyNone}}
	if err := ex.beginAnswer(); err != nil {
		return err
	}
	return ex.from.Client.End(nil)
}

// grpcStatus returns the gRPC status of a failure. Gateway API demands UNIMPLEMENTED if no rule matches, and
// UNAVAILABLE if no backend can be used (GRPCRouteRule). The other statuses follow gRPC's own mapping from HTTP.
func grpcStatus(f *Failure) string {
	switch f.Reason.Party() {
	case "routing":
		switch f.Status {
		case 404, 405, 421:
			return "12" // UNIMPLEMENTED
		case 508:
			return "9" // FAILED_PRECONDITION: clients should not try again
		}
		return "14" // UNAVAILABLE
	}
	switch f.Status {
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

// IsGRPC recognises the content types of gRPC.
func IsGRPC(contentType string) bool {
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
