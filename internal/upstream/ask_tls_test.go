package upstream

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/socket"
)

// asking sends a question by Ask, which must have been written whole.
func asking(t *testing.T, c *Conn) error {
	t.Helper()
	c.ReadBy(time.Now().Add(10*time.Second), 0)
	n, err := c.Ask([]byte("question\n"))
	if n != len("question\n") {
		t.Errorf("%d bytes were written", n)
	}
	return err
}

func TestAskOverTLSWaitsForTheAnswer(t *testing.T) {
	for name, before := range map[string]func(s *sealer) []byte{
		"alone":            nil,
		"behind a ticket":  (*sealer).ticket,
		"behind a new key": func(s *sealer) []byte { return s.update(true) },
		"behind nothing":   func(s *sealer) []byte { return s.data("") },
	} {
		t.Run(name, func(t *testing.T) {
			s, e, c := newSealer(t)
			if used := c.swap != nil; used != socket.CanPoll {
				t.Fatalf("one step for both: %t", used)
			}
			for range 5 {
				go func() {
					<-s.lines
					if before != nil {
						s.send(before(s))
						time.Sleep(2 * time.Millisecond) // so that it arrives alone
					}
					s.send(s.data("yes\n"))
				}()
				if err := asking(t, c); err != nil || string(c.Buffered()) != "yes\n" {
					t.Fatalf("%v, %q", err, c.Buffered())
				}
				c.Discard(4)
				e.Put(c)
				if again := get(t, e, true); again != c {
					t.Fatal("another connection")
				}
			}
		})
	}
}

// What TLS has read ahead is given without waiting for the socket.
func TestAskOverTLSGivesWhatTLSHolds(t *testing.T) {
	s, _, c := newSealer(t)
	s.answer(c, s.data("yes\n"), s.data("no\n"))
	if err := asking(t, c); err != nil || string(c.Buffered()) != "no\n" {
		t.Errorf("%v, %q", err, c.Buffered())
	}
}

func TestAskOverTLSWritesNothingWhereSomethingUnaskedCame(t *testing.T) {
	for name, came := range map[string]func(s *sealer){
		"an answer": func(s *sealer) { s.send(s.data("yes\n")) },
		"a part":    func(s *sealer) { s.send(s.data("yes\n")[:3]) },
		"the end":   func(s *sealer) { s.c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			s, _, c := newSealer(t)
			c.unchecked = true // as Get hands out a reused one
			came(s)
			for c.Alive() { // until it has come
				time.Sleep(time.Millisecond)
			}
			if n, err := c.Ask([]byte("question\n")); n != 0 || err == nil || len(c.Buffered()) > 0 {
				t.Errorf("%d, %v, %q", n, err, c.Buffered())
			}
			c.net.Close()
			if line, ok := <-s.lines; ok {
				t.Errorf("the endpoint read %q", line)
			}
		})
	}
}

func TestAskOverTLSKeepsToTheReadDeadline(t *testing.T) {
	for name, ahead := range map[string]time.Duration{"in time": 20 * time.Millisecond, "too late already": -time.Second} {
		t.Run(name, func(t *testing.T) {
			s, _, c := newSealer(t)
			c.ReadBy(time.Now().Add(ahead), 0)
			n, err := c.Ask([]byte("question\n"))
			if n != len("question\n") || !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%d, %v", n, err)
			}
			if line := <-s.lines; line != "question\n" {
				t.Errorf("the endpoint read %q", line)
			}
			s.send(s.data("late"))
			c.ReadBy(time.Time{}, 0)
			if _, err := c.Fill(); err != nil || string(c.Buffered()) != "late" {
				t.Errorf("%q, %v", c.Buffered(), err)
			}
		})
	}
}

func TestAskOverTLSNoticesTheOtherSidesEnd(t *testing.T) {
	for name, end := range map[string]func(s *sealer){
		"closed":   func(s *sealer) { s.c.Close() },
		"notified": func(s *sealer) { s.send(s.record(21, "\x01\x00", 0)) },
	} {
		t.Run(name, func(t *testing.T) {
			s, _, c := newSealer(t)
			go func() {
				<-s.lines
				end(s)
			}()
			if err := asking(t, c); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error(err)
			}
			if _, err := c.Fill(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("the next read: %v", err)
			}
		})
	}
}

// TestAskOverTLSCanBeAborted holds that Abort ends the wait.
func TestAskOverTLSCanBeAborted(t *testing.T) {
	s, _, c := newSealer(t)
	go func() {
		<-s.lines
		c.Abort()
	}()
	if err := asking(t, c); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
}

func TestAskOverTLSOfMoreThanTheSocketTakes(t *testing.T) {
	s, _, c := newSealer(t)
	question := strings.Repeat("0123456789", 1<<20) + "\n"
	go func() {
		if line := <-s.lines; line != question {
			t.Errorf("%d bytes arrived", len(line))
		}
		s.send(s.data("yes\n"))
	}()
	n, err := c.Ask([]byte(question))
	if n != len(question) || err != nil || string(c.Buffered()) != "yes\n" {
		t.Errorf("%d, %v, %q", n, err, c.Buffered())
	}
}
