package webhook

import (
	"context"
	"errors"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func ask(h *Reviews, method, path string, length int64, body io.Reader) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, body)
	r.ContentLength = length
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// repeating answers what begins with an x by itself.
func repeating() *Reviews {
	return &Reviews{Paths: map[string]Answer{path: func(_ context.Context, body []byte) ([]byte, error) {
		if body[0] != 'x' {
			return nil, errors.New("not a review: " + string(body))
		}
		return body, nil
	}}}
}

func TestReviewsRefusesWhatIsNoReview(t *testing.T) {
	h := repeating()
	if w := ask(h, "POST", path, 2, strings.NewReader("xy")); w.Code != 200 || w.Body.String() != "xy" || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("a review: %d %s", w.Code, w.Body)
	}
	untouched := strings.NewReader("x")
	for name, c := range map[string]struct {
		method, path string
		length       int64
		body         io.Reader
		code         int
	}{
		"path":      {"POST", "/", 1, untouched, 404},
		"method":    {"GET", path, 0, untouched, 405},
		"no length": {"POST", path, -1, untouched, 411},
		"too large": {"POST", path, maxBody + 1, untouched, 413},
		"cut off":   {"POST", path, 10, strings.NewReader("{}"), 400},
		"no review": {"POST", path, 60_000, strings.NewReader(strings.Repeat("ü", 30_000)), 400},
	} {
		if w := ask(h, c.method, c.path, c.length, c.body); w.Code != c.code || w.Body.Len() > maxMessage+10 {
			t.Errorf("%s: %d %s, want %d", name, w.Code, w.Body, c.code)
		}
	}
	if untouched.Len() != 1 {
		t.Error("a body was read that is refused by its head")
	}
	if n := h.Refused(); n != 6 {
		t.Errorf("counted %d", n)
	}
}

// stuck is a body that does not come.
type stuck struct{ end chan struct{} }

func (s stuck) Read([]byte) (int, error) { <-s.end; return 0, io.ErrUnexpectedEOF }

// TestSlowLargeReviewsHoldUpNoSmallOnes fills all places for large reviews with bodies that do not come.
func TestSlowLargeReviewsHoldUpNoSmallOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := repeating()
		end := make(chan struct{})
		for range largeAtOnce {
			go ask(h, "POST", path, maxBody, stuck{end})
		}
		synctest.Wait()
		if w := ask(h, "POST", path, maxBody, stuck{end}); w.Code != 503 {
			t.Errorf("one more large review: %d", w.Code) // after the longest wait
		}
		if w := ask(h, "POST", path, 1, strings.NewReader("x")); w.Code != 200 {
			t.Errorf("a small review: %d %s", w.Code, w.Body)
		}
		began := time.Now()
		for range maxWaiting {
			go ask(h, "POST", path, maxBody, stuck{end})
		}
		synctest.Wait()
		if w := ask(h, "POST", path, maxBody, stuck{end}); w.Code != 503 || time.Since(began) != 0 {
			t.Errorf("one more that would wait: %d after %v", w.Code, time.Since(began))
		}
		time.Sleep(2 * maxWait)
		close(end)
		synctest.Wait()
		large := strings.Repeat("x", 2*smallBody)
		if w := ask(h, "POST", path, int64(len(large)), strings.NewReader(large)); w.Code != 200 {
			t.Errorf("a large review afterwards: %d", w.Code)
		}
	})
}
