package upstream

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirmesh/weir/internal/model"
)

func TestConsecutiveFailuresEject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var network pipes
		s := New(Options{dial: network.dial})
		defer s.Close()
		e := apply(t, s, config("10.0.0.1:80", "10.0.0.2:80")).Endpoints()[0]
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
	e := apply(t, s, config("10.0.0.1:80", "10.0.0.2:80")).Endpoints()[0]
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

// with is config with a policy.
func with(edit func(*model.Service), addresses ...string) *model.Config {
	cfg := config(addresses...)
	edit(&cfg.Services[0])
	return cfg
}

func to[T any](v T) *T { return &v }

func hosts(n int) (all []string) {
	for i := range n {
		all = append(all, "10.0.1."+strconv.Itoa(i)+":80")
	}
	return all
}

func ejected(svc *Service) (n int) {
	for _, e := range svc.Endpoints() {
		if e.Stats().Ejected {
			n++
		}
	}
	return n
}

func TestAShareOfTheEndpointsStaysInUse(t *testing.T) {
	for _, x := range []struct {
		percent *int
		n, most int
	}{
		{nil, 1, 0}, {nil, 2, 1}, {nil, 3, 1}, {nil, 4, 2}, {nil, 10, 5},
		{to(0), 10, 0}, {to(100), 1, 0}, {to(100), 2, 1}, {to(100), 10, 9}, {to(33), 10, 3},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := New(Options{})
			defer s.Close()
			svc := apply(t, s, with(func(m *model.Service) { m.Ejection = &model.Ejection{MaxPercent: x.percent} }, hosts(x.n)...))
			for _, e := range svc.Endpoints() {
				eject(e)
			}
			if got := ejected(svc); got != x.most {
				t.Fatalf("%d of %d ejected, want %d", got, x.n, x.most)
			}
			var denied uint64
			for _, e := range svc.Endpoints() {
				denied += e.Stats().Denied
			}
			if denied != uint64(x.n-x.most) {
				t.Errorf("%d ejections denied, want %d", denied, x.n-x.most)
			}
			if x.most == 0 || x.most == x.n {
				return
			}
			// One recovers: another one that still fails takes its place.
			svc.Endpoints()[0].Succeeded()
			last := svc.Endpoints()[x.n-1]
			last.Failed()
			if got := ejected(svc); got != x.most || !last.Stats().Ejected {
				t.Errorf("%d of %d ejected after one recovered, want %d", got, x.n, x.most)
			}
		})
	}
}

func TestTheLastEndpointThatPassesItsCheckIsNotEjected(t *testing.T) {
	s := newSet(t, Options{})
	svc := apply(t, s, with(func(m *model.Service) { m.Ejection = &model.Ejection{MaxPercent: to(100)} }, hosts(3)...))
	sicken(svc.Endpoints()[0])
	sicken(svc.Endpoints()[1])
	eject(svc.Endpoints()[2])
	if ejected(svc) != 0 {
		t.Error("ejected the only one that passes its check")
	}
}

func TestEjectionsThatAreTooManyForASmallerServiceEnd(t *testing.T) {
	s := newSet(t, Options{})
	all := hosts(4)
	svc := apply(t, s, config(all...))
	eject(svc.Endpoints()[0])
	eject(svc.Endpoints()[1])
	if ejected(svc) != 2 {
		t.Fatalf("%d ejected", ejected(svc))
	}
	if svc = apply(t, s, config(all[:3]...)); ejected(svc) != 1 {
		t.Errorf("%d of 3 ejected, want 1", ejected(svc))
	}
	if svc = apply(t, s, config(all[:1]...)); ejected(svc) != 0 {
		t.Error("the only endpoint is ejected")
	}
}

func TestAnEndpointOfTwoServicesIsEjectedOnlyIfBothCanSpareIt(t *testing.T) {
	s := newSet(t, Options{})
	all := hosts(4)
	cfg := config(all...)
	cfg.Services = append(cfg.Services, service("ns/other:80", all[0]))
	svc := apply(t, s, cfg)
	eject(svc.Endpoints()[0])
	eject(svc.Endpoints()[1])
	if svc.Endpoints()[0].Stats().Ejected || !svc.Endpoints()[1].Stats().Ejected {
		t.Error("want the second ejected, not the first, which is the other service's only one")
	}
}

func TestGatewayErrorsEjectWhereTheServiceSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{})
		defer s.Close()
		silent := apply(t, s, config(hosts(2)...)).Endpoints()[0]
		for range 20 {
			silent.Answered(503)
			silent.TimedOut()
		}
		if !silent.Healthy() {
			t.Fatal("ejected though nobody asked for it")
		}
		svc := apply(t, s, with(func(m *model.Service) { m.Ejection = &model.Ejection{GatewayErrors: 4} }, hosts(2)...))
		e := svc.Endpoints()[0]
		for _, status := range []int{502, 503, 504, 500, 503, 503, 503, 200, 404, 504, 503, 429} {
			e.Answered(status)
		}
		if !e.Healthy() {
			t.Fatal("ejected though there were not four in a row")
		}
		e.Answered(502)
		e.TimedOut()
		e.Answered(503)
		e.Answered(504)
		if e.Healthy() {
			t.Fatal("not ejected after four in a row")
		}
		// The probe decides: another such answer lengthens the ejection.
		time.Sleep(time.Second)
		if n := picks(svc, e, 100); n != 1 {
			t.Fatalf("%d probes", n)
		}
		e.Answered(503)
		time.Sleep(time.Second)
		if n := picks(svc, e, 100); n != 0 {
			t.Fatal("probed again after a second, want two")
		}
		time.Sleep(time.Second)
		if n := picks(svc, e, 100); n != 1 {
			t.Fatalf("%d probes", n)
		}
		e.Answered(200)
		if !e.Healthy() {
			t.Error("a good answer to the probe did not end the ejection")
		}
	})
}

func picks(svc *Service, e *Endpoint, of int) (n int) {
	for range of {
		if svc.Pick(nil) == e {
			n++
		}
	}
	return n
}

// An endpoint that swallows connections is ejected before the connects have timed out.
func TestAnEndpointThatDoesNotAnswerConnectsIsEjectedWithinTwoSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}})
		defer s.Close()
		svc := apply(t, s, config(hosts(2)...))
		e := svc.Endpoints()[0]
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { e.Dial(time.Time{}) })
		}
		time.Sleep(2 * time.Second)
		if e.Healthy() {
			t.Error("not ejected after two seconds")
		}
		wg.Wait()
		if st := e.Stats(); st.Failures != 3 {
			t.Errorf("%d failures of 3 connects", st.Failures)
		}
	})
}

// Under steady traffic a dead endpoint of three causes a bounded number of failures: those that eject it, and one for
// each probe.
func TestADeadEndpointCausesBoundedFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := pipes{}
		s := New(Options{dial: network.dial})
		defer s.Close()
		svc := apply(t, s, config(hosts(3)...))
		dead := svc.Endpoints()[0]
		network.set(dead.Address, syscall.ECONNREFUSED)
		failures := 0
		for range 60_000 { // a minute of 1,000 requests a second
			e := svc.Pick(nil)
			if e == dead {
				failures++
				if _, err := e.Dial(time.Time{}); err == nil {
					t.Fatal("connected")
				}
			} else {
				e.Succeeded()
			}
			time.Sleep(time.Millisecond)
		}
		// Three, and probes after 1, 2, 4, 8, 16 seconds.
		if failures > 3+6 {
			t.Errorf("%d of 60,000 requests failed", failures)
		}
		network.set(dead.Address, nil)
		time.Sleep(ejectMax)
		for range 100 {
			if e := svc.Pick(nil); e == dead {
				c, err := e.Dial(time.Time{})
				if err != nil {
					t.Fatal(err)
				}
				c.Close()
				e.Succeeded()
			}
		}
		if n := picks(svc, dead, 3000); n < 800 {
			t.Errorf("picked %d times of 3000 after its recovery", n)
		}
	})
}

// Slowness while this process cannot keep up is not the endpoint's fault.
func TestNothingIsTooSlowForAStrainedProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{Strained: func() bool { return true }, dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}})
		defer s.Close()
		e := apply(t, s, with(checkOf(model.CheckTCP), hosts(2)...)).Endpoints()[0]
		for range 5 {
			if _, err := e.Dial(time.Time{}); err == nil {
				t.Fatal("connected")
			}
		}
		time.Sleep(time.Minute)
		if st := e.Stats(); st.Failures != 0 || !st.Healthy {
			t.Errorf("%+v", st)
		}
	})
}
