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
		}
		config, statuses, events, found := access.Translate(set, o)
		findings := slices.Concat(set.Findings, found)
		resource.SortFindings(findings)
		return goldentest.Output{Config: model.Merge(config), Statuses: statuses, Events: events, Findings: findings}
	})
}
