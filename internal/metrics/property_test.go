package metrics_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	api "github.com/weirmesh/weir/api/metrics"
	"github.com/weirmesh/weir/internal/metrics"
	"github.com/weirmesh/weir/internal/telemetry"
)

// randomRows are what proxies might report of a world, and of what is not of it.
func (w *world) randomRows(r *rand.Rand) []metrics.Traffic {
	o := observed{telemetry.New()}
	side := func() telemetry.Side {
		u := w.units[r.IntN(len(w.units))]
		switch r.IntN(16) {
		case 0:
			return telemetry.Side{}
		case 1:
			return telemetry.Side{Name: "other"}
		case 2:
			return telemetry.Side{Kind: "Gateway", Namespace: u.namespace, Name: "gw"}
		case 3:
			return telemetry.Side{Kind: "Service", Namespace: u.namespace, Name: []string{"s-app-x", "s-app-v", "s-tier-x", "s-no-one"}[r.IntN(4)]}
		case 4:
			return telemetry.Side{Kind: "ServiceAccount", Namespace: u.namespace, Name: []string{"p", "q", "none"}[r.IntN(3)]}
		case 5, 6:
			return telemetry.Side{Kind: "Address", Name: "10." + []string{"0.1.1", "0.2.0", "9.9.9"}[r.IntN(3)]}
		case 7:
			return []telemetry.Side{{Kind: "Node", Name: "n1"}, {Kind: "SPIFFE", Name: "spiffe://x/y"}, {Kind: "Pod", Namespace: "a", Name: "gone"}, {Kind: "Workload", Namespace: "b", Name: "gone"}}[r.IntN(4)]
		case 8, 9:
			return telemetry.Side{Kind: "Workload", Namespace: u.namespace, Name: u.workload}
		}
		return telemetry.Side{Kind: "Pod", Namespace: u.namespace, Name: u.name}
	}
	for range r.IntN(40) {
		o.requests(side(), r.IntN(2) == 0, side(), r.IntN(3), r.IntN(3), time.Duration(1+r.IntN(1000))*time.Millisecond)
	}
	rows := o.rows()
	for range 3 { // which say nothing, not even that anybody observes
		rows = append(rows, metrics.Traffic{EdgeLabels: telemetry.EdgeLabels{At: side(), Out: r.IntN(2) == 0, Peer: side()}})
	}
	return rows
}

func resourceOf(t *testing.T, kind string) api.Resource {
	t.Helper()
	for _, r := range api.Resources() {
		if r.Kind == kind {
			return r
		}
	}
	t.Fatalf("no kind %s", kind)
	return api.Resource{}
}

func id(r corev1.ObjectReference) string { return r.Kind + " " + r.Namespace + "/" + r.Name }

func read(t *testing.T, m api.TrafficMetrics) string {
	t.Helper()
	got, ok := m.Measured()
	if !ok {
		t.Fatalf("no counts: %+v", m)
	}
	return fmt.Sprint(got)
}

// TestAgreesWithNaiveAggregation: lists, objects and their edges in terms of each kind, of random objects and traffic.
func TestAgreesWithNaiveAggregation(t *testing.T) {
	ctx := context.Background()
	edges, totals := 0, 0
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 1))
		w := randomWorld(r)
		x := metrics.NewIndex(load(t, w.text.String()))
		s := &store{rows: w.randomRows(r)}
		listed := map[string]bool{}
		for _, of := range api.Resources() {
			list, err := x.List(ctx, s, of, "", metrics.Selection{Window: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			for _, item := range list.Items {
				o := id(item.Resource)
				if listed[o] {
					t.Errorf("%s is listed twice", o)
				}
				listed[o] = true
				want := w.total(o, s.rows)
				if got := read(t, item); got != measured(want) {
					t.Fatalf("seed %d: %s received %s, want %s\n%s\n%v", seed, o, got, measured(want), w.text.String(), s.rows)
				}
				if want.Success > 0 {
					totals++
				}
				one, err := x.Get(ctx, s, of, item.Namespace, item.Name, time.Minute)
				if err != nil || !same(t, one, item) {
					t.Fatalf("seed %d: %s alone differs: %v", seed, o, err)
				}
			}
		}
		for o := range w.objects {
			if !listed[o] {
				t.Errorf("seed %d: %s is not listed", seed, o)
			}
			kind, _, _ := strings.Cut(o, " ")
			rest := o[len(kind)+1:]
			namespace, name, _ := strings.Cut(rest, "/")
			as := api.Resources()[r.IntN(10)]
			list, err := x.Edges(ctx, s, resourceOf(t, kind), namespace, name, metrics.Selection{Window: time.Minute, Kind: &as})
			if err != nil {
				t.Fatal(err)
			}
			want := w.edges(o, as.Kind, s.rows)
			var got []string
			for _, item := range list.Items {
				e := string(item.Edge.Direction) + " " + id(*item.Edge.Resource)
				got = append(got, e)
				if read(t, item) != measured(want[e]) {
					t.Fatalf("seed %d: edge of %s: %s: %s, want %s", seed, o, e, read(t, item), measured(want[e]))
				}
				edges++
			}
			if len(got) != len(want) {
				t.Fatalf("seed %d: edges of %s as %s: %q, want %v\n%s\n%v", seed, o, as.Kind, got, want, w.text.String(), s.rows)
			}
		}
		if len(listed) != len(w.objects) {
			t.Errorf("seed %d: %d objects are listed, want %d", seed, len(listed), len(w.objects))
		}
	}
	if edges < 2000 || totals < 500 {
		t.Errorf("only %d edges and %d totals were compared", edges, totals)
	}
}

func same(t *testing.T, a, b any) bool {
	t.Helper()
	x, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(x) == string(y)
}

// TestSumsAgree: what namespaces received is what their pods did, edges add up to it, and nothing counts twice.
func TestSumsAgree(t *testing.T) {
	ctx := context.Background()
	for seed := range uint64(80) {
		r := rand.New(rand.NewPCG(seed, 2))
		w := randomWorld(r)
		x := metrics.NewIndex(load(t, w.text.String()))
		// Each request has a sender and a receiver, and each of the two has a proxy or has not.
		o := observed{telemetry.New()}
		proxy := map[*unit]bool{}
		received := map[string]uint64{}
		side := func(u *unit) telemetry.Side {
			if u.kind != "Pod" || r.IntN(3) == 0 {
				return telemetry.Side{Kind: "Workload", Namespace: u.namespace, Name: u.workload}
			}
			return telemetry.Side{Kind: "Pod", Namespace: u.namespace, Name: u.name}
		}
		for _, u := range w.units {
			proxy[u] = r.IntN(2) == 0
		}
		for range 30 {
			from, to := w.units[r.IntN(len(w.units))], w.units[r.IntN(len(w.units))]
			n := 1 + r.IntN(3)
			if proxy[from] {
				o.requests(side(from), true, side(to), n, 0, time.Millisecond)
			}
			if proxy[to] {
				o.requests(side(to), false, side(from), n, 0, time.Millisecond)
			}
			if proxy[from] || proxy[to] {
				for _, id := range to.in {
					received[id] += uint64(n)
				}
			}
		}
		s := &store{rows: o.rows()}
		shuffled := &store{rows: slices.Clone(s.rows)}
		r.Shuffle(len(s.rows), func(i, j int) {
			shuffled.rows[i], shuffled.rows[j] = shuffled.rows[j], shuffled.rows[i]
		})
		namespaces := map[string]uint64{}
		for _, of := range api.Resources() {
			list, err := x.List(ctx, s, of, "", metrics.Selection{Window: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			again, _ := x.List(ctx, shuffled, of, "", metrics.Selection{Window: time.Minute})
			if !same(t, list, again) {
				t.Fatalf("seed %d: the list of %s depends on the order of rows", seed, of.Plural)
			}
			for _, item := range list.Items {
				m, _ := item.Measured()
				if o := id(item.Resource); m.Success != received[o] {
					t.Errorf("seed %d: %s received %d, want %d", seed, o, m.Success, received[o])
				}
				if of.Kind == "Pod" {
					namespaces[item.Namespace] += m.Success
				}
				if of.Kind == "Service" || of.Kind == "Node" {
					continue
				}
				kind := api.Resources()[0] // each pod is in one namespace, so nothing is in two edges
				edges, err := x.Edges(ctx, s, of, item.Namespace, item.Name, metrics.Selection{Window: time.Minute, Kind: &kind})
				if err != nil {
					t.Fatal(err)
				}
				from := uint64(0)
				for _, e := range edges.Items {
					if one, _ := e.Measured(); e.Edge.Direction == api.From {
						from += one.Success
					}
				}
				if from != m.Success {
					t.Errorf("seed %d: edges from others to %s have %d requests, it received %d", seed, id(item.Resource), from, m.Success)
				}
			}
		}
		for _, u := range w.units {
			if u.kind != "Pod" {
				namespaces[u.namespace] += received[u.kind+" "+u.namespace+"/"+u.name]
			}
		}
		for ns, n := range namespaces {
			if received["Namespace /"+ns] != n {
				t.Errorf("seed %d: the pods of %s received %d, the namespace %d", seed, ns, n, received["Namespace /"+ns])
			}
		}
	}
}
