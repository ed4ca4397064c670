package workload

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// clock is a time of day that can be set, beside the time that passes.
type clock struct{ by atomic.Int64 }

func (c *clock) set(by time.Duration) { c.by.Store(int64(by)) }

func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.by.Load())) }

// loudest is the highest level of what was logged since the last time.
func (l *levels) loudest() (level slog.Level) {
	l.mu.Lock()
	defer l.mu.Unlock()
	level = slog.LevelDebug
	for _, one := range l.seen {
		level = max(level, one)
	}
	l.seen = nil
	return level
}

// TestAClockThatIsSet has the clock of a pod, and that of the controller, put forward and back at all times of a certificate's
// life, and put right after some time.
func TestAClockThatIsSet(t *testing.T) {
	for name, c := range map[string]struct {
		pod, controller time.Duration
		after           time.Duration // of the first certificate's life
		// lost means that there is no identity while the clocks disagree, renewed that it is renewed all the same.
		lost, renewed bool
		loud          slog.Level
	}{
		"an hour forward":                  {pod: time.Hour, after: time.Minute, renewed: true, loud: slog.LevelWarn},
		"an hour forward, late":            {pod: time.Hour, after: 14 * time.Hour, renewed: true, loud: slog.LevelWarn},
		"an hour back":                     {pod: -time.Hour, after: time.Minute, renewed: true, loud: slog.LevelWarn},
		"an hour back, late":               {pod: -time.Hour, after: 14 * time.Hour, renewed: true, loud: slog.LevelWarn},
		"a day back, late":                 {pod: -24 * time.Hour, after: 14 * time.Hour, loud: slog.LevelError},
		"three hours back":                 {pod: -3 * time.Hour, after: time.Minute, loud: slog.LevelError},
		"ten hours forward":                {pod: 10 * time.Hour, after: 8 * time.Hour, renewed: true, loud: slog.LevelWarn},
		"two days forward":                 {pod: 48 * time.Hour, after: time.Hour, lost: true, loud: slog.LevelError},
		"the controller's an hour forward": {controller: time.Hour, after: time.Minute, renewed: true, loud: slog.LevelInfo},
		"the controller's an hour back":    {controller: -time.Hour, after: time.Minute, renewed: true, loud: slog.LevelInfo},
		"the controller's three forward":   {controller: 3 * time.Hour, after: time.Minute, loud: slog.LevelError},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				var here, there clock
				w.issuer.Now = there.now
				log := &levels{}
				s := &Source{Sign: w.sign, Logger: slog.New(log), Now: here.now}
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error)
				go func() { ended <- s.Run(ctx) }()
				defer func() {
					cancel()
					if err := <-ended; err != nil {
						t.Error(err)
					}
				}()
				time.Sleep(c.after)
				synctest.Wait()
				first := s.Identity()
				if first == nil {
					t.Fatal("no identity")
				}
				log.loudest()
				asked := w.count()
				here.set(c.pod)
				there.set(c.controller)
				long := 20 * time.Hour // by then it would be renewed in any case
				if !c.renewed && c.pod != 0 {
					long = time.Hour
				}
				for range int(long / time.Minute) {
					time.Sleep(time.Minute)
					synctest.Wait()
					id := s.Identity()
					switch {
					case (id == nil) != c.lost:
						t.Fatalf("the identity is %v, lost %t", id, c.lost)
					case id != nil && id != first && here.now().Before(id.Certificate.Leaf.NotBefore):
						t.Fatal("a certificate is used that is not valid yet")
					}
				}
				if id := s.Identity(); id != nil && (id != first) != c.renewed {
					t.Errorf("renewed %t, want %t", id != first, c.renewed)
				}
				if level := log.loudest(); level != c.loud {
					t.Errorf("the log is %s, want %s", level, c.loud)
				}
				most := int(long / time.Minute * 2) // while there is an identity, at most one a minute or so
				if c.lost {
					most = int(long / retryWithout * 2)
				}
				if c.renewed {
					most = 3
				}
				if n := w.count() - asked; n > most {
					t.Errorf("asked %d times in %s, want at most %d", n, long, most)
				}
				here.set(0)
				there.set(0)
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				id := s.Identity()
				if id == nil || time.Now().Before(id.Certificate.Leaf.NotBefore) || time.Until(id.Certificate.Leaf.NotAfter) < Life/3-2*time.Minute {
					t.Error("two minutes after the clocks were put right there is no good identity")
				}
			})
		})
	}
}
