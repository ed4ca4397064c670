package telemetry

import (
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestAServedReportIsTheReport with no edges, one and several.
func TestAServedReportIsTheReport(t *testing.T) {
	r := New()
	for n := range 4 {
		w := httptest.NewRecorder()
		r.ServeReport(w, httptest.NewRequest(http.MethodGet, "/edges", nil))
		if got := w.Header().Get("Content-Type"); got != "application/json" {
			t.Errorf("Content-Type %q", got)
		}
		got, err := ReadReport(w.Body, 10)
		if err != nil {
			t.Fatalf("%d edges: %v", n, err)
		}
		want := r.Report()
		if !reflect.DeepEqual(got.Edges, want.Edges) || len(got.Edges) != n || !got.Began.Equal(want.Began) || got.Time.After(want.Time) || got.Time.IsZero() {
			t.Errorf("%d edges: %+v, want %+v", n, got, want)
		}
		r.Edge(EdgeLabels{At: web.At, Peer: Side{Kind: "Pod", Namespace: "shop", Name: strings.Repeat("x", n)}}).Observe(0, n > 0, time.Duration(n)*time.Millisecond)
	}
}

// TestAClientThatIsGoneEndsItsReport: a report is not written on for nobody.
func TestAClientThatIsGoneEndsItsReport(t *testing.T) {
	r := New()
	for n := range 1000 {
		r.Edge(EdgeLabels{Peer: Side{Name: strings.Repeat("x", n)}}).Observe(0, true, 0)
	}
	w := &gone{}
	r.ServeReport(w, nil)
	if w.writes != 1 {
		t.Errorf("%d writes after the client had gone", w.writes-1)
	}
}

type gone struct{ writes int }

func (g *gone) Header() http.Header { return http.Header{} }
func (g *gone) WriteHeader(int)     {}
func (g *gone) Write([]byte) (int, error) {
	g.writes++
	return 0, http.ErrHandlerTimeout
}
