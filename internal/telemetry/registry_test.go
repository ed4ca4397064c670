package telemetry

import (
	"fmt"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestHandlesAreKeyedByTheirLabels(t *testing.T) {
	r := New()
	a := ExchangeLabels{Route: "a/b", Rule: "0", Backend: "a/c:80"}
	exchange, mirror, listener := r.Exchange(a), r.Mirror(MirrorLabels{Route: "x"}), r.Listener("x")
	if r.Exchange(a) != exchange || r.Mirror(MirrorLabels{Route: "x"}) != mirror || r.Listener("x") != listener {
		t.Error("equal labels give two series")
	}
	if r.Exchange(ExchangeLabels{a.Route, "1", a.Backend}) == exchange || r.Listener("y") == listener {
		t.Error("different labels give one series")
	}
	if r.Exchange(ExchangeLabels{}) != r.Unrouted() {
		t.Error("empty labels are not the unrouted series")
	}
}

func TestSeriesBeyondTheBoundAreCountedAsOther(t *testing.T) {
	r := NewRegistry(Options{MaxSeries: 3})
	for i := range 10 {
		r.Exchange(ExchangeLabels{Route: fmt.Sprint("a/", i)}).Observe(0, 200, 0, 0, 0)
		r.Mirror(MirrorLabels{Route: fmt.Sprint("a/", i)}).Consider(0, true)
	}
	s := r.Snapshot()
	requests := map[string]uint64{}
	for _, x := range s.Exchanges {
		requests[x.Route] = x.Requests
	}
	want := map[string]uint64{"a/0": 1, "a/1": 1, "a/2": 1, "other": 7}
	if !reflect.DeepEqual(requests, want) {
		t.Errorf("requests = %v, want %v", requests, want)
	}
	if len(s.Mirrors) != 4 {
		t.Errorf("%d mirrors", len(s.Mirrors))
	}
}

func TestDroppedSeriesAreShownForTheGraceTimeAndThenRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry(Options{MaxSeries: 2, Grace: time.Minute})
		shown := func() (routes []string) {
			for _, x := range r.Snapshot().Exchanges {
				routes = append(routes, x.Route)
			}
			return routes
		}
		expect := func(want ...string) {
			t.Helper()
			if got := shown(); !reflect.DeepEqual(got, want) {
				t.Errorf("after %v: series %v, want %v", time.Since(time.Time{}), got, want)
			}
		}
		stays, goes := r.Exchange(ExchangeLabels{Route: "stays"}), r.Exchange(ExchangeLabels{Route: "goes"})
		stays.Observe(0, 200, 0, 0, 0)
		goes.Observe(0, 200, 0, 0, 0)
		r.Unrouted().Observe(0, 404, 0, 0, 0)
		r.Keep(InUse{Exchanges: []*Exchange{stays, goes}})
		time.Sleep(time.Hour)
		expect("", "goes", "stays")

		r.Keep(InUse{Exchanges: []*Exchange{stays}})
		time.Sleep(59 * time.Second)
		expect("", "goes", "stays")
		if r.Exchange(ExchangeLabels{Route: "goes"}) != goes {
			t.Error("a series that came back in time started anew")
		}
		time.Sleep(time.Hour)
		expect("", "goes", "stays")

		r.Keep(InUse{Exchanges: []*Exchange{stays}})
		time.Sleep(30 * time.Second)
		r.Keep(InUse{Exchanges: []*Exchange{stays}}) // does not start the grace time again
		time.Sleep(30 * time.Second)
		expect("", "stays")

		// There is room again, and a series that returns starts anew.
		back := r.Exchange(ExchangeLabels{Route: "goes"})
		before := r.Snapshot()
		back.Observe(0, 200, 0, 0, 0)
		goes.Observe(0, 200, 0, 0, 0)
		for _, x := range r.Snapshot().Since(before).Exchanges {
			if x.Route == "goes" && x.Requests != 1 {
				t.Errorf("the new series has %d requests", x.Requests)
			}
		}
	})
}

func TestOpenConnectionsAreWhatWasOpenedLessWhatWasClosed(t *testing.T) {
	l := New().Listener("default/gw/http")
	for i := range uint32(10) {
		l.Opened(i)
	}
	for i := range uint32(4) {
		l.Closed(i + 3)
	}
	if total, open := l.Connections(); total != 10 || open != 6 {
		t.Fatalf("total %d, open %d", total, open)
	}
}

func TestWeightsAreBounded(t *testing.T) {
	r := NewRegistry(Options{MaxSeries: 3})
	r.WatchWeights(func(yield func(ExchangeLabels, float64)) {
		for i := range 100 {
			yield(ExchangeLabels{Route: fmt.Sprint("ns/", i)}, 1)
		}
	})
	page := httptest.NewRecorder()
	r.Handler().ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	if n := strings.Count(page.Body.String(), "\nweir_backend_weight_ratio{"); page.Code != 200 || n != 3 {
		t.Errorf("the page has status %d and %d weights, want 200 and 3", page.Code, n)
	}
}
