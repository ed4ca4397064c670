package conversion

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirmesh/weir/api/convert"
)

// Path is where the webhook is asked.
const Path = "/convert"

// Anyone who reaches the port may ask. These bounds keep the memory for that below some 200 MiB: decoded, a body can
// take fifty times its size.
const (
	// maxBody is how large a review may be, in bytes: an API server takes requests of at most 3 MiB, and etcd half of that.
	maxBody = 3<<20 + 64<<10
	// smallBody is the largest review of which many are answered at the same time. Larger ones are rare, and answered
	// one by one.
	smallBody = 64 << 10
	// smallAtOnce and largeAtOnce are how many are read and answered at a time, maxWaiting how many others wait, maxWait how long.
	smallAtOnce, largeAtOnce = 16, 2
	maxWaiting               = 512
	maxWait                  = 4 * time.Second
)

// Handler is the webhook: a pure function of the request, with bounds. Anyone may use it, since its answer contains
// nothing that the asker does not know. The zero value with Kinds is ready for use.
type Handler struct {
	Kinds []convert.Kind

	once         sync.Once
	small, large chan struct{}
	heavy        sync.Mutex // held while a large review is decoded

	waiting                   atomic.Int64
	answered, failed, refused atomic.Uint64
}

// Stats count since the start.
type Stats struct {
	// Answered counts reviews, Failed those of them with an object that could not be converted, Refused requests that
	// were not a review, too large or too many.
	Answered, Failed, Refused uint64
}

// Stats returns the counts. It may be called from any goroutine.
func (h *Handler) Stats() Stats {
	return Stats{h.answered.Load(), h.failed.Load(), h.refused.Load()}
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer, code, err := h.answer(r)
	if err != nil {
		h.refused.Add(1)
		http.Error(w, err.Error(), code)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer) // the asker may have left
}

func (h *Handler) answer(r *http.Request) (answer []byte, code int, err error) {
	switch {
	case r.URL.Path != Path:
		return nil, http.StatusNotFound, errors.New("the webhook is at " + Path)
	case r.Method != http.MethodPost:
		return nil, http.StatusMethodNotAllowed, errors.New("reviews are sent by POST")
	case r.ContentLength < 0:
		return nil, http.StatusLengthRequired, errors.New("a review has a Content-Length")
	case r.ContentLength > maxBody:
		return nil, http.StatusRequestEntityTooLarge, errors.New("the review is too large")
	}
	h.once.Do(func() { h.small, h.large = make(chan struct{}, smallAtOnce), make(chan struct{}, largeAtOnce) })
	large := r.ContentLength > smallBody
	places := h.small
	if large {
		places = h.large
	}
	leave, err := h.enter(r.Context(), places)
	if err != nil {
		return nil, http.StatusServiceUnavailable, err
	}
	defer leave()
	body := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(r.Body, body); err != nil {
		return nil, http.StatusBadRequest, errors.New("the review was cut off")
	}
	if large {
		h.heavy.Lock()
		defer h.heavy.Unlock()
	}
	review, err := Review(h.Kinds, body)
	if err != nil {
		return nil, http.StatusBadRequest, errors.New(shortened(err.Error()))
	}
	if answer, err = json.Marshal(review); err != nil {
		return nil, http.StatusInternalServerError, err
	}
	h.answered.Add(1)
	if review.Response.Result.Status != "Success" {
		h.failed.Add(1)
	}
	return answer, http.StatusOK, nil
}

// enter waits for a place.
func (h *Handler) enter(ctx context.Context, places chan struct{}) (leave func(), err error) {
	defer h.waiting.Add(-1)
	if h.waiting.Add(1) > maxWaiting {
		return nil, errTooMany
	}
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	select {
	case places <- struct{}{}:
		return func() { <-places }, nil
	case <-ctx.Done():
		return nil, errTooMany
	}
}

var errTooMany = errors.New("too many reviews at once")
