package upstream

import (
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestOneAsksForAllWhetherAnEndpointIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := pipes{}
		s := New(Options{dial: network.dial})
		defer s.Close()
		e := apply(t, s, config("10.0.0.1:80")).Endpoints()[0]
		asked := func() (n int) {
			for range 10 {
				if e.Again() {
					n++
				}
			}
			return n
		}
		if n := asked(); n != 10 {
			t.Fatalf("%d of 10 may use an endpoint that is there", n)
		}
		network.set(e.Address, syscall.ECONNREFUSED)
		for range 3 {
			if _, err := e.Dial(time.Time{}); err == nil {
				t.Fatal("connected")
			}
		}
		if n := asked(); n != 0 {
			t.Errorf("%d ask again at once, want none", n)
		}
		for range 3 {
			time.Sleep(AskAgain)
			if n := asked(); n != 1 {
				t.Errorf("%d ask again, want one", n)
			}
		}
		network.set(e.Address, nil)
		c, err := e.Dial(time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		if n := asked(); n != 10 {
			t.Errorf("%d of 10 may use an endpoint that is back", n)
		}
		// Its proxy is there, and the application behind is not.
		e.unreached(true)
		e.reached(false)
		if n := asked(); n != 0 {
			t.Errorf("%d ask again, although nobody has reached the application", n)
		}
		e.Answered(200)
		if n := asked(); n != 10 {
			t.Errorf("%d of 10 may use an application that is back", n)
		}
	})
}

func TestAServiceKnowsSinceWhenItHasNoEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{})
		defer s.Close()
		time.Sleep(time.Second) // a moment of 0 would be none
		for _, step := range []struct {
			addresses []string
			ago       time.Duration
			ok        bool
		}{
			{nil, 0, false}, {[]string{"10.0.0.1:80"}, 0, false}, {nil, 0, true}, {nil, time.Second, true}, {[]string{"10.0.0.2:80"}, 0, false}, {nil, 0, true},
		} {
			if step.ago > 0 {
				time.Sleep(step.ago)
			}
			ago, ok := apply(t, s, config(step.addresses...)).Emptied()
			if ok != step.ok || ok && ago != step.ago {
				t.Errorf("%q: %s ago, %t; want %s, %t", step.addresses, ago, ok, step.ago, step.ok)
			}
		}
	})
}
