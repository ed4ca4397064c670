package task

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.DiscardHandler)

// until blocks as tasks do.
func until(ctx context.Context) error { <-ctx.Done(); return nil }

// counted is a task that counts its starts, and fails as often as the test says.
type counted struct {
	began    atomic.Int64
	failures int64
	err      error
}

func (c *counted) run(ctx context.Context) error {
	if c.began.Add(1) <= c.failures {
		return c.err
	}
	return until(ctx)
}

// start runs a group in a bubble, and returns a function that ends it.
func start(g *Group) (end func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	synctest.Wait()
	return func() error { cancel(); return <-ended }
}

func status(t *testing.T, g *Group, name string) Status {
	t.Helper()
	all := g.Status()
	i := slices.IndexFunc(all, func(s Status) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("%v lacks %s", all, name)
	}
	return all[i]
}

func TestATaskThatFailsBeginsAgainAndStopsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad, good := &counted{failures: 1 << 40, err: errors.New("no luck")}, &counted{}
		g := NewGroup(quiet, Task{Name: "bad", Run: bad.run}, Task{Name: "good", Run: good.run})
		end := start(g)
		// The task starts at 0, 1, 3, 7, 15, 31, 63 s, then every minute.
		for _, want := range []struct {
			after time.Duration
			begun int64
		}{{0, 1}, {time.Second, 2}, {time.Second, 2}, {time.Second, 3}, {60 * time.Second, 7}, {time.Minute, 8}, {time.Minute, 9}} {
			time.Sleep(want.after)
			synctest.Wait()
			if n := bad.began.Load(); n != want.begun {
				t.Errorf("after a further %v it has begun %d times, want %d", want.after, n, want.begun)
			}
		}
		s := status(t, g, "bad")
		if s.State != Failed || s.Failures != 9 || s.LastError != "no luck" || s.LastFailure.IsZero() {
			t.Errorf("status %+v", s)
		}
		if s := status(t, g, "good"); s.State != Running || s.Failures != 0 || good.began.Load() != 1 {
			t.Errorf("the other: %+v, begun %d times", s, good.began.Load())
		}
		if err := end(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func TestATaskThatDidWellForAWhileBeginsAgainSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var began []time.Time
		g := NewGroup(quiet, Task{Name: "long", Run: func(ctx context.Context) error {
			began = append(began, time.Now())
			if len(began) > 3 { // after consecutive failures
				time.Sleep(mostPause)
			}
			return errors.New("over")
		}})
		end := start(g)
		time.Sleep(5 * time.Minute)
		_ = end()
		if last := began[5].Sub(began[4]); last != mostPause+leastPause {
			t.Errorf("began %v after it had begun and run for %v", last, mostPause)
		}
	})
}

func TestAPanicIsAFailureOfItsTaskAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		other, n := &counted{}, 0
		g := NewGroup(slog.New(slog.NewTextHandler(&log, nil)), Task{Name: "other", Run: other.run}, Task{Name: "panics", Run: func(ctx context.Context) error {
			if n++; n == 1 {
				var nobody *counted
				_ = nobody.err
			}
			return until(ctx)
		}})
		end := start(g)
		if s := status(t, g, "panics"); s.State != Failed || !strings.Contains(s.LastError, "nil pointer") {
			t.Errorf("status %+v", s)
		}
		time.Sleep(leastPause)
		synctest.Wait()
		if s := status(t, g, "panics"); s.State != Running || s.Failures != 1 {
			t.Errorf("it has not begun again: %+v", s)
		}
		if s := status(t, g, "other"); s.State != Running || other.began.Load() != 1 {
			t.Errorf("the other: %+v", s)
		}
		if err := end(); err != nil {
			t.Error(err)
		}
		if !strings.Contains(log.String(), "group_test.go") {
			t.Errorf("the log does not say where:\n%s", &log)
		}
	})
}

func TestTheProcessEndsWhenAVitalTaskFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		vital, other := &counted{failures: 1, err: broken}, &counted{}
		g := NewGroup(quiet, Task{Name: "vital", Vital: true, Run: vital.run}, Task{Name: "other", Run: other.run})
		if err := g.Run(t.Context()); !errors.Is(err, broken) {
			t.Errorf("Run: %v", err)
		}
		if s := status(t, g, "other"); s.State != StandBy || vital.began.Load() != 1 {
			t.Errorf("the other: %+v", s)
		}
	})
}

func TestLosingTheLeaseEndsTheTasksThatNeedItAndNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared, mine := &counted{}, &counted{}
		slow := false // still at work
		g := NewGroup(quiet, Task{Name: "shared", Run: shared.run}, Task{Name: "mine", Lease: true, Run: mine.run}, Task{Name: "slow", Lease: true, Run: func(ctx context.Context) error {
			slow = true
			<-ctx.Done()
			time.Sleep(time.Second)
			slow = false
			return ctx.Err()
		}})
		end := start(g)
		if mine.began.Load() != 0 || g.Leading() || status(t, g, "mine").State != StandBy {
			t.Error("a task that needs the lease runs without")
		}
		for term := range int64(2) {
			ctx, lose := context.WithCancel(context.Background())
			ended := make(chan struct{})
			go func() { g.Lead(ctx); close(ended) }()
			synctest.Wait()
			if mine.began.Load() != term+1 || !g.Leading() || status(t, g, "mine").State != Running {
				t.Errorf("with the lease: %+v", status(t, g, "mine"))
			}
			lose()
			<-ended
			if slow || g.Leading() {
				t.Error("Lead has returned before all its tasks")
			}
			for name, want := range map[string]State{"mine": StandBy, "slow": StandBy, "shared": Running} {
				if s := status(t, g, name); s.State != want || s.Failures != 0 {
					t.Errorf("without the lease: %+v, want %s", s, want)
				}
			}
		}
		if shared.began.Load() != 1 {
			t.Errorf("the other began %d times", shared.began.Load())
		}
		_ = end()
	})
}

func TestATaskWaitsForWhatItNeedsEachTimeItBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var first, second Gate
		c := &counted{failures: 1, err: errors.New("no")}
		g := NewGroup(quiet, Task{Name: "late", Run: c.run, After: []func() <-chan struct{}{first.Opened, second.Opened}})
		end := start(g)
		first.Open()
		synctest.Wait()
		if c.began.Load() != 0 || status(t, g, "late").State != Waiting {
			t.Errorf("it did not wait for all: %+v", status(t, g, "late"))
		}
		second.Open()
		synctest.Wait()
		first.Shut()
		time.Sleep(time.Minute)
		if c.began.Load() != 1 || status(t, g, "late").State != Waiting {
			t.Errorf("it did not wait again: %+v", status(t, g, "late"))
		}
		first.Open()
		synctest.Wait()
		if c.began.Load() != 2 || status(t, g, "late").State != Running {
			t.Errorf("it does not run: %+v", status(t, g, "late"))
		}
		_ = end()
	})
}

func TestReadinessWaitsForTasksThatSaySo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var feed, hook atomic.Bool
		ready := func(is *atomic.Bool, why string) func() (bool, string) {
			return func() (bool, string) { return is.Load(), why }
		}
		g := NewGroup(quiet,
			Task{Name: "silent", Run: func(context.Context) error { return errors.New("never") }},
			Task{Name: "feed", Run: until, Ready: ready(&feed, "")},
			Task{Name: "hook", Run: until, Ready: ready(&hook, "some versions only")},
			Task{Name: "mine", Lease: true, Run: until},
		)
		end := start(g)
		if ok, _ := g.Ready(); ok {
			t.Error("ready before its tasks")
		}
		feed.Store(true)
		if ok, why := g.Ready(); ok || why != "some versions only" {
			t.Errorf("%v, %q", ok, why)
		}
		hook.Store(true)
		if ok, why := g.Ready(); !ok || why != "some versions only" {
			t.Errorf("%v, %q: a task that fails and says nothing of readiness holds it up", ok, why)
		}
		_ = end()
	})
}

func TestATaskWithNothingLeftToDoIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGroup(quiet, Task{Name: "once", Run: func(context.Context) error { return nil }}, Task{Name: "other", Run: until})
		end := start(g)
		time.Sleep(time.Hour)
		if s := status(t, g, "once"); s.State != Done {
			t.Errorf("%+v", s)
		}
		if s := status(t, g, "other"); s.State != Running {
			t.Errorf("the other: %+v", s)
		}
		_ = end()
	})
}

func TestAListThatIsWrongIsRefused(t *testing.T) {
	for name, tasks := range map[string][]Task{
		"no Run":         {{Name: "a"}},
		"no name":        {{Run: until}},
		"a name twice":   {{Name: "a", Run: until}, {Name: "a", Run: until}},
		"leased, vital":  {{Name: "a", Run: until, Lease: true, Vital: true}},
		"leased, wanted": {{Name: "a", Run: until, Lease: true, Ready: func() (bool, string) { return true, "" }}},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s is accepted", name)
				}
			}()
			NewGroup(quiet, tasks...)
		}()
	}
}

func TestAnErrorThatIsKeptIsBounded(t *testing.T) {
	e := &entry{}
	e.fail(errors.New(strings.Repeat("ü", maxError)))
	if s := e.status.LastError; len(s) > maxError || strings.Trim(s, "ü") != "" {
		t.Errorf("%d bytes", len(s))
	}
}
