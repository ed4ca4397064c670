package local

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"log/slog"

	"github.com/weirmesh/weir/internal/dialect"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/rollout/provider"
)

// BenchmarkTurn decides on a thousand Rollouts, each in its first step, when nothing happened.
func BenchmarkTurn(b *testing.B) {
	const n = 1000
	var text strings.Builder
	for i := range n {
		one := shop{stable: old, canary: fresh, steps: threeSteps}.yaml()
		text.WriteString(strings.NewReplacer("shop", fmt.Sprintf("shop%d", i)).Replace(one) + "\n---\n")
	}
	path := filepath.Join(b.TempDir(), "all.yaml")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		b.Fatal(err)
	}
	set, err := resource.Load(dialect.Kinds(), []string{path}, nil)
	if err != nil {
		b.Fatal(err)
	}
	s := New(nil, provider.All(), nil, slog.New(slog.DiscardHandler))
	k := &keeper{source: s, emit: func(set *resource.Set) { s.applied.Store(set) }, states: map[string]*state{}, meters: map[string]*meter{}, set: set}
	now := time.Now()
	for range 10 {
		now = now.Add(1100 * time.Millisecond)
		k.turn(now)
	}
	b.ReportAllocs()
	for b.Loop() {
		k.turn(now)
	}
	if len(s.Views()) != n || s.Views()[0].Step != 1 {
		b.Errorf("%d Rollouts, the first at step %d", len(s.Views()), s.Views()[0].Step)
	}
}
