//go:build linux

package faults_test

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// peak watches a process's memory.
type peak struct {
	stop chan struct{}
	wg   sync.WaitGroup
	max  float64
}

func (w *world) watchMemory() *peak {
	p := &peak{stop: make(chan struct{})}
	p.wg.Go(func() {
		for {
			p.max = max(p.max, w.metric("process_resident_memory_bytes"))
			select {
			case <-p.stop:
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	})
	return p
}

func (p *peak) end() float64 {
	close(p.stop)
	p.wg.Wait()
	return p.max
}

// slowly reads in steps with pauses.
type slowly struct {
	io.Reader
	each  int64 // bytes between pauses
	pause time.Duration
	n     int64
}

func (s *slowly) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p[:min(int64(len(p)), s.each-s.n)])
	if s.n += int64(n); s.n >= s.each {
		s.n = 0
		time.Sleep(s.pause)
	}
	return n, err
}

// Bodies of more than 2 GiB (128 or 256 MiB in the bounded forms) pass either way, by length and in chunks, also when one side is slower than the other and
// when they are mirrored, without being kept.
func TestHugeBodies(t *testing.T) {
	together(t)
	size := int64(sized(128<<20, 256<<20, 2<<30+12345)) // always more than memory may grow by
	slow := int64(sized(8<<20, 32<<20, 128<<20))        // where one side sleeps
	var mirrored atomic.Int64
	pace := func(r io.Reader, slowIt bool) io.Reader {
		if slowIt {
			return &slowly{Reader: r, each: 1 << 20, pause: 20 * time.Millisecond}
		}
		return r
	}
	addr := backend(t, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		n, err := io.Copy(io.Discard, pace(r.Body, q.Has("slow")))
		if err != nil {
			return
		}
		if down, _ := strconv.ParseInt(q.Get("down"), 10, 64); down > 0 {
			if q.Has("length") {
				w.Header().Set("Content-Length", fmt.Sprint(down))
			}
			io.CopyN(w, zeros{}, down)
			return
		}
		fmt.Fprint(w, n)
	})
	mirror := backend(t, func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, &slowly{Reader: r.Body, each: 64 << 10, pause: 10 * time.Millisecond})
		mirrored.Add(n)
	})
	w := serve(t, []route{
		{name: "shop", address: addr},
		{name: "copied", address: addr, extra: "filters: [{type: RequestMirror, requestMirror: {backendRef: {name: mirror, port: 80}}}]"},
		{name: "mirror", address: mirror},
	})
	if _, _, err := w.get("shop", "/"); err != nil {
		t.Fatal(err)
	}
	before := w.metric("process_resident_memory_bytes")
	h := w.visit("shop", 2, 10*time.Millisecond)
	m := w.watchMemory()
	for _, test := range []struct {
		name, route, query   string
		up                   int64
		length, clientIsSlow bool
	}{
		{"upload by length", "shop", "", size, true, false},
		{"upload in chunks", "shop", "", size, false, false},
		{"download by length", "shop", fmt.Sprintf("?length&down=%d", size), 0, false, false},
		{"download in chunks", "shop", fmt.Sprintf("?down=%d", size), 0, false, false},
		{"upload to a slow backend", "shop", "?slow", slow, false, false},
		{"upload of a slow client", "shop", "", slow, true, true},
		{"download of a slow client", "shop", fmt.Sprintf("?length&down=%d", slow), 0, false, true},
		{"download in chunks of a slow client", "shop", fmt.Sprintf("?down=%d", slow), 0, false, true},
		{"upload with a slow mirror", "copied", "", size, true, false},
		{"upload in chunks with a slow mirror", "copied", "", size, false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			method, body := "GET", io.Reader(nil)
			if test.up > 0 {
				method, body = "POST", pace(io.LimitReader(zeros{}, test.up), test.clientIsSlow)
			}
			req := w.request(method, test.route, "/"+test.query, body)
			if test.length {
				req.ContentLength = test.up
			}
			client := *w.client
			client.Timeout = 10 * time.Minute
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if resp.StatusCode != 200 {
				t.Fatalf("status %d", resp.StatusCode)
			}
			if test.up > 0 {
				if b, err := io.ReadAll(resp.Body); string(b) != fmt.Sprint(test.up) {
					t.Errorf("the backend got %s bytes of %d, %v", b, test.up, err)
				}
				return
			}
			want := size
			if test.clientIsSlow {
				want = slow
			}
			if n, err := io.Copy(io.Discard, pace(resp.Body, test.clientIsSlow)); n != want || err != nil {
				t.Errorf("%d bytes of %d, %v", n, want, err)
			}
		})
	}
	highest := m.end()
	n, p99 := h.end(t)
	t.Logf("bodies of %d MiB: memory %.1f MB before, %.1f MB at most; others: %d requests, 99%% within %v", size>>20, before/1e6, highest/1e6, n, p99)
	if most := before + 100e6; highest > most {
		t.Errorf("memory grew from %.1f MB to %.1f MB", before/1e6, highest/1e6)
	}
	until(t, "the copies are given up", func() bool { return w.metric("weir_mirror_requests_total", `outcome="dropped_body"`) == 2 })
	if got := w.metric("weir_request_failures_total"); got != 0 {
		t.Errorf("%v exchanges failed", got)
	}
	w.Stop()
}

// A backend that answers before it has the body, and closes: the client gets the answer.
func TestEarlyAnswerReachesAClientThatStillSends(t *testing.T) {
	together(t)
	addr := backend(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusForbidden)
	})
	w := serve(t, []route{{name: "shop", address: addr}})
	for range 20 {
		req := w.request("POST", "shop", "/", io.LimitReader(zeros{}, 64<<20))
		resp, err := w.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden {
			t.Fatalf("status %d", resp.StatusCode)
		}
	}
	for reason, n := range w.reasons("shop") {
		if reason != "client_closed" {
			t.Errorf("%d times %s", n, reason)
		}
	}
	w.Stop()
}
