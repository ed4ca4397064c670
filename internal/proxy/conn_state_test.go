package proxy

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// lives returns the states that may follow each state according to docs/http1.md, besides stateOver.
func lives(t *testing.T) map[state][]state {
	t.Helper()
	page, err := os.ReadFile("../../docs/http1.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## The life of a connection\n")
	_, section, _ = strings.Cut(section, "|---|---|---|\n")
	table, _, _ := strings.Cut(section, "\n\n")
	named := func(name string) state {
		at := slices.Index(stateNames[:], name)
		if at < 0 {
			t.Fatalf("there is no state %q", name)
		}
		return state(at)
	}
	all := map[state][]state{}
	for _, row := range strings.Split(table, "\n") {
		cells := strings.Split(strings.Trim(row, "| "), "|")
		s := named(strings.TrimSpace(cells[0]))
		all[s] = []state{}
		if len(cells) < 3 {
			continue
		}
		for _, name := range strings.Split(cells[2], ",") {
			all[s] = append(all[s], named(strings.TrimSpace(name)))
		}
	}
	if len(all) != int(states) {
		t.Fatalf("%d states are described, there are %d", len(all), states)
	}
	return all
}

func TestAConnectionTakesOnlyTheStepsOfItsLife(t *testing.T) {
	described := lives(t)
	for from := range states {
		allowed, alive := described[from], from != stateParked && from != stateHandedOn
		for to := range states {
			want := slices.Contains(allowed, to) || alive && to == stateOver
			var l life
			l.word.Store(uint32(from) | 3<<lookShift)
			refused := func() (said any) {
				defer func() { said = recover() }()
				l.become(to)
				return nil
			}()
			switch {
			case want && (refused != nil || !l.is(to) || l.word.Load()>>lookShift != 0):
				t.Errorf("%s to %s: %v, it is %s", from, to, refused, l.state())
			case !want && (refused == nil || !l.is(from)):
				t.Errorf("%s to %s is not refused", from, to)
			case !want && !strings.Contains(fmt.Sprint(refused), from.String()):
				t.Errorf("%s to %s: %q does not say what it is", from, to, refused)
			}
		}
	}
}

// TestEveryStateOfAConnectionIsReached: every state can be reached. A connection can be closed from every state but the
// last ones.
func TestEveryStateOfAConnectionIsReached(t *testing.T) {
	reached := map[state]bool{stateNew: true}
	for queue := []state{stateNew}; len(queue) > 0; queue = queue[1:] {
		for to := range states {
			if queue[0].mayBecome(to) && !reached[to] {
				reached[to] = true
				queue = append(queue, to)
			}
		}
	}
	for s := range states {
		if !reached[s] {
			t.Errorf("%s is never reached", s)
		}
		if ended := s == stateParked || s == stateHandedOn; s.mayBecome(stateOver) == ended {
			t.Errorf("%s: may be closed: %v", s, !ended)
		}
	}
}

// TestAConnectionIsOldAfterSoManyLooks: only waiting connections count as idle. Activity restarts the count.
func TestAConnectionIsOldAfterSoManyLooks(t *testing.T) {
	var l life
	if l.look(0) {
		t.Error("a new connection is taken for an idle one")
	}
	l.become(stateIdle)
	for i := range 3 {
		if l.look(3) {
			t.Errorf("old at look %d", i)
		}
	}
	if !l.look(3) || !l.is(stateIdle) {
		t.Errorf("not old, %s", l.state())
	}
	l.become(stateHead)
	if l.look(0) {
		t.Error("a connection with a request is taken for an idle one")
	}
	l.become(stateServing)
	l.become(stateIdle)
	if l.look(3) {
		t.Error("the count goes on")
	}
}
