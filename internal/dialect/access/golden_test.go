package access_test

import (
	"slices"
	"testing"

	"github.com/weirmesh/weir/internal/dialect/access"
	"github.com/weirmesh/weir/internal/dialect/goldentest"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

const leastGoldens = 20

func TestTranslateGoldens(t *testing.T) {
	goldentest.Run(t, leastGoldens, func(name string, set *resource.Set) goldentest.Output {
		var o access.Options
		switch name {
		case "deny-all":
			o.Deny = model.DenyAll
		case "partial":
			o.Partial = true
		case "cluster":
			o.Unenforced = true
		case "unseen": // of a cluster of which a part is watched, and not all kinds
			set.Watched = []string{"blog"}
			for _, k := range set.Kinds() {
				if k.Name == "Pod" || k.Name == "ServiceAccount" {
					set.Unread = append(set.Unread, k)
				}
			}
		}
		config, statuses, events, found := access.Translate(set, o)
		findings := slices.Concat(set.Findings, found)
		resource.SortFindings(findings)
		return goldentest.Output{Config: model.Merge(config), Statuses: statuses, Events: events, Findings: findings}
	})
}
