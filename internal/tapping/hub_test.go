package tapping

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/telemetry"
)

// tick is when counts have come from everybody.
const tick = 2*telemetry.TapTick + time.Millisecond

func TestALineGoesFromAProxyToWhoLooks(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.hub(3) // one of them is of an older release
		one, _ := w.proxy(h, "gw-1")
		two, cut := w.proxy(h, "gw-2")
		r := w.tap(h, query(func(q *telemetry.TapQuery) { q.PathPrefix = "/a" }), sides("web"))
		if len(one.Taps()) != 1 || len(two.Taps()) != 1 {
			t.Fatalf("%d and %d taps are open at proxies", len(one.Taps()), len(two.Taps()))
		}
		offer(one, request("gw-1", "web", "/a/1"))
		offer(one, request("gw-1", "web", "/b"))
		offer(one, request("gw-1", "other", "/a"))
		synctest.Wait()
		offer(two, request("gw-2", "web", "/a/2"))
		r.shows(tick, []string{"/a/1", "/a/2"}, telemetry.TapCounts{Matched: 2, Shown: 2, Proxies: 2, Silent: 1})

		// A proxy that goes takes nothing along that was counted; one that comes takes part.
		cut()
		synctest.Wait()
		if two.Taps() != nil {
			t.Error("a proxy's tap outlasts its stream")
		}
		three, _ := w.proxy(h, "gw-3")
		offer(three, request("gw-3", "web", "/a/3"))
		r.shows(tick, []string{"/a/1", "/a/2", "/a/3"}, telemetry.TapCounts{Matched: 3, Shown: 3, Proxies: 2, Silent: 1})

		// Pods come and go.
		r.mu.Lock()
		r.sides = sides("new")
		r.mu.Unlock()
		time.Sleep(6 * time.Second)
		synctest.Wait()
		offer(three, request("gw-3", "web", "/a/4"))
		offer(three, request("gw-3", "new", "/a/5"))
		r.shows(tick, []string{"/a/1", "/a/2", "/a/3", "/a/5"}, telemetry.TapCounts{Matched: 4, Shown: 4, Proxies: 2, Silent: 1})

		// Who looks leaves.
		r.leave()
		synctest.Wait()
		if one.Taps() != nil || three.Taps() != nil || h.Stats().Open != 0 {
			t.Errorf("the tap stays open at proxies: %v, %v; %+v", one.Taps(), three.Taps(), h.Stats())
		}
		if err := <-r.ended; err != nil {
			t.Error(err)
		}
	})
}

func TestATapEndsByItself(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.hub(1)
		registry, _ := w.proxy(h, "gw")
		r := w.tap(h, query(func(q *telemetry.TapQuery) { q.For = 10 * time.Second }), sides("web"))
		time.Sleep(10*time.Second - time.Millisecond)
		synctest.Wait()
		if registry.Taps() == nil {
			t.Error("it ended early")
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if err := <-r.ended; err != nil || registry.Taps() != nil || h.Stats().Open != 0 {
			t.Errorf("%v; at the proxy: %v; %+v", err, registry.Taps(), h.Stats())
		}

		// Without its controller a proxy ends it, too.
		theirs, ours, cut := streams(w.ctx)
		w.running.Go(func() { _ = Serve(theirs, cut, registry) })
		_ = ours.Send(encode(newOrder(7, query(func(q *telemetry.TapQuery) { q.For = time.Second }), sides("web"))))
		synctest.Wait()
		if registry.Taps() == nil {
			t.Error("an order opens no tap")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if registry.Taps() != nil {
			t.Error("a tap lasts longer than ordered")
		}
	})
}

func TestATapEndsWithTheRightToLook(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.hub(1)
		registry, _ := w.proxy(h, "gw")
		r := w.tap(h, query(nil), sides("web"))
		r.mu.Lock()
		r.sides = nil
		r.mu.Unlock()
		time.Sleep(6 * time.Second)
		if err := <-r.ended; err != nil || registry.Taps() != nil {
			t.Errorf("%v; at the proxy: %v", err, registry.Taps())
		}
		synctest.Wait()
		if r.mu.Lock(); r.fault != "you may not" {
			t.Errorf("the reason is %q", r.fault)
		}
		r.mu.Unlock()
		if err := <-w.tap(h, query(nil), nil).ended; err == nil || err.Error() != "you may not" {
			t.Errorf("who may not from the beginning: %v", err)
		}
	})
}

// TestNobodyTakesAllTaps: a user has some of them, at all replicas together, and others the rest.
func TestNobodyTakesAllTaps(t *testing.T) {
	inWorld(t, func(w *world) {
		type user struct{}
		who := func(ctx context.Context) string { name, _ := ctx.Value(user{}).(string); return name }
		here, there := w.hub(1), w.hub(1)
		here.Who, there.Who = who, who
		w.peering(map[string]*Hub{"here": here, "there": there}, up)
		w.proxy(here, "gw")
		open := func(h *Hub, name string) *reader {
			outer := w.ctx
			w.ctx = context.WithValue(outer, user{}, name)
			defer func() { w.ctx = outer }()
			r := w.tap(h, query(nil), sides("web"))
			time.Sleep(time.Second)
			return r
		}
		refused := func(r *reader) error {
			select {
			case err := <-r.ended:
				return err
			default:
				return nil
			}
		}
		var first *reader
		for i := range maxOwn {
			if first = open(here, "ann"); refused(first) != nil {
				t.Fatalf("tap %d of ann is refused", i)
			}
		}
		for _, h := range []*Hub{here, there} {
			if err := refused(open(h, "ann")); !errors.Is(err, telemetry.ErrTaps) || !strings.Contains(err.Error(), "yours") {
				t.Errorf("one more of ann: %v", err)
			}
		}
		for range maxTaps - maxOwn {
			if err := refused(open(there, "bob")); err != nil {
				t.Errorf("a tap of bob: %v", err)
			}
		}
		first.leave()
		time.Sleep(time.Second)
		if err := refused(open(there, "ann")); err != nil {
			t.Errorf("a tap of ann after she closed one: %v", err)
		}
	})
}

func TestTapsOfAReplicaAreBounded(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.hub(1)
		registry, _ := w.proxy(h, "gw")
		var all []*reader
		for range maxTaps {
			all = append(all, w.tap(h, query(nil), sides("web")))
		}
		if n := len(registry.Taps()); n != maxTaps {
			t.Fatalf("%d taps at the proxy", n)
		}
		if err := <-w.tap(h, query(nil), sides("web")).ended; err != telemetry.ErrTaps {
			t.Errorf("one more: %v", err)
		}
		all[3].leave()
		synctest.Wait()
		again := w.tap(h, query(nil), sides("web"))
		again.shows(tick, nil, telemetry.TapCounts{Proxies: 1})

		// Who opens and closes taps all the time does not keep all proxies busy.
		time.Sleep(time.Minute)
		again.leave()
		<-again.ended
		opened := 0
		for range 3 * openings {
			r := w.tap(h, query(nil), sides("web"))
			r.leave()
			if err := <-r.ended; err == nil {
				opened++
			} else if err != telemetry.ErrTaps {
				t.Error(err)
			}
		}
		if opened != openings {
			t.Errorf("%d taps were opened at once, want %d", opened, openings)
		}
		time.Sleep(2 * time.Second)
		if t, err := h.open("", query(nil), sides("web")); err != nil {
			w.Errorf("later: %v", err)
		} else {
			t.close()
		}

		many := telemetry.TapSides{}
		for i := range maxSides + 1 {
			many[pod(fmt.Sprint(i))] = true
		}
		long := telemetry.TapSides{}
		for i := range maxSides / 2 {
			long[pod(fmt.Sprint(i, strings.Repeat("\x01", 200)))] = true
		}
		for what, of := range map[string]telemetry.TapSides{"too many": many, "too large": long} {
			if err := <-w.tap(h, query(nil), of).ended; err != telemetry.ErrTapSides {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}

// TestAProxySpeaksOnlyForItself: what one says that is taken over does not get into others' taps, and of its own nothing
// that was not asked for.
func TestAProxySpeaksOnlyForItself(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.hub(1)
		theirs, _ := w.link(h, "gw")
		r := w.tap(h, query(func(q *telemetry.TapQuery) { q.PathPrefix = "/a" }), sides("web"))
		o, id, err := parseOrder(<-theirs.in)
		if err != nil || o.Path != "/a" || len(o.Sides) != 1 || o.Rate != 100 || o.For != 10*time.Minute {
			t.Fatalf("%+v, %v", o, err)
		}
		for _, l := range []line{
			{Tap: id, Request: request("gw", "web", "/a/own")},
			{Tap: id, Request: request("other", "web", "/a/observed by another")},
			{Tap: id, Request: request("web", "gw", "/a/observed by the pod")},
			{Tap: id, Request: request("gw", "other", "/a/of another pod")},
			{Tap: id, Request: request("gw", "web", "/of another path")},
			{Tap: id + 1, Request: request("gw", "web", "/a/of no tap")},
			{Tap: id, Request: &telemetry.Tapped{At: telemetry.Side{Kind: "Gateway", Namespace: "shop", Name: "gw"}, To: pod("web"), Path: "/a/as the Gateway"}},
			{Tap: id, Request: &telemetry.Tapped{At: telemetry.Side{Kind: "Gateway", Namespace: "shop", Name: "other"}, To: pod("web"), Path: "/a/as another"}},
			{Tap: id, Counts: &telemetry.TapCounts{Matched: 9, Proxies: 5, Silent: 5}},
		} {
			if err := theirs.Send(encode(l)); err != nil {
				t.Fatal(err)
			}
		}
		r.shows(tick, []string{"/a/own", "/a/as the Gateway"}, telemetry.TapCounts{Matched: 9, Shown: 2, Proxies: 1})
		if s := h.Stats(); s.Rejected != 5 || s.Lines != 2 {
			t.Errorf("%+v", s)
		}
	})
}

// TestWhatIsNoLineEndsAProxysStream, and the tap goes on without it.
func TestWhatIsNoLineEndsAProxysStream(t *testing.T) {
	for _, message := range []string{"", "{", `{"tap":1}{`, `{"tap":-1}`, `{"tap":1,"counts":{"proxies":-1}}`, `{"tap":1,"counts":{"matched":18446744073709551615}}`, `{"request":{"path":"` + strings.Repeat("/", MaxLine) + `"}}`} {
		inWorld(t, func(w *world) {
			h := w.hub(1)
			theirs, _ := w.link(h, "gw")
			r := w.tap(h, query(nil), sides("web"))
			if err := theirs.Send([]byte(message)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if theirs.ctx.Err() == nil {
				t.Errorf("%.40q is taken for a line", message)
			}
			r.shows(tick, nil, telemetry.TapCounts{Silent: 1})
		})
	}
}

// TestAProxyThatFloodsIsReadNoFaster than it was asked to send, and delays no other.
func TestAProxyThatFloodsIsReadNoFaster(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.hub(2)
		theirs, _ := w.link(h, "gw-1")
		honest, _ := w.proxy(h, "gw-2")
		r := w.tap(h, query(func(q *telemetry.TapQuery) { q.Rate = 300 }), sides("web"))
		_, id, _ := parseOrder(<-theirs.in)
		var sent atomic.Int64
		flood := encode(line{Tap: id, Request: request("gw-1", "none", "/")})
		w.running.Go(func() {
			for theirs.Send(flood) == nil {
				sent.Add(1)
			}
		})
		const seconds = 30
		time.Sleep(seconds * time.Second)
		synctest.Wait()
		if most := (seconds+2)*(300+spareRate) + room + 2; int(sent.Load()) > most {
			t.Errorf("%d messages were read in %d s, want at most %d", sent.Load(), seconds, most)
		}
		offer(honest, request("gw-2", "web", "/honest"))
		r.shows(tick, []string{"/honest"}, telemetry.TapCounts{Matched: 1, Shown: 1, Proxies: 1, Silent: 1})
	})
}

// TestAProxyThatReadsNothingLosesItsStream: orders for it are bounded.
func TestAProxyThatReadsNothingLosesItsStream(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.hub(1)
		theirs, _ := w.link(h, "gw")
		for range maxUnsent {
			r := w.tap(h, query(nil), sides("web"))
			r.leave()
			if err := <-r.ended; err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		h.mu.Lock()
		l := h.links["shop/gw"]
		h.mu.Unlock()
		select {
		case <-l.over:
		default:
			t.Errorf("%d orders wait for it", len(l.orders))
		}
		<-theirs.in // the order that is under way
		synctest.Wait()
		for range room + 2 {
			select {
			case <-theirs.in:
			default:
			}
			synctest.Wait()
		}
		if theirs.ctx.Err() == nil {
			t.Error("the stream goes on")
		}
	})
}

func TestANewerStreamOfAProxyEndsTheOldOne(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.hub(1)
		old, _ := w.link(h, "gw")
		r := w.tap(h, query(nil), sides("web"))
		registry, _ := w.proxy(h, "gw")
		synctest.Wait()
		if old.ctx.Err() == nil {
			t.Error("the old one goes on")
		}
		offer(registry, request("gw", "web", "/"))
		r.shows(tick, []string{"/"}, telemetry.TapCounts{Matched: 1, Shown: 1, Proxies: 1})
	})
}

// TestAProxyThatDoesNotKnowAnOrderSaysSo, as one of an older release than the controller's; and it can be told to close it.
func TestAProxyThatDoesNotKnowAnOrderSaysSo(t *testing.T) {
	inWorld(t, func(w *world) {
		registry := telemetry.New()
		theirs, ours, cut := streams(w.ctx)
		served := make(chan error, 1)
		w.running.Go(func() { served <- Serve(theirs, cut, registry) })
		send := func(message string) (said line) {
			t.Helper()
			if err := ours.Send([]byte(message)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			select {
			case b := <-ours.in:
				said, err := parseLine(b)
				if err != nil {
					t.Fatal(err)
				}
				return said
			default:
				return said
			}
		}
		const good = `"highest":999,"rate":5,"nanos":1000000000000,"sides":[{"name":"x"}]`
		for message, want := range map[string]string{
			`{"tap":3,"header":"secret",` + good + `}`:                         `unknown field "header"`,
			`{"tap":3,"rate":0,"nanos":5,"highest":9}`:                         "rate: want",
			`{"tap":3,"rate":1,"nanos":-5,"highest":9}`:                        "for: want",
			`{"tap":3,"rate":1,"nanos":5,"lowest":9}`:                          "status: want",
			`{"tap":3,"rate":1,"nanos":5,"sides":[{}]}`:                        "a side that is none",
			`{"tap":3,"rate":1,"nanos":5,"sides":[{"pod":"a"}]}`:               "unknown field",
			`{"tap":3,` + good + `} x`:                                         "",
			`{"tap":3,"path":"` + strings.Repeat("/", 600) + `",` + good + `}`: "path and method",
		} {
			if said := send(message); want != "" && (said.Tap != 3 || !strings.Contains(said.Refused, want)) || registry.Taps() != nil {
				t.Errorf("%.60s: %+v, want %q", message, said, want)
			}
			if want == "" { // it is no JSON, and about nothing
				select {
				case err := <-served:
					if err == nil {
						t.Error("a message that is no order is no error")
					}
				default:
					t.Errorf("%s is an order", message)
				}
				theirs, ours, cut = streams(w.ctx)
				w.running.Go(func() { served <- Serve(theirs, cut, registry) })
			}
		}
		if said := send(`{"tap":4,` + good + `}`); said.Counts == nil || len(registry.Taps()) != 1 {
			t.Errorf("%+v, %v", said, registry.Taps())
		}
		if said := send(`{"tap":4,"later":1,` + good + `}`); said.Refused == "" || registry.Taps() != nil { // rather nothing than too much
			t.Errorf("a change that is not known: %+v, %v", said, registry.Taps())
		}
		if said := send(`{"tap":4,"close":true}`); said != (line{}) {
			t.Errorf("%+v", said)
		}
	})
}

func TestOrdersOfAProxyAreBounded(t *testing.T) {
	inWorld(t, func(w *world) {
		registry := telemetry.New()
		theirs, ours, cut := streams(w.ctx)
		served := make(chan error, 1)
		w.running.Go(func() { served <- Serve(theirs, cut, registry) })
		for i := range maxOrders + room { // nobody reads the refusals
			_ = ours.Send(encode(newOrder(uint64(i+1), query(nil), sides("web"))))
			synctest.Wait()
		}
		if err := <-served; err != errOrders || theirs.ctx.Err() == nil || registry.Taps() != nil {
			t.Errorf("%v, the stream's end is %v, taps %v", err, theirs.ctx.Err(), registry.Taps())
		}
	})
}

// TestASlowReaderKeepsNobodyWaiting: neither a request nor another tap waits for a controller that does not read.
func TestASlowReaderKeepsNobodyWaiting(t *testing.T) {
	inWorld(t, func(w *world) {
		registry := telemetry.New()
		theirs, ours, cut := streams(w.ctx)
		served := make(chan error, 1)
		w.running.Go(func() { served <- Serve(theirs, cut, registry) })
		for i := range uint64(2) {
			_ = ours.Send(encode(newOrder(i+1, query(func(q *telemetry.TapQuery) { q.Rate = 1000 }), sides("web"))))
			synctest.Wait()
		}
		for range 5000 { // none of them waits, or the test would not end
			offer(registry, request("gw", "web", "/"))
		}
		synctest.Wait()
		c := registry.Taps()[0].Counts()
		if c.Matched != 5000 || c.Shown == 0 || c.Shown > 300 {
			t.Errorf("%+v", c)
		}
		_ = ours.Send(encode(order{Tap: 1, Close: true}))
		synctest.Wait()
		if n := len(registry.Taps()); n != 1 {
			t.Errorf("%d taps are open, as one was closed while nobody reads", n)
		}
		cut()
		<-served
		if registry.Taps() != nil {
			t.Error("taps outlast the stream")
		}
	})
}

func TestTheRateOfATapIsShared(t *testing.T) {
	for _, c := range [][3]int{{100, 0, 100}, {100, 1, 100}, {100, 10, 100}, {100, 20, 50}, {100, 5000, 1}, {1000, 40, 250}, {1, 100, 1}} {
		if got := rateOf(c[0], c[1]); got != c[2] {
			t.Errorf("%d of %d proxies: %d, want %d", c[0], c[1], got, c[2])
		}
	}
	inWorld(t, func(w *world) {
		h := w.hub(12)
		var all []*telemetry.Registry
		for i := range 12 {
			r, _ := w.proxy(h, fmt.Sprint("gw-", i))
			all = append(all, r)
		}
		r := w.tap(h, query(func(q *telemetry.TapQuery) { q.Rate = 100 }), sides("web"))
		for i, p := range all {
			for range 100 {
				offer(p, request(fmt.Sprint("gw-", i), "web", "/"))
			}
		}
		time.Sleep(tick)
		synctest.Wait()
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.counts.Matched != 1200 || r.counts.Shown > 100 || r.counts.Shown < 90 || r.counts.Proxies != 12 || int(r.counts.Shown) != len(r.paths) {
			t.Errorf("%+v, %d lines", r.counts, len(r.paths))
		}
	})
}

func FuzzOrders(f *testing.F) {
	f.Add([]byte(`{"tap":1,"highest":999,"rate":5,"nanos":1000,"sides":[{"kind":"Pod","namespace":"a","name":"b"}],"method":"GET","path":"/"}`))
	f.Add([]byte(`{"tap":1,"close":true}`))
	f.Add([]byte(`{"tap":1,"x":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		o, tap, err := parseOrder(b)
		if err != nil {
			if o.Tap != 0 || o.Sides != nil {
				t.Errorf("%+v with %v", o, err)
			}
			return
		}
		if tap != o.Tap || tap == 0 {
			t.Errorf("about tap %d, %d", tap, o.Tap)
		}
		if o.Close {
			return
		}
		q := o.query()
		if err := q.Check(); err != nil {
			t.Error(err)
		}
		// What a proxy takes of a controller it would take of this one.
		again, _, err := parseOrder(encode(newOrder(o.Tap, q, o.sides())))
		if err != nil || again.query() != q || len(again.sides()) != len(o.sides()) {
			t.Errorf("%+v, %v; of %+v", again, err, o)
		}
	})
}

func FuzzLines(f *testing.F) {
	f.Add(encode(line{Tap: 1, Request: request("gw", "web", "/")}))
	f.Add(encode(line{Tap: 1, Counts: &telemetry.TapCounts{Matched: 2, Shown: 1, Proxies: 3, Silent: 4}}))
	f.Add(encode(line{Tap: 1, Refused: "no"}))
	f.Fuzz(func(t *testing.T, b []byte) {
		h := &Hub{Connected: func() int { return 1 }}
		l := &link{hub: h, proxy: "shop/gw", at: []telemetry.Side{pod("gw")}, orders: make(chan []byte, maxUnsent), over: make(chan struct{}), end: func() {}}
		h.join(l)
		tap, err := h.open("", query(nil), sides("web"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.take(b); err != nil {
			return
		}
		select {
		case x := <-tap.Requests():
			if x.At != pod("gw") || !tap.query.Wants(&x, sides("web")) {
				t.Errorf("%+v is shown", x)
			}
			if b, err := json.Marshal(x); err != nil || len(b) > 2*MaxLine {
				t.Errorf("%d bytes, %v", len(b), err)
			}
		default:
		}
		if c := tap.Counts(); c.Proxies > 1 || c.Silent > 1 || c.Matched > maxCount {
			t.Errorf("%+v", c)
		}
	})
}

// TestASidecarIsAskedForItsOwnPodAlone, once a tap is about that, and is closed when it is not any more.
func TestASidecarIsAskedForItsOwnPodAlone(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.hub(1)
		there := map[string]bool{"cart-1": true, "web-1": true, "old-1": true}
		h.Sidecars = func(pods telemetry.TapSides) (n int) {
			for s := range pods {
				if there[s.Name] {
					n++
				}
			}
			return n
		}
		sidecar := func(name string) *telemetry.Registry {
			registry := telemetry.New()
			ours, theirs, cut := streams(w.ctx)
			w.running.Go(func() {
				defer cut()
				_ = h.ServeProxy(ours, model.WorkloadOwner("shop", name), "shop/"+name)
			})
			w.running.Go(func() { _ = Serve(theirs, cut, registry) })
			synctest.Wait()
			return registry
		}
		edge, _ := w.proxy(h, "edge-1")
		cart, web := sidecar("cart-1"), sidecar("web-1")
		tap, err := h.open("", telemetry.TapQuery{Rate: 100, Highest: 599, For: time.Minute}, sides("cart-1", "old-1"))
		if err != nil {
			t.Fatal(err)
		}
		defer tap.close()
		synctest.Wait()
		shown := func() (at []string) {
			t.Helper()
			offer(edge, request("edge-1", "cart-1", "/"))
			offer(cart, &telemetry.Tapped{At: pod("cart-1"), From: pod("web-1"), Method: "GET", Path: "/", Status: 200})
			offer(web, request("web-1", "cart-1", "/"))
			synctest.Wait()
			for {
				select {
				case x := <-tap.Requests():
					at = append(at, x.At.Name)
				default:
					slices.Sort(at)
					return at
				}
			}
		}
		if got := shown(); !slices.Equal(got, []string{"cart-1", "edge-1"}) {
			t.Errorf("requests of cart-1 are shown at %q", got)
		}
		if c := tap.Counts(); c.Proxies != 2 || c.Silent != 1 { // old-1's says nothing
			t.Errorf("%+v", c)
		}
		if err := tap.follow(sides("web-1")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := shown(); !slices.Equal(got, []string{"web-1"}) {
			t.Errorf("requests of web-1 are shown at %q", got)
		}
		late := sidecar("late-1")
		if err := tap.follow(sides("late-1", "web-1")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		offer(late, request("late-1", "cart-1", "/"))
		if got := shown(); !slices.Equal(got, []string{"late-1", "web-1"}) {
			t.Errorf("requests of both are shown at %q", got)
		}
		time.Sleep(telemetry.TapTick + time.Second)
		if c := tap.Counts(); c.Proxies != 3 || c.Matched < 5 {
			t.Errorf("%+v", c)
		}
	})
}
