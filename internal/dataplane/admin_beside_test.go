package dataplane

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"slices"
	"testing"

	"github.com/weirmesh/weir/internal/telemetry"
)

func TestTrafficKeepsAProcessorWhileMetricsAreTold(t *testing.T) {
	t.Setenv("GOMAXPROCS", "1") // what is put back afterwards
	before := runtime.GOMAXPROCS(1)
	defer runtime.GOMAXPROCS(before)
	during := map[string]int{}
	path := ""
	look := func() { during[path] = runtime.GOMAXPROCS(0) }
	a := &planeAdmin{
		metrics:  http.HandlerFunc(func(http.ResponseWriter, *http.Request) { look() }),
		report:   func() *Report { look(); return nil },
		services: slices.Values([]telemetry.ServiceState{}),
		unserved: func() int { return 0 },
		draining: func() bool { return false },
	}
	h := a.handler()
	for _, path = range []string{"/metrics", "/config", "/readyz"} {
		r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1"+path, nil)
		r.RemoteAddr = "127.0.0.1:5"
		here := net.TCPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:19080"))
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, here))
		h.ServeHTTP(httptest.NewRecorder(), r)
		if n := runtime.GOMAXPROCS(0); n != 1 {
			t.Errorf("%d processors after %s, want 1", n, path)
		}
	}
	if during["/metrics"] != 2 || during["/config"] != 2 || during["/readyz"] != 1 {
		t.Errorf("processors while it was told: %v, want 2, but 1 for what is short", during)
	}
}
