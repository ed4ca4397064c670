package e2e

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"
)

// load is traffic that goes on until it is stopped: half of it over connections that are kept, half over new ones.
type load struct {
	stop context.CancelFunc
	wait sync.WaitGroup

	mu       sync.Mutex
	served   int
	failures []string
}

// pause between two requests of a client: enough traffic to meet a gap of 10 ms, little enough for a machine that does other things.
const pause = 10 * time.Millisecond

func startLoad(t *testing.T, url string) *load {
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{stop: cancel}
	for i := range 4 {
		transport := &http.Transport{DisableKeepAlives: i%2 == 0, MaxIdleConnsPerHost: 1}
		l.wait.Go(func() {
			defer transport.CloseIdleConnections()
			l.client(ctx, &http.Client{Transport: transport, Timeout: 30 * time.Second}, url)
		})
	}
	t.Cleanup(func() { cancel(); l.wait.Wait() })
	return l
}

func (l *load) client(ctx context.Context, client *http.Client, url string) {
	for ctx.Err() == nil {
		began := time.Now()
		// A request that has begun is finished: only what the proxies do may fail it.
		a, err := ask(context.WithoutCancel(ctx), client, url)
		if err == nil && a.Status != http.StatusOK {
			err = fmt.Errorf("status %d", a.Status)
		}
		l.mu.Lock()
		if err == nil {
			l.served++
		} else {
			l.failures = append(l.failures, fmt.Sprintf("%s (after %s): %v", began.Format("15:04:05.000"), time.Since(began).Round(time.Millisecond), err))
		}
		l.mu.Unlock()
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// more waits until so many more requests were served or failed.
func (l *load) more(n int) {
	count := func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.served + len(l.failures)
	}
	for goal := count() + n; count() < goal; {
		time.Sleep(pause)
	}
}

// end stops the traffic, of which none may have failed.
func (l *load) end(t *testing.T) {
	t.Helper()
	l.stop()
	l.wait.Wait()
	t.Logf("%d requests served", l.served)
	if len(l.failures) > 0 {
		t.Errorf("%d of %d requests failed, the first of them: %q", len(l.failures), l.served+len(l.failures), l.failures[:min(10, len(l.failures))])
	}
}
