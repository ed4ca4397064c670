package proxy

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/weirmesh/weir/internal/model"
)

// BenchmarkApply10000Routes measures the work of a proxy when one of 10,000 routes changes, with 2,000 services of ten
// endpoints. There are more rules and backends than the metrics have series for.
func BenchmarkApply10000Routes(b *testing.B) {
	const routes, services = 10_000, 2_000
	cfg := model.Config{}
	for i := range services {
		s := model.Service{Name: fmt.Sprintf("ns/s%05d:80", i), Protocol: model.HTTP}
		for n := range 10 {
			s.Endpoints = append(s.Endpoints, model.Endpoint{Address: fmt.Sprintf("10.64.%d.%d:8000", i/25, i%25*10+n+1)})
		}
		cfg.Services = append(cfg.Services, s)
	}
	for i := range routes {
		ref := model.Ref{Kind: "HTTPRoute", Namespace: "ns", Name: fmt.Sprintf("r%05d", i)}
		r := model.Route{Ref: ref, Attachments: []model.Attachment{{Listener: "l", Hostnames: []string{fmt.Sprintf("r%d.example.com", i)}}}}
		for n, path := range []string{"/api", "/"} {
			rule := model.Rule{Ref: ref, Matches: []model.Match{{Path: model.PathMatch{Type: model.Prefix, Value: path}}}}
			rule.Ref.Field = model.FieldAt("spec.rules", n)
			rule.Backends = []model.Backend{{Ref: rule.Ref, Service: fmt.Sprintf("ns/s%05d:80", i/5), Weight: 1}}
			r.Rules = append(r.Rules, rule)
		}
		cfg.Routes = append(cfg.Routes, r)
	}
	cfg.Listeners = []model.Listener{{Name: "l", Port: 0, Address: "127.0.0.1", Protocol: model.HTTP}}
	s := New(Options{})
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	defer wait.Wait()
	defer cancel()
	wait.Go(func() { _ = s.Run(ctx) })
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		next := cfg
		next.Routes = append([]model.Route(nil), cfg.Routes...)
		next.Routes[i%routes].Attachments = []model.Attachment{{Listener: "l", Hostnames: []string{fmt.Sprintf("changed%d.example.com", i)}}}
		if err := s.Apply(&next); err != nil {
			b.Fatal(err)
		}
	}
}
