package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// steady is traffic of a fixed rate over connections that are kept, from clients that forgive nothing: they send no request twice,
// where Go's own client quietly repeats one whose connection ended. Only a connection that was not made is tried again, for so long
// as redial says, since nothing was sent over it.
type steady struct {
	address string // of the Gateway
	every   time.Duration
	redial  time.Duration

	stop context.CancelFunc
	wait sync.WaitGroup

	mu sync.Mutex
	// outcomes counts what became of the requests: their status, with the reason that the proxy gives, or how their connection ended.
	outcomes map[string]int
	failures []string    // the first of them, with their time
	refused  []time.Time // connects that were tried again
}

const (
	steadyClients = 8
	steadyRate    = 800 // requests a second, of all clients
)

// startSteady begins to send. redial is how long a client tries to get a connection; 0 is once.
func startSteady(t *testing.T, url string, redial time.Duration) *steady {
	ctx, cancel := context.WithCancel(t.Context())
	l := &steady{
		address: strings.TrimPrefix(url, "http://") + ":80", every: time.Second * steadyClients / steadyRate, redial: redial,
		stop: cancel, outcomes: map[string]int{},
	}
	for range steadyClients {
		l.wait.Go(func() { l.client(ctx) })
	}
	t.Cleanup(func() { cancel(); l.wait.Wait() })
	return l
}

func (l *steady) client(ctx context.Context) {
	var c *steadyConn
	defer func() { c.close() }()
	tick := time.NewTicker(l.every) // what was missed is not made up for
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		began := time.Now()
		var outcome string
		if c == nil {
			if c, outcome = l.dial(); c == nil {
				l.note(began, outcome)
				continue
			}
		}
		outcome, keep := c.ask()
		l.note(began, outcome)
		if !keep {
			c.close()
			c = nil
		}
	}
}

// dial returns a connection, or what became of the request for want of one.
func (l *steady) dial() (*steadyConn, string) {
	for limit := time.Now().Add(l.redial); ; {
		nc, err := net.DialTimeout("tcp", l.address, 5*time.Second)
		if err == nil {
			return &steadyConn{nc: nc, read: bufio.NewReader(nc)}, ""
		}
		if !time.Now().Before(limit) {
			return nil, "no connection: " + cause(err)
		}
		l.mu.Lock()
		l.refused = append(l.refused, time.Now())
		l.mu.Unlock()
		time.Sleep(pause)
	}
}

// cause is an error without addresses, so that equal ones count together.
func cause(err error) string {
	var errno syscall.Errno
	switch {
	case errors.As(err, &errno):
		return errno.Error()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "EOF"
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return "timeout"
	}
	return err.Error()
}

// steadyConn is a connection of one client.
type steadyConn struct {
	nc   net.Conn
	read *bufio.Reader
	used bool
}

func (c *steadyConn) close() {
	if c != nil {
		c.nc.Close()
	}
}

// ask sends one request, and tells what became of it and whether the connection may be used again.
func (c *steadyConn) ask() (outcome string, keep bool) {
	kind := "new"
	if c.used {
		kind = "kept"
	}
	c.used = true
	c.nc.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.WriteString(c.nc, "GET / HTTP/1.1\r\nHost: shop\r\n\r\n"); err != nil {
		return fmt.Sprintf("%s connection, writing: %s", kind, cause(err)), false
	}
	response, err := http.ReadResponse(c.read, nil)
	if err != nil {
		return fmt.Sprintf("%s connection, no answer: %s", kind, cause(err)), false
	}
	body, err := io.ReadAll(response.Body)
	response.Body.Close()
	if err != nil {
		return fmt.Sprintf("%s connection, half an answer: %s", kind, cause(err)), false
	}
	outcome = fmt.Sprint(response.StatusCode)
	if response.StatusCode/100 != 2 {
		outcome += " " + strings.TrimSpace(string(body[:min(len(body), 200)]))
	}
	return outcome, !response.Close
}

func isServed(outcome string) bool { return len(outcome) == 3 && outcome[0] == '2' }

func (l *steady) note(began time.Time, outcome string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.outcomes[outcome]++
	if !isServed(outcome) && len(l.failures) < 30 {
		l.failures = append(l.failures, fmt.Sprintf("%s (after %s): %s", began.Format("15:04:05.000"), time.Since(began).Round(time.Millisecond), outcome))
	}
}

// count is how many requests have ended.
func (l *steady) count() (all, failed int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for outcome, n := range l.outcomes {
		if all += n; !isServed(outcome) {
			failed += n
		}
	}
	return all, failed
}

// more waits until so many more requests have ended.
func (l *steady) more(n int) {
	before, _ := l.count()
	for {
		if all, _ := l.count(); all >= before+n {
			return
		}
		time.Sleep(pause)
	}
}

// gaps are the times in which connects were refused.
func (l *steady) gaps() (text string) {
	for i := 0; i < len(l.refused); {
		first := l.refused[i]
		last := first
		for ; i < len(l.refused) && l.refused[i].Sub(last) < time.Second; i++ {
			last = l.refused[i]
		}
		text += fmt.Sprintf("\n%s for %s", first.Format("15:04:05.000"), last.Sub(first).Round(time.Millisecond))
	}
	return text
}

// end stops the traffic and tells what became of it. No request may have failed.
func (l *steady) end(t *testing.T) {
	t.Helper()
	l.stop()
	l.wait.Wait()
	all, failed := l.count()
	for _, outcome := range slices.Sorted(maps.Keys(l.outcomes)) {
		t.Logf("%8d %s", l.outcomes[outcome], outcome)
	}
	t.Logf("%8d connects tried again%s", len(l.refused), l.gaps())
	if failed > 0 {
		t.Errorf("%d of %d requests failed, the first of them:\n%s", failed, all, strings.Join(l.failures, "\n"))
	}
}
