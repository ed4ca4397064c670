package fed

import (
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
)

// TestASidecarIsStartedAgainWithoutAController has what the sidecar of before had: its identity, the pod's configuration, and what the
// pod calls.
func TestASidecarIsStartedAgainWithoutAController(t *testing.T) {
	c := newLazily(t)
	c.feed.Direct(clusterAt(application(t)))
	c.mean(netip.MustParseAddrPort("10.96.0.9:80"))
	state := t.TempDir()
	start := func() *running {
		return c.start(func() netip.AddrPort { return *c.meant.Load() }, "--state-dir="+state)
	}
	called := func(r *running) {
		t.Helper()
		get, end := r.get(false)
		defer end()
		if got := get(); got != "200 pay" {
			t.Errorf("%s", got)
		}
	}
	r := start()
	c.gives()
	r.ready(http.StatusOK, "ready")
	called(r)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	c.stop()

	r = start()
	r.ready(http.StatusOK, "ready")
	called(r)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	// Without the identity it waits for one, and says so.
	if err := os.Remove(filepath.Join(state, "identity")); err != nil {
		t.Fatal(err)
	}
	start().ready(http.StatusServiceUnavailable, "no identity yet")
}
