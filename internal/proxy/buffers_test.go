package proxy

import (
	"bufio"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/telemetry"
)

// longHead is the beginning of a head of n bytes.
func longHead(n int) string {
	const first, name = "GET / HTTP/1.1\r\nHost: a\r\n", "X: "
	return first + name + strings.Repeat("x", n-len(first)-len(name))
}

// TestUnfinishedHeadsMakeRoomForOthers: three clients with incomplete heads use up the budget for heads. A fourth
// client gets its answer, and the oldest of the three is disconnected.
func TestUnfinishedHeadsMakeRoomForOthers(t *testing.T) {
	addr := backend(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") })
	s := serve(t, plain(addr), func(o *Options) { o.MaxBuffered = 64 << 10 })
	var slow []*talk
	for i := range 3 {
		k := newTalk(t, s.addr())
		k.send(longHead(10_000))
		slow = append(slow, k)
		until(t, "the head is not drawn for", func() bool { return s.buffers.Drawn() == int64(i+1)*16<<10 })
	}
	k := newTalk(t, s.addr())
	k.send(longHead(12_000) + "\r\n\r\n")
	if resp, body := k.answer("GET"); resp.StatusCode != 200 {
		t.Fatalf("%v %q", resp, body)
	}
	resp, body := slow[0].answer("GET")
	if resp.StatusCode != 503 || !resp.Close || resp.Header.Get("Retry-After") == "" || !strings.HasPrefix(body, "overload: ") {
		t.Errorf("the oldest: %v %q", resp, body)
	}
	slow[0].closed()
	for _, k := range slow[1:] {
		k.send("\r\n\r\n")
		if resp, _ := k.answer("GET"); resp.StatusCode != 200 {
			t.Errorf("a newer one: %v", resp)
		}
	}
	if m := s.buffers.memory(); m.Ended != 1 {
		t.Errorf("%+v", m)
	}
	until(t, "not all is given back", func() bool { return s.buffers.Drawn() == 0 })
	if n := s.failures(telemetry.Overload); n != 1 {
		t.Errorf("%d were counted", n)
	}
}

// TestOrdinaryRequestsNeedNoBudget: ordinary requests draw nothing, so they are served without a budget.
func TestOrdinaryRequestsNeedNoBudget(t *testing.T) {
	addr := backend(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		io.WriteString(w, strings.Repeat("a", 100_000))
	})
	s := serve(t, plain(addr), func(o *Options) { o.MaxBuffered = 1 })
	k := newTalk(t, s.addr())
	for range 3 {
		k.send(longHead(8000) + "\r\n\r\n")
		if resp, body := k.answer("GET"); resp.StatusCode != 200 || len(body) != 100_000 {
			t.Fatalf("%v", resp)
		}
		k.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n" + strings.Repeat("b", 200_000))
		if resp, body := k.answer("POST"); resp.StatusCode != 200 || len(body) != 100_000 {
			t.Fatalf("%v", resp)
		}
	}
	k.send(longHead(9000))
	if resp, _ := k.answer("GET"); resp.StatusCode != 503 {
		t.Errorf("beyond: %v", resp)
	}
}

// TestABodyThatCannotBeKeptIsSentOnce: without memory to keep it, a body is sent once and its answer is passed on.
func TestABodyThatCannotBeKeptIsSentOnce(t *testing.T) {
	var hits atomic.Int32
	addr := backend(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		hits.Add(1)
		w.WriteHeader(503)
	})
	for _, x := range []struct {
		budget int64
		hits   int32
	}{{0, 3}, {1, 1}} {
		hits.Store(0)
		cfg := plain(addr)
		cfg.Routes[0].Rules[0].Retry = &model.Retry{Attempts: 2, Codes: []int{503}}
		s := serve(t, cfg, func(o *Options) { o.MaxBuffered = x.budget })
		k := newTalk(t, s.addr())
		k.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 50000\r\n\r\n")
		k.send(strings.Repeat("b", 50_000))
		if resp, _ := k.answer("PUT"); resp.StatusCode != 503 || hits.Load() != x.hits {
			t.Errorf("budget %d: %v, %d hits, want %d", x.budget, resp, hits.Load(), x.hits)
		}
	}
}

// TestAnAnswerWithoutMemoryForItsHeadBlamesNobody: if there is no memory for the large head of an answer, neither side
// is blamed.
func TestAnAnswerWithoutMemoryForItsHeadBlamesNobody(t *testing.T) {
	addr := backend(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/large" {
			w.Header().Set("X", strings.Repeat("x", 20_000))
		}
	})
	s := serve(t, plain(addr), func(o *Options) { o.MaxBuffered, o.Upstream.EjectAfter = 1, 1 })
	k := newTalk(t, s.addr())
	for range 3 {
		k.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
		if resp, body := k.answer("GET"); resp.StatusCode != 503 || !strings.HasPrefix(body, "overload: ") {
			t.Fatalf("%v %q", resp, body)
		}
		k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		if resp, _ := k.answer("GET"); resp.StatusCode != 200 {
			t.Fatalf("%v", resp)
		}
	}
	for state := range s.Services {
		if e := state.Endpoints[0]; e.Failures != 0 {
			t.Errorf("%+v", e)
		}
	}
}

// TestTheBudgetIsWholeAgainAfterAnyMixOfHeads sends heads of all lengths, whole, in pieces and incomplete, over more
// connections than there is memory for. Every client gets 200 or 503. In the end nothing is drawn any more, which serve
// checks.
func TestTheBudgetIsWholeAgainAfterAnyMixOfHeads(t *testing.T) {
	t.Parallel()
	addr := backend(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") })
	cfg := plain(addr)
	s := serve(t, cfg, func(o *Options) { o.MaxBuffered = 256 << 10 })
	var wg sync.WaitGroup
	var served, refused, other atomic.Int64
	for seed := range uint64(16) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, 7))
			for range 30 {
				c, err := net.Dial("tcp", s.addr())
				if err != nil {
					t.Error(err)
					return
				}
				c.SetDeadline(time.Now().Add(patience))
				head := longHead(100+r.IntN(60_000)) + "\r\n\r\n"
				cut := r.IntN(4) == 0
				for rest := head; len(rest) > 0; {
					n := min(len(rest), 1+r.IntN(20_000))
					if _, err := io.WriteString(c, rest[:n]); err != nil || cut && r.IntN(3) == 0 {
						break
					}
					rest = rest[n:]
					time.Sleep(rand.N(2 * time.Millisecond))
				}
				if !cut {
					resp, err := http.ReadResponse(bufio.NewReader(c), nil)
					switch {
					case err != nil: // closed before the answer could be read, with unread bytes left
						other.Add(1)
					case resp.StatusCode == 200:
						served.Add(1)
					case resp.StatusCode == 503:
						refused.Add(1)
					default:
						t.Errorf("%v", resp)
					}
				}
				c.Close()
			}
		})
	}
	wg.Wait()
	t.Logf("%d served, %d refused, %d closed; %+v", served.Load(), refused.Load(), other.Load(), s.buffers.memory())
	if served.Load() == 0 || s.buffers.memory().Ended == 0 {
		t.Error("nobody was served, or nobody sent away")
	}
	until(t, "not all is given back", func() bool { return s.buffers.Drawn() == 0 && s.buffers.ending.Load() == 0 })
}
