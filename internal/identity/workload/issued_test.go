package workload

import (
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirmesh/weir/internal/identity"
)

func TestDigestsAreOfSets(t *testing.T) {
	of := func(names ...string) string { return IssuedOf(names, nil).Names }
	if of("a", "b") != of("b", "a", "b") {
		t.Error("the order matters, or how often one is there")
	}
	if of("ab") == of("a", "b") || of() == of("") || of("a") == of("b") {
		t.Error("two sets have one digest")
	}
	if len(of()) != 22 {
		t.Errorf("the digest of nothing is %q", of())
	}
}

// names has the issuer sign other names from now on.
func (w *world) names(all ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.issuer.Names = func(*Pod) ([]string, error) { return all, nil }
}

func (w *world) expected(names ...string) Issued {
	w.mu.Lock()
	defer w.mu.Unlock()
	return IssuedOf(names, w.authority.Bundle())
}

// TestACertificateFollowsItsNames soon, each at a time of its own, and not before it is told.
func TestACertificateFollowsItsNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.names("a")
		s := w.run(nil)
		synctest.Wait()
		has := func(want ...string) bool { return slices.Equal(s.Identity().Certificate.Leaf.DNSNames, want) }
		s.Expect(w.expected("a"))
		w.names("a", "b")
		time.Sleep(time.Hour)
		if !has("a") || w.count() != 1 {
			t.Fatalf("asked %d times without a reason", w.count())
		}
		s.Expect(w.expected("a", "b"))
		synctest.Wait()
		if !has("a") {
			t.Error("it did not wait: many pods would ask at once")
		}
		time.Sleep(namesSpread)
		synctest.Wait()
		if !has("a", "b") || w.count() != 2 {
			t.Errorf("after %s it has %q", namesSpread, s.Identity().Certificate.Leaf.DNSNames)
		}
		// The next ones come no sooner than a minute later, however often it is told.
		for range 200 {
			w.names("c")
			s.Expect(w.expected("c"))
			synctest.Wait()
			time.Sleep(100 * time.Millisecond)
			w.names("d")
			s.Expect(w.expected("d"))
			synctest.Wait()
			time.Sleep(100 * time.Millisecond)
		}
		if w.count() != 2 {
			t.Errorf("asked %d times", w.count())
		}
		time.Sleep(earlyPause)
		synctest.Wait()
		if !has("d") || w.count() != 3 {
			t.Errorf("it has %q, asked %d times", s.Identity().Certificate.Leaf.DNSNames, w.count())
		}
	})
}

// TestACertificateFollowsItsRoots, and has much more time for that.
func TestACertificateFollowsItsRoots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.names("a")
		s := w.run(nil)
		synctest.Wait()
		time.Sleep(time.Hour)
		next, err := identity.New(time.Now())
		if err != nil {
			t.Fatal(err)
		}
		w.mu.Lock()
		w.authority = next
		w.mu.Unlock()
		s.Expect(w.expected("a"))
		time.Sleep(rootsSpread)
		synctest.Wait()
		if w.count() != 2 || s.issued != w.expected("a") {
			t.Errorf("asked %d times, it has %+v", w.count(), s.issued)
		}
	})
}

// TestAnAnswerThatStaysAnotherOneCostsLittle: a replica that is behind signs what it knows.
func TestAnAnswerThatStaysAnotherOneCostsLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.names("a")
		s := w.run(slog.New(slog.DiscardHandler))
		s.Expect(w.expected("b"))
		time.Sleep(6 * time.Hour)
		// After 1, 2, 4, 8, 16 and 32 minutes, then every hour.
		if n := w.count(); n < 8 || n > 14 {
			t.Errorf("asked %d times in 6 h", n)
		}
		// What cannot be had is asked for as anything else.
		w.set(errors.New("nobody there"))
		before := w.count()
		time.Sleep(time.Hour)
		if n := w.count() - before; n < 1 || n > 130 {
			t.Errorf("asked %d times in an hour without an answer", n)
		}
		w.set(nil)
		w.names("b")
		time.Sleep(longestPause + rootsSpread)
		synctest.Wait()
		if got := s.Identity().Certificate.Leaf.DNSNames; !slices.Equal(got, []string{"b"}) {
			t.Errorf("it has %q", got)
		}
	})
}
