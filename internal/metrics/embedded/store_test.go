package embedded

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirmesh/weir/internal/metrics"
	"github.com/weirmesh/weir/internal/telemetry"
)

var (
	web, cart = telemetry.Side{Kind: "Pod", Namespace: "shop", Name: "web"}, telemetry.Side{Kind: "Pod", Namespace: "shop", Name: "cart"}
	toCart    = telemetry.EdgeLabels{At: web, Out: true, Peer: cart}
	fromWeb   = telemetry.EdgeLabels{At: cart, Peer: web}
)

// observe counts n requests.
func observe(r *telemetry.Registry, l telemetry.EdgeLabels, n int) {
	for range n {
		r.Edge(l).Observe(0, true, time.Millisecond)
	}
}

// asked is an answer as text: the window, and the successes by edge.
func asked(t *testing.T, s *Store, q metrics.Question) string {
	t.Helper()
	a, err := s.Ask(context.Background(), q)
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	fmt.Fprint(&b, a.Window)
	for _, row := range a.Traffic {
		if row.Latency.Count() != row.Success+row.Failure {
			t.Errorf("%v: %d durations of %d requests", row.EdgeLabels, row.Latency.Count(), row.Success+row.Failure)
		}
		fmt.Fprintf(&b, " %s-%s=%d", row.At.Name, row.Peer.Name, row.Success)
	}
	return b.String()
}

func consistent(t *testing.T, s *Store) {
	t.Helper()
	edges, sides := 0, 0
	for name, p := range s.sources {
		states := make([]int32, len(p.edges))
		for i := range p.states {
			for at := range p.states[i].entries() {
				states[at]++
			}
		}
		if len(p.edges) != len(p.free)+used(p) {
			t.Errorf("%s: %d places, %d free, %d used", name, len(p.edges), len(p.free), used(p))
		}
		for at, e := range p.edges {
			if e.states != states[at] {
				t.Errorf("%s: %d states speak of %v, it says %d", name, states[at], e.labels, e.states)
			}
			if found, ok := p.byLabels[e.labels]; e.live && (!ok || int(found) != at) {
				t.Errorf("%s: %v is not found", name, e.labels)
			}
		}
		edges += used(p)
	}
	for _, of := range s.sides {
		for _, n := range of {
			sides += n
		}
	}
	if edges != s.edges || sides != 2*edges {
		t.Errorf("%d edges and %d of sides, it says %d", edges, sides, s.edges)
	}
}

func used(p *source) (n int) {
	for _, e := range p.edges {
		if e.live || e.states > 0 {
			n++
		}
	}
	return n
}

// TestOneProxyWithVeryManyEdgesLeavesRoomToOthers, whatever traffic it claims to have.
func TestOneProxyWithVeryManyEdgesLeavesRoomToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{MaxEdges: 400})
		greedy := telemetry.New()
		small := newFleet(40)
		for step := range 90 {
			for k := range 1000 {
				observe(greedy, telemetry.EdgeLabels{At: web, Peer: pod(k)}, 1)
			}
			s.Add("greedy", greedy.Report())
			if step >= 5 { // they come when there is no room
				small.serve(1)
				for i, r := range small {
					s.Add(fmt.Sprint(i), r.Report())
				}
			}
			time.Sleep(5 * time.Second)
			if s.edges > 400+2*41 {
				t.Fatalf("%d edges", s.edges)
			}
		}
		consistent(t, s)
		for i := range small {
			a, err := s.Ask(context.Background(), metrics.Question{Window: 20 * time.Second, At: []telemetry.Side{pod(i)}})
			if err != nil || len(a.Traffic) != fleetEdges {
				t.Fatalf("%d rows of %v, %v", len(a.Traffic), pod(i), err)
			}
		}
		a, err := s.Ask(context.Background(), metrics.Question{Window: 20 * time.Second, At: []telemetry.Side{web}})
		if err != nil || len(a.Traffic) < 100 {
			t.Errorf("%d rows of the greedy one, %v", len(a.Traffic), err)
		}
	})
}

// TestWhereCountingBegins: what a proxy counted before anybody could know when is no traffic of a window.
func TestWhereCountingBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{})
		if got := asked(t, s, metrics.Question{Window: time.Minute}); !strings.Contains(got, "no proxy has reported") {
			t.Errorf("without proxies: %s", got)
		}
		old := telemetry.New()
		observe(old, toCart, 1000)
		time.Sleep(time.Hour)
		s.Add("old", old.Report())
		if got, want := asked(t, s, metrics.Question{Window: time.Minute}), "no proxy has reported its traffic twice of late: try again in 5s"; got != want {
			t.Errorf("after one report: %s, want %s", got, want)
		}
		time.Sleep(5 * time.Second)
		observe(old, toCart, 7)
		observe(old, fromWeb, 3) // an edge that comes later
		s.Add("old", old.Report())
		if got, want := asked(t, s, metrics.Question{Window: time.Minute}), "5s cart-web=3 web-cart=7"; got != want {
			t.Errorf("after two reports: %s, want %s", got, want)
		}
		young := telemetry.New()
		observe(young, toCart, 20)
		time.Sleep(5 * time.Second)
		s.Add("old", old.Report())
		s.Add("young", young.Report())
		// The young one had no traffic before it began: its part of the window is all that is known of the other.
		if got, want := asked(t, s, metrics.Question{Window: time.Minute}), "10s cart-web=3 web-cart=27"; got != want {
			t.Errorf("with one that began now: %s, want %s", got, want)
		}
		for at, want := range map[telemetry.Side]string{web: "10s web-cart=27", cart: "10s cart-web=3", {}: "10s"} {
			if got := asked(t, s, metrics.Question{Window: time.Minute, At: []telemetry.Side{at}}); got != want {
				t.Errorf("at %v: %s, want %s", at, got, want)
			}
		}
		if got, want := asked(t, s, metrics.Question{Window: time.Minute, With: []telemetry.Side{}}), "10s"; got != want {
			t.Errorf("for nobody: %s, want %s", got, want)
		}
		consistent(t, s)
	})
}

// TestClocksOfProxies: a clock that is wrong, or set back, changes nothing.
func TestClocksOfProxies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{})
		r := telemetry.New()
		report := func(ahead time.Duration) telemetry.Report {
			out := r.Report()
			out.Time = out.Time.Add(ahead)
			return out
		}
		for range 4 {
			observe(r, toCart, 1)
			s.Add("p", report(time.Hour))
			time.Sleep(5 * time.Second)
		}
		observe(r, toCart, 10)
		back := report(-time.Hour)
		s.Add("p", back)
		time.Sleep(5 * time.Second)
		observe(r, toCart, 10)
		s.Add("p", report(-time.Hour))
		s.Add("p", back)
		if got, want := asked(t, s, metrics.Question{Window: 10 * time.Second}), "10s web-cart=20"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
}

// TestTwoProxiesOfOneName: one that has counted for long is no restart, and the one before it is not counted again.
func TestTwoProxiesOfOneName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{})
		a := telemetry.New()
		time.Sleep(time.Second)
		b := telemetry.New()
		observe(a, toCart, 1000)
		observe(b, toCart, 2000)
		time.Sleep(time.Hour)
		for range 6 {
			s.Add("p", a.Report())
			time.Sleep(5 * time.Second)
			s.Add("p", b.Report())
			time.Sleep(5 * time.Second)
			observe(b, toCart, 1)
		}
		if got, want := asked(t, s, metrics.Question{Window: time.Minute}), "55s web-cart=5"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
}

// TestSourcesThatAreSilentAreForgotten, with all that was kept of them.
func TestSourcesThatAreSilentAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{})
		for i := range 50 {
			r := telemetry.New()
			observe(r, telemetry.EdgeLabels{At: pod(i), Peer: pod(i + 1)}, 3)
			s.Add(fmt.Sprint(i), r.Report())
		}
		time.Sleep(59 * time.Second)
		if a, err := s.Ask(context.Background(), metrics.Question{Window: time.Minute}); err != nil || len(a.Traffic) != 50 {
			t.Errorf("before: %d rows, %v", len(a.Traffic), err)
		}
		time.Sleep(2 * time.Second)
		s.Add("another", telemetry.New().Report())
		if len(s.sources) != 1 || s.edges != 0 || len(s.sides) != 0 {
			t.Errorf("%d sources, %d edges, %d sides are left", len(s.sources), s.edges, len(s.sides))
		}
		consistent(t, s)
	})
}

// TestEdgesThatChangeAllTheTimeTakeNoMoreRoom than the bound.
func TestEdgesThatChangeAllTheTimeTakeNoMoreRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{MaxEdges: 100})
		r := telemetry.NewRegistry(telemetry.Options{Grace: time.Second})
		for i := range 100 {
			for k := range 30 {
				observe(r, telemetry.EdgeLabels{At: web, Peer: pod(i*30 + k)}, 1)
			}
			s.Add("p", r.Report())
			time.Sleep(5 * time.Second)
			consistent(t, s)
			if s.edges > 102 { // and the rests
				t.Fatalf("%d edges", s.edges)
			}
		}
	})
}

// TestEdgesWithoutRoomCountAsOther: nothing is lost or twice in the sum, and those with much traffic have their own.
func TestEdgesWithoutRoomCountAsOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{MaxEdges: 40})
		r := telemetry.New()
		edge := func(k int) telemetry.EdgeLabels { return telemetry.EdgeLabels{At: web, Peer: pod(k)} }
		sent := 0
		send := func(k, n int) {
			observe(r, edge(k), n)
			sent += n
		}
		rows := func(window time.Duration) (named map[string]int, total int) {
			a, err := s.Ask(context.Background(), metrics.Question{Window: window})
			if err != nil {
				t.Fatal(err)
			}
			named = map[string]int{}
			for _, row := range a.Traffic {
				named[row.Peer.Name] = int(row.Success)
				total += int(row.Success)
			}
			return named, total
		}
		for k := range 60 {
			send(k, k+1)
		}
		observe(r, telemetry.OtherEdge(false), 5) // the proxy has such a rest, too
		sent += 5
		time.Sleep(time.Second)
		s.Add("p", r.Report())
		named, total := rows(time.Minute)
		if total != sent || len(named) != 41 || named["other"] != 20*21/2+5 || named[pod(59).Name] != 60 {
			t.Errorf("%d of %d, %d rows, other %d, the largest %d", total, sent, len(named), named["other"], named[pod(59).Name])
		}
		for range 5 { // nothing changes in who has room
			time.Sleep(5 * time.Second)
			for k := range 60 {
				send(k, 1)
			}
			s.Add("p", r.Report())
		}
		if named, total = rows(time.Minute); total != sent || named["other"] != 20*21/2+5+5*20 {
			t.Errorf("later %d of %d, other %d", total, sent, named["other"])
		}
		// Those with little traffic make room for others, but nothing is counted that was not sent of late.
		for range 30 {
			time.Sleep(5 * time.Second)
			for k := 30; k < 80; k++ {
				send(k, k)
			}
			s.Add("p", r.Report())
			consistent(t, s)
		}
		before := sent
		for range 3 {
			time.Sleep(5 * time.Second)
			for k := 30; k < 80; k++ {
				send(k, k)
			}
			s.Add("p", r.Report())
		}
		named, total = rows(15 * time.Second)
		if total > sent-before || total < (sent-before)*2/3 {
			t.Errorf("at the end %d of %d", total, sent-before)
		}
		for k := 75; k < 80; k++ {
			if named[pod(k).Name] == 0 {
				t.Errorf("%s with much traffic has no row of its own", pod(k).Name)
			}
		}
	})
}

// TestCountsThatAreTooManyAreLeftOut, as sums of them would overflow.
func TestCountsThatAreTooManyAreLeftOut(t *testing.T) {
	s := New(Options{})
	now := time.Now()
	s.Add("p", telemetry.Report{Began: now, Time: now, Edges: []telemetry.EdgeSnapshot{{EdgeLabels: toCart, Success: maxCount + 1}, {EdgeLabels: fromWeb, Success: maxCount}}})
	a, err := s.Ask(context.Background(), metrics.Question{})
	if err != nil || len(a.Traffic) != 1 || a.Traffic[0].EdgeLabels != fromWeb {
		t.Errorf("%+v, %v", a, err)
	}
}
