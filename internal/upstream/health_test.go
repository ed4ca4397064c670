package upstream

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestConsecutiveFailuresEject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var network pipes
		s := New(Options{dial: network.dial})
		defer s.Close()
		e := one(t, s, "10.0.0.1:80")
		e.Failed()
		e.Failed()
		e.Succeeded()
		e.Failed()
		e.Failed()
		if !e.Healthy() {
			t.Fatal("ejected though failures were not consecutive")
		}
		e.Failed()
		if e.Healthy() {
			t.Fatal("not ejected after three failures in a row")
		}
		if st := e.Stats(); st.Ejections != 1 || st.Failures != 5 || st.Healthy {
			t.Errorf("%+v", st)
		}
	})
}

func TestEjectionsGrowAndAreHalfOpenForOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		network := pipes{}
		s := New(Options{dial: network.dial, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		defer s.Close()
		svc := apply(t, s, config("10.0.0.1:80", "10.0.0.2:80"))
		bad, good := svc.Endpoints()[0], svc.Endpoints()[1]
		network.set(bad.Address, syscall.ECONNREFUSED)
		for range 3 {
			if _, err := bad.Dial(time.Time{}); err == nil {
				t.Fatal("connected")
			}
		}
		probes := func(n int) (found int) {
			for range n {
				if svc.Pick(nil) == bad {
					found++
				}
			}
			return found
		}
		for _, d := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
			d *= time.Second
			time.Sleep(d - time.Millisecond)
			if n := probes(100); n != 0 {
				t.Fatalf("chosen %d times before its ejection of %v was over", n, d)
			}
			time.Sleep(time.Millisecond)
			if n := probes(100); n != 1 {
				t.Fatalf("chosen %d times when half open, want once", n)
			}
			bad.Dial(time.Time{}) // the probe fails
		}
		time.Sleep(30 * time.Second)
		if n := probes(1000); n != 1 {
			t.Fatalf("chosen %d times when half open, want once", n)
		}
		network.set(bad.Address, nil)
		c, err := bad.Dial(time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		exchange(t, c, "well again")
		bad.Succeeded()
		bad.Put(c)
		if n := probes(1000); n < 300 || !bad.Healthy() {
			t.Errorf("chosen %d times of 1000 after its recovery", n)
		}
		if st := good.Stats(); st.Failures != 0 {
			t.Errorf("the other endpoint: %+v", st)
		}
		for range 3 { // soon again: it starts where it was
			bad.Failed()
		}
		time.Sleep(29 * time.Second)
		if n := probes(100); n != 0 {
			t.Error("a flapping endpoint was ejected for a short time only")
		}
		time.Sleep(time.Second)
		probes(100)
		bad.Succeeded()
		time.Sleep(2 * time.Minute)
		for range 3 { // long after
			bad.Failed()
		}
		time.Sleep(time.Second)
		if n := probes(100); n != 1 {
			t.Errorf("chosen %d times a second after a first ejection in a long time, want once", n)
		}
		for _, want := range []string{"endpoint ejected", "for=30s", "endpoint recovered", "endpoint=10.0.0.1:80"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log lacks %q", want)
			}
		}
	})
}

func TestAProbeThatNeverReportsLetsAnotherThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{ConnectTimeout: 4 * time.Second})
		defer s.Close()
		svc := apply(t, s, config("10.0.0.1:80", "10.0.0.2:80"))
		bad := svc.Endpoints()[0]
		for range 3 {
			bad.Failed()
		}
		for range 3 {
			time.Sleep(4 * time.Second)
			n := 0
			for range 100 {
				if svc.Pick(nil) == bad {
					n++
				}
			}
			if n != 1 {
				t.Fatalf("%d probes in a period, want 1", n)
			}
		}
	})
}

func TestLateFailuresDoNotLengthenAnEjection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{})
		defer s.Close()
		svc := apply(t, s, config("10.0.0.1:80", "10.0.0.2:80"))
		e := svc.Endpoints()[0]
		for range 50 { // as when a backend with many requests dies
			e.Failed()
		}
		if st := e.Stats(); st.Ejections != 1 || st.Failures != 50 {
			t.Errorf("%+v", st)
		}
		time.Sleep(time.Second)
		n := 0
		for range 100 {
			if svc.Pick(nil) == e {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%d probes after a second, want 1", n)
		}
	})
}

func TestEjectionCanBeSwitchedOff(t *testing.T) {
	s := newSet(t, Options{EjectAfter: -1})
	e := one(t, s, "10.0.0.1:80")
	for range 100 {
		e.Failed()
	}
	if st := e.Stats(); !st.Healthy || st.Failures != 100 {
		t.Errorf("%+v", st)
	}
}

func TestAnEndpointThatResetsIsEjectedByItsUser(t *testing.T) {
	srv := echoServer(t)
	svc := apply(t, newSet(t, Options{}), config(srv.address(), refused(t)))
	e := svc.Endpoints()[0]
	for range 3 {
		c, _, err := e.Get(time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, "reset\n")
		if _, err := c.Fill(); !errors.Is(err, syscall.ECONNRESET) {
			t.Fatalf("%v", err)
		}
		e.Failed()
		c.Close()
	}
	if e.Healthy() {
		t.Error("still healthy")
	}
}

func TestHealthUnderParallelReports(t *testing.T) {
	s := newSet(t, Options{EjectAfter: 1})
	svc := apply(t, s, config("10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"))
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for range 2000 {
				e := svc.Pick(nil)
				if e == nil {
					t.Error("no endpoint")
					return
				}
				if w%2 == 0 {
					e.Failed()
				} else {
					e.Succeeded()
				}
			}
		})
	}
	wg.Wait()
	for _, e := range svc.Endpoints() {
		e.Succeeded()
		if !e.Healthy() {
			t.Errorf("%s is ejected after a success", e.Address)
		}
	}
}
