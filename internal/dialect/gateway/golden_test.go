package gateway_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/dialect/core"
	"github.com/weirmesh/weir/internal/dialect/gateway"
	"github.com/weirmesh/weir/internal/dialect/goldentest"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

type output struct {
	cfg      model.Config
	services []model.ServiceRoute
	statuses []resource.Status
	findings []resource.Finding
}

func translate(set *resource.Set) output { return translateWith(set, gateway.Options{}) }

func translateWith(set *resource.Set, options gateway.Options) output {
	services, _, found := (&core.Translator{Options: core.Options{Names: options.Names}}).Translate(set)
	t := &gateway.Translator{Options: options}
	cfg, statuses, more := t.Translate(set)
	findings := slices.Concat(set.Findings, found, more)
	resource.SortFindings(findings)
	return output{model.Merge(services, cfg), t.ServiceRoutes(), statuses, findings}
}

const leastGoldens = 60

// TestTranslateGoldens translates the cases named separate-* for Gateways with proxies of their own, and those named names-* where host
// names under example.com are allowed and no others, those named exclusive-* with Options.ExclusiveHostnames, and those named mesh-* with Options.Mesh.
func TestTranslateGoldens(t *testing.T) {
	goldentest.Run(t, leastGoldens, func(name string, set *resource.Set) goldentest.Output {
		options := gateway.Options{ProxyPerGateway: strings.HasPrefix(name, "separate-"), ExclusiveHostnames: strings.HasPrefix(name, "exclusive-"), Mesh: strings.HasPrefix(name, "mesh-")}
		if strings.HasPrefix(name, "names-") {
			options.Names = &resource.HostNames{Suffixes: []string{"example.com"}}
		}
		out := translateWith(set, options)
		return goldentest.Output{Config: out.cfg, AtServices: out.services, Statuses: out.statuses, Findings: out.findings}
	})
}

// TestGoldensHoldTheExamplesOfTheProposal makes sure that both examples of GEP-3171 are among the cases verbatim.
func TestGoldensHoldTheExamplesOfTheProposal(t *testing.T) {
	const example = `apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata:
  name: http-filter-mirror
  labels:
    gateway: mirror-gateway
spec:
  parentRefs:
  - name: mirror-gateway
  hostnames:
  - mirror.example
  rules:
  - backendRefs:
    - name: foo-v1
      port: 8080
    filters:
    - type: RequestMirror
      requestMirror:
        backendRef:
          name: foo-v2
          port: 8080
`
	for _, share := range []string{
		"        percent: 42\n",
		"        fraction:\n          numerator: 5\n          denominator: 1000\n",
	} {
		found := false
		for _, g := range goldentest.All(t, leastGoldens) {
			found = found || slices.ContainsFunc(g.Inputs(), func(p goldentest.Part) bool { return p.Text == example+share })
		}
		if !found {
			t.Errorf("no golden has the example with\n%s", share)
		}
	}
}
