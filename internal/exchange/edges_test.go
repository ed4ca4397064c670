package exchange

import (
	"testing"
	"time"

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
