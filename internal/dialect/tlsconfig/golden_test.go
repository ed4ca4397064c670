package tlsconfig_test

import (
	"slices"
	"testing"

	"github.com/weirmesh/weir/internal/dialect/goldentest"
	"github.com/weirmesh/weir/internal/dialect/tlsconfig"
	"github.com/weirmesh/weir/internal/resource"
)

func TestTranslateGoldens(t *testing.T) {
	grants, err := tlsconfig.ParseGrants([]string{"shop=shop.example.com", "shop=*.pay.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	goldentest.Run(t, 7, func(name string, set *resource.Set) goldentest.Output {
		statuses, events, found := tlsconfig.Translate(set, tlsconfig.Options{Grants: grants, Partial: name == "partial", Excluded: []string{"kube-system"}})
		findings := slices.Concat(set.Findings, found)
		resource.SortFindings(findings)
		return goldentest.Output{Statuses: statuses, Events: events, Findings: findings}
	})
}
