package feed

import (
	"crypto/sha256"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/weirmesh/weir/internal/model"
)

// sealed puts the head of a state file before data.
func sealed(data []byte) []byte {
	sum := sha256.Sum256(data)
	return append(append([]byte(stateMagic), sum[:]...), data...)
}

const benchRoutes, benchServices = 10_000, 2_000

// BenchmarkPublishOneEndpoint publishes configurations that share no memory, as translators make them, and differ in one
// endpoint.
func BenchmarkPublishOneEndpoint(b *testing.B) {
	configs := []*model.Config{config(benchRoutes, benchServices), config(benchRoutes, benchServices)}
	s := &Server{}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		c := configs[i%2]
		c.Services[i%benchServices].Endpoints[0].Address = fmt.Sprintf("10.0.0.%d:%d", i%250, 1+i%60000)
		if err := s.Publish(map[model.Owner]*model.Config{gateway: c}); len(err) != 0 {
			b.Fatal(err)
		}
	}
}

func BenchmarkPublishFirst(b *testing.B) {
	c := config(benchRoutes, benchServices)
	b.ReportAllocs()
	for b.Loop() {
		if err := new(Server).Publish(map[model.Owner]*model.Config{gateway: c}); len(err) != 0 {
			b.Fatal(err)
		}
	}
}

// BenchmarkReceiveOneEndpoint is what a proxy does before it compiles a configuration that differs in one endpoint.
func BenchmarkReceiveOneEndpoint(b *testing.B) {
	c := config(benchRoutes, benchServices)
	s, err := newSnapshot(c, nil)
	if err != nil {
		b.Fatal(err)
	}
	r := &receiver{client: &Client{}, apply: func(*model.Config) error { return nil }}
	response := func(s *snapshot, step step) *discovery.DeltaDiscoveryResponse {
		d := &discovery.DeltaDiscoveryResponse{SystemVersionInfo: s.version}
		for _, p := range step.changed {
			d.Resources = append(d.Resources, p.resource)
		}
		return d
	}
	if _, refusal, err := r.response(response(s, s.sinceVersions(nil))); refusal != nil || err != nil {
		b.Fatal(refusal, err)
	}
	other, err := newSnapshot(moved(c, 7, "10.1.2.3:4"), s)
	if err != nil {
		b.Fatal(err)
	}
	both := []*discovery.DeltaDiscoveryResponse{response(other, other.since(s)), response(s, s.since(other))}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, refusal, err := r.response(both[i%2]); refusal != nil || err != nil {
			b.Fatal(refusal, err)
		}
	}
}

func BenchmarkSaveState(b *testing.B) {
	s, err := newSnapshot(config(benchRoutes, benchServices), nil)
	if err != nil {
		b.Fatal(err)
	}
	r := &receiver{client: &Client{StateFile: b.TempDir() + "/state", Owner: gateway}}
	for _, p := range s.parts {
		r.applied.parts = append(r.applied.parts, newReceived(p.name, p.resource.Resource.Value))
	}
	b.ReportAllocs()
	for b.Loop() {
		r.unsaved = true
		if r.save(); r.unsaved {
			b.Fatal("not saved")
		}
	}
}

// BenchmarkConnectedProxies tells what memory a connected proxy takes at both ends together, with and without a second
// stream that nobody uses.
func BenchmarkConnectedProxies(b *testing.B) {
	const proxies = 200
	for _, taps := range []bool{false, true} {
		b.Run(fmt.Sprintf("taps=%v", taps), func(b *testing.B) {
			w := newWorld(b)
			s := w.server()
			s.Logger = nil
			if taps {
				s.Taps = func(s *Stream, _ model.Owner, _ string) error { <-s.Context().Done(); return nil }
			}
			address, _ := w.serve(s, "")
			publish(b, s, config(1, 1))
			for b.Loop() {
				before := inUse()
				var all []*proxy
				var streams atomic.Int64
				for i := range proxies {
					c := w.client(fmt.Sprint("p", i), address)
					c.Logger, c.StateFile = nil, ""
					if taps {
						c.Taps = func(s *Stream, _ func()) error { streams.Add(1); _, err := s.Recv(); return err }
					}
					all = append(all, w.run(c))
				}
				until(b, "all are connected", func() bool {
					return s.Stats().Proxies == proxies && s.Stats().Responses >= proxies && (!taps || streams.Load() == proxies)
				})
				b.ReportMetric(float64(inUse()-before)/proxies, "B/proxy")
				for _, p := range all {
					p.stop()
				}
			}
		})
	}
}

// inUse is the memory of heap and stacks, in bytes.
func inUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
