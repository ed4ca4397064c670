package rollouts_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/dialect/goldentest"
	"github.com/weirmesh/weir/internal/dialect/rollouts"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/rollout/provider"
)

const leastGoldens = 4

// TestRolloutsAreJudged runs the cases in testdata: what is found in files, with and without the rest of a cluster.
func TestRolloutsAreJudged(t *testing.T) {
	for path, g := range goldentest.All(t, leastGoldens) {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".golden"), func(t *testing.T) {
			set := goldentest.Load(t, g)
			text := func(partial bool) string {
				judged, uses := rollouts.Translate(set, rollouts.Options{Providers: provider.All(), Partial: partial})
				all := set.Unused(slices.Concat(set.Findings, judged), uses)
				resource.SortFindings(all)
				var b strings.Builder
				for _, f := range all {
					b.WriteString(f.String() + "\n")
				}
				return b.String()
			}
			g.Compare(t, path, []goldentest.Part{{Name: "findings", Text: text(false)}, {Name: "partial", Text: text(true)}})
		})
	}
}
