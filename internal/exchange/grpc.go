package exchange

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/http2"
)

// answerGRPC answers with trailers only, as gRPC over HTTP/2 does: status 200, with the gRPC status among the fields.
func (ex *Exchange) answerGRPC(f *Failure, fields []http1.Field) error {
	code := ex.grpcStatus(f)
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

// grpcStatus returns the gRPC status of a failure: of a call that the backend cancelled, what a client would make of that
// itself (gRPC over HTTP/2, "Errors"), since a server may notice the call's deadline first.
func (ex *Exchange) grpcStatus(f *Failure) string {
	var reset *http2.StreamError
	if !errors.As(f.Err, &reset) || !reset.Remote || reset.Code != http2.Cancel {
		return statusOf(f)
	}
	text, _ := ex.Field("grpc-timeout")
	if timeout, ok := grpcTimeout(text); ok && time.Since(ex.from.Start) >= timeout {
		return "4" // DEADLINE_EXCEEDED
	}
	return "1" // CANCELLED
}

// grpcTimeout reads the time that a call's client waits (gRPC over HTTP/2, "Timeout"): at most eight digits and a unit.
func grpcTimeout(text string) (time.Duration, bool) {
	n := len(text) - 1
	if n < 1 || n > 8 {
		return 0, false
	}
	units := map[byte]time.Duration{'H': time.Hour, 'M': time.Minute, 'S': time.Second, 'm': time.Millisecond, 'u': time.Microsecond, 'n': time.Nanosecond}
	unit, ok := units[text[n]]
	value, err := strconv.ParseUint(text[:n], 10, 32)
	if !ok || err != nil {
		return 0, false
	}
	if unit == time.Hour && value > uint64(math.MaxInt64/time.Hour) {
		return math.MaxInt64, true
	}
	return time.Duration(value) * unit, true
}

// statusOf returns the gRPC status of a failure by what it is alone. Gateway API demands UNIMPLEMENTED if no rule matches, and
// UNAVAILABLE if no backend can be used (GRPCRouteRule). The other statuses follow gRPC's own mapping from HTTP.
func statusOf(f *Failure) string {
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
