//go:build unix

package main

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmesh/weir/test/weirtest"
)

func TestMain(m *testing.M) { weirtest.Main(m) }

// TestSoak is a short form of "make soak", with -short a shorter one; a third as short again under the race detector, with which everything takes
// ten times as long.
func TestSoak(t *testing.T) {
	var report strings.Builder
	o := options{
		command: weirtest.Command, out: &report,
		requests: 30_000, reloads: 10, handovers: 1, rollings: 1,
		drainTimeout: 5 * time.Second, drainDelay: time.Second, streamLife: 2 * time.Second, endless: 1, width: 2,
	}
	if testing.Short() {
		// The delay stays: it is how long the balancer may take to notice. So do the reloads: each is another kind.
		o.requests, o.drainTimeout, o.streamLife = 6000, 2500*time.Millisecond, 600*time.Millisecond
	}
	if raceDetector {
		o.requests /= 3
	}
	err := run(t.Context(), o)
	t.Logf("\n%s", &report)
	if err != nil {
		t.Error(err)
	}
}

// TestJudgement shows that wrong answers are found: each differs in one thing from a right one.
func TestJudgement(t *testing.T) {
	s := soak{}
	s.truth.broken = make([]atomic.Bool, 20)
	s.truth.written.Store(12)
	s.truth.broken[11].Store(true)
	right := answer{id: "a", wantID: "a", config: "000009", version: "v2", seen: "000009,"}
	if err := s.truth.judge(9, &right); err != nil {
		t.Fatalf("a right answer: %v", err)
	}
	for name, change := range map[string]func(*answer){
		"another request's":         func(a *answer) { a.id = "b" },
		"no configuration":          func(a *answer) { a.config = "" },
		"an old configuration":      func(a *answer) { a.config, a.seen = "000008", "000008,1" },
		"a configuration to come":   func(a *answer) { a.config, a.seen = "000013", "000013," },
		"a broken configuration":    func(a *answer) { a.config, a.seen = "000011", "000011," },
		"two configurations":        func(a *answer) { a.seen = "000010," },
		"a field that was to go":    func(a *answer) { a.seen = "000009,1" },
		"a version without weight":  func(a *answer) { a.version = "v3" },
		"a version that is not one": func(a *answer) { a.version = "" },
	} {
		wrong := right
		change(&wrong)
		if s.truth.judge(9, &wrong) == nil {
			t.Errorf("%s: no complaint", name)
		}
	}
}
