package telemetry

import (
	"bytes"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var web = EdgeLabels{At: Side{"Pod", "shop", "cart-1"}, Peer: Side{"Pod", "shop", "web-1"}, Service: "shop/cart:80"}

func TestAnEdgeCountsResultsAndTimes(t *testing.T) {
	r := New()
	e := r.Edge(web)
	if r.Edge(web) != e || r.Edge(EdgeLabels{Out: true, Peer: web.Peer, Service: web.Service}) == e || r.Edge(EdgeLabels{Peer: web.Peer}) == e {
		t.Error("an edge is not keyed by its labels")
	}
	var all sync.WaitGroup
	for shard := range uint32(8) {
		all.Go(func() {
			for i := range 1000 {
				e.Observe(shard, i%10 != 0, time.Duration(i+1)*time.Millisecond)
			}
		})
	}
	all.Wait()
	got := r.Edges()
	if len(got) != 1 { // those without traffic are not shown
		t.Fatalf("%d edges", len(got))
	}
	s := got[0]
	if s.EdgeLabels != web || s.Success != 7200 || s.Failure != 800 || s.Latency.Count() != 8000 {
		t.Errorf("%+v: %d, %d, %d durations", s.EdgeLabels, s.Success, s.Failure, s.Latency.Count())
	}
	if p := s.Latency.Quantile(0.5); p < 485*time.Millisecond || p > 515*time.Millisecond {
		t.Errorf("p50 %v", p)
	}
	if n := testing.AllocsPerRun(100, func() { e.Observe(3, true, 700*time.Millisecond) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestEdgesThatCountNothingAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry(Options{Grace: time.Minute})
		idle, busy := r.Edge(web), r.Edge(EdgeLabels{Out: true, Peer: web.Peer})
		idle.Observe(0, true, time.Second)
		for range 10 {
			busy.Observe(0, true, time.Second)
			r.Edges()
			time.Sleep(30 * time.Second)
		}
		if all := r.Edges(); len(all) != 1 || !all[0].Out || all[0].Success != 10 {
			t.Errorf("edges %+v", all)
		}
		if !idle.Dropped() || busy.Dropped() {
			t.Errorf("dropped: idle %v, busy %v", idle.Dropped(), busy.Dropped())
		}
		again := r.Edge(web)
		again.Observe(0, false, time.Second)
		if again == idle || len(r.Edges()) != 2 {
			t.Error("an edge does not come back")
		}
	})
}

// TestEdgesBeyondTheBoundAreCountedAsOther: what is left out is counted, and when others have gone there is room again.
func TestEdgesBeyondTheBoundAreCountedAsOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry(Options{MaxSeries: 3, Grace: time.Minute})
		visit := func(out bool, from, to int) {
			for i := from; i < to; i++ {
				r.Edge(EdgeLabels{Out: out, Peer: Side{"Pod", "a", fmt.Sprint("p", i)}}).Observe(0, true, time.Second)
			}
		}
		names := func(out bool) string {
			var b strings.Builder
			for _, e := range r.Edges() {
				if e.Out == out {
					fmt.Fprintf(&b, "%s=%d ", e.Peer.Name, e.Success)
				}
			}
			return strings.TrimSpace(b.String())
		}
		visit(false, 0, 10)
		visit(true, 0, 2)
		if got, want := names(false)+" to "+names(true), "p0=1 p1=1 p2=1 other=7 to p0=1 p1=1"; got != want {
			t.Errorf("edges %s, want %s", got, want)
		}
		time.Sleep(2 * time.Minute)
		visit(false, 20, 22)
		if got, want := names(false), "p20=1 p21=1 other=7"; got != want {
			t.Errorf("later %s, want %s", got, want)
		}
	})
}

// TestClientsOfALargeNetworkLeaveRoomForPods: addresses beyond a bound are one unknown side, until others have gone.
func TestClientsOfALargeNetworkLeaveRoomForPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry(Options{MaxSeries: 3 * maxAddresses, Grace: time.Minute})
		count := func() (addresses int, unknown uint64) {
			for _, e := range r.Edges() {
				if e.Peer.Kind == KindAddress {
					addresses++
				} else if e.Peer == (Side{}) {
					unknown = e.Success
				}
			}
			return addresses, unknown
		}
		come := func(from int) {
			for i := range maxAddresses + 50 {
				r.Edge(EdgeLabels{Peer: Side{Kind: KindAddress, Name: fmt.Sprint(from + i)}}).Observe(0, true, time.Second)
			}
		}
		come(0)
		if n, u := count(); n != maxAddresses || u != 50 {
			t.Errorf("%d addresses, %d requests of unknown ones", n, u)
		}
		if r.Edge(web) == r.Edge(EdgeLabels{}) {
			t.Error("a pod is not told apart")
		}
		time.Sleep(2 * time.Minute)
		come(5000)
		if n, u := count(); n != maxAddresses || u != 50 { // the unknown side went, and came back
			t.Errorf("later %d addresses, %d requests of unknown ones", n, u)
		}
	})
}

func TestEdgesInTheExposition(t *testing.T) {
	r := New()
	r.Edge(web).Observe(0, true, 3*time.Millisecond)
	r.Edge(EdgeLabels{Out: true, Peer: Side{Name: "a\xff\"b"}, Route: "r/s", Service: "c:1", Backend: "b:1"}).Observe(0, false, 30*time.Millisecond)
	r.Edge(EdgeLabels{}).Observe(0, true, time.Millisecond)
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	const cart = `at_kind="Pod",at_name="cart-1",at_namespace="shop",backend="",direction="from",peer_kind="Pod",peer_name="web-1",peer_namespace="shop"`
	const odd = `at_kind="",at_name="",at_namespace="",backend="b:1",direction="to",peer_kind="",peer_name="a` + "\ufffd" + `\"b",peer_namespace=""`
	for _, want := range []string{
		`weir_edge_requests_total{` + cart + `,result="success",route="",service="shop/cart:80"} 1`,
		`weir_edge_requests_total{` + cart + `,result="failure",route="",service="shop/cart:80"} 0`,
		`weir_edge_requests_total{` + odd + `,result="failure",route="r/s",service="c:1"} 1`,
		`weir_edge_requests_total{at_kind="",at_name="",at_namespace="",backend="",direction="from",peer_kind="",peer_name="",peer_namespace="",result="success",route="",service=""} 1`,
		`weir_edge_request_duration_seconds_bucket{` + cart + `,route="",service="shop/cart:80",le="0.0025"} 0`,
		`weir_edge_request_duration_seconds_bucket{` + cart + `,route="",service="shop/cart:80",le="0.005"} 1`,
		`weir_edge_request_duration_seconds_sum{` + odd + `,route="r/s",service="c:1"} 0.03`,
	} {
		if !bytes.Contains(w.Body.Bytes(), []byte(want+"\n")) {
			t.Errorf("the exposition lacks %s", want)
		}
	}
}

func TestLabelsOfAnExpositionAreReadBack(t *testing.T) {
	for _, want := range []EdgeLabels{{}, web, {Out: true, At: web.Peer, Peer: web.At, Route: "a/r", Service: "a/s:1", Backend: "a/b:1"}} {
		values, names := want.values(), EdgeLabelNames()
		got := ReadEdgeLabels(func(name string) string { return values[slices.Index(names, name)] })
		if got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}

func TestNamesOfSides(t *testing.T) {
	for want, p := range map[string]Side{"unknown": {}, "Pod shop/web-1": web.Peer, "Node n1": {Kind: "Node", Name: "n1"}} {
		if got := p.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func BenchmarkEdgeObserve(b *testing.B) {
	e := New().Edge(web)
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		shard := uint32(time.Now().UnixNano())
		for p.Next() {
			e.Observe(shard, true, 3*time.Millisecond)
		}
	})
}
