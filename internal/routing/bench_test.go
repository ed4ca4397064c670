package routing

import (
	"fmt"
	"testing"

	"github.com/weirmesh/weir/internal/model"
)

// manyRoutes is a configuration of n routes, half of them under one host, each with a few paths.
func manyRoutes(n int) *model.Config {
	cfg := &model.Config{Listeners: []model.Listener{{Name: "web", Port: 80, Protocol: model.HTTP}}}
	for i := range n {
		hostnames := []string{"shop.example.com"}
		if i%2 == 1 {
			hostnames = []string{fmt.Sprintf("host%d.example.com", i)}
		}
		cfg.Routes = append(cfg.Routes, on(fmt.Sprint("route", i), hostnames,
			prefix(fmt.Sprintf("/service%06d", i)),
			exact(fmt.Sprintf("/service%06d/health", i)),
			prefix(fmt.Sprintf("/service%06d/api/v1/items", i)),
		))
		cfg.Routes[i].Rules[0].Backends = []model.Backend{{Weight: 90}, {Weight: 10}}
	}
	return cfg
}

func mustCompile(b *testing.B, cfg *model.Config) *Table {
	b.Helper()
	table, err := Compile(cfg, nil)
	if err != nil {
		b.Fatal(err)
	}
	return table
}

func benchmarkMatch(b *testing.B, table *Table, reqs ...*Request) {
	b.Helper()
	port := table.Ports()[0]
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		req := reqs[i%len(reqs)]
		var d Decision
		if !port.Listener(req.Host).Match(req, &d) {
			b.Fatalf("%+v does not match", req)
		}
	}
}

// BenchmarkMatch asks for the same few routes in tables of every size, so that what is measured is the look-up and not
// the cache.
func BenchmarkMatch(b *testing.B) {
	for _, n := range []int{10, 1_000, 10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var reqs []*Request
			for i := range 16 {
				at := i * n / 16 &^ 1
				reqs = append(reqs, &Request{Host: "shop.example.com", Method: "GET", Path: fmt.Sprintf("/service%06d/api/v1/items/42", at)})
			}
			benchmarkMatch(b, mustCompile(b, manyRoutes(n)), reqs...)
		})
	}
}

func BenchmarkMatchHeader(b *testing.B) {
	m := prefix("/")
	m.Headers = []model.ValueMatch{{Type: model.Exact, Name: "X-Canary", Value: "always"}}
	table := mustCompile(b, &model.Config{
		Listeners: []model.Listener{{Name: "web", Port: 80, Protocol: model.HTTP}},
		Routes:    []model.Route{on("r", []string{"*"}, m, prefix("/"))},
	})
	benchmarkMatch(b, table, &Request{Host: "h", Method: "GET", Path: "/a/b", Fields: fieldMap{"x-canary": "never"}})
}

func BenchmarkMatchRegex(b *testing.B) {
	m := prefix("/")
	m.Headers = []model.ValueMatch{{Type: model.Regex, Name: "User-Agent", Value: ".*Firefox.*"}}
	table := mustCompile(b, &model.Config{
		Listeners: []model.Listener{{Name: "web", Port: 80, Protocol: model.HTTP}},
		Routes:    []model.Route{on("r", []string{"*"}, m, regex("/items/[0-9]+"), prefix("/"))},
	})
	b.Run("header", func(b *testing.B) {
		benchmarkMatch(b, table, &Request{Host: "h", Method: "GET", Path: "/a/b", Fields: fieldMap{"user-agent": "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"}})
	})
	b.Run("path", func(b *testing.B) {
		benchmarkMatch(b, table, &Request{Host: "h", Method: "GET", Path: "/items/123456"})
	})
}

func BenchmarkCompile10000Routes(b *testing.B) {
	cfg := manyRoutes(10_000)
	prev := mustCompile(b, cfg)
	for b.Loop() {
		if _, err := Compile(cfg, prev); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSample(b *testing.B) {
	for _, d := range []uint32{10, 100, 1_000_000} {
		m := mirrorOf(b, d/10, d)
		b.Run(fmt.Sprint(d), func(b *testing.B) {
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					m.Sample()
				}
			})
		})
	}
}

func BenchmarkPick(b *testing.B) {
	rule := ruleOf(b, 90, 10)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			rule.Pick()
		}
	})
}

func BenchmarkNormalizePath(b *testing.B) {
	for name, path := range map[string]string{
		"normal":  "/api/v1/namespaces/default/items/42.json",
		"escaped": "/caf%C3%A9/a%20b/c",
		"dots":    "/a/b/../c/./d//e",
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := NormalizePath(path); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
