package telemetry

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
)

func all(*Tapped) bool { return true }

func TestATapShowsWhatMatches(t *testing.T) {
	r := New()
	if r.Taps() != nil {
		t.Fatal("a tap is open")
	}
	gets, err := r.Tap(1000, func(x *Tapped) bool { return x.Method == "GET" })
	if err != nil {
		t.Fatal(err)
	}
	path := []byte("/a?")
	for _, method := range []string{"GET", "POST", "GET"} {
		for _, tap := range r.Taps() {
			tap.Offer(&Tapped{Method: method, Path: unsafe.String(&path[0], 2)})
		}
	}
	path[1] = 'x' // the request's memory is used again
	if n := gets.Counts(); n != (TapCounts{Matched: 2, Shown: 2}) || len(gets.Requests()) != 2 {
		t.Errorf("%+v, %d requests", n, len(gets.Requests()))
	}
	if x := <-gets.Requests(); x.Path != "/a" || x.Method != "GET" {
		t.Errorf("%+v", x)
	}
	r.CloseTap(gets)
	if r.Taps() != nil {
		t.Error("a tap stays open")
	}
	r.CloseTap(gets) // once more does no harm
}

func TestATapKeepsNobodyWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New()
		tap, _ := r.Tap(100, all)
		offer := func(n int) {
			for range n {
				long := strings.Repeat("/", 10_000)
				tap.Offer(&Tapped{Method: long, Host: long, Path: long})
			}
		}
		offer(1000) // a second's at once, and no more
		if n := tap.Counts(); n.Matched != 1000 || n.Shown != 100 {
			t.Errorf("%+v", n)
		}
		if x := <-tap.Requests(); len(x.Path) != maxTapped || len(x.Host) != maxTapped || len(x.Method) != maxTapped {
			t.Errorf("a path of %d bytes, a host of %d, a method of %d", len(x.Path), len(x.Host), len(x.Method))
		}
		time.Sleep(500 * time.Millisecond)
		offer(1000)
		if n := tap.Counts(); n.Shown != 150 {
			t.Errorf("%+v after half a second", n)
		}
		for range 10 { // nobody reads: the queue is full
			time.Sleep(time.Second)
			offer(1000)
		}
		if n := tap.Counts(); n.Shown != 1+tapQueue || n.Matched != 12_000 {
			t.Errorf("%+v of a queue of %d", n, tapQueue)
		}
	})
}

func TestTapsAreBounded(t *testing.T) {
	r := New()
	var open []*Tap
	for range maxTaps {
		tap, err := r.Tap(0, all)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, tap)
	}
	if _, err := r.Tap(1, all); err != ErrTaps {
		t.Fatalf("one more: %v", err)
	}
	var wg sync.WaitGroup
	for _, tap := range open {
		wg.Go(func() {
			for _, o := range r.Taps() {
				o.Offer(&Tapped{})
			}
			r.CloseTap(tap)
		})
	}
	wg.Wait()
	if _, err := r.Tap(1, all); err != nil {
		t.Errorf("after they closed: %v", err)
	}
}
