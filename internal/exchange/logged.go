package exchange

import (
	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/telemetry"
)

// beginAnswer sends the client the head of the answer. It copies the fields that the access log needs: they are in the
// buffer of an endpoint's connection, which serves another exchange before the line is written.
func (ex *Exchange) beginAnswer() error {
	if names := ex.pipe.loggedAnswer; len(names) > 0 {
		ex.loggedAnswer = linesOf(ex.loggedAnswer[:0], names, ex.answer.Fields)
		for i := range ex.loggedAnswer {
			mark := len(ex.scratch)
			ex.scratch = append(ex.scratch, ex.loggedAnswer[i].Value...)
			ex.loggedAnswer[i].Value = ex.text(mark)
		}
	}
	return ex.from.Client.Begin(&ex.answer)
}

// loggedFields returns the request fields for the access log, as the client sent them.
func (ex *Exchange) loggedFields() []telemetry.Field {
	if len(ex.pipe.loggedRequest) == 0 {
		return nil
	}
	ex.loggedRequest = linesOf(ex.loggedRequest[:0], ex.pipe.loggedRequest, ex.req.Fields)
	return ex.loggedRequest
}

// linesOf appends the lines of the named fields, in the order of the names.
func linesOf(out []telemetry.Field, names []string, fields []http1.Field) []telemetry.Field {
	for i, name := range names {
		for k := range fields {
			if f := &fields[k]; len(f.Name) == len(name) && http1.EqualFold(f.Name, name) {
				out = append(out, telemetry.Field{Index: i, Value: f.Value})
			}
		}
	}
	return out
}
