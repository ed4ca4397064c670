package overview

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirmesh/weir/api/split"
	"github.com/weirmesh/weir/internal/dialect"
	"github.com/weirmesh/weir/internal/kube/inspect"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/screen"
	"github.com/weirmesh/weir/internal/screen/screentest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// clusterReport returns a report with everything that status can show.
func clusterReport() *Report {
	two, one := 2, 1
	return &Report{
		kinds: shownKinds(dialect.Kinds()),
		Cluster: &inspect.Summary{
			GatewayAPI: "v1.6.3 experimental", Kinds: 8, KindsKnown: 8, Gateways: 2, Proxies: 2, ProxiesWanted: 4, Seen: true,
			Traffic:    &inspect.TrafficSummary{On: true, APIServices: 3, Available: 3, Seen: true},
			Controller: &inspect.ControllerSummary{Namespace: "weir-system", Name: "weir-controller", Image: "weir:1", Ready: 2, Replicas: 2, Leader: "weir-controller-a"},
		},
		Objects: []*objectStatus{
			{Kind: "GatewayClass", Name: "weir", Accepted: "True"},
			{
				Kind: "Gateway", Namespace: "shop", Name: "edge", Class: "weir", Addresses: []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "edge.example"},
				Listeners: []listenerRow{{Name: "http", Port: 80, Protocol: "HTTP", Routes: 2}, {Name: "https", Port: 443, Protocol: "HTTPS", Hostname: "*.example", Routes: 1}},
				Routes:    &two, Accepted: "True", Programmed: "True", Proxies: &proxiesStatus{Wanted: 2, Ready: 2, Current: &one},
			},
			{
				Kind: "Gateway", Namespace: "shop", Name: "a-longer-name", Class: "weir", Routes: new(int), Accepted: "True", Programmed: "False", Proxies: &proxiesStatus{Wanted: 2},
				Problems: []objectProblem{{Condition: "Programmed", Reason: "AddressNotAssigned", Message: "Service a-longer-name-weir: the cluster's load balancers have assigned no address yet"}},
			},
			{Kind: "ListenerSet", Namespace: "team", Name: "more", Parents: []string{"shop/edge"}, Listeners: []listenerRow{{Name: "x", Port: 8080, Protocol: "HTTP"}}, Accepted: "True", Programmed: "Unknown"},
			{
				Kind: "HTTPRoute", Namespace: "shop", Name: "shop", Hostnames: []string{"shop.example"}, Parents: []string{"shop/edge"}, Accepted: "True", Resolved: "False",
				Problems: []objectProblem{{Code: "WR530", Field: "spec.rules[0].backendRefs[0].name", Message: "Service shop/none does not exist", Fix: "create it or correct the name"}},
			},
			{Kind: "TCPRoute", Namespace: "shop", Name: "mail"},
			{
				Kind: splitKind, Namespace: "shop", Name: "canary", Accepted: "True", Resolved: "True",
				Split: newSplitRow(split.Spec{Service: "web", Backends: []split.Backend{{Service: "web-v1", Weight: 2000}, {Service: "web-v2", Weight: 1000}, {Service: "web-v3"}, {Service: "web-v4"}}}),
			},
			{
				Kind: splitKind, Namespace: "shop", Name: "testers", Accepted: "False", Resolved: "False",
				Split: newSplitRow(split.Spec{
					Service: "web", Backends: []split.Backend{{Service: "web-v3", Weight: 500}}, Matches: []split.Match{{Kind: "HTTPRouteGroup", Name: "testers"}},
				}),
				Problems: []objectProblem{{Code: "WR611", Field: "spec.matches[0]", Message: "HTTPRouteGroup shop/testers does not exist", Fix: "create it or correct the name"}},
			},
			{Kind: "BackendTLSPolicy", Namespace: "shop", Name: "backend", Parents: []string{"shop/edge"}, Accepted: "True", Resolved: "True"},
		},
		Problems: []resource.Finding{
			{Code: "WR712", Severity: resource.Info, Message: "you may not read Pods", Fix: "ask for the right"},
			{Code: "WR709", Severity: resource.Warning, Ref: model.Ref{Kind: "Deployment", Namespace: "shop", Name: "edge-weir"}, Message: "1 of 2 proxies are ready"},
		},
	}
}

func TestStatusIsPrintedForPeople(t *testing.T) {
	for name, wide := range map[string]bool{"status.txt": false, "status-wide.txt": true} {
		var got strings.Builder
		if err := clusterReport().Print(&got, wide, screen.Screen{}); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got.String() != string(want) {
			t.Errorf("%s: got\n%s\nwant\n%s", file, &got, want)
		}
	}
}

// TestColoursDoNotMoveColumns compares the output with and without colours.
func TestColoursDoNotMoveColumns(t *testing.T) {
	var with, without strings.Builder
	if err := clusterReport().Print(&with, false, screen.Screen{Colour: true}); err != nil {
		t.Fatal(err)
	}
	if err := clusterReport().Print(&without, false, screen.Screen{}); err != nil {
		t.Fatal(err)
	}
	if with.String() == without.String() {
		t.Error("there are no colours")
	}
	if got := strings.NewReplacer(screen.Red, "", screen.Green, "", screen.Yellow, "", screen.Plain, "").Replace(with.String()); got != without.String() {
		t.Errorf("got\n%s\nwant\n%s", got, &without)
	}
}

func TestStatusFitsTheScreen(t *testing.T) {
	for name, wide := range map[string]bool{"text": false, "wide": true} {
		t.Run(name, func(t *testing.T) {
			screentest.Fits(t, func(s screen.Screen) (string, error) {
				var b strings.Builder
				err := clusterReport().Print(&b, wide, s)
				return b.String(), err
			})
		})
	}
}
