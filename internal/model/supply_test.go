package model_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/weirmesh/weir/internal/model"
)

// TestASupplyGivesWhatMergingAllWould compares it with the slow way, for configurations whose parts refer to each other at
// random.
func TestASupplyGivesWhatMergingAllWould(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	service := func() string { return fmt.Sprintf("shop/s%d:80", r.IntN(8)) }
	pod := func() model.Ref {
		return model.Ref{Kind: "Pod", Namespace: "shop", Name: fmt.Sprintf("p%d", r.IntN(4))}
	}
	any := func() (c model.Config) {
		for i := range r.IntN(6) {
			c.Services = append(c.Services, model.Service{Name: service(), Protocol: model.HTTP, Endpoints: []model.Endpoint{{Address: fmt.Sprintf("10.0.0.%d:%d", i, 1+r.IntN(9))}}})
		}
		for range r.IntN(4) {
			name := service()
			extends := name
			c.Services = append(c.Services, model.Service{Name: name, Extends: extends, Protocol: model.HTTP, TLS: &model.ServiceTLS{Hostname: fmt.Sprint(r.IntN(99))}})
		}
		for i := range r.IntN(4) {
			c.Splits = append(c.Splits, model.Split{Ref: model.Ref{Kind: "TrafficSplit", Name: fmt.Sprint(i, r.IntN(99))}, Root: service(), Leaves: []model.Leaf{{Service: service(), Weight: 1}, {Service: service(), Weight: 2}}})
		}
		for range r.IntN(3) {
			c.Workloads = append(c.Workloads, model.Workload{Ref: pod(), Account: fmt.Sprint(r.IntN(99))})
		}
		for i := range r.IntN(4) {
			c.Policies = append(c.Policies, model.Policy{Ref: model.Ref{Name: fmt.Sprint(i, r.IntN(99))}, Traffic: model.TrafficAny, Targets: []model.Target{{Namespace: []string{"", "shop", "blog"}[r.IntN(3)], Kind: "Pod"}}})
		}
		return c
	}
	const owner = model.Owner("workload/shop/p0")
	filled := 0
	for n := range 2_000 {
		all := []model.Config{any(), any(), any()}
		own := any()
		own.Workloads, own.Policies = nil, nil
		ref := pod()
		w := model.Workload{Ref: ref}
		own.Listeners = []model.Listener{{Name: "l", Ref: ref, Owner: owner, Port: 1, Protocol: model.HTTP, Workload: w.Name()}}
		route := model.Route{Ref: ref, ClientCertificate: model.WorkloadIdentity, Attachments: []model.Attachment{{Listener: "l", Hostnames: []string{"*"}}}, Rules: []model.Rule{{Ref: ref}}}
		for range 1 + r.IntN(2) {
			route.Rules[0].Backends = append(route.Rules[0].Backends, model.Backend{Service: service(), Weight: 1})
		}
		route.Rules[0].Filters.Mirrors = []model.Mirror{{Service: service(), Numerator: 1, Denominator: 1}}
		own.Routes = []model.Route{route}
		whole := model.Merge(append(all[:3:3], own)...)
		want := whole.Of(owner)
		got := model.NewSupply(all...).For(owner, own)
		if !got.Equal(want) {
			t.Fatalf("%d: got %+v\nwant %+v", n, got, want)
		}
		if len(want.Splits) > 0 && len(want.Workloads) > 0 && len(want.Policies) > 0 {
			filled++
		}
	}
	if filled < 100 {
		t.Errorf("only %d of the cases have all", filled)
	}
}

// TestASupplyGivesNothingOfOthers has listeners, routes and keys of a Gateway on the shelf, which lead to the same services.
func TestASupplyGivesNothingOfOthers(t *testing.T) {
	gateway := sample()
	ref := model.Ref{Kind: "Pod", Namespace: "default", Name: "p"}
	own := model.Config{
		Listeners: []model.Listener{{Name: "default/p/outbound", Ref: ref, Owner: "workload/default/p", Port: 1, Protocol: model.HTTPS, TLS: &model.ListenerTLS{Certificates: []string{"default/a"}}}},
		Routes: []model.Route{{Ref: ref, ClientCertificate: "default/c", Attachments: []model.Attachment{{Listener: "default/p/outbound", Hostnames: []string{"*"}}},
			Rules: []model.Rule{{Ref: ref, Backends: []model.Backend{{Service: "default/v1:80", Weight: 1}}}}}},
	}
	got := model.NewSupply(gateway).For("workload/default/p", own)
	if len(got.Certificates) != 0 || len(got.Routes) != 1 || !reflect.DeepEqual(got.Listeners, own.Listeners) || len(got.Services) != 1 || got.Services[0].Name != "default/v1:80" {
		t.Errorf("got %+v", got)
	}
	if other := model.NewSupply(gateway).For("workload/default/q", own); len(other.Listeners)+len(other.Services) != 0 {
		t.Errorf("another owner gets %+v", other)
	}
}

// BenchmarkSupply makes the configuration of one sidecar, that calls ten services of 10,000, and a Supply.
func BenchmarkSupply(b *testing.B) {
	var c, own model.Config
	for i := range 10_000 {
		name := fmt.Sprintf("shop/s%d:80", i)
		c.Services = append(c.Services, model.Service{Name: name, Protocol: model.HTTP, Endpoints: []model.Endpoint{{Address: fmt.Sprintf("10.0.%d.%d:80", i/250, i%250)}}})
		if i < 10 {
			own.Routes = append(own.Routes, model.Route{Ref: model.Ref{Name: name}, Attachments: []model.Attachment{{Listener: "l", Hostnames: []string{"*"}}}, Rules: []model.Rule{{Backends: []model.Backend{{Service: name, Weight: 1}}}}})
		}
	}
	own.Listeners = []model.Listener{{Name: "l", Owner: "o", Port: 1, Protocol: model.HTTP}}
	s := model.NewSupply(c)
	b.Run("one", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if got := s.For("o", own); len(got.Services) != 10 {
				b.Fatal(len(got.Services))
			}
		}
	})
	b.Run("all", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			model.NewSupply(c)
		}
	})
}
