package rest_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/metrics"
	"github.com/weirmesh/weir/internal/metrics/rest"
	"github.com/weirmesh/weir/internal/telemetry"
)

func TestATapIsOfAnObjectsPods(t *testing.T) {
	full := false
	x := objects(t)
	h := &rest.Handler{Index: func() *metrics.Index { return x }, Tap: func(w http.ResponseWriter, r *http.Request, q telemetry.TapQuery, of telemetry.TapOf) error {
		sides, err := of(r.Context())
		switch {
		case err != nil:
			return err
		case full:
			return telemetry.ErrTaps
		}
		pod := telemetry.Side{Kind: "Pod", Namespace: "foobar", Name: "foo-775b9cbd88-ntxsl"}
		for name, x := range map[string]telemetry.Tapped{"at": {At: pod}, "from": {From: pod}, "to": {To: pod}, "address": {From: telemetry.Side{Kind: "Address", Name: "10.0.0.1"}}} {
			if !q.Wants(&x, sides) {
				t.Errorf("not shown: %s", name)
			}
		}
		for _, other := range []telemetry.Side{{}, {Kind: "Pod", Namespace: "foobar", Name: "bar-5b48b5fb9c-7rw27"}} {
			if q.Wants(&telemetry.Tapped{At: other}, sides) {
				t.Errorf("shown: %s", other)
			}
		}
		w.WriteHeader(http.StatusAccepted)
		return nil
	}}
	get := func(method, path string) (int, string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, "/apis/traffic.metrics.k8s.io/v1beta1/"+path, nil))
		return w.Code, w.Body.String()
	}
	for path, want := range map[string]struct {
		code int
		text string
	}{
		"namespaces/foobar/deployments/foo/tap":                  {202, ""},
		"namespaces/foobar/pods/foo-775b9cbd88-ntxsl/tap?rate=5": {202, ""},
		"watch/namespaces/foobar/deployments/foo/tap":            {202, ""},
		"watch/namespaces/foobar/deployments/foo/edges":          {404, "could not find"},
		"watch/namespaces/foobar/deployments/foo":                {404, "could not find"},
		"watch/watch/namespaces/foobar/deployments/foo/tap":      {404, "could not find"},
		"watch": {404, "could not find"},
		"namespaces/foobar/deployments/foo/tap?rate=x": {400, "rate: want a number"},
		"namespaces/foobar/deployments/gone/tap":       {404, `deployments.traffic.metrics.k8s.io \"gone\" not found`},
		"namespaces/foobar/deployments/foo/tap/tap":    {404, "could not find"},
		"deployments/tap": {404, "not found"},
	} {
		code, text := get("GET", path)
		if code != want.code || !strings.Contains(text, want.text) {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
	if code, _ := get("HEAD", "namespaces/foobar/deployments/foo/tap"); code != 405 {
		t.Errorf("HEAD: %d", code)
	}
	if _, text := get("GET", ""); strings.Count(text, `/tap"`) != 10 || strings.Count(text, `/edges"`) != 10 {
		t.Errorf("discovery: %s", text)
	}
	full = true
	if code, text := get("GET", "namespaces/foobar/deployments/foo/tap"); code != 429 || !strings.Contains(text, "too many taps") {
		t.Errorf("one too many: %d %s", code, text)
	}
	h.Tap = nil
	if code, _ := get("GET", "namespaces/foobar/deployments/foo/tap"); code != 404 {
		t.Errorf("without taps: %d", code)
	}
	if _, text := get("GET", ""); strings.Contains(text, "/tap") {
		t.Errorf("discovery without taps: %s", text)
	}
}
