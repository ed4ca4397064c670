package telemetry

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"
	"time"
)

func TestEveryStatusIsCountedExactlyUnderConcurrency(t *testing.T) {
	x := New().Exchange(ExchangeLabels{Route: "default/shop", Rule: "0", Backend: "default/v1:80"})
	const goroutines, each = 8, 20_000
	want := make([]map[int]uint64, goroutines)
	var wg sync.WaitGroup
	for g := range goroutines {
		want[g] = map[int]uint64{}
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(g)))
			for range each {
				status := rng.IntN(40) + 190 // more different ones than a shard's compact part holds
				want[g][status]++
				x.Observe(uint32(g), status, time.Millisecond, 1, 2)
			}
		})
	}
	wg.Wait()
	total := map[int]uint64{}
	for _, m := range want {
		for status, n := range m {
			total[status] += n
		}
	}
	s := x.Snapshot()
	got := map[int]uint64{}
	for _, c := range s.Codes {
		got[c.Code] = c.Count
	}
	if !reflect.DeepEqual(got, total) {
		t.Errorf("codes = %v, want %v", got, total)
	}
	const n = goroutines * each
	if s.Requests != n || s.BytesIn != n || s.BytesOut != 2*n || s.Latency.Count() != n || s.Latency.nanos != uint64(n*time.Millisecond) {
		t.Errorf("requests %d, in %d, out %d, latencies %d, sum %v; want %d, %[1]d, %d ...", s.Requests, s.BytesIn, s.BytesOut, s.Latency.Count(), time.Duration(s.Latency.nanos), n, 2*n)
	}
}

func TestStatusesOutOfRangeCountAsNoAnswer(t *testing.T) {
	x := New().Unrouted()
	for _, status := range []int{-1, 0, 1000, 1 << 40, 999} {
		x.Observe(0, status, 0, -1, -1)
	}
	want := []CodeCount{{0, 4}, {999, 1}}
	if s := x.Snapshot(); !reflect.DeepEqual(s.Codes, want) || s.BytesIn != 0 || s.BytesOut != 0 {
		t.Fatalf("snapshot = %+v, want codes %v", s, want)
	}
}

func TestFailuresAreCountedByReason(t *testing.T) {
	x := New().Unrouted()
	x.Fail(0, "")
	if x.shards.used() {
		t.Error("the empty reason counted")
	}
	for i, r := range reasons {
		for range i + 1 {
			x.Fail(uint32(i), r.reason)
		}
	}
	x.Fail(7, "never heard of")
	for _, c := range x.Snapshot().Reasons {
		want := uint64(reasonIndex[c.Reason] + 1)
		if c.Reason == Internal {
			want++ // the unknown one
		}
		if c.Count != want {
			t.Errorf("%s = %d, want %d", c.Reason, c.Count, want)
		}
	}
	if got := len(x.Snapshot().Reasons); got != len(reasons) {
		t.Errorf("%d reasons, want %d", got, len(reasons))
	}
}

func TestEveryReasonHasItsParty(t *testing.T) {
	for reason, want := range map[Reason]Party{
		"": "", BadRequest: PartyClient, ClientClosed: PartyClient, NoRoute: PartyRouting, BackendNotFound: PartyRouting,
		ConnectFailed: PartyBackend, RequestTimeout: PartyBackend, Overload: PartyProxy, Internal: PartyProxy, "unknown": PartyProxy,
	} {
		if got := reason.Party(); got != want {
			t.Errorf("party of %q = %q, want %q", reason, got, want)
		}
	}
	if len(reasonIndex) != len(reasons) {
		t.Error("a reason is listed twice")
	}
	for fault, want := range map[string]Reason{
		"BackendNotFound": BackendNotFound, "RefNotPermitted": RefNotPermitted, "InvalidKind": InvalidKind, "SomethingNew": InvalidConfig,
	} {
		if got := FaultReason(fault); got != want {
			t.Errorf("reason of the fault %s = %s, want %s", fault, got, want)
		}
	}
}

func TestEveryMirrorOutcomeIsNamedAndGrouped(t *testing.T) {
	names := map[string]bool{}
	for o := range numMirrorOutcomes {
		name := o.String()
		if name == "" || names[name] {
			t.Errorf("outcome %d is named %q", o, name)
		}
		names[name] = true
		if o.Dropped() != (len(name) > 8 && name[:8] == "dropped_") || o.Failed() != (len(name) > 7 && name[:7] == "failed_") {
			t.Errorf("%s: dropped %v, failed %v", name, o.Dropped(), o.Failed())
		}
	}
}

func TestSinceIsTheDifferenceOfTwoSnapshots(t *testing.T) {
	r := New()
	v1 := r.Exchange(ExchangeLabels{Route: "a/r", Rule: "0", Backend: "a/v1:80"})
	v2 := r.Exchange(ExchangeLabels{Route: "a/r", Rule: "0", Backend: "a/v2:80"})
	m := r.Mirror(MirrorLabels{Route: "a/r", Rule: "0", Mirror: "a/v3:80"})
	for i := range uint32(100) {
		v1.Observe(i, 200, time.Millisecond, 10, 100)
		m.Consider(i, i%10 == 0)
	}
	v1.Fail(0, BackendReset)
	m.Count(0, MirrorSent)
	m.Count(1, MirrorPending) // not an end
	before := r.Snapshot()
	for i := range uint32(60) {
		v1.Observe(i, 200, time.Second, 1, 1)
		v2.Observe(i, 200+300*int(i%2), time.Second, 1, 1)
		m.Consider(i, i%10 == 0)
	}
	v2.Retry(3)
	v2.Fail(0, ConnectFailed)
	m.Count(0, MirrorSent)
	m.Count(0, MirrorDroppedBytes)
	m.Count(0, MirrorFailedReset)
	d := r.Snapshot().Since(before)

	if len(d.Exchanges) != 2 || d.Exchanges[0].Backend != "a/v1:80" || d.Exchanges[1].Backend != "a/v2:80" {
		t.Fatalf("exchanges = %+v", d.Exchanges)
	}
	x1, x2 := d.Exchanges[0], d.Exchanges[1]
	if x1.Requests != 60 || x1.Code(200) != 60 || x1.BytesIn != 60 || len(x1.Reasons) != 0 || x1.Success() != 1 {
		t.Errorf("v1 = %+v", x1)
	}
	if p50 := x1.Latency.Quantile(0.5); p50 < 900*time.Millisecond {
		t.Errorf("v1's median = %v: durations before the interval are in it", p50)
	}
	if x2.Requests != 60 || x2.Code(500) != 30 || x2.Success() != 0.5 || x2.Retries != 1 || !reflect.DeepEqual(x2.Reasons, []ReasonCount{{ConnectFailed, 1}}) {
		t.Errorf("v2 = %+v", x2)
	}
	if total := d.Total(); total.Requests != 120 || total.Code(200) != 90 || total.Code(500) != 30 || total.Success() != 0.75 || total.Latency.Count() != 120 {
		t.Errorf("total = %+v", total)
	}
	mirror := d.Mirrors[0]
	if mirror.Considered != 60 || mirror.Selected != 6 || mirror.Sent != 1 || mirror.Dropped != 1 || mirror.Failed != 1 {
		t.Errorf("mirror = %+v", mirror)
	}
	if d.Interval != d.Time.Sub(before.Time) {
		t.Errorf("interval = %v", d.Interval)
	}
}

func TestSuccessLeavesRequestsWithoutAnAnswerAside(t *testing.T) {
	x := New().Unrouted()
	if got := x.Snapshot().Success(); got != 1 {
		t.Errorf("success of nothing = %v", got)
	}
	for range 99 {
		x.Observe(0, 0, 0, 0, 0)
	}
	x.Observe(0, 200, 0, 0, 0)
	x.Observe(0, 404, 0, 0, 0)
	x.Observe(0, 502, 0, 0, 0)
	x.Observe(0, 504, 0, 0, 0)
	if got := x.Snapshot().Success(); got != 0.5 {
		t.Errorf("success = %v, want 0.5", got)
	}
}

func TestCountingDoesNotAllocate(t *testing.T) {
	r := New()
	x, m, l := r.Unrouted(), r.Mirror(MirrorLabels{Route: "a/b"}), r.Listener("a/b/c")
	x.Fail(0, NoRoute) // makes the shard's failures
	if n := testing.AllocsPerRun(100, func() {
		x.Observe(0, 200, 123456, 1, 2)
		x.Fail(0, NoRoute)
		x.Retry(0)
		m.Consider(0, true)
		m.Count(0, MirrorSent)
		l.Opened(0)
		l.Closed(0)
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func BenchmarkObserve(b *testing.B) {
	x := New().Exchange(ExchangeLabels{Route: "a/b", Rule: "0", Backend: "a/c:80"})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		shard := rand.Uint32()
		for d := time.Duration(100_000); pb.Next(); d += 100 {
			x.Observe(shard, 200, d%10_000_000, 0, 1024)
		}
	})
}

func BenchmarkSnapshot(b *testing.B) {
	r := New()
	for i := range 1000 {
		r.Exchange(ExchangeLabels{Route: "a/b", Rule: string(rune('a' + i))}).Observe(uint32(i), 200, time.Millisecond, 0, 0)
	}
	b.ReportAllocs()
	for b.Loop() {
		r.Snapshot()
	}
}

// BenchmarkObserveManySeries is what an exchange pays when ten thousand rules are in use: cache misses.
func BenchmarkObserveManySeries(b *testing.B) {
	r := New()
	all := make([]*Exchange, 10_000)
	for i := range all {
		all[i] = r.Exchange(ExchangeLabels{Route: fmt.Sprint("a/", i)})
		all[i].Observe(0, 200, 300*time.Microsecond, 0, 1024)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		all[i*7919%len(all)].Observe(0, 200, 300*time.Microsecond+time.Duration(i%500_000), 0, 1024)
	}
}

// Code is how often the status was answered.
func (x ExchangeSnapshot) Code(status int) uint64 {
	for _, c := range x.Codes {
		if c.Code == status {
			return c.Count
		}
	}
	return 0
}
