package upstream

import (
	"fmt"
	"testing"
)

func TestPickWithFewEndpoints(t *testing.T) {
	s := newSet(t, Options{})
	if e := apply(t, s, config()).Pick(nil); e != nil {
		t.Errorf("picked %v of none", e)
	}
	svc := apply(t, s, config("10.0.0.1:80"))
	only := svc.Endpoints()[0]
	if svc.Pick(nil) != only || svc.Pick(only) != only {
		t.Error("did not pick the only endpoint")
	}
	eject(only)
	sicken(only)
	if svc.Pick(nil) != only || only.Stats().Ejected {
		t.Error("did not pick the only endpoint when it is bad, or ejected it")
	}
}

func TestPickPrefersWhatHasLessInFlight(t *testing.T) {
	svc := apply(t, newSet(t, Options{}), config("10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80", "10.0.0.4:80"))
	picked := map[*Endpoint]int{}
	for range 4000 { // nobody finishes: the loads stay even
		e := svc.Pick(nil)
		e.inFlight.Add(1)
		picked[e]++
	}
	for _, e := range svc.Endpoints() {
		if n := picked[e]; n < 980 || n > 1020 {
			t.Errorf("%s was picked %d times of 4000", e.Address, n)
		}
	}
	busiest := svc.Endpoints()[2]
	busiest.inFlight.Add(1000)
	for range 1000 {
		if svc.Pick(nil) == busiest {
			t.Fatal("picked the busiest of two")
		}
	}
}

func TestPickIsEvenAmongIdleEndpoints(t *testing.T) {
	svc := apply(t, newSet(t, Options{}), config("10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"))
	picked := map[*Endpoint]int{}
	for range 9000 {
		picked[svc.Pick(nil)]++
	}
	for _, e := range svc.Endpoints() {
		if n := picked[e]; n < 2600 || n > 3400 {
			t.Errorf("%s was picked %d times of 9000", e.Address, n)
		}
	}
}

func TestPickAvoidsTheEndpointOfARetry(t *testing.T) {
	for n := 2; n <= 5; n++ {
		var addresses []string
		for i := range n {
			addresses = append(addresses, fmt.Sprintf("10.0.0.%d:80", i))
		}
		svc := apply(t, newSet(t, Options{}), config(addresses...))
		avoid := svc.Endpoints()[n/2]
		for range 200 {
			if svc.Pick(avoid) == avoid {
				t.Fatalf("picked the avoided one of %d", n)
			}
		}
		for _, e := range svc.Endpoints() {
			if e != avoid {
				sicken(e)
			}
		}
		for range 200 {
			if svc.Pick(avoid) != avoid {
				t.Fatalf("did not pick the only healthy one of %d, though it is to be avoided", n)
			}
		}
		sicken(avoid)
		for range 200 {
			if e := svc.Pick(avoid); e == nil || e == avoid {
				t.Fatalf("of %d bad ones picked %v", n, e)
			}
		}
	}
}

// TestAnotherEndpointIsOneThatAnsweredLast, and one of which nothing is known before one that is ejected.
func TestAnotherEndpointIsOneThatAnsweredLast(t *testing.T) {
	svc := apply(t, newSet(t, Options{}), config("10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80", "10.0.0.4:80", "10.0.0.5:80"))
	first, failed, answers, unknown, bad := svc.Endpoints()[0], svc.Endpoints()[1], svc.Endpoints()[2], svc.Endpoints()[3], svc.Endpoints()[4]
	failed.Succeeded()
	failed.Failed()
	answers.Succeeded()
	eject(bad)
	for range 200 {
		if e := svc.PickOther([]*Endpoint{first}); e != answers {
			t.Fatalf("picked %v", e.Address)
		}
		if e := svc.PickOther([]*Endpoint{first, answers}); e != failed && e != unknown {
			t.Fatalf("picked %v", e.Address)
		}
	}
	if e := svc.PickOther([]*Endpoint{first, answers, failed, unknown}); e != bad {
		t.Errorf("picked %v", e)
	}
	if e := svc.PickOther(svc.Endpoints()); e != nil {
		t.Errorf("picked %v, and all were tried", e)
	}
}

// eject makes the endpoint fail as often as its ejection takes.
func eject(e *Endpoint) {
	for range 3 {
		e.Failed()
	}
}

// sicken is what an active check does.
func sicken(e *Endpoint) { e.health.failing.Store(true) }

func TestPickUsesAllWhenNoneIsHealthy(t *testing.T) {
	svc := apply(t, newSet(t, Options{}), config("10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"))
	for _, e := range svc.Endpoints() {
		sicken(e)
	}
	picked := map[*Endpoint]int{}
	for range 300 {
		picked[svc.Pick(nil)]++
	}
	if len(picked) != 3 || picked[nil] != 0 {
		t.Errorf("picked %v", picked)
	}
}

func TestPickFindsTheOneHealthyAmongMany(t *testing.T) {
	var addresses []string
	for i := range 100 {
		addresses = append(addresses, fmt.Sprintf("10.0.0.%d:80", i))
	}
	svc := apply(t, newSet(t, Options{}), config(addresses...))
	healthy := map[*Endpoint]bool{}
	for i, e := range svc.Endpoints() {
		if i == 17 || i == 18 {
			healthy[e] = true
		} else {
			sicken(e)
		}
	}
	seen := map[*Endpoint]bool{}
	for range 1000 {
		e := svc.Pick(nil)
		if !healthy[e] {
			t.Fatalf("picked the sick %s", e.Address)
		}
		seen[e] = true
		e.inFlight.Add(1)
	}
	if len(seen) != 2 {
		t.Error("one of two healthy endpoints took everything")
	}
}

func TestPickAllocatesNothing(t *testing.T) {
	svc := apply(t, newSet(t, Options{}), config("10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"))
	eject(svc.Endpoints()[0])
	if n := testing.AllocsPerRun(1000, func() { svc.Pick(svc.Endpoints()[1]) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
