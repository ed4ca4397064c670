package local

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/dialect"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/rollout/provider"
)

// TestRequestsOfTheStepAloneAreMeasured: those that came while other shares were in force say nothing about its own.
func TestRequestsOfTheStepAloneAreMeasured(t *testing.T) {
	path := filepath.Join(t.TempDir(), "all.yaml")
	if err := os.WriteFile(path, []byte(shop{stable: old, canary: fresh, steps: "[{traffic: 20%, replicas: 1, pause: {duration: 10}}, {traffic: 60%, replicas: 1, pause: {}}]"}.yaml()), 0o600); err != nil {
		t.Fatal(err)
	}
	set, err := resource.Load(dialect.Kinds(), []string{path}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := New(nil, provider.All(), nil, slog.New(slog.DiscardHandler))
	counts := map[string]uint64{}
	s.Requests = func(_, service string) uint64 { return counts[service] }
	k := &keeper{source: s, emit: func(set *resource.Set) { s.applied.Store(set) }, states: map[string]*state{}, meters: map[string]*meter{}, set: set}
	now := time.Now()
	second := func(stable, canary uint64) {
		counts["default/shop"] += stable
		counts["default/shop-canary"] += canary
		now = now.Add(1100 * time.Millisecond)
		k.turn(now)
	}
	at := func(step int, most int) {
		t.Helper()
		for range most {
			if v := s.Views(); len(v) == 1 && int(v[0].Step) == step {
				return
			}
			second(8, 2)
		}
		t.Fatalf("step %d is not reached: %+v", step, s.Views())
	}
	at(1, 20)
	for range 5 {
		second(8, 2)
	}
	if m := s.Views()[0].Measured; m == nil || m.Canary*4 != m.Stable || m.Canary == 0 {
		t.Errorf("in step 1 it measures %+v", m)
	}
	at(2, 30)
	for range 6 {
		second(4, 6)
	}
	if m := s.Views()[0].Measured; m == nil || m.Canary*2 != m.Stable*3 || m.Canary < 12 {
		t.Errorf("in step 2 it measures %+v", m)
	}
}
