package smi_test

import (
	"slices"
	"testing"

	"github.com/weirmesh/weir/internal/dialect/core"
	"github.com/weirmesh/weir/internal/dialect/gateway"
	"github.com/weirmesh/weir/internal/dialect/goldentest"
	"github.com/weirmesh/weir/internal/dialect/smi"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

func translate(set *resource.Set, serve ...string) goldentest.Output {
	services, _, found := (&core.Translator{}).Translate(set)
	var gateways gateway.Translator
	routes, _, foundRoutes := gateways.Translate(set)
	splits, statuses, events, foundSplits := smi.Translate(set, smi.Options{Serve: serve, Gateways: gateways.Gateways()})
	findings := slices.Concat(set.Findings, found, foundRoutes, foundSplits)
	resource.SortFindings(findings)
	return goldentest.Output{Config: model.Merge(services, routes, splits), Statuses: statuses, Events: events, Findings: findings}
}

const leastGoldens = 35

func TestTranslateGoldens(t *testing.T) {
	goldentest.Run(t, leastGoldens, func(_ string, set *resource.Set) goldentest.Output { return translate(set) })
}
