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

// TestRolloutsAreJudged runs the cases in testdata: what is found in files, with and without the rest of a cluster, and in a cluster.
func TestRolloutsAreJudged(t *testing.T) {
	for path, g := range goldentest.All(t, leastGoldens) {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".golden"), func(t *testing.T) {
			set := goldentest.Load(t, g)
			text := func(o rollouts.Options) string {
				o.Providers = provider.All()
				judged, uses := rollouts.Translate(set, o)
				all := set.Unused(slices.Concat(set.Findings, judged), uses)
				resource.SortFindings(all)
				var b strings.Builder
				for _, f := range all {
					b.WriteString(f.String() + "\n")
				}
				return b.String()
			}
			g.Compare(t, path, []goldentest.Part{
				{Name: "findings", Text: text(rollouts.Options{})}, {Name: "partial", Text: text(rollouts.Options{Partial: true})}, {Name: "cluster", Text: text(rollouts.Options{Cluster: true})},
			})
		})
	}
}
