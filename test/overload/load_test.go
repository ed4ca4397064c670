package overload

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// patience is how long a client waits for an answer before it leaves.
const patience = time.Second

var request = "GET / HTTP/1.1\r\nHost: overload.example\r\nUser-Agent: load\r\nX-Text: " + strings.Repeat("lorem ipsum ", 100) + "\r\n\r\n"

// client is one connection to the proxy.
type client struct {
	nc net.Conn
	r  *bufio.Reader
}

func connect(address string, deadline time.Time) (*client, error) {
	nc, err := (&net.Dialer{Deadline: deadline}).Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	return &client{nc: nc, r: bufio.NewReaderSize(nc, 1<<10)}, nil
}

// do makes one request; keep says that the connection serves another.
func (c *client) do(deadline time.Time) (status int, keep bool, err error) {
	c.nc.SetDeadline(deadline)
	if _, err = io.WriteString(c.nc, request); err != nil {
		return 0, false, err
	}
	length := 0
	keep = true
	for first := true; ; first = false {
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			return 0, false, err
		}
		line = bytes.TrimRight(line, "\r\n")
		switch name, value, _ := bytes.Cut(line, []byte(": ")); {
		case first && len(line) >= 12:
			status, _ = strconv.Atoi(string(line[9:12]))
		case len(line) == 0:
			_, err = c.r.Discard(length)
			return status, keep, err
		case bytes.EqualFold(name, []byte("content-length")):
			length, _ = strconv.Atoi(string(value))
		case bytes.EqualFold(name, []byte("connection")):
			keep = !bytes.EqualFold(value, []byte("close"))
		}
	}
}

// tally is what became of requests.
type tally struct {
	good      atomic.Int64 // 200 in time
	refused   atomic.Int64 // 503 in time
	other     atomic.Int64 // any other answer
	late      atomic.Int64 // no answer in time, or the connection broke
	unsent    atomic.Int64 // no connection was to be had, or no place for another one
	mu        sync.Mutex
	latencies []time.Duration // of the good ones
}

func (t *tally) count(status int, d time.Duration, err error) {
	switch {
	case err != nil:
		t.late.Add(1)
	case d > patience:
		t.late.Add(1) // the client was late to look, or patient because it measured
	case status == 200:
		t.good.Add(1)
		t.mu.Lock()
		t.latencies = append(t.latencies, d)
		t.mu.Unlock()
	case status == 503:
		t.refused.Add(1)
	default:
		t.other.Add(1)
	}
}

// quantile of the latencies of good answers.
func (t *tally) quantile(q float64) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.latencies) == 0 {
		return 0
	}
	slices.Sort(t.latencies)
	return t.latencies[int(q*float64(len(t.latencies)-1))]
}

// closed is a closed loop: each connection makes one request after the other. It returns good answers a second.
func closed(t *testing.T, address string, connections int, d time.Duration) (*tally, float64) {
	t.Helper()
	var all tally
	end := time.Now().Add(d)
	var wg sync.WaitGroup
	for range connections {
		wg.Go(func() {
			c, err := connect(address, end.Add(patience))
			if err != nil {
				t.Error(err)
				return
			}
			defer c.nc.Close()
			for time.Now().Before(end) {
				start := time.Now()
				status, keep, err := c.do(start.Add(10 * time.Second))
				all.count(status, time.Since(start), err)
				if err != nil || !keep {
					return
				}
			}
		})
	}
	wg.Wait()
	return &all, float64(all.good.Load()) / d.Seconds()
}

// open is an open loop: rate requests a second, whatever becomes of them, each by a client that leaves after patience. Connections that are free
// are used again, and up to most are made.
func open(address string, rate float64, most int, d time.Duration) *tally {
	var all tally
	var mu sync.Mutex
	var free []*client
	var connections atomic.Int64
	var wg sync.WaitGroup
	one := func() {
		start := time.Now()
		deadline := start.Add(patience)
		mu.Lock()
		var c *client
		if n := len(free); n > 0 {
			c, free = free[n-1], free[:n-1]
		}
		mu.Unlock()
		if c == nil {
			if connections.Add(1) > int64(most) {
				connections.Add(-1)
				all.unsent.Add(1)
				return
			}
			var err error
			if c, err = connect(address, deadline); err != nil {
				connections.Add(-1)
				all.unsent.Add(1)
				return
			}
		}
		status, keep, err := c.do(deadline)
		all.count(status, time.Since(start), err)
		if err != nil || !keep {
			c.nc.Close()
			connections.Add(-1)
			return
		}
		mu.Lock()
		free = append(free, c)
		mu.Unlock()
	}
	start := time.Now()
	for sent := 0; ; {
		elapsed := time.Since(start)
		if elapsed >= d {
			break
		}
		for due := int(elapsed.Seconds() * rate); sent < due; sent++ {
			wg.Go(one)
		}
		time.Sleep(time.Millisecond)
	}
	wg.Wait()
	for _, c := range free {
		c.nc.Close()
	}
	return &all
}
