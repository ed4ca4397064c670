package conversion

import (
	"context"
	"encoding/json"
	"sync/atomic"

	"github.com/weirmesh/weir/api/convert"
)

// Path is where the webhook is asked.
const Path = "/convert"

// Handler is the webhook: a pure function of the request, which counts. Anyone may use it, since its answer contains
// nothing that the asker does not know. The zero value with Kinds is ready for use.
type Handler struct {
	Kinds []convert.Kind

	answered, failed atomic.Uint64
}

// Stats count since the start.
type Stats struct {
	// Answered counts reviews, Failed those of them with an object that could not be converted.
	Answered, Failed uint64
}

// Stats returns the counts. It may be called from any goroutine.
func (h *Handler) Stats() Stats { return Stats{h.answered.Load(), h.failed.Load()} }

// Answer answers a ConversionReview. An error says why the body is none.
func (h *Handler) Answer(_ context.Context, body []byte) ([]byte, error) {
	review, err := Review(h.Kinds, body)
	if err != nil {
		return nil, err
	}
	answer, err := json.Marshal(review)
	if err != nil {
		return nil, err
	}
	h.answered.Add(1)
	if review.Response.Result.Status != "Success" {
		h.failed.Add(1)
	}
	return answer, nil
}
