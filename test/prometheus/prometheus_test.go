// Package prometheus_test has a Prometheus and the embedded store read the same proxies, and compares what they say.
package prometheus_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/metrics"
	"github.com/weirmesh/weir/internal/metrics/embedded"
	"github.com/weirmesh/weir/internal/metrics/prometheus"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/test/freeport"
	"github.com/weirmesh/weir/test/weirtest"
)

func TestMain(m *testing.M) { weirtest.Main(m) }

// patience is how long anything may take before the test fails; it decides nothing else.
const patience = 2 * time.Minute

// proxy serves a registry's report and its exposition.
type proxy struct {
	name     string
	server   *httptest.Server
	registry atomic.Pointer[telemetry.Registry]
	older    time.Duration // it says that it began so much earlier
	down     atomic.Bool
	// scrapes and reports are how often it was read.
	scrapes, reports atomic.Int64
}

var beganLine = regexp.MustCompile(`(?m)^` + telemetry.BeganTimestamp + ` .*$`)

func newProxy(t *testing.T, name string, r *telemetry.Registry, older time.Duration) *proxy {
	p := &proxy{name: name, older: older}
	p.registry.Store(r)
	p.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r := p.registry.Load()
		switch {
		case p.down.Load():
			http.Error(w, "down", http.StatusServiceUnavailable)
		case q.URL.Path == "/report":
			report := r.Report()
			report.Began = report.Began.Add(-older)
			json.NewEncoder(w).Encode(report)
			p.reports.Add(1)
		default:
			q.Header.Del("Accept-Encoding")
			page := httptest.NewRecorder()
			r.Handler().ServeHTTP(page, q)
			w.Header().Set("Content-Type", page.Header().Get("Content-Type"))
			began := float64(r.Report().Began.Add(-older).UnixNano()) / 1e9
			w.Write(beganLine.ReplaceAll(page.Body.Bytes(), fmt.Appendf(nil, "%s %v", telemetry.BeganTimestamp, began)))
			p.scrapes.Add(1)
		}
	}))
	t.Cleanup(p.server.Close)
	return p
}

// fleet are the proxies that there are now, and the files that tell Prometheus.
type fleet struct {
	mu     sync.Mutex
	all    []*proxy
	target string
	client *embedded.Client
}

func (f *fleet) set(t *testing.T, all ...*proxy) {
	t.Helper()
	type group struct {
		Targets []string          `json:"targets"`
		Labels  map[string]string `json:"labels"`
	}
	var groups []group
	for _, p := range all {
		groups = append(groups, group{[]string{p.server.Listener.Addr().String()}, map[string]string{"pod": p.name, "cluster": "here"}})
	}
	b, err := json.Marshal(groups)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(f.target+".new", b, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(f.target+".new", f.target); err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = all
}

func (f *fleet) sources() (out []embedded.Source) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.all {
		out = append(out, embedded.Source{Name: p.name, Read: f.client.Read(p.server.URL + "/report")})
	}
	return out
}

// start starts Prometheus with jobs, and returns its URL.
func start(t *testing.T, dir, jobs string, rules ...string) string {
	binary, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("prometheus is not installed: scripts/setup.sh prometheus")
	}
	config := filepath.Join(dir, "prometheus.yml")
	err = os.WriteFile(config, []byte(`
global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
rule_files: [`+strings.Join(rules, ",")+`]
scrape_configs:
`+jobs), 0o644)
	if err != nil {
		t.Fatal(err)
	}
	port, err := freeport.Take()
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprint("127.0.0.1:", port)
	cmd := exec.Command(binary, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address, "--log.level=warn")
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			t.Logf("prometheus says:\n%s", log.String())
		}
	})
	url := "http://" + address
	eventually(t, "Prometheus is ready", func() string {
		response, err := http.Get(url + "/-/ready")
		if err != nil {
			return err.Error()
		}
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return response.Status
		}
		return ""
	})
	return url
}

// found is the part of a job by which Prometheus finds targets in a file.
func found(targets string) string {
	return "  file_sd_configs: [{files: [" + targets + "], refresh_interval: 1s}]\n"
}

// eventually waits until what returns nothing.
func eventually(t *testing.T, what string, not func() string) {
	t.Helper()
	for begin := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		why := not()
		if why == "" {
			return
		}
		if time.Since(begin) > patience {
			t.Fatalf("%s: %s", what, why)
		}
	}
}

// world is the proxies, both stores, and how many requests there were since the mark.
type world struct {
	t      *testing.T
	fleet  *fleet
	stores map[string]metrics.Store
	random *rand.Rand

	mark  time.Time
	truth map[telemetry.EdgeLabels]*[2]uint64 // failures, successes
}

// send counts requests at an edge.
func (w *world) send(p *proxy, l telemetry.EdgeLabels, n int) {
	count := w.truth[l]
	if count == nil {
		count = new([2]uint64)
		w.truth[l] = count
	}
	for range n {
		result := min(1, w.random.IntN(5))
		count[result]++
		p.registry.Load().Edge(l).Observe(0, result == 1, time.Duration(math.Exp(math.Log(8e6)+1.5*w.random.NormFloat64())))
	}
}

// readAgain waits until all have been read n times more by both, whole.
func (w *world) readAgain(n int64) {
	w.t.Helper()
	w.fleet.mu.Lock()
	all := w.fleet.all
	w.fleet.mu.Unlock()
	for _, p := range all {
		scrapes, reports := p.scrapes.Load(), p.reports.Load()
		eventually(w.t, p.name+" is read", func() string {
			if p.scrapes.Load() < scrapes+n || p.reports.Load() < reports+n {
				return fmt.Sprintf("scraped %d times, reported %d times", p.scrapes.Load()-scrapes, p.reports.Load()-reports)
			}
			return ""
		})
	}
}

// begin sets the mark: no request before it counts. There are readings on both of its sides without traffic between.
func (w *world) begin() {
	w.t.Helper()
	w.readAgain(2)
	w.mark, w.truth = time.Now(), map[telemetry.EdgeLabels]*[2]uint64{}
	w.readAgain(2)
}

func (w *world) ask(store string, q metrics.Question) (metrics.Answer, error) {
	q.Window = time.Since(w.mark)
	return w.stores[store].Ask(context.Background(), q)
}

// holds waits until both stores say what there was since the mark.
func (w *world) holds(what string) {
	w.t.Helper()
	w.agree(what, metrics.Question{}, w.truth)
	// Questions for some are answered from the same.
	sides := map[telemetry.Side]bool{{Kind: "Pod", Namespace: "shop", Name: "nobody"}: true}
	for l := range w.truth {
		sides[l.At], sides[l.Peer] = true, true
	}
	for side := range sides {
		for name, q := range map[string]metrics.Question{
			"at": {At: []telemetry.Side{side}}, "with": {With: []telemetry.Side{side}}, "at or with": {At: []telemetry.Side{side}, With: []telemetry.Side{side}},
			"at both": {At: []telemetry.Side{side, web}}, "sum": {At: []telemetry.Side{side}, Sum: true},
		} {
			want := map[telemetry.EdgeLabels]*[2]uint64{}
			for l, n := range w.truth {
				if !slices.Contains(q.At, l.At) && !slices.Contains(q.With, l.Peer) {
					continue
				}
				if q.Sum {
					l = telemetry.EdgeLabels{At: l.At, Out: l.Out}
				}
				sum := *n
				if before := want[l]; before != nil {
					sum[0], sum[1] = sum[0]+before[0], sum[1]+before[1]
				}
				want[l] = &sum
			}
			w.agree(fmt.Sprintf("%s, %s %v", what, name, side), q, want)
		}
	}
}

func (w *world) agree(what string, q metrics.Question, want map[telemetry.EdgeLabels]*[2]uint64) {
	w.t.Helper()
	answers := map[string]metrics.Answer{}
	for store := range w.stores {
		eventually(w.t, what+", "+store, func() string {
			a, err := w.ask(store, q)
			if err != nil {
				return err.Error()
			}
			answers[store] = a
			return difference(a, want)
		})
	}
	for i, e := range answers["embedded"].Traffic {
		p := answers["prometheus"].Traffic[i]
		for _, quantile := range []float64{0.1, 0.5, 0.9, 0.99} {
			fine, coarse := e.Latency.Quantile(quantile), p.Latency.Quantile(quantile)
			if low, high := bucket(fine); coarse < low || coarse > high {
				w.t.Errorf("%s: %v: quantile %v is %v, and %v in Prometheus", what, e.EdgeLabels, quantile, fine, coarse)
			}
		}
	}
}

func difference(a metrics.Answer, want map[telemetry.EdgeLabels]*[2]uint64) string {
	var b strings.Builder
	rest := maps.Clone(want)
	for _, row := range a.Traffic {
		n := rest[row.EdgeLabels]
		if n == nil {
			n = new([2]uint64)
		}
		delete(rest, row.EdgeLabels)
		if row.Failure != n[0] || row.Success != n[1] || row.Latency.Count() != n[0]+n[1] {
			fmt.Fprintf(&b, "%+v: %d and %d, and %d durations, want %d and %d\n", row.EdgeLabels, row.Failure, row.Success, row.Latency.Count(), n[0], n[1])
		}
	}
	for l, n := range rest {
		fmt.Fprintf(&b, "%+v is missing: %d and %d\n", l, n[0], n[1])
	}
	return b.String()
}

// bucket is the range of the exposition's bucket that holds a duration.
func bucket(d time.Duration) (low, high time.Duration) {
	for unit := 100 * time.Microsecond; ; unit *= 10 {
		for _, high := range []time.Duration{unit * 10 / 4, unit * 5, unit * 10} {
			if d <= high {
				return low, high
			}
			low = high
		}
	}
}

var (
	web  = telemetry.Side{Kind: "Pod", Namespace: "shop", Name: "web"}
	cart = telemetry.Side{Kind: "Pod", Namespace: "shop", Name: "cart"}
	odd  = telemetry.Side{Kind: "Gateway", Name: "a\"b\\c|.*\n{}é"}
	to   = telemetry.EdgeLabels{At: web, Out: true, Peer: cart, Route: "shop/r", Service: "shop/cart:80", Backend: "shop/cart-v2:80"}
	from = telemetry.EdgeLabels{At: cart, Peer: web}
	none = telemetry.EdgeLabels{At: cart}
	some = telemetry.EdgeLabels{At: cart, Peer: odd}
)

// TestPrometheusAndTheEmbeddedStoreSayTheSame as what happened, whatever proxies do.
func TestPrometheusAndTheEmbeddedStoreSayTheSame(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes minutes: make test-prometheus")
	}
	dir := t.TempDir()
	f := &fleet{target: filepath.Join(dir, "targets.json"), client: embedded.NewClient()}
	a := newProxy(t, "a", telemetry.New(), 0)
	b := newProxy(t, "b", telemetry.New(), 0)
	long := newProxy(t, "long", telemetry.New(), time.Hour)
	for range 1000 {
		long.registry.Load().Edge(to).Observe(0, true, time.Second)
	}
	f.set(t, a, b, long)
	url := start(t, dir, "- job_name: weir\n"+found(f.target))
	theirs, err := prometheus.New(prometheus.Options{URL: url, Step: time.Second, Matchers: map[string]string{"cluster": "here"}})
	if err != nil {
		t.Fatal(err)
	}
	ours := embedded.New(embedded.Options{Interval: time.Second, Keep: 10 * time.Minute})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { ours.Run(ctx, f.sources) })
	t.Cleanup(func() { cancel(); running.Wait(); http.DefaultClient.CloseIdleConnections(); theirs.Close() })

	w := &world{t: t, fleet: f, stores: map[string]metrics.Store{"embedded": ours, "prometheus": theirs}, random: rand.New(rand.NewPCG(1, 2))}
	t.Run("traffic", func(t *testing.T) {
		w.t = t
		w.begin()
		w.holds("without traffic")
		w.send(a, to, 300)
		w.send(b, from, 200)
		w.send(long, to, 100)
		w.send(long, some, 50) // new there
		w.send(long, none, 1)
		w.holds("traffic")
		w.begin()
		w.send(a, to, 10)
		w.holds("more traffic")
	})
	t.Run("a restart", func(t *testing.T) {
		w.t = t
		w.begin()
		w.send(b, from, 5)
		w.holds("before")
		w.readAgain(2)
		again := telemetry.New()
		hidden := &proxy{}
		hidden.registry.Store(again)
		w.send(hidden, from, 400) // more than before, so that no count falls
		w.send(hidden, some, 7)
		b.registry.Store(again)
		w.holds("after")
	})
	t.Run("one that comes and one that goes", func(t *testing.T) {
		w.t = t
		w.begin()
		w.send(a, to, 20)
		w.holds("before")
		w.readAgain(2)
		young := newProxy(t, "young", telemetry.New(), 0)
		w.send(young, from, 30)
		w.send(young, none, 3)
		old := newProxy(t, "old", telemetry.New(), time.Hour)
		for range 500 { // not of the window, whoever reads them now for the first time
			old.registry.Load().Edge(to).Observe(0, true, time.Second)
		}
		f.set(t, b, long, young, old)
		a.server.Close()
		w.holds("after")
		w.readAgain(2)
		w.send(old, to, 5)
		w.send(young, from, 5)
		w.holds("later")
		f.set(t, b, long)
	})
	t.Run("readings that fail", func(t *testing.T) {
		w.t = t
		w.begin()
		w.send(long, to, 10)
		w.holds("before")
		long.down.Store(true)
		time.Sleep(4 * time.Second)
		w.send(long, to, 11)
		w.send(long, from, 12)
		long.down.Store(false)
		w.holds("after")
	})
	t.Run("a series that is dropped and begins again", func(t *testing.T) {
		w.t = t
		brief := newProxy(t, "brief", telemetry.NewRegistry(telemetry.Options{Grace: time.Second}), 0)
		f.set(t, b, long, brief)
		w.begin()
		w.send(brief, to, 10)
		w.holds("before")
		eventually(t, "the series is dropped", func() string {
			if len(brief.registry.Load().Edges()) > 0 {
				return "it is there"
			}
			return ""
		})
		w.readAgain(2)
		w.send(brief, to, 30)
		w.holds("after")
		f.set(t, b, long)
	})
}
