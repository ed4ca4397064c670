package model_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/test/size"
)

// shared is a valid configuration of some owners, whose routes, splits, services and certificates are drawn.
func shared(gateways, routes int) model.Config {
	var c model.Config
	name := func(kind string, i int) string { return fmt.Sprintf("default/%s%d", kind, i) }
	for i := range 8 {
		c.Certificates = append(c.Certificates, model.Certificate{Name: name("c", i), Chain: "chain", Key: "key"})
	}
	for g := range gateways {
		owner := model.GatewayOwner("default", fmt.Sprint("g", g))
		if g%3 == 2 {
			owner = model.WorkloadOwner("default", fmt.Sprint("g", g-1)) // of a Gateway's name
		}
		for port := int32(80); port < 83; port++ {
			l := model.Listener{
				Name: fmt.Sprintf("default/g%d/%d", g, port), Ref: model.Ref{Kind: "Gateway", Name: fmt.Sprint("g", g)}, Owner: owner,
				Port: port, Protocol: model.HTTP,
			}
			if port == 82 {
				l.Protocol, l.TLS = model.HTTPS, &model.ListenerTLS{Certificates: []string{name("c", rand.IntN(4))}}
			}
			c.Listeners = append(c.Listeners, l)
		}
	}
	for i := range 20 {
		s := model.Service{Name: name("s", i), Ref: model.Ref{Kind: "Service", Name: fmt.Sprint("s", i)}, Protocol: model.HTTP}
		if i%3 == 0 {
			s.TLS = &model.ServiceTLS{Hostname: "s"}
		}
		c.Services = append(c.Services, s)
	}
	for i := range 6 {
		c.Splits = append(c.Splits, model.Split{
			Ref: model.Ref{Kind: "TrafficSplit", Name: fmt.Sprint(i)}, Root: name("s", rand.IntN(20)),
			Leaves: []model.Leaf{{Service: name("s", rand.IntN(20)), Weight: 1}, {Service: name("s", rand.IntN(20)), Weight: 2}},
		})
	}
	for i := range routes {
		r := model.Route{Ref: model.Ref{Kind: "HTTPRoute", Namespace: "default", Name: fmt.Sprint("r", i)}}
		if i%2 == 0 {
			r.ClientCertificate = name("c", 4+rand.IntN(4))
		}
		backend := model.Backend{Service: c.Services[rand.IntN(len(c.Services))].Name, Weight: 1}
		mirror := model.Mirror{Service: c.Services[rand.IntN(len(c.Services))].Name, Numerator: 1, Denominator: 2}
		r.Rules = []model.Rule{{
			Matches: []model.Match{{Path: model.PathMatch{Type: model.Prefix, Value: "/"}}}, Backends: []model.Backend{backend},
			Filters: model.Filters{Mirrors: []model.Mirror{mirror}},
		}}
		for range 1 + rand.IntN(4) {
			l := c.Listeners[rand.IntN(len(c.Listeners))].Name
			if !slices.ContainsFunc(r.Attachments, func(a model.Attachment) bool { return a.Listener == l }) {
				r.Attachments = append(r.Attachments, model.Attachment{Listener: l, Hostnames: []string{"*"}})
			}
		}
		c.Routes = append(c.Routes, r)
	}
	return model.Merge(c)
}

// TestSplitGivesEachGatewayWhatMergingItsListenersGives compares with the plain way.
func TestSplitGivesEachGatewayWhatMergingItsListenersGives(t *testing.T) {
	for range size.Of(20, 200) {
		c := shared(1+rand.IntN(5), rand.IntN(12))
		before := text(t, c)
		parts := c.ByOwner()
		names := c.Owners()
		if len(parts) != len(names) || !slices.IsSorted(names) {
			t.Fatalf("%d parts of the gateways %q", len(parts), names)
		}
		for _, name := range names {
			alone := c
			alone.Listeners = slices.DeleteFunc(slices.Clone(c.Listeners), func(l model.Listener) bool { return l.Owner != name })
			want := text(t, model.Merge(alone))
			if got := text(t, *parts[name]); got != want {
				t.Fatalf("%s:\n%s\nwant\n%s", name, got, want)
			}
			if got := text(t, *c.Of(name)); got != want {
				t.Fatalf("Of(%s):\n%s\nwant\n%s", name, got, want)
			}
			if err := parts[name].Validate(); err != nil {
				t.Fatal(err)
			}
			others := c
			others.Listeners = slices.DeleteFunc(slices.Clone(c.Listeners), func(l model.Listener) bool { return l.Owner == name })
			want = text(t, model.Merge(others))
			if got := text(t, *c.Without(func(g model.Owner) bool { return g == name })); got != want {
				t.Fatalf("Without(%s):\n%s\nwant\n%s", name, got, want)
			}
		}
		if after := text(t, c); after != before {
			t.Fatalf("the whole was changed:\n%s\nfrom\n%s", after, before)
		}
	}
}

func TestSplitLeavesOutListenersWithoutGateway(t *testing.T) {
	c := model.Merge(sample())
	if parts := c.ByOwner(); len(parts) != 0 || len(c.Owners()) != 0 {
		t.Errorf("parts %v", parts)
	}
	if got := text(t, *c.Of("")); got != text(t, c) {
		t.Errorf("the part of no gateway is %s", got)
	}
	if got := text(t, *c.Of("default/gone")); got != "{}" {
		t.Errorf("the part of a gateway without listeners is %s", got)
	}
}

func TestListenersOfSeveralGatewaysNeverClash(t *testing.T) {
	listener := func(gateway string, protocol model.Protocol) model.Listener {
		return model.Listener{Name: gateway + "/a", Ref: model.Ref{Kind: "Gateway", Name: gateway}, Owner: model.Owner(gateway), Port: 80, Protocol: protocol}
	}
	c := model.Merge(model.Config{Listeners: []model.Listener{listener("default/g", model.HTTP), listener("default/h", model.TCP), listener("", model.HTTP)}})
	if len(c.Listeners) != 3 {
		t.Errorf("listeners %+v", c.Listeners)
	}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
}

func BenchmarkSplit10000RoutesOver100Gateways(b *testing.B) {
	c := shared(100, 10_000)
	for b.Loop() {
		c.ByOwner()
	}
}
