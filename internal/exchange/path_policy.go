package exchange

import (
	"net/http"

	"github.com/weirmesh/weir/internal/routing"
	"github.com/weirmesh/weir/internal/telemetry"
)

// ambiguous maps a reading that a path policy refuses to its failure.
var ambiguous = func() map[routing.Reading]*Failure {
	all := map[routing.Reading]*Failure{}
	for _, r := range routing.Readings() {
		all[r] = &Failure{
			Status: http.StatusBadRequest, Reason: telemetry.AmbiguousPath,
			Detail: "servers read the path in different ways: it has " + r.Words(),
		}
	}
	return all
}()

// judgePath refuses a request whose path, as received, violates the path policies. The rule is already decided.
func (ex *Exchange) judgePath() error {
	refusal, scratch := ex.decision.Listener.Refuses(ex.req.Path, &ex.match, &ex.decision, ex.scratch)
	ex.scratch = scratch
	if f := excess(&ex.match); f != nil {
		return f
	}
	if refusal.Reading == routing.OneReading {
		return nil
	}
	ex.pathReading = refusal.Reading
	return ambiguous[refusal.Reading]
}
