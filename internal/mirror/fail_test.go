package mirror

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/peertest"
	"github.com/weirmesh/weir/internal/telemetry"
)

func TestFailuresOfTheServiceAreCountedByKind(t *testing.T) {
	answer := func(answer string) func(testing.TB) string {
		return func(t testing.TB) string {
			return peertest.Raw(t, func(_ int, c net.Conn) {
				http.ReadRequest(bufio.NewReader(c))
				io.WriteString(c, answer)
			})
		}
	}
	hang := func(answer string) func(testing.TB) string {
		return func(t testing.TB) string {
			return peertest.Raw(t, func(_ int, c net.Conn) {
				io.WriteString(c, answer)
				io.Copy(io.Discard, c)
			})
		}
	}
	for _, c := range []struct {
		name    string
		service func(testing.TB) string
		want    telemetry.MirrorOutcome
	}{
		{"refuses", peertest.Refusing, telemetry.MirrorFailedConnect},
		{"accepts and never reads", peertest.Silent, telemetry.MirrorFailedTimeout},
		{"reads and never answers", hang(""), telemetry.MirrorFailedTimeout},
		{"answers half a head", hang("HTTP/1.1 200 OK\r\nX: "), telemetry.MirrorFailedTimeout},
		{"answers without end", hang("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nx"), telemetry.MirrorSent},
		{"closes at once", answer(""), telemetry.MirrorFailedReset},
		{"closes in the head", answer("HTTP/1.1 200 OK\r\nContent-Len"), telemetry.MirrorFailedReset},
		{"closes in the body", answer("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nx"), telemetry.MirrorFailedReset},
		{"closes in a chunk", answer("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nx"), telemetry.MirrorFailedReset},
		{"answers garbage", answer("\x16\x03\x01 what\r\n\r\n"), telemetry.MirrorFailedResponse},
		{"answers a garbled chunk", answer("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n"), telemetry.MirrorFailedResponse},
		{"answers with both framings", answer("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n"), telemetry.MirrorFailedResponse},
		{"answers an endless head", answer("HTTP/1.1 200 OK\r\n" + strings.Repeat("X: y\r\n", 20000)), telemetry.MirrorFailedResponse},
		{"answers without end of interim answers", answer(strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 100)), telemetry.MirrorFailedResponse},
		{"switches protocols", answer("HTTP/1.1 101 Switching Protocols\r\n\r\n"), telemetry.MirrorFailedResponse},
	} {
		t.Run(c.name, func(t *testing.T) {
			opt := Options{Timeout: 20 * time.Second, BreakAfter: -1}
			if c.want == telemetry.MirrorFailedTimeout || c.name == "answers without end" {
				opt.Timeout = 100 * time.Millisecond // it passes
			}
			f := newFixture(t, opt, peertest.ToMirror(c.service(t)))
			// Once whole, once streamed.
			f.copy(get("/"), nil)
			f.wait(t, 1)
			f.copy(post("/", chunkedBody), nil, "body")
			f.wait(t, 1)
			f.expect(t, map[telemetry.MirrorOutcome]uint64{c.want: 2})
		})
	}
}

func TestServiceThatNeverReadsCostsBoundedMemory(t *testing.T) {
	f := newFixture(t, Options{MaxCopyBytes: 100 << 10, MaxBytes: 250 << 10, Timeout: time.Minute}, peertest.ToMirror(peertest.Silent(t)))
	s := f.target.service
	piece := make([]byte, 8<<10)
	for range 3 {
		l, _ := f.Begin(f.target, post("/", chunkedBody), 0)
		// The system's own buffers take some megabytes first.
		for i := 0; l.fate.Load() == uint32(telemetry.MirrorPending); i++ {
			if l.Write(piece); i > 100000 {
				t.Fatal("the copy grows without end")
			}
			if q := s.queued.Load(); q > 110<<10 {
				t.Fatalf("%d bytes are queued", q)
			}
		}
		l.End(nil)
		if o := l.Outcome(); o != telemetry.MirrorDroppedBody {
			t.Errorf("%v", o)
		}
		f.wait(t, 1)
	}
	f.expect(t, map[telemetry.MirrorOutcome]uint64{telemetry.MirrorDroppedBody: 3})
}

func TestBytesQueuedForAServiceAreBounded(t *testing.T) {
	f := newFixture(t, Options{MaxCopyBytes: 30 << 10, MaxBytes: 30 << 10}, peertest.ToMirror(peertest.Refusing(t)))
	f.Set.waiting.running.Store(true) // the clock stands still: no copy begins before its primary was answered
	first, _ := f.Begin(f.target, post("/", lengthBody(20<<10)), 0)
	first.Write(make([]byte, 20<<10))
	second, _ := f.Begin(f.target, post("/", lengthBody(20<<10)), 0)
	second.Write(make([]byte, 20<<10))
	if o := second.Outcome(); o != telemetry.MirrorDroppedBytes {
		t.Errorf("second: %v", o)
	}
	head := get("/" + strings.Repeat("x", 15<<10))
	if l, o := f.Begin(f.target, head, 0); l != nil || o != telemetry.MirrorDroppedBytes {
		t.Errorf("third: %v", o)
	}
	first.Abort()
	first.Outcome()
	f.wait(t, 2)
	f.expect(t, map[telemetry.MirrorOutcome]uint64{telemetry.MirrorDroppedBytes: 2, telemetry.MirrorDroppedAborted: 1})
}

func TestCopiesInFlightAreBounded(t *testing.T) {
	release := make(chan struct{})
	f := newFixture(t, Options{MaxInFlight: 3}, peertest.ToMirror(peertest.Backend(t, func(http.ResponseWriter, *http.Request) { <-release })))
	for i := range 5 {
		want := telemetry.MirrorPending
		if i >= 3 {
			want = telemetry.MirrorDroppedInFlight
		}
		if o := f.copy(get("/"), nil); o != want {
			t.Errorf("copy %d: %v", i, o)
		}
	}
	close(release)
	f.wait(t, 3)
	f.expect(t, map[telemetry.MirrorOutcome]uint64{telemetry.MirrorSent: 3, telemetry.MirrorDroppedInFlight: 2})
}

func TestCopyOfAnEndlessPrimaryEnds(t *testing.T) {
	f := newFixture(t, Options{MaxDuration: 50 * time.Millisecond}, peertest.ToMirror(peertest.Raw(t, func(_ int, c net.Conn) { io.Copy(io.Discard, c) })))
	l, _ := f.Begin(f.target, post("/", chunkedBody), 0)
	l.Write([]byte("x"))
	f.wait(t, 1)
	l.Write([]byte("y"))
	l.End(nil)
	l.Outcome()
	f.expect(t, map[telemetry.MirrorOutcome]uint64{telemetry.MirrorDroppedTime: 1})
}

func TestConnectionClosedWhileIdleDoesNotCountAgainstTheService(t *testing.T) {
	closed := make(chan struct{}, 10)
	f := newFixture(t, Options{BreakAfter: 1}, peertest.ToMirror(peertest.Raw(t, func(n int, c net.Conn) {
		r := bufio.NewReader(c)
		http.ReadRequest(r)
		io.WriteString(c, peertest.OK)
		http.ReadRequest(r)
		c.Close() // instead of the second answer
		closed <- struct{}{}
	})))
	f.copy(get("/"), nil)
	f.wait(t, 1)
	f.copy(get("/"), nil)
	f.wait(t, 1)
	<-closed
	if f.target.service.breaker.open() {
		t.Error("the breaker opened")
	}
	f.copy(get("/"), nil)
	f.wait(t, 1)
	f.expect(t, map[telemetry.MirrorOutcome]uint64{telemetry.MirrorSent: 2, telemetry.MirrorFailedReset: 1})
}

func TestServiceThatKeepsFailingIsLeftAloneAndTriedAgain(t *testing.T) {
	addr := peertest.Refusing(t)
	f := newFixture(t, Options{BreakAfter: 3}, peertest.ToMirror(addr))
	b := &f.target.service.breaker
	for range 3 {
		f.copy(get("/"), nil)
		f.wait(t, 1)
	}
	if o := f.copy(get("/"), nil); o != telemetry.MirrorDroppedBreaker {
		t.Errorf("%v with an open breaker", o)
	}
	// Its time is up, but the service still refuses: it opens again.
	b.until.Store(1)
	f.copy(get("/"), nil)
	f.wait(t, 1)
	if o := f.copy(get("/"), nil); o != telemetry.MirrorDroppedBreaker {
		t.Errorf("%v after a failed probe", o)
	}
	// A probe that is aborted leaves it to the next one.
	b.until.Store(1)
	l, _ := f.Begin(f.target, post("/", lengthBody(1)), 0)
	if o := f.copy(get("/"), nil); o != telemetry.MirrorDroppedBreaker {
		t.Errorf("%v beside a probe", o)
	}
	l.Abort()
	l.Outcome()
	f.wait(t, 1)
	// The service is back.
	f.configure(peertest.ToMirror(peertest.Raw(t, func(_ int, c net.Conn) { peertest.Respond(c, peertest.OK) })))
	for range 2 {
		f.copy(get("/"), nil)
		f.wait(t, 1)
	}
	f.expect(t, map[telemetry.MirrorOutcome]uint64{telemetry.MirrorFailedConnect: 4, telemetry.MirrorDroppedBreaker: 3, telemetry.MirrorDroppedAborted: 1,
		telemetry.MirrorSent: 2})
}

func TestBreakerOpensLongerEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &breaker{after: 2}
		admit := func() (ok, probe bool) { return b.admit(time.Now(), time.Minute) }
		fail := func(probe bool) time.Duration { return b.failed(time.Now(), probe) }
		if d := fail(false); d != 0 {
			t.Fatalf("open for %v after one failure", d)
		}
		b.succeeded(false)
		fail(false)
		if d := fail(false); d != time.Second || !b.open() {
			t.Fatalf("open for %v after two", d)
		}
		if d := fail(false); d != 0 {
			t.Fatalf("a late failure opens it for %v", d)
		}
		b.succeeded(false) // a late success
		for _, want := range []time.Duration{2, 4, 8, 16, 30, 30} {
			for {
				ok, probe := admit()
				if ok {
					if !probe {
						t.Fatal("admitted without being a probe")
					}
					break
				}
				time.Sleep(100 * time.Millisecond)
			}
			if ok, _ := admit(); ok {
				t.Fatal("a second probe")
			}
			if d := fail(true); d != want*time.Second {
				t.Fatalf("open for %v, want %ds", d, want)
			}
		}
		time.Sleep(30 * time.Second)
		if ok, probe := admit(); !ok || !probe {
			t.Fatal("no probe")
		}
		b.forgo()
		if ok, probe := admit(); !ok || !probe {
			t.Fatal("no probe after one that learned nothing")
		}
		// A probe that never reports does not keep the breaker open forever.
		time.Sleep(time.Minute)
		if ok, probe := admit(); !ok || !probe {
			t.Fatal("no probe after a lost one")
		}
		b.succeeded(true)
		if ok, probe := admit(); !ok || probe || b.open() {
			t.Fatal("not closed by a success")
		}
		fail(false)
		if d := fail(false); d != time.Second {
			t.Fatalf("open for %v the next time", d)
		}
	})
}

func TestDropsAreToldOnceForEachBoundUntilTheyEnd(t *testing.T) {
	told := make(chan struct{}, 10)
	f := newFixture(t, Options{MaxInFlight: 1, MaxCopyBytes: 100 << 10, Timeout: time.Minute}, peertest.ToMirror(peertest.Silent(t)))
	f.tell = func() { told <- struct{}{} }
	filter := model.Ref{Kind: "HTTPRoute", Name: "route", Field: "spec.rules[0].filters[0]"}
	f.target.ref = filter
	if d := f.Drops(); len(d) > 0 {
		t.Fatalf("%+v before anything was dropped", d)
	}
	// The drop also names a sufficient bound if the body's length is known.
	for range 3 {
		l, _ := f.Begin(f.target, post("/", lengthBody(900<<10)), 0)
		l.Write(make([]byte, 101<<10))
		if o := l.Outcome(); o != telemetry.MirrorDroppedBody {
			t.Fatal(o)
		}
	}
	<-told
	want := Drop{Service: peertest.MirrorName, Ref: filter, Cause: DropBody, Bound: 100 << 10, Enough: 1 << 20}
	if d := f.Drops(); len(d) != 1 || d[0] != want {
		t.Errorf("told %+v, want %+v", d, want)
	}
	// A copy that hangs takes the only place.
	f.copy(get("/"), nil)
	if o := f.copy(get("/"), nil); o != telemetry.MirrorDroppedInFlight {
		t.Fatal(o)
	}
	<-told
	want = Drop{Service: peertest.MirrorName, Ref: filter, Cause: DropInFlight, Bound: 1, Enough: 2}
	if d := f.Drops(); len(d) != 2 || d[0] != want {
		t.Errorf("told %+v, want %+v among them", d, want)
	}
	if len(told) > 0 {
		t.Error("told more than once for a bound")
	}
	// The filter stays, then goes.
	if f.forgetDrops(time.Now().Add(-time.Minute)) {
		t.Error("forgotten too early")
	}
	cfg := &model.Config{Services: []model.Service{peertest.ToMirror("127.0.0.1:1")}}
	f.Apply(cfg, []Spec{{Key: Key{Name: peertest.MirrorName}, Metric: f.metric, Ref: filter}})
	if d := f.Drops(); len(d) != 2 {
		t.Errorf("told %+v with the filter of before", d)
	}
	if !f.forgetDrops(time.Now().Add(2*time.Second)) || len(f.Drops()) > 0 {
		t.Error("told though nothing is dropped any more")
	}
	f.copy(get("/"), nil)
	<-told
	f.Apply(cfg, []Spec{{Key: Key{Name: peertest.MirrorName}, Metric: f.metric}})
	if d := f.Drops(); len(d) > 0 {
		t.Errorf("told %+v of a filter that is gone", d)
	}
	ctx, cancel := contextCancelled()
	defer cancel()
	f.Close(ctx)
}

func TestMirrorThatIsLeftAloneIsTold(t *testing.T) {
	f := newFixture(t, Options{BreakAfter: 2}, peertest.ToMirror(peertest.Refusing(t)))
	for range 2 {
		f.copy(get("/"), nil)
		f.wait(t, 1)
	}
	if o := f.copy(get("/"), nil); o != telemetry.MirrorDroppedBreaker {
		t.Fatal(o)
	}
	want := Drop{Service: peertest.MirrorName, Cause: DropFailing, Bound: 2, Enough: 4, Failure: telemetry.MirrorFailedConnect}
	if d := f.Drops(); len(d) != 1 || d[0] != want {
		t.Errorf("told %+v, want %+v", d, want)
	}
}
