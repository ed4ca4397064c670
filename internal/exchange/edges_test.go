package exchange

import (
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/routing"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/upstream"
)

// counting is an exchange with all that counting its edges needs.
func counting() *Exchange {
	ex := &Exchange{pipe: &Pipeline{Options: Options{Metrics: telemetry.New()}}}
	ex.from.Peer, ex.from.Start = &Peer{}, time.Now()
	ex.observer = &observer{at: telemetry.Side{Kind: "Gateway", Namespace: "shop", Name: "gw"}, in: true, out: true}
	ex.rule, ex.backend = &Rule{Route: "shop/web"}, &Backend{Service: &upstream.Service{Name: "shop/web:80"}}
	ex.endpoint, ex.status = &upstream.Endpoint{Address: "10.0.0.1:80"}, 200
	return ex
}

// count counts an exchange of one attempt.
func (ex *Exchange) count() {
	ex.attempt.start, ex.attempt.counts = ex.from.Start, true
	ex.countIn(700 * time.Microsecond)
	ex.endLastAttempt(700 * time.Microsecond)
}

func TestCountingDoesNotAllocate(t *testing.T) {
	ex := counting()
	if n := testing.AllocsPerRun(100, ex.count); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if all := ex.pipe.Metrics.Edges(); len(all) != 2 || all[0].Success != all[1].Success || all[0].Success != 101 {
		t.Errorf("edges %+v", all)
	}
}

// BenchmarkEdges is what a request pays for both of its edges.
func BenchmarkEdges(b *testing.B) {
	ex := counting()
	b.ReportAllocs()
	for b.Loop() {
		ex.count()
	}
}

// tapped is an exchange in force of a tap of another pod, as of an order from a controller, and of one that it matches if
// matches is set.
func tapped(t testing.TB, matches bool) (*Exchange, *telemetry.Tap) {
	ex := counting()
	ex.req.Method, ex.req.Authority, ex.req.Path = "GET", "shop.example", "/cart"
	sides := telemetry.TapSides{{Kind: "Pod", Namespace: "shop", Name: "other-1"}: true, {Kind: "Pod", Namespace: "shop", Name: "other-2"}: true, ex.observer.at: matches}
	q, err := telemetry.ParseTapQuery(nil)
	if err != nil {
		t.Fatal(err)
	}
	tap, err := ex.pipe.Metrics.Tap(q.Rate, func(x *telemetry.Tapped) bool { return q.Wants(x, sides) })
	if err != nil {
		t.Fatal(err)
	}
	return ex, tap
}

func (ex *Exchange) lookAt() {
	if taps := ex.pipe.Metrics.Taps(); taps != nil {
		ex.offer(taps, time.Millisecond)
	}
}

// TestATapThatMatchesNothingCostsNoMemory: somebody who looks at one workload does not slow down all others.
func TestATapThatMatchesNothingCostsNoMemory(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes sync.Pool drop what it is given")
	}
	ex, tap := tapped(t, false)
	if n := testing.AllocsPerRun(100, ex.lookAt); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if n := tap.Counts(); n != (telemetry.TapCounts{}) {
		t.Errorf("%+v", n)
	}
	ex, tap = tapped(t, true)
	ex.lookAt()
	ex.req.Path = "/later"
	if x := <-tap.Requests(); x.Path != "/cart" || x.At != ex.observer.at {
		t.Errorf("%+v", x)
	}
}

// BenchmarkTap is what a request pays without taps, and for one in force that does not match it.
func BenchmarkTap(b *testing.B) {
	none := counting()
	other, _ := tapped(b, false)
	for name, ex := range map[string]*Exchange{"none": none, "of another": other} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				ex.lookAt()
			}
		})
	}
}

// TestWhoObservesWhichEnd has a Gateway's listener, and both of a sidecar's.
func TestWhoObservesWhichEnd(t *testing.T) {
	pod := model.WorkloadOwner("shop", "cart-1")
	ref := model.Ref{Kind: "Pod", Namespace: "shop", Name: "cart-1"}
	table, left := routing.Compile(&model.Config{Listeners: []model.Listener{
		{Name: "shop/edge/http", Ref: model.Ref{Kind: "Gateway", Namespace: "shop", Name: "edge"}, Owner: "shop/edge", Port: 80, Protocol: model.HTTP},
		{Name: "shop/cart-1/inbound", Ref: ref, Owner: pod, Redirect: model.RedirectInbound, Port: 8080, Protocol: model.HTTP, Workload: "shop/Pod/cart-1", WorkloadPort: 8080},
		{Name: "outbound/other", Ref: model.Ref{Kind: "Pod", Name: "anywhere"}, Redirect: model.RedirectOutbound, Protocol: model.HTTP},
	}}, nil)
	if len(left) > 0 {
		t.Fatal(left)
	}
	s := &Snapshot{Table: table, Listeners: make([]Listener, len(table.Listeners()))}
	s.observe(telemetry.Side{Kind: "Pod", Namespace: "shop", Name: "cart-1"})
	for _, l := range table.Listeners() {
		o := s.Listeners[l.ID].observer
		in, out := l.Listener.Redirect != model.RedirectOutbound, l.Listener.Redirect != model.RedirectInbound
		if o.in != in || o.out != out {
			t.Errorf("%s: %+v", l.Listener.Name, o)
		}
	}
}
