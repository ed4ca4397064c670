package conversion

import (
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func ask(h *Handler, method, path string, length int64, body io.Reader) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, body)
	r.ContentLength = length
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestHandlerRefusesWhatIsNoReview(t *testing.T) {
	h := &Handler{Kinds: kinds}
	good := body("split.smi-spec.io/v1alpha4", object1("v1alpha1", `"1"`))
	if w := ask(h, "POST", Path, int64(len(good)), strings.NewReader(good)); w.Code != 200 || !strings.Contains(w.Body.String(), `"status":"Success"`) || w.Header().Get("Content-Type") != "application/json" {
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
		"method":    {"GET", Path, 0, untouched, 405},
		"no length": {"POST", Path, -1, untouched, 411},
		"too large": {"POST", Path, maxBody + 1, untouched, 413},
		"cut off":   {"POST", Path, 10, strings.NewReader("{}"), 400},
		"no review": {"POST", Path, 2, strings.NewReader("{}"), 400},
	} {
		if w := ask(h, c.method, c.path, c.length, c.body); w.Code != c.code {
			t.Errorf("%s: %d %s, want %d", name, w.Code, w.Body, c.code)
		}
	}
	if untouched.Len() != 1 {
		t.Error("a body was read that is refused by its head")
	}
	bad := body("split.smi-spec.io/v1alpha4", object1("v1alpha1", `"x"`))
	ask(h, "POST", Path, int64(len(bad)), strings.NewReader(bad))
	if s := h.Stats(); s != (Stats{Answered: 2, Failed: 1, Refused: 6}) {
		t.Errorf("counted %+v", s)
	}
}

// stuck is a body that does not come.
type stuck struct{ end chan struct{} }

func (s stuck) Read([]byte) (int, error) { <-s.end; return 0, io.ErrUnexpectedEOF }

// TestSlowLargeReviewsHoldUpNoSmallOnes fills all places for large reviews with bodies that do not come.
func TestSlowLargeReviewsHoldUpNoSmallOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &Handler{Kinds: kinds}
		end := make(chan struct{})
		for range largeAtOnce {
			go ask(h, "POST", Path, maxBody, stuck{end})
		}
		synctest.Wait()
		if w := ask(h, "POST", Path, maxBody, stuck{end}); w.Code != 503 {
			t.Errorf("one more large review: %d", w.Code) // after the longest wait
		}
		good := body("split.smi-spec.io/v1alpha4", object1("v1alpha1", `"1"`))
		if w := ask(h, "POST", Path, int64(len(good)), strings.NewReader(good)); w.Code != 200 {
			t.Errorf("a small review: %d %s", w.Code, w.Body)
		}
		began := time.Now()
		for range maxWaiting {
			go ask(h, "POST", Path, maxBody, stuck{end})
		}
		synctest.Wait()
		if w := ask(h, "POST", Path, maxBody, stuck{end}); w.Code != 503 || time.Since(began) != 0 {
			t.Errorf("one more that would wait: %d after %v", w.Code, time.Since(began))
		}
		time.Sleep(2 * maxWait)
		close(end)
		synctest.Wait()
		large := body("split.smi-spec.io/v1alpha4", strings.TrimSuffix(strings.Repeat(object1("v1alpha1", `"1"`)+",", 1000), ","))
		if w := ask(h, "POST", Path, int64(len(large)), strings.NewReader(large)); w.Code != 200 {
			t.Errorf("a large review afterwards: %d", w.Code)
		}
	})
}
