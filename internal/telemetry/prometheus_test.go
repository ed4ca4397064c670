package telemetry

import (
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
)

// busy is a registry in which everything happened.
func busy() *Registry {
	r := NewRegistry(Options{Version: "v0.1.0"})
	r.Edge(EdgeLabels{Out: true, Peer: Side{"Pod", "default", "v1-a"}, Service: "default/v1"}).Observe(0, true, 3*time.Millisecond)
	x := r.Exchange(ExchangeLabels{Route: "default/shop", Rule: "0", Backend: "default/v1:80"})
	y := r.Exchange(ExchangeLabels{Route: "default/shop", Rule: "0", Backend: "default/v2:80"})
	for i := range uint32(100) {
		x.Observe(i, 200, 3*time.Millisecond, 10, 1000)
	}
	x.Observe(0, 503, 5*time.Millisecond, 0, 0)
	x.Fail(0, ConnectFailed)
	y.Observe(0, 502, 2*time.Hour, 0, 0)
	y.Fail(0, ConnectFailed)
	x.Retry(0)
	r.Unrouted().Observe(0, 404, 100*time.Microsecond, 0, 0)
	r.Unrouted().Fail(0, NoRoute)
	m := r.Mirror(MirrorLabels{Route: "default/shop", Rule: "0", Mirror: "default/v3:80"})
	for i := range uint32(10) {
		m.Consider(i, i < 5)
	}
	m.Count(0, MirrorDroppedInFlight)
	l := r.Listener("default/gw/http")
	l.Opened(1)
	l.Opened(2)
	l.Closed(1)
	r.ReloadSucceeded(7)
	r.ReloadFailed()
	r.WatchTraces(func() Traces { return Traces{Exported: 1} })
	r.WatchMirrors(func(yield func(MirrorState)) {
		s := MirrorState{Service: "default/v3:80", InFlight: 3, QueuedBytes: 4096, BreakerOpen: true}
		yield(s)
		yield(s) // twice must not fail the scrape
	})
	r.WatchCertificates(func(yield func(Certificate)) {
		yield(Certificate{Name: "default/shop-cert", Expiry: time.Unix(1_800_000_000, 0)})
	})
	r.WatchWeights(func(yield func(ExchangeLabels, float64)) {
		yield(ExchangeLabels{Route: "default/shop", Rule: "0", Backend: "default/v1:80"}, 0.25)
	})
	r.Access("shop/Pod/web-1").Count(0, AccessNoIdentity, false)
	return r
}

func TestCountersAreExposed(t *testing.T) {
	const want = `
# HELP weir_access_log_dropped_records_total Access log records lost because the queue was full or the log could not be written.
# TYPE weir_access_log_dropped_records_total counter
weir_access_log_dropped_records_total 0
# HELP weir_backend_weight_ratio Part of the rule's requests, 0 to 1, that the configuration sends to the backend by the weights of rules and splits; splits with matches are left out.
# TYPE weir_backend_weight_ratio gauge
weir_backend_weight_ratio{backend="default/v1:80",route="default/shop",rule="0"} 0.25
# HELP weir_certificate_expiry_timestamp_seconds When the first certificate of a chain that listeners present expires.
# TYPE weir_certificate_expiry_timestamp_seconds gauge
weir_certificate_expiry_timestamp_seconds{certificate="default/shop-cert"} 1.8e+09
# HELP weir_config_generation Number of the configuration being served.
# TYPE weir_config_generation gauge
weir_config_generation 7
# HELP weir_config_last_reload_successful 1 when the last configuration was applied, 0 when it was refused.
# TYPE weir_config_last_reload_successful gauge
weir_config_last_reload_successful 0
# HELP weir_config_reloads_total Attempts to apply a configuration, by result.
# TYPE weir_config_reloads_total counter
weir_config_reloads_total{result="failure"} 1
weir_config_reloads_total{result="success"} 1
# HELP weir_connections_open Open client connections.
# TYPE weir_connections_open gauge
weir_connections_open{listener="default/gw/http"} 1
# HELP weir_connections_total Client connections accepted.
# TYPE weir_connections_total counter
weir_connections_total{listener="default/gw/http"} 2
# HELP weir_mirror_breaker_open 1 while the mirror's target is paused because it failed too often.
# TYPE weir_mirror_breaker_open gauge
weir_mirror_breaker_open{mirror="default/v3:80"} 1
# HELP weir_mirror_considered_total Requests that reached the mirror filter, before its fraction was applied.
# TYPE weir_mirror_considered_total counter
weir_mirror_considered_total{mirror="default/v3:80",route="default/shop",rule="0"} 10
# HELP weir_mirror_in_flight_requests Copies in flight to the mirror's target.
# TYPE weir_mirror_in_flight_requests gauge
weir_mirror_in_flight_requests{mirror="default/v3:80"} 3
# HELP weir_mirror_queued_bytes Bytes of copies held in memory for the mirror's target.
# TYPE weir_mirror_queued_bytes gauge
weir_mirror_queued_bytes{mirror="default/v3:80"} 4096
# HELP weir_mirror_requests_total Finished copies: sent, dropped by the proxy, or failed by the mirror's target.
# TYPE weir_mirror_requests_total counter
weir_mirror_requests_total{mirror="default/v3:80",outcome="dropped_in_flight",route="default/shop",rule="0"} 1
weir_mirror_requests_total{mirror="default/v3:80",outcome="sent",route="default/shop",rule="0"} 0
# HELP weir_mirror_selected_total Requests that the mirror's fraction selected to be copied.
# TYPE weir_mirror_selected_total counter
weir_mirror_selected_total{mirror="default/v3:80",route="default/shop",rule="0"} 5
# HELP weir_request_bytes_total Bytes of request bodies received from clients.
# TYPE weir_request_bytes_total counter
weir_request_bytes_total{backend="",route="",rule=""} 0
weir_request_bytes_total{backend="default/v1:80",route="default/shop",rule="0"} 1000
weir_request_bytes_total{backend="default/v2:80",route="default/shop",rule="0"} 0
# HELP weir_request_failures_total Failed exchanges, by the reason that the access log also has.
# TYPE weir_request_failures_total counter
weir_request_failures_total{reason="connect_failed",route="default/shop",rule="0"} 2
weir_request_failures_total{reason="no_route",route="",rule=""} 1
# HELP weir_request_retries_total Attempts to reach backends beyond the first of each exchange.
# TYPE weir_request_retries_total counter
weir_request_retries_total{backend="",route="",rule=""} 0
weir_request_retries_total{backend="default/v1:80",route="default/shop",rule="0"} 1
weir_request_retries_total{backend="default/v2:80",route="default/shop",rule="0"} 0
# HELP weir_requests_total Finished exchanges, by the status sent to the client; code 0 is no answer.
# TYPE weir_requests_total counter
weir_requests_total{backend="",code="404",route="",rule=""} 1
weir_requests_total{backend="default/v1:80",code="200",route="default/shop",rule="0"} 100
weir_requests_total{backend="default/v1:80",code="503",route="default/shop",rule="0"} 1
weir_requests_total{backend="default/v2:80",code="502",route="default/shop",rule="0"} 1
# HELP weir_response_bytes_total Bytes of response bodies sent to clients.
# TYPE weir_response_bytes_total counter
weir_response_bytes_total{backend="",route="",rule=""} 0
weir_response_bytes_total{backend="default/v1:80",route="default/shop",rule="0"} 100000
weir_response_bytes_total{backend="default/v2:80",route="default/shop",rule="0"} 0
`
	names := []string{}
	for _, line := range strings.Split(want, "\n") {
		if f := strings.Fields(line); len(f) > 2 && f[1] == "TYPE" {
			names = append(names, f[2])
		}
	}
	if err := testutil.CollectAndCompare(busy(), strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
}

func TestMetricsAreClean(t *testing.T) {
	problems, err := testutil.CollectAndLint(busy())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestEveryMetricIsDescribed(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(busy())
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if len(families) != len(allDescs) {
		t.Errorf("%d families were gathered, %d described", len(families), len(allDescs))
	}
}

// bucketsOf turns the spans and deltas of a native histogram into counts by bucket.
func bucketsOf(h *dto.Histogram) map[int32]int64 {
	counts := map[int32]int64{}
	index, count, delta := int32(0), int64(0), 0
	for _, span := range h.PositiveSpan {
		index += span.GetOffset()
		for range span.GetLength() {
			count += h.PositiveDelta[delta]
			counts[index] = count
			index++
			delta++
		}
	}
	return counts
}

func TestDurationsAreExposedAsClassicAndNativeHistogram(t *testing.T) {
	x := New().Unrouted()
	reference := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "reference", Help: "-", NativeHistogramBucketFactor: math.Exp2(1.0 / (1 << nativeSchema)),
		NativeHistogramZeroThreshold: prometheus.NativeHistogramZeroThresholdZero, NativeHistogramMaxBucketNumber: 1000,
	})
	exact := map[time.Duration]uint64{}
	for range 10_000 {
		d := time.Duration(math.Exp(math.Log(1e5) + rand.Float64()*math.Log(1e6)))
		if rand.IntN(5) == 0 {
			d = classicBounds[rand.IntN(len(classicBounds))] // the bound itself belongs to the bucket
		}
		x.Observe(rand.Uint32(), 200, d, 0, 0)
		reference.Observe(d.Seconds())
		for _, bound := range classicBounds {
			if d <= bound {
				exact[bound]++
			}
		}
	}
	var got, want dto.Metric
	if err := newHistogram(descDuration, x.Snapshot().Latency, "", "", "").Write(&got); err != nil {
		t.Fatal(err)
	}
	if err := reference.Write(&want); err != nil {
		t.Fatal(err)
	}
	h := got.Histogram
	if h.GetSampleCount() != 10_000 || math.Abs(h.GetSampleSum()-want.Histogram.GetSampleSum()) > 1e-3 {
		t.Errorf("count %d, sum %v", h.GetSampleCount(), h.GetSampleSum())
	}
	for i, b := range h.Bucket {
		if bound := classicBounds[i]; b.GetUpperBound() != bound.Seconds() || b.GetCumulativeCount() != exact[bound] {
			t.Errorf("le %v: %d, want %d", b.GetUpperBound(), b.GetCumulativeCount(), exact[bound])
		}
	}
	if h.GetSchema() != want.Histogram.GetSchema() {
		t.Fatalf("schema %d, want %d", h.GetSchema(), want.Histogram.GetSchema())
	}
	// A fine bucket across an edge of the native ones is counted whole on one side: cumulatively the native counts
	// lie between the exact ones one bucket before and after.
	ours, exactly := bucketsOf(h), bucketsOf(want.Histogram)
	total := int64(0)
	for _, n := range ours {
		total += n
	}
	if total != 10_000 {
		t.Errorf("native buckets hold %d", total)
	}
	cumulative := func(counts map[int32]int64, to int32) (sum int64) {
		for index, n := range maps.All(counts) {
			if index <= to {
				sum += n
			}
		}
		return sum
	}
	for index := range exactly {
		if c := cumulative(ours, index); c < cumulative(exactly, index-1) || c > cumulative(exactly, index+1) {
			t.Errorf("up to native bucket %d: %d, exactly %d", index, c, cumulative(exactly, index))
		}
	}
}

func TestAnEmptyHistogramIsStillNative(t *testing.T) {
	var m dto.Metric
	if err := newHistogram(descDuration, Latency{}, "", "", "").Write(&m); err != nil {
		t.Fatal(err)
	}
	if len(m.Histogram.PositiveSpan) != 1 || m.Histogram.GetSampleCount() != 0 || len(m.Histogram.Bucket) != len(classicBounds) {
		t.Fatalf("histogram = %v", m.Histogram)
	}
}

func TestHandlerServesTheFormatThatIsAskedFor(t *testing.T) {
	server := httptest.NewServer(busy().Handler())
	defer server.Close()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, c := range []struct{ accept, contentType, line string }{
		{"", "text/plain", `weir_request_duration_seconds_bucket{backend="default/v1:80",route="default/shop",rule="0",le="0.005"} 101`},
		{"", "text/plain", `weir_request_duration_seconds_bucket{backend="default/v2:80",route="default/shop",rule="0",le="+Inf"} 1`},
		{"", "text/plain", "go_goroutines "},
		{"", "text/plain", "process_cpu_seconds_total "},
		{"", "text/plain", `weir_build_info{goversion="go`},
		{"application/openmetrics-text; version=1.0.0", "application/openmetrics-text", "# EOF"},
	} {
		req, err := http.NewRequest(http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", c.accept)
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Header.Get("Content-Type"), c.contentType) {
			t.Errorf("Accept %q: %s, %s", c.accept, resp.Status, resp.Header.Get("Content-Type"))
		}
		if !strings.Contains(string(body), c.line) {
			t.Errorf("Accept %q: %q is missing in\n%s", c.accept, c.line, body)
		}
	}
}

func TestLabelsThatAreNotUTF8DoNotFailTheScrape(t *testing.T) {
	r := New()
	r.Exchange(ExchangeLabels{Route: "a/\xff", Rule: "\xfe"}).Observe(0, 200, 0, 0, 0)
	r.Mirror(MirrorLabels{Mirror: "\xff"}).Consider(0, true)
	r.Listener("\xff")
	if n, err := testutil.GatherAndCount(registryOf(r), "weir_requests_total"); err != nil || n != 1 {
		t.Fatalf("%d series, %v", n, err)
	}
}

func registryOf(c prometheus.Collector) *prometheus.Registry {
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(c)
	return reg
}
