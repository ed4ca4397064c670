package embedded

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirmesh/weir/internal/metrics"
	"github.com/weirmesh/weir/internal/telemetry"
)

// running starts Run, and returns what ends it and waits for that.
func running(t *testing.T, s *Store, sources func() []Source) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx, sources) }()
	return func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run ended with %v", err)
		}
	}
}

// TestRunReadsEachProxyOnceInAnInterval, spread over it, as long as it is in the list.
func TestRunReadsEachProxyOnceInAnInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{})
		var mu sync.Mutex
		reads, moments := map[string]int{}, map[time.Time]int{}
		var list atomic.Pointer[[]Source]
		var all []Source
		for i := range 500 {
			r := telemetry.New()
			name := fmt.Sprint("p", i)
			all = append(all, Source{Name: name, Read: func(context.Context) (telemetry.Report, error) {
				mu.Lock()
				defer mu.Unlock()
				reads[name]++
				moments[time.Now()]++
				observe(r, telemetry.EdgeLabels{At: pod(i), Peer: web}, 1)
				return r.Report(), nil
			}})
		}
		all = append(all, all[3]) // named twice
		list.Store(&all)
		stop := running(t, s, func() []Source { return *list.Load() })
		defer stop()
		time.Sleep(50*time.Second - time.Millisecond)
		mu.Lock()
		for name, n := range reads {
			if n != 10 {
				t.Errorf("%s was read %d times", name, n)
			}
		}
		if len(reads) != 500 {
			t.Errorf("%d were read", len(reads))
		}
		for at, n := range moments {
			if n > 500/ticks*4 {
				t.Errorf("%d were read at %v", n, at)
			}
		}
		clear(reads)
		mu.Unlock()
		some := all[:100]
		list.Store(&some)
		time.Sleep(55 * time.Second)
		mu.Lock()
		if len(reads) != 100 {
			t.Errorf("%d of 100 were read", len(reads))
		}
		mu.Unlock()
		// Those that went keep what they counted until it leaves the window.
		a, err := s.Ask(context.Background(), metrics.Question{Window: time.Minute, Sum: true})
		if err != nil || len(a.Traffic) < 300 {
			t.Errorf("%d rows, %v", len(a.Traffic), err)
		}
		time.Sleep(time.Minute)
		if a, err = s.Ask(context.Background(), metrics.Question{Window: time.Minute, Sum: true}); err != nil || len(a.Traffic) != 100 {
			t.Errorf("%d rows, want 100, %v", len(a.Traffic), err)
		}
	})
}

// TestListsOfProxiesDoNotHoldEachOtherUp: those of one list that hang have no reader of another's, and it is not said that all
// were asked before those of both were.
func TestListsOfProxiesDoNotHoldEachOtherUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{Concurrency: 2})
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error)
		var good, hung []Source
		read := map[string]int{}
		var mu sync.Mutex
		var healed atomic.Bool
		for i := range 50 {
			r := telemetry.New()
			observe(r, telemetry.EdgeLabels{At: pod(i), Peer: web, Out: true}, 1)
			good = append(good, Source{Name: fmt.Sprint("p", i), Read: func(context.Context) (telemetry.Report, error) {
				mu.Lock()
				defer mu.Unlock()
				read[fmt.Sprint("p", i)]++
				return r.Report(), nil
			}})
			hung = append(hung, Source{Name: fmt.Sprint("s", i), Read: func(ctx context.Context) (telemetry.Report, error) {
				if healed.Load() {
					return r.Report(), nil
				}
				<-ctx.Done()
				return telemetry.Report{}, ctx.Err()
			}})
		}
		go func() {
			ended <- s.Run(ctx, func() []Source { return good }, func() []Source { return hung }, func() []Source { return nil })
		}()
		time.Sleep(19 * time.Second)
		mu.Lock()
		for i := range good {
			if n := read[good[i].Name]; n < 3 {
				t.Errorf("%s was read %d times in four intervals", good[i].Name, n)
			}
		}
		mu.Unlock()
		if s.ReadAll() {
			t.Error("all were asked, although most hang")
		}
		time.Sleep(2 * time.Minute)
		if !s.ReadAll() || s.Stats().Failing < len(hung)/2 {
			t.Errorf("all were asked: %t; %d fail", s.ReadAll(), s.Stats().Failing)
		}
		healed.Store(true)
		time.Sleep(5 * time.Minute)
		if s.Stats().Failing != 0 || s.Stats().Proxies != 100 {
			t.Errorf("%+v", s.Stats())
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// TestWhatASidecarObservedIsTold apart from what a proxy of a Gateway did in the same pod.
func TestWhatASidecarObservedIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{})
		r := telemetry.New()
		as := telemetry.Side{Kind: telemetry.KindSidecar, Namespace: "shop", Name: "p"}
		stop := running(t, s, func() []Source {
			return []Source{{Name: "s", At: pod(1), As: as, Read: func(context.Context) (telemetry.Report, error) { return r.Report(), nil }}}
		})
		defer stop()
		time.Sleep(6 * time.Second)
		observe(r, telemetry.EdgeLabels{At: pod(1), Peer: web}, 3)
		observe(r, telemetry.EdgeLabels{At: pod(2), Peer: web}, 5) // another's
		observe(r, telemetry.EdgeLabels{At: as, Peer: web}, 7)
		time.Sleep(5 * time.Second)
		a, err := s.Ask(context.Background(), metrics.Question{Window: time.Minute})
		if err != nil || len(a.Traffic) != 1 || a.Traffic[0].At != as || a.Traffic[0].Success != 3 {
			t.Errorf("%+v, %v", a.Traffic, err)
		}
	})
}

// TestProxiesThatHangHoldUpNoOthersForLong, and are asked less often.
func TestProxiesThatHangHoldUpNoOthersForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := New(Options{Concurrency: 4, Log: slog.New(slog.NewTextHandler(&log, nil))})
		var at, most, hung, good atomic.Int64
		var healed atomic.Bool
		read := func(hangs bool) func(ctx context.Context) (telemetry.Report, error) {
			r := telemetry.New()
			return func(ctx context.Context) (telemetry.Report, error) {
				defer at.Add(-1)
				most.Store(max(most.Load(), at.Add(1)))
				if hangs && !healed.Load() {
					hung.Add(1)
					<-ctx.Done()
					return telemetry.Report{}, ctx.Err()
				}
				good.Add(1)
				return r.Report(), nil
			}
		}
		var all []Source
		for i := range 40 {
			all = append(all, Source{Name: fmt.Sprint("p", i), Read: read(i%4 == 0)})
		}
		stop := running(t, s, func() []Source { return all })
		time.Sleep(400*time.Second - time.Millisecond)
		if n := most.Load(); n > 4 {
			t.Errorf("%d were read at a time", n)
		}
		if n := good.Load(); n < 30*70 {
			t.Errorf("the good ones were read %d times in 80 intervals", n)
		}
		if n := hung.Load(); n > 10*(80/8+4) || n < 10*8 {
			t.Errorf("those that hang were asked %d times", n)
		}
		healed.Store(true)
		good.Store(0)
		time.Sleep(100 * time.Second)
		if n := good.Load(); n < 30*19+10*11 {
			t.Errorf("after it is over they were read %d times", n)
		}
		stop()
		if n := strings.Count(log.String(), "proxies did not report their traffic"); n < 1 || n > 3 || !strings.Contains(log.String(), "context deadline exceeded") {
			t.Errorf("%d lines: %s", n, log.String())
		}
	})
}

// TestAProxySpeaksOnlyOfItself: what it tells of traffic at others is left out.
func TestAProxySpeaksOnlyOfItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{})
		r := telemetry.New()
		observe(r, toCart, 1)
		observe(r, fromWeb, 100)
		observe(r, telemetry.OtherEdge(true), 2)
		stop := running(t, s, func() []Source {
			return []Source{{Name: "web", At: web, Read: func(context.Context) (telemetry.Report, error) { return r.Report(), nil }}}
		})
		defer stop()
		time.Sleep(7 * time.Second)
		if got := asked(t, s, metrics.Question{}); !strings.HasSuffix(got, " other-other=2 web-cart=1") {
			t.Error(got)
		}
	})
}

func TestReportsOverHTTP(t *testing.T) {
	r := telemetry.New()
	observe(r, toCart, 3)
	mux := http.NewServeMux()
	mux.HandleFunc("/good", func(w http.ResponseWriter, _ *http.Request) { json.NewEncoder(w).Encode(r.Report()) })
	mux.Handle("/elsewhere", http.RedirectHandler("/good", http.StatusFound))
	mux.HandleFunc("/text", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "weir\n") })
	mux.HandleFunc("/cut", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"edges":[{"success":1},`) })
	mux.HandleFunc("/edges", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"edges":[{}`+strings.Repeat(",{}", maxSeries)+`]}`)
	})
	mux.HandleFunc("/bytes", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"edges":[`+strings.Repeat(" ", 2<<20)+`]}`)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	client := NewClient()
	client.most = 1 << 20
	for path, want := range map[string]string{
		"/good": "", "/elsewhere": ": 302 Found", "/none": ": 404 Not Found", "/text": ": 'w' in place of '{'",
		"/cut": ": edges: unexpected EOF", "/edges": ": edges: more than 50000", "/bytes": ": edges: the report has more than 1048576 bytes",
	} {
		t.Run(path, func(t *testing.T) {
			got, err := client.Read(server.URL + path)(context.Background())
			if want == "" {
				if err != nil || len(got.Edges) != 1 || got.Edges[0].Success != 3 {
					t.Errorf("%+v, %v", got, err)
				}
				return
			}
			if err == nil || err.Error() != "GET "+server.URL+path+want {
				t.Errorf("%v, want ...%s", err, want)
			}
		})
	}
	if len(client.large) != 0 {
		t.Error("permits for large reports were not given back")
	}
}

// TestLargeReportsAreReadFewAtATime, so that many of them do not fill the memory.
func TestLargeReportsAreReadFewAtATime(t *testing.T) {
	var at, most atomic.Int64
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"x":"`+strings.Repeat("x", 2*smallReport))
		w.(http.Flusher).Flush()
		most.Store(max(most.Load(), at.Add(1)))
		<-release
		fmt.Fprint(w, `"}`)
	}))
	defer server.Close()
	client := NewClient()
	var all sync.WaitGroup
	var failed atomic.Int64
	ctx, cancel := context.WithCancel(context.Background())
	for range 3 * largeReaders {
		all.Go(func() {
			if _, err := client.Read(server.URL)(ctx); err != nil {
				failed.Add(1)
			}
		})
	}
	for len(client.large) < largeReaders || at.Load() < 3*largeReaders {
		time.Sleep(time.Millisecond)
	}
	cancel() // those that wait give up
	close(release)
	all.Wait()
	if len(client.large) != 0 {
		t.Errorf("%d permits were not given back", len(client.large))
	}
	if failed.Load() == 0 {
		t.Error("nobody waited")
	}
}

func FuzzAnyReportIsTaken(f *testing.F) {
	f.Add([]byte(`{"began":"2026-01-01T00:00:00Z","time":"2026-01-01T00:00:01Z","edges":[{"peer":{"kind":"Pod","name":"a"},"success":1,"latency":{"nanos":1,"buckets":[[3,1]]}}]}`),
		[]byte(`{"began":"2026-01-01T00:00:00Z","time":"2026-01-01T00:00:02Z","edges":[{"peer":{"kind":"Pod","name":"a"},"success":3},{"success":2},{"success":2}]}`))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		s := New(Options{Interval: time.Nanosecond, MaxEdges: 3})
		var sent uint64
		for i, text := range [][]byte{a, b, a, b} {
			r, err := telemetry.ReadReport(bytes.NewReader(text), 100)
			if err != nil {
				continue
			}
			for _, e := range r.Edges {
				if e.Success <= maxCount {
					sent += e.Success
				}
			}
			s.Add(fmt.Sprint(i/3), r)
		}
		consistent(t, s)
		got, err := s.Ask(context.Background(), metrics.Question{})
		if err != nil {
			return
		}
		var counted uint64
		for _, row := range got.Traffic {
			counted += row.Success
		}
		if counted > sent {
			t.Errorf("%d of %d requests", counted, sent)
		}
	})
}

// TestAlignedStoresReadAProxyAtTheSameTime, whenever they began, also when rounds took longer than they should.
func TestAlignedStoresReadAProxyAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		reads := map[string]map[time.Duration]int{} // by how long after a multiple of the interval
		source := func(name string, slow func() time.Duration) Source {
			return Source{Name: name, Read: func(context.Context) (telemetry.Report, error) {
				mu.Lock()
				if reads[name] == nil {
					reads[name] = map[time.Duration]int{}
				}
				now := time.Now()
				reads[name][now.Sub(now.Truncate(5*time.Second))]++
				mu.Unlock()
				time.Sleep(slow())
				return telemetry.New().Report(), nil
			}}
		}
		never := func() time.Duration { return 0 }
		var n atomic.Int64
		sometimes := func() time.Duration { return time.Duration(n.Add(1)%3/2) * 7 * time.Second }
		time.Sleep(1300 * time.Millisecond)
		defer running(t, New(Options{Aligned: true}), func() []Source { return []Source{source("shop/edge-1", never), source("shop/edge-2", never)} })()
		time.Sleep(2 * time.Second)
		defer running(t, New(Options{Aligned: true, Concurrency: 1, Timeout: time.Minute}), func() []Source { return []Source{source("shop/edge-2", sometimes)} })()
		time.Sleep(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		for name, least := range map[string]int{"shop/edge-1": 11, "shop/edge-2": 11 + 6} {
			if got := reads[name]; len(got) != 1 || got[5*time.Second*time.Duration(tickOf(name))/ticks] < least {
				t.Errorf("%s was read, since multiples of the interval: %v", name, got)
			}
		}
	})
}

// TestStatsSayWhatFailsNow and what reported when.
func TestStatsSayWhatFailsNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{})
		if got := s.Stats(); got != (Stats{}) {
			t.Errorf("of an empty store: %+v", got)
		}
		r := telemetry.New()
		observe(r, telemetry.EdgeLabels{At: pod(1), Peer: web}, 1)
		var broken atomic.Bool
		all := []Source{
			{Name: "good", Read: func(context.Context) (telemetry.Report, error) { return r.Report(), nil }},
			{Name: "bad", Read: func(context.Context) (telemetry.Report, error) {
				if broken.Load() {
					return telemetry.Report{}, errors.New("broken")
				}
				return r.Report(), nil
			}},
		}
		stop := running(t, s, func() []Source { return all })
		time.Sleep(14 * time.Second)
		if got := s.Stats(); got.Proxies != 2 || got.Edges != 2 || got.Failing != 0 || got.Readings != 6 || got.Failures != 0 || time.Since(got.Newest) > 5*time.Second {
			t.Errorf("of two good proxies: %+v", got)
		}
		broken.Store(true)
		time.Sleep(10 * time.Second)
		if got := s.Stats(); got.Proxies != 2 || got.Failing != 1 || got.Failures == 0 {
			t.Errorf("as one fails: %+v", got)
		}
		time.Sleep(2 * time.Minute)
		if got := s.Stats(); got.Proxies != 1 || got.Failing != 1 {
			t.Errorf("as one has failed for long: %+v", got)
		}
		stop()
		if got := s.Stats(); got.Failing != 0 {
			t.Errorf("without Run: %+v", got)
		}
	})
}

// TestReadAllIsOnceEachProxyWasAsked, also one that does not answer; a round without proxies does not count.
func TestReadAllIsOnceEachProxyWasAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{})
		r := telemetry.New()
		var all atomic.Pointer[[]Source]
		all.Store(&[]Source{})
		stop := running(t, s, func() []Source { return *all.Load() })
		time.Sleep(12 * time.Second)
		if s.ReadAll() {
			t.Error("nothing was there to be read")
		}
		var asked atomic.Int64
		list := []Source{{Name: "hangs", Read: func(ctx context.Context) (telemetry.Report, error) {
			<-ctx.Done()
			return telemetry.Report{}, ctx.Err()
		}}}
		for i := range 20 {
			list = append(list, Source{Name: fmt.Sprint("good-", i), Read: func(context.Context) (telemetry.Report, error) {
				asked.Add(1)
				return r.Report(), nil
			}})
		}
		all.Store(&list)
		waited := false
		for range 200 {
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			if done := s.ReadAll(); done && asked.Load() < 20 {
				t.Fatalf("done when %d of 20 were asked", asked.Load())
			} else if !done && asked.Load() > 0 {
				waited = true
			}
		}
		if !waited || !s.ReadAll() {
			t.Errorf("waited for all: %t, and at the end: %t", waited, s.ReadAll())
		}
		stop()
	})
}
