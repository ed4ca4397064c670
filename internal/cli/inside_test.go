package cli

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestInsideIsNotForWebPages(t *testing.T) {
	h := insideOnly(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { text(w, http.StatusOK, "inside") }))
	for _, tt := range []struct {
		from, host string
		status     int
	}{
		{"127.0.0.1:5", "localhost:19080", http.StatusOK},
		{"[::1]:5", "[::1]:19080", http.StatusOK},
		{"127.0.0.1:5", "evil.example:19080", http.StatusForbidden},
		{"10.244.0.9:5", "10.244.0.8:19080", http.StatusForbidden},
		{"", "localhost", http.StatusForbidden},
	} {
		r := httptest.NewRequest(http.MethodGet, "http://"+tt.host+"/config", nil)
		r.RemoteAddr = tt.from
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != tt.status {
			t.Errorf("from %q for %q: %d, want %d", tt.from, tt.host, w.Code, tt.status)
		}
	}
}
