package demo

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// loadGenerator sends a mix of requests at a steady rate. It is bounded: if answers take long, it sends fewer.
type loadGenerator struct {
	url  string
	rate int // requests per second

	sent, failed atomic.Int64
	start, stop  atomic.Int64 // Unix nanoseconds
	mu           sync.Mutex
	first        string // the first failure
}

const loadWorkers = 16

// run returns when ctx has ended and the last answer has arrived.
func (g *loadGenerator) run(ctx context.Context) {
	client := &http.Client{
		Timeout:   10 * time.Second,
		Transport: &http.Transport{MaxIdleConnsPerHost: loadWorkers, DisableCompression: true},
	}
	defer client.CloseIdleConnections()
	g.start.Store(time.Now().UnixNano())
	defer func() { g.stop.Store(time.Now().UnixNano()) }()

	due := make(chan int64, loadWorkers)
	var workers sync.WaitGroup
	for range loadWorkers {
		workers.Go(func() {
			for n := range due {
				g.send(client, n)
			}
		})
	}
	defer workers.Wait()
	defer close(due)

	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	begun, n := time.Now(), int64(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		wanted := int64(time.Since(begun).Seconds() * float64(g.rate))
		for ; n < wanted; n++ {
			select {
			case due <- n:
			default: // all workers are busy: skip this request
			}
		}
	}
}

// send makes every twentieth request a tester's, and every tenth an order with a body.
func (g *loadGenerator) send(client *http.Client, n int64) {
	method, path, body := http.MethodGet, fmt.Sprintf("item/%d?from=demo", n%100), ""
	if n%10 == 3 {
		method, path, body = http.MethodPost, "order", strings.Repeat("weir ", 200)
	}
	// The request is not bound to the demo's end: it may finish.
	req, err := http.NewRequestWithContext(context.Background(), method, g.url+path, strings.NewReader(body))
	if err != nil {
		g.fail(err.Error())
		return
	}
	if n%20 == 7 {
		req.Header.Set("x-beta", "yes")
	}
	g.sent.Add(1)
	resp, err := client.Do(req)
	if err != nil {
		g.fail(err.Error())
		return
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		g.fail(err.Error())
	} else if resp.StatusCode != http.StatusOK {
		g.fail("status " + resp.Status)
	}
}

func (g *loadGenerator) fail(reason string) {
	g.failed.Add(1)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.first == "" {
		g.first = reason
	}
}

func (g *loadGenerator) firstError() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.first
}

func (g *loadGenerator) elapsed() time.Duration {
	return time.Duration(g.stop.Load() - g.start.Load())
}

// stopped is when the last answer arrived.
func (g *loadGenerator) stopped() time.Time { return time.Unix(0, g.stop.Load()) }
