package exchange

import (
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
	if ex.attempts > 0 && !ex.delivered && ex.from.Peer.Meshed() {
		fields = append(fields, http1.Field{Name: "Weir-Undelivered", Value: string(f.Reason), ID: http1.FieldWeirUndelivered})
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
