package embedded

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirmesh/weir/internal/metrics"
	"github.com/weirmesh/weir/internal/telemetry"
)

const (
	fleetSize  = 5000
	fleetEdges = 4 // of each
	// serveReports in the environment has the test's binary serve the reports of a fleet, as a process of its own.
	serveReports = "WEIR_TEST_SERVE_REPORTS"
)

func pod(i int) telemetry.Side {
	return telemetry.Side{Kind: "Pod", Namespace: fmt.Sprint("team-", i%40), Name: fmt.Sprintf("checkout-7d9f8b6c5d-%05d", i)}
}

// fleet are the proxies of many pods, each of which has traffic with some others.
type fleet []*telemetry.Registry

func newFleet(n int) (f fleet) {
	for range n {
		f = append(f, telemetry.NewRegistry(telemetry.Options{Grace: time.Hour}))
	}
	return f
}

// serve counts some requests at each edge.
func (f fleet) serve(requests int) {
	r := rand.New(rand.NewPCG(1, 1))
	for i := range f {
		f.serveOne(r, i, requests)
	}
}

func (f fleet) serveOne(r *rand.Rand, i, requests int) {
	for k := range fleetEdges {
		l := telemetry.EdgeLabels{At: pod(i), Out: k%2 == 0, Peer: pod((i + k*k + 1) % len(f))}
		if l.Out {
			l.Route, l.Service, l.Backend = fmt.Sprintf("%s/route", l.Peer.Namespace), l.Peer.Namespace+"/checkout:8080", l.Peer.Namespace+"/checkout-v2:8080"
		}
		e := f[i].Edge(l)
		for range requests {
			e.Observe(0, r.IntN(50) > 0, time.Duration(math.Exp(math.Log(5e6)+r.NormFloat64())))
		}
	}
}

// serveFleet serves the reports of a fleet until its input ends: those of one moment, or with "?later" of one after it.
func serveFleet() {
	f := newFleet(fleetSize)
	reports := make([][2][]byte, fleetSize)
	for moment := range 2 {
		f.serve(200)
		for i := range f {
			r := f[i].Report()
			r.Began = r.Time.Add(-time.Hour)
			if moment == 1 {
				r.Time = r.Time.Add(time.Minute)
			}
			reports[i][moment], _ = json.Marshal(r)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(l.Addr())
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		i, _ := strconv.Atoi(strings.TrimPrefix(q.URL.Path, "/"))
		moment := 0
		if q.URL.RawQuery == "later" {
			moment = 1
		}
		w.Write(reports[i%fleetSize][moment])
	}))
	io.Copy(io.Discard, os.Stdin)
}

func cpu() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkReadFleet reads the reports of 5,000 proxies, with 20,000 edges, over HTTP from another process.
func BenchmarkReadFleet(b *testing.B) {
	server := exec.Command(os.Args[0])
	server.Env = append(os.Environ(), serveReports+"=1")
	input, err := server.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	output, err := server.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := server.Start(); err != nil {
		b.Fatal(err)
	}
	defer server.Wait()
	defer input.Close()
	address, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	address = strings.TrimSpace(address)
	client := NewClient()
	readAll := func(s *Store, query string) {
		r := reader{store: s, ctx: context.Background(), free: make(chan struct{}, 32), targets: map[string]*target{}}
		for i := range fleetSize {
			r.due = append(r.due, &target{source: Source{Name: fmt.Sprint(i), At: pod(i), Read: client.Read(fmt.Sprintf("http://%s/%d?%s", address, i, query))}})
		}
		r.tick(0)
		r.all.Wait()
		if r.failed.count > 0 {
			b.Fatal(r.failed)
		}
	}
	var spent time.Duration
	for range b.N {
		b.StopTimer()
		s := New(Options{Interval: time.Second, Keep: time.Hour})
		readAll(s, "")
		runtime.GC()
		b.StartTimer()
		before := cpu()
		readAll(s, "later")
		spent += cpu() - before
		if a, err := s.Ask(context.Background(), metrics.Question{Window: time.Hour}); err != nil || len(a.Traffic) != fleetSize*fleetEdges {
			b.Fatal(err, len(a.Traffic))
		}
	}
	each := spent.Seconds() / float64(b.N)
	b.ReportMetric(each, "cpu-s/op")
	if os.Getenv("GOALS") != "" && each > 2 {
		b.Errorf("reading all proxies takes %.2f s of a processor, more than 2", each)
	}
}

// filled is a store with a whole window of a fleet.
func filled(f fleet, requests int, wait func()) *Store {
	s := New(Options{Interval: 10 * time.Millisecond})
	r := rand.New(rand.NewPCG(1, 1))
	for range 14 {
		for i := range f {
			f.serveOne(r, i, requests)
			s.Add(fmt.Sprint(i), f[i].Report())
		}
		wait()
	}
	return s
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestMemoryOfAFleet: a minute of 20,000 edges that all have traffic, with durations.
func TestMemoryOfAFleet(t *testing.T) {
	n, requests := fleetSize, 400
	if testing.Short() {
		n, requests = n/50, 40
	}
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(n)
		f.serve(requests) // what proxies need for it is not ours
		before := heap()
		s := filled(f, 30, func() { time.Sleep(5 * time.Second) })
		got := int(heap()-before) / n / fleetEdges
		runtime.KeepAlive(f)
		t.Logf("%d bytes an edge", got)
		if most := 6000; got > most {
			t.Errorf("%d bytes an edge, want at most %d", got, most)
		}
		runtime.KeepAlive(s)
	})
}

func BenchmarkAsk(b *testing.B) {
	s := filled(newFleet(fleetSize), 30, func() {})
	now := time.Now()
	for _, p := range s.sources { // as if it had taken a minute
		for i := range p.states {
			p.states[i].at = now.Add(time.Duration(i+1-len(p.states)) * 5 * time.Second)
		}
	}
	all := make([]telemetry.Side, 0, fleetSize)
	for i := range fleetSize {
		all = append(all, pod(i))
	}
	for name, q := range map[string]metrics.Question{
		"sum of 5000 sides": {Sum: true, At: all},
		"sum":               {Sum: true},
		"one side":          {At: all[7:8], With: all[7:8]},
		"all":               {},
	} {
		q.Window = 30 * time.Second
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				if a, err := s.Ask(context.Background(), q); err != nil || len(a.Traffic) == 0 {
					b.Fatal(len(a.Traffic), err)
				}
			}
		})
	}
}
