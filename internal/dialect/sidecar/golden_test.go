package sidecar_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/weirmesh/weir/internal/dialect/core"
	"github.com/weirmesh/weir/internal/dialect/gateway"
	"github.com/weirmesh/weir/internal/dialect/goldentest"
	"github.com/weirmesh/weir/internal/dialect/sidecar"
	"github.com/weirmesh/weir/internal/dialect/smi"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// cases are the options of each golden.
var cases = map[string]sidecar.Options{
	"web": {
		Namespace: "shop", Name: "web", Outbound: at("127.0.0.1:15001"), Plain: true,
		Inbound: map[int32]netip.AddrPort{8080: at("127.0.0.1:15002")}, App: map[int32]netip.AddrPort{8080: at("127.0.0.1:9001")},
		Forwards: []sidecar.Forward{{Address: at("127.0.0.1:5432"), Namespace: "shop", Name: "db", Port: 5432}},
	},
	"pod": {Namespace: "shop", Name: "db-0"},
	"mistakes": {
		Namespace: "shop", Name: "web", Inbound: map[int32]netip.AddrPort{8080: at("127.0.0.1:8080"), 9999: at("127.0.0.1:15002")},
		Forwards: []sidecar.Forward{{Address: at("127.0.0.1:1"), Namespace: "shop", Name: "gone", Port: 1}, {Address: at("127.0.0.1:2"), Namespace: "shop", Name: "web", Port: 2}},
	},
	"no-pod":     {Namespace: "shop", Name: "gone"},
	"no-address": {Namespace: "shop", Name: "web"},
	"routed": {
		Namespace: "shop", Name: "web", Outbound: at("127.0.0.1:15001"),
		Forwards: []sidecar.Forward{{Address: at("127.0.0.1:8001"), Namespace: "shop", Name: "api", Port: 80}, {Address: at("127.0.0.1:5432"), Namespace: "shop", Name: "db", Port: 5432}},
	},
	"redirected": {Namespace: "shop", Name: "web-1"},
}

func at(text string) netip.AddrPort { return netip.MustParseAddrPort(text) }

func TestTranslateGoldens(t *testing.T) {
	goldentest.Run(t, len(cases), func(name string, set *resource.Set) goldentest.Output {
		o, ok := cases[name]
		if !ok {
			t.Fatalf("no options for %s", name)
		}
		o.TrustDomain = "cluster.local"
		services, _, _ := (&core.Translator{}).Translate(set)
		splits, _, _, _ := smi.Translate(set, smi.Options{Serve: []string{"none"}})
		routes := &gateway.Translator{Options: gateway.Options{Mesh: true}}
		routes.Translate(set)
		o.Routes = sidecar.NewRoutes(routes.ServiceRoutes())
		config, found := sidecar.Translate(set, o)
		if name == "redirected" {
			x := sidecar.NewIndex(set, o.TrustDomain, nil, o.Routes, nil)
			config, found = x.Sidecar(o.Namespace, o.Name), x.Findings()
			config.Services = append(config.Services, x.Shared().Services...)
			outbound := x.Outbound(o.Namespace)
			for i := range outbound.Listeners { // so that the output has them, too
				outbound.Listeners[i].Owner = o.Owner()
			}
			config.Listeners, config.Routes = append(config.Listeners, outbound.Listeners...), append(config.Routes, outbound.Routes...)
		}
		findings := slices.Concat(set.Findings, found)
		resource.SortFindings(findings)
		merged := model.Merge(services, splits, config)
		return goldentest.Output{Config: *merged.Of(o.Owner()), Findings: findings}
	})
}

func TestNoPodIsNoSidecar(t *testing.T) {
	if c, f := sidecar.Translate(resource.NewSet(nil), sidecar.Options{}); len(c.Listeners) > 0 || len(f) > 0 {
		t.Errorf("%+v %v", c, f)
	}
}
