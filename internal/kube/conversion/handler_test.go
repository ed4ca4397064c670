package conversion

import (
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestHandlerCountsReviews(t *testing.T) {
	h := &Handler{Kinds: kinds}
	answer, err := h.Answer(t.Context(), []byte(body("split.smi-spec.io/v1alpha4", object1("v1alpha1", `"1"`))))
	if err != nil || !strings.Contains(string(answer), `"status":"Success"`) {
		t.Errorf("a review: %s, %v", answer, err)
	}
	if answer, err := h.Answer(t.Context(), []byte("{}")); err == nil {
		t.Errorf("no review: %s", answer)
	}
	if answer, err := h.Answer(t.Context(), []byte(body("split.smi-spec.io/v1alpha4", object1("v1alpha1", `"x"`)))); err != nil || !strings.Contains(string(answer), "Failure") {
		t.Errorf("one that fails: %s, %v", answer, err)
	}
	if s := h.Stats(); s != (Stats{Answered: 2, Failed: 1}) {
		t.Errorf("counted %+v", s)
	}
}
