package embedded

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirmesh/weir/internal/metrics"
	"github.com/weirmesh/weir/internal/telemetry"
)

// request is one that a proxy counted.
type request struct {
	labels  telemetry.EdgeLabels
	success bool
	took    time.Duration
}

// proxy is one of a history: it counts, is restarted, goes and comes.
type proxy struct {
	name     string
	registry *telemetry.Registry
	// skew is what its clock is ahead.
	skew    time.Duration
	unheard []request // counted in this run, and in no report that arrived
	heard   bool      // a report of this run arrived
	last    telemetry.Report
	made    []telemetry.Report            // since the last one that arrived
	past    []telemetry.Report            // up to that one
	missing map[telemetry.EdgeLabels]bool // dropped by the proxy, and no report has told

	// What the oracle knows of the proxy: when the store learned of which requests.
	known []knowledge
	began time.Time
}

// knowledge is a report that the store got, or the beginning of a proxy that it knows to have counted nothing then.
type knowledge struct {
	at       time.Time
	zero     bool
	requests []request // that no report before it had
}

const historyGrace = 20 * time.Second

func (p *proxy) start(r *rand.Rand) {
	p.registry = telemetry.NewRegistry(telemetry.Options{Grace: historyGrace})
	p.began = time.Now()
	p.skew = []time.Duration{0, time.Hour, -time.Hour}[r.IntN(3)]
	p.unheard, p.heard, p.last, p.made, p.missing = nil, false, telemetry.Report{}, nil, map[telemetry.EdgeLabels]bool{}
}

func (p *proxy) serve(r *rand.Rand, edges []telemetry.EdgeLabels) {
	for range r.IntN(12) {
		q := request{edges[r.IntN(1+r.IntN(len(edges)))], r.IntN(4) > 0, time.Duration(r.Int64N(int64(1) << (10 + r.IntN(28))))}
		if p.missing[q.labels] {
			continue // with more than before, nobody could tell it from the series before
		}
		p.registry.Edge(q.labels).Observe(r.Uint32(), q.success, q.took)
		p.unheard = append(p.unheard, q)
	}
}

// report makes a report, which need not arrive.
func (p *proxy) report() telemetry.Report {
	out := p.registry.Report()
	out.Began, out.Time = out.Began.Add(p.skew).Round(0), out.Time.Add(p.skew).Round(0)
	for _, before := range p.last.Edges {
		if !slices.ContainsFunc(out.Edges, func(e telemetry.EdgeSnapshot) bool { return e.EdgeLabels == before.EdgeLabels }) {
			p.missing[before.EdgeLabels] = true
			p.unheard = slices.DeleteFunc(p.unheard, func(q request) bool { return q.labels == before.EdgeLabels }) // forever
			p.past, p.made = nil, nil                                                                               // a late one of before would look like one of after, from a clock that was set back
		}
	}
	p.last = out
	p.made = append(p.made, out)
	return out
}

// arrives is that the store gets a new report.
func (p *proxy) arrives(s *Store) {
	now := time.Now()
	s.Add(p.name, p.report())
	if n := len(p.known); p.heard && n > 0 && now.Sub(p.known[n-1].at) < s.options.Interval/10 {
		return // too early: the next one has it all
	}
	clear(p.missing)
	k := knowledge{at: now, requests: p.unheard}
	if n := len(p.known); n == 0 || now.Sub(p.known[n-1].at) > s.options.Keep {
		p.known, p.past = nil, nil
		if now.Sub(p.began) <= s.options.Keep {
			p.known = append(p.known, knowledge{at: p.began, zero: true})
		} else {
			k.requests = nil // nobody knows when they were
		}
	}
	p.known, p.unheard = append(p.known, k), nil
	p.heard, p.past, p.made = true, append(p.past, p.made...), nil
}

// answer is what a store should say: from every request that it can know of, one by one.
func answer(proxies []*proxy, o Options, q metrics.Question) (metrics.Answer, bool) {
	now, all := time.Now(), telemetry.New()
	length := min(q.Window, o.Keep)
	asked := func(l telemetry.EdgeLabels) bool {
		return q.At == nil && q.With == nil || slices.Contains(q.At, l.At) || slices.Contains(q.With, l.Peer)
	}
	type span struct{ begin, end time.Time }
	var with, without []span
	first := now
	for _, p := range proxies {
		if n := len(p.known); n > 0 && now.Sub(p.known[n-1].at) <= length && p.known[0].at.Before(first) {
			first = p.known[0].at
		}
	}
	for _, p := range proxies {
		if len(p.known) == 0 {
			continue
		}
		base, begin, last := 0, now.Add(-length), len(p.known)-1
		for i, k := range p.known {
			if k.at.Sub(begin).Abs() < p.known[base].at.Sub(begin).Abs() {
				base = i
			}
		}
		live := now.Sub(p.known[last].at) <= 2*o.Interval+o.Timeout
		if base == last && base > 0 && live {
			base--
		}
		if base == last {
			continue
		}
		found := false
		for _, k := range p.known[base+1:] {
			for _, one := range k.requests {
				if !asked(one.labels) {
					continue
				}
				found = true
				if q.Sum {
					one.labels = telemetry.EdgeLabels{At: one.labels.At, Out: one.labels.Out}
				}
				all.Edge(one.labels).Observe(0, one.success, one.took)
			}
		}
		of := span{p.known[base].at, now}
		if p.known[base].zero {
			if of.begin = begin; begin.Before(first) {
				of.begin = first
			}
		}
		if live {
			of.end = p.known[last].at
		}
		if found {
			with = append(with, of)
		} else {
			without = append(without, of)
		}
	}
	if len(with) == 0 {
		with = without
	}
	if len(with) == 0 {
		return metrics.Answer{}, false
	}
	var out metrics.Answer
	var ends time.Duration
	for _, of := range with {
		out.Window += of.end.Sub(of.begin)
		ends += now.Sub(of.end)
	}
	n := time.Duration(len(with))
	out.Window, out.Time = out.Window/n, now.Add(-ends/n)
	for _, e := range all.Edges() {
		out.Traffic = append(out.Traffic, metrics.Traffic{EdgeLabels: e.EdgeLabels, Success: e.Success, Failure: e.Failure, Latency: e.Latency})
	}
	return out, true
}

func historyEdges() (out []telemetry.EdgeLabels) {
	pod := func(i int) telemetry.Side {
		return telemetry.Side{Kind: "Pod", Namespace: "shop", Name: fmt.Sprint("p", i)}
	}
	for i := range 8 {
		out = append(out, telemetry.EdgeLabels{At: pod(i % 3), Out: i%2 == 0, Peer: pod(i), Service: fmt.Sprint("shop/s", i/2)})
	}
	return out
}

// TestAnswersOfRandomHistories: whatever proxies do, a store has all the requests that it can know of, each once.
func TestAnswersOfRandomHistories(t *testing.T) {
	seeds := 300
	if testing.Short() {
		seeds = 15
	}
	asked, counted := 0, uint64(0)
	for seed := range uint64(seeds) {
		synctest.Test(t, func(t *testing.T) {
			a, c := runHistory(t, seed)
			asked, counted = asked+a, counted+c
		})
	}
	if asked < 10*seeds || counted < 1000 {
		t.Errorf("only %d answers of %d requests", asked, counted)
	}
}

func runHistory(t *testing.T, seed uint64) (asked int, counted uint64) {
	r := rand.New(rand.NewPCG(seed, 7))
	s := New(Options{Keep: []time.Duration{time.Minute, 3 * time.Minute}[r.IntN(2)]})
	edges := historyEdges()
	var proxies []*proxy
	for i := range 1 + r.IntN(5) {
		p := &proxy{name: fmt.Sprint("proxy-", i)}
		p.start(r)
		proxies = append(proxies, p)
	}
	quiet := make([]int, len(proxies)) // steps without a report
	for range 80 {
		for i, p := range proxies {
			time.Sleep(time.Duration(r.Int64N(int64(6*time.Second) / int64(len(proxies)))))
			p.serve(r, edges)
			switch event := r.IntN(40); {
			case quiet[i] > 0:
				quiet[i]--
				if quiet[i] == 0 && r.IntN(2) == 0 {
					p.start(r)
				}
				continue
			case event < 2:
				p.start(r)
				continue
			case event < 3:
				quiet[i] = 1 + r.IntN(40)
				continue
			case event < 6:
				p.report() // it is lost
				continue
			case event < 9 && len(p.past) > 0:
				if time.Since(p.known[len(p.known)-1].at) < s.options.Keep {
					s.Add(p.name, p.past[max(0, len(p.past)-1-r.IntN(20))]) // late, or twice
				}
				continue
			}
			p.arrives(s)
		}
		time.Sleep(time.Second)
		q := metrics.Question{Window: time.Duration(1+r.IntN(200)) * time.Second}
		pick := func() (out []telemetry.Side) {
			out = []telemetry.Side{}
			for range r.IntN(3) {
				out = append(out, edges[r.IntN(len(edges))].Peer)
			}
			return out
		}
		switch r.IntN(5) {
		case 0:
			q.At = pick()
		case 1:
			q.With = pick()
		case 2:
			q.At, q.With = pick(), pick()
		case 3:
			q.Sum = true
		}
		want, ok := answer(proxies, s.options, q)
		got, err := s.Ask(context.Background(), q)
		if (err == nil) != ok {
			t.Fatalf("seed %d: %v, want an answer: %v", seed, err, ok)
		}
		if err != nil {
			continue
		}
		asked++
		if got.Window != want.Window || !got.Time.Equal(want.Time) {
			t.Fatalf("seed %d: %+v\nwindow %v to %v, want %v to %v", seed, q, got.Window, got.Time, want.Window, want.Time)
		}
		if len(got.Traffic) != len(want.Traffic) {
			t.Fatalf("seed %d: %+v\n%d rows, want %d", seed, q, len(got.Traffic), len(want.Traffic))
		}
		for i, g := range got.Traffic {
			if !reflect.DeepEqual(g, want.Traffic[i]) {
				t.Fatalf("seed %d: %+v\n%+v\nwant %+v", seed, q, g, want.Traffic[i])
			}
			counted += g.Success + g.Failure
		}
	}
	return asked, counted
}
