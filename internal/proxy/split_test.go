package proxy

import (
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/telemetry"
)

// get returns the status and the body.
func get(t testing.TB, c *http.Client, url string, header ...string) string {
	t.Helper()
	f := fetch(t, c, url, header...)
	if f.status != http.StatusOK {
		return fmt.Sprint(f.status)
	}
	return f.by
}

// divided leads two rules to default/app:80. Its own endpoint answers root; the leaves answer with their names.
func divided(t testing.TB, splits ...model.Split) *model.Config {
	t.Helper()
	say := func(name string) string {
		return backend(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, name+r.Header.Get("X-Rule")) })
	}
	a, b := ruleTo(serviceName), ruleTo(serviceName)
	b.Matches[0].Path.Value = "/b"
	b.Backends[0].Filters.RequestHeaders = &model.HeaderEdit{Set: []model.HeaderValue{{Name: "X-Rule", Value: "by b"}}}
	cfg := config([]model.Service{
		service(serviceName, model.HTTP, say("root")), service("default/v1:80", model.HTTP, say("v1")), service("default/v2:80", model.HTTP, say("v2")),
		service("default/empty:80", model.HTTP),
	}, a, b)
	for i := range splits {
		splits[i].Root = serviceName
		splits[i].Ref = model.Ref{Kind: "TrafficSplit", Namespace: "default", Name: fmt.Sprint("split", i)}
	}
	cfg.Splits = splits
	return cfg
}

func TestASplitSharesWhateverRuleLeadsToItsRoot(t *testing.T) {
	s := serve(t, divided(t, model.Split{Leaves: []model.Leaf{
		{Service: "default/v1:80", Weight: 6}, {Service: "default/v2:80", Weight: 2}, {Service: "default/empty:80", Weight: 1},
		{Ref: model.Ref{Kind: "TrafficSplit", Namespace: "default", Name: "split0", Field: "spec.backends[3]"}, Weight: 1,
			Fault: &model.Fault{Status: 500, Reason: "BackendNotFound"}},
	}}))
	s.wantsWeights(t, "default/route 0", map[string]float64{"default/v1:80": .6, "default/v2:80": .2, "default/empty:80": .1, "default/split0 spec.backends[3]": .1})
	c := newClient(t)
	counts := map[string]int{}
	for i := range 200 {
		if i%2 == 0 {
			counts[get(t, c, "http://"+s.addr()+"/a")]++
			continue
		}
		got, byRule := strings.CutSuffix(get(t, c, "http://"+s.addr()+"/b"), "by b")
		if strings.HasPrefix(got, "v") != byRule {
			t.Errorf("the filters of the backend are gone on the way to %q", got)
		}
		counts[got]++
	}
	if v1, v2 := counts["v1"], counts["v2"]; v1 != 120 || v2 != 40 {
		t.Errorf("v1 got %d of 200, want 120; v2 got %d, want 40: %v", v1, v2, counts)
	}
	if counts["503"] != 20 || counts["500"] != 20 {
		t.Errorf("got %v, want 20 of 200 for the leaf without endpoints and 20 for the one that does not exist", counts)
	}
	s.stop()
	<-s.ended
	served := map[string]uint64{}
	for _, x := range s.metrics.Snapshot().Exchanges {
		for _, code := range x.Codes {
			served[x.Backend] += code.Count
		}
	}
	if served["default/v1:80"] != 120 || served["default/v2:80"] != 40 || served["default/empty:80"] < 20 || served["default/split0 spec.backends[3]"] < 20 || served[serviceName] != 0 {
		t.Errorf("counted by backend: %v", served)
	}
}

// wantsWeights compares what /metrics says of a route's rule.
func (s *testServer) wantsWeights(t *testing.T, rule string, want map[string]float64) {
	t.Helper()
	got := map[string]float64{}
	s.weights(func(l telemetry.ExchangeLabels, part float64) {
		if l.Route+" "+l.Rule == rule {
			if _, twice := got[l.Backend]; twice {
				t.Errorf("%s of %s is there twice", l.Backend, rule)
			}
			got[l.Backend] = part
		}
	})
	if !maps.EqualFunc(got, want, func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }) {
		t.Errorf("the weights of %s are %v, want %v", rule, got, want)
	}
}

// TestRoutesOfOneNameHaveOneSetOfWeights, since they are counted together, and a page with a series twice is no page.
func TestRoutesOfOneNameHaveOneSetOfWeights(t *testing.T) {
	cfg := divided(t)
	rule := &cfg.Routes[0].Rules[0]
	rule.Backends = append(rule.Backends, model.Backend{Service: "default/v1:80", Weight: 2}, rule.Backends[0])
	other := cfg.Routes[0]
	other.Kind, other.Ref.Kind = model.RouteGRPC, "GRPCRoute"
	other.Attachments = []model.Attachment{{Listener: other.Attachments[0].Listener, Hostnames: []string{"grpc.example"}}}
	cfg.Routes = append(cfg.Routes, other)
	s := serve(t, cfg)
	s.wantsWeights(t, "default/route 0", map[string]float64{serviceName: .5, "default/v1:80": .5})
	page := httptest.NewRecorder()
	s.metrics.Handler().ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	if n := strings.Count(page.Body.String(), "\nweir_backend_weight_ratio{"); page.Code != 200 || n != 3 {
		t.Errorf("the page has status %d and %d weights, want 200 and 3", page.Code, n)
	}
}

func TestRequestsThatNoMatchTakesGoToTheRootsOwnEndpoints(t *testing.T) {
	s := serve(t, divided(t, model.Split{
		Matches: []model.SplitMatch{{Headers: []model.ValueMatch{{Type: model.Regex, Name: "User-Agent", Value: ".*Firefox.*"}}}},
		Leaves:  []model.Leaf{{Service: "default/v1:80", Weight: 0}, {Service: "default/v2:80", Weight: 100}},
	}))
	c := newClient(t)
	for agent, want := range map[string]string{"Mozilla Firefox/128.0": "v2", "curl": "root"} {
		for range 5 {
			if got := get(t, c, "http://"+s.addr()+"/a", "User-Agent", agent); got != want {
				t.Errorf("%s: %s, want %s", agent, got, want)
			}
		}
	}
}

func TestASplitWithoutWeightsAnswers500(t *testing.T) {
	s := serve(t, divided(t, model.Split{Leaves: []model.Leaf{{Service: "default/v1:80"}}}))
	if got := get(t, newClient(t), "http://"+s.addr()+"/a"); got != "500" {
		t.Errorf("got %s", got)
	}
	if n := s.failures(telemetry.NoBackend); n != 1 {
		t.Errorf("counted %d times as %s", n, telemetry.NoBackend)
	}
}

func TestCopiesToARootAreSplitWithoutDisturbingPrimaries(t *testing.T) {
	var mu sync.Mutex
	counts := map[string]int{}
	named := func(name string) model.Service {
		return service("default/"+name+":80", model.HTTP, backend(t, func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			if r.Header.Get("Weir-Mirrored") != "" {
				counts["copies at "+name]++
			} else {
				counts["primaries at "+name]++
			}
		}))
	}
	mirrored, split := ruleTo("default/other:80"), ruleTo(serviceName)
	mirrored.Filters.Mirrors = []model.Mirror{{Service: serviceName, Numerator: 1, Denominator: 2}}
	split.Matches[0].Path.Value = "/split"
	cfg := config([]model.Service{service(serviceName, model.HTTP), named("other"), named("v1"), named("v2")}, mirrored, split)
	cfg.Splits = []model.Split{{Root: serviceName, Leaves: []model.Leaf{
		{Service: "default/v1:80", Weight: 3}, {Service: "default/v2:80", Weight: 1},
		{Weight: 1, Fault: &model.Fault{Status: 500, Reason: "BackendNotFound"}},
	}}}
	s := serve(t, cfg)
	c := newClient(t)
	for i := range 200 {
		get(t, c, "http://"+s.addr()+"/mirrored")
		if i%2 == 0 {
			get(t, c, "http://"+s.addr()+"/split")
		}
	}
	s.stop()
	<-s.ended
	mu.Lock()
	defer mu.Unlock()
	want := map[string]int{"primaries at other": 200, "primaries at v1": 60, "primaries at v2": 20, "copies at v1": 60, "copies at v2": 20}
	if !maps.Equal(counts, want) {
		t.Errorf("got %v, want %v", counts, want)
	}
	for _, m := range s.metrics.Snapshot().Mirrors {
		if m.Selected != 100 || m.Sent != 80 || m.Dropped != 20 {
			t.Errorf("%s: %d selected, %d sent, %d dropped; want 100, 80 and 20", m.Mirror, m.Selected, m.Sent, m.Dropped)
		}
	}
}

func BenchmarkExchangeThroughASplit(b *testing.B) {
	for name, splits := range map[string][]model.Split{
		"none": nil, "weights": {{Leaves: []model.Leaf{{Service: "default/v1:80", Weight: 9}, {Service: "default/v2:80", Weight: 1}}}},
	} {
		b.Run(name, func(b *testing.B) {
			s := serve(b, divided(b, splits...))
			c := newClient(b)
			for b.Loop() {
				get(b, c, "http://"+s.addr()+"/a")
			}
		})
	}
}
