package webhook

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

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
	// maxMessage bounds the text of an error, in bytes: anyone can have written what it quotes.
	maxMessage = 2048
)

// Answer returns the answer to a review, as JSON. An error says why the body is no such review. The context ends when the
// asker leaves.
type Answer func(ctx context.Context, body []byte) ([]byte, error)

// Reviews reads what API servers send for a decision, and has it answered, with bounds that all paths share. The zero
// value with Paths is ready for use.
type Reviews struct {
	// Paths are where reviews are sent. It must not change once requests arrive.
	Paths map[string]Answer

	once         sync.Once
	small, large chan struct{}
	heavy        sync.Mutex // held while a large review is decoded

	waiting atomic.Int64
	refused atomic.Uint64
}

// Refused is how many requests were no review, too large or too many, since the start. It may be called from any
// goroutine.
func (h *Reviews) Refused() uint64 { return h.refused.Load() }

// ServeHTTP implements http.Handler.
func (h *Reviews) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer, code, err := h.answer(r)
	if err != nil {
		h.refused.Add(1)
		http.Error(w, shortened(err.Error()), code)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer) // the asker may have left
}

func (h *Reviews) answer(r *http.Request) (answer []byte, code int, err error) {
	review := h.Paths[r.URL.Path]
	switch {
	case review == nil:
		return nil, http.StatusNotFound, errors.New("no reviews are answered here")
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
	if answer, err = review(r.Context(), body); err != nil {
		return nil, http.StatusBadRequest, err
	}
	return answer, http.StatusOK, nil
}

// enter waits for a place.
func (h *Reviews) enter(ctx context.Context, places chan struct{}) (leave func(), err error) {
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

func shortened(text string) string {
	if len(text) > maxMessage {
		return strings.ToValidUTF8(text[:maxMessage], "") + "..."
	}
	return text
}
