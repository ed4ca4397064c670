package loglimit

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestOneLinePerIntervalTellsHowManyWereSuppressed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))
		l := Limiter{Every: time.Second}
		said := func() bool { return l.Log(log, slog.LevelWarn, "", "it happened", "n", 1) }
		if !said() {
			t.Error("the first line is suppressed")
		}
		for range 3 {
			if said() {
				t.Error("a line too many")
			}
		}
		time.Sleep(time.Second - time.Nanosecond)
		if said() {
			t.Error("a line too early")
		}
		time.Sleep(time.Nanosecond)
		if !said() {
			t.Error("no line after the interval")
		}
		time.Sleep(time.Hour)
		said()
		want := "level=WARN msg=\"it happened\" n=1\nlevel=WARN msg=\"it happened\" n=1 suppressed=4\nlevel=WARN msg=\"it happened\" n=1\n"
		if out.String() != want {
			t.Errorf("the log is\n%swant\n%s", out.String(), want)
		}
	})
}

func TestALevelThatIsOffUsesNothingUp(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	var l Limiter
	if l.Log(log, slog.LevelDebug, "", "detail") || !l.Log(log, slog.LevelInfo, "", "news") {
		t.Error("a line that nobody wants to see took the place of another")
	}
}

func TestKeysAreLimitedEachByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Limiter
		for range 2 {
			for _, key := range []string{"a", "b", ""} {
				l.Allow(key)
			}
		}
		l.Allow("a")
		time.Sleep(DefaultEvery)
		for key, want := range map[string]int64{"a": 2, "b": 1, "": 1, "c": 0} {
			if got, ok := l.Allow(key); got != want || !ok {
				t.Errorf("%q: %d suppressed, allowed %v; want %d", key, got, ok, want)
			}
		}
	})
}

func TestKeysAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Limiter
		lines := func(prefix string, n int) (lines int) {
			for i := range n {
				if _, ok := l.Allow(fmt.Sprint(prefix, i)); ok {
					lines++
				}
			}
			return lines
		}
		// A caller that makes up keys gets a line for each of the first, and one for all others together.
		if got := lines("x", 10*MaxKeys); got != MaxKeys+1 {
			t.Errorf("%d lines, want %d", got, MaxKeys+1)
		}
		lines("x", MaxKeys)
		if len(l.keys) > MaxKeys {
			t.Errorf("%d keys are kept", len(l.keys))
		}
		// Once there is room again, other keys get an allowance of their own, and no suppressed line is lost.
		time.Sleep(DefaultEvery)
		if got := lines("y", 10); got != 10 || len(l.keys) != 10 {
			t.Errorf("%d lines of 10, %d keys", got, len(l.keys))
		}
		if got, ok := l.Allow(""); got != 10*MaxKeys-1 || !ok {
			t.Errorf("%d suppressed, allowed %v; want %d", got, ok, 10*MaxKeys-1)
		}
	})
}

func TestManyAtOnceGetOneLine(t *testing.T) {
	for _, key := range []string{"", "a"} {
		l := Limiter{Every: time.Hour}
		var lines atomic.Int64
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 1000 {
					if _, ok := l.Allow(key); ok {
						lines.Add(1)
					}
				}
			})
		}
		all.Wait()
		a := &l.shared
		if key != "" {
			a = l.keys[key]
		}
		if lines.Load() != 1 || a.suppressed.Load() != 7999 {
			t.Errorf("%q: %d lines, %d suppressed", key, lines.Load(), a.suppressed.Load())
		}
	}
}

func TestLinesWithoutAKeyAllocateNothing(t *testing.T) {
	var l Limiter
	if n := testing.AllocsPerRun(100, func() { l.Allow("") }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestArgsNameWhatWasSuppressed(t *testing.T) {
	if got := fmt.Sprint(Args(0, "a", 1), Args(2, "a", 1)); strings.Compare(got, "[a 1] [a 1 suppressed 2]") != 0 {
		t.Error(got)
	}
}
