package controller

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/metrics"
	"github.com/weirmesh/weir/internal/metrics/embedded"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/task"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/workload"
)

func TestTrafficMetricsAreServedOnlyIfAskedFor(t *testing.T) {
	traffic := func(args ...string) []string {
		return names(plane(t, args...).group.Status(), func(s task.Status) bool { return strings.HasPrefix(s.Name, "traffic") })
	}
	for _, c := range []struct{ args, want []string }{
		{nil, nil},
		{[]string{"--traffic-metrics"}, []string{"traffic objects", "traffic API", "traffic"}},
		{[]string{"--traffic-metrics", "--prometheus", "http://prometheus:9090"}, []string{"traffic objects", "traffic API"}},
	} {
		if got := traffic(c.args...); !slices.Equal(got, c.want) {
			t.Errorf("%q: the tasks are %q, want %q", c.args, got, c.want)
		}
	}
}

func TestTrafficFlagsThatDoNotFitAreFaults(t *testing.T) {
	for _, args := range []string{
		"--prometheus=http://prometheus", "--traffic-metrics --conversion-address=off", "--traffic-metrics --prometheus-token-file=x", "--traffic-metrics --prometheus-tenant=x",
		"--traffic-metrics --prometheus=prometheus:9090", "--traffic-metrics --prometheus=http://user@prometheus", "--traffic-metrics --prometheus=https://p --prometheus-ca-file=/none",
	} {
		o := NewOptions()
		f := pflag.NewFlagSet("controller", pflag.ContinueOnError)
		o.Flags(f)
		if err := f.Parse(append(strings.Fields(args), "--proxy-image=x")); err != nil {
			t.Fatal(err)
		}
		err := o.validate()
		if err == nil {
			_, err = newTraffic(&controlPlane{Options: o}, slog.New(slog.DiscardHandler))
		}
		if fault := (*flags.Fault)(nil); !errors.As(err, &fault) || !strings.Contains(err.Error(), "--prometheus") && !strings.Contains(err.Error(), "--traffic-metrics") {
			t.Errorf("%s: %v", args, err)
		}
	}
}

// TestTrafficIsToldOnceObjectsAndCountsAreKnown, and seen at the admin endpoint.
func TestTrafficIsToldOnceObjectsAndCountsAreKnown(t *testing.T) {
	c := plane(t, "--traffic-metrics")
	get := func(h http.Handler, path string) (int, string) {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1"+path, nil)
		h.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	const pods = "/apis/traffic.metrics.k8s.io/v1beta1/namespaces/shop/pods/edge-1"
	h := c.traffic.api.Handler
	if code, body := get(h, pods); code != http.StatusServiceUnavailable || !strings.Contains(body, "not known yet") {
		t.Errorf("before objects are known: %d %s", code, body)
	}
	objects := resource.NewCollection(metrics.Kinds())
	pod := &workload.Pod{Object: workload.Object{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "edge-1"}}}
	objects.Put(resource.Adopt(metrics.Kinds(), pod))
	c.traffic.objects.Know(objects.Set())
	if code, body := get(h, pods); code != http.StatusServiceUnavailable || !strings.Contains(body, "no proxy has reported") {
		t.Errorf("before a proxy has reported: %d %s", code, body)
	}
	exposition := func() string { _, body := get(c.metrics.handler(), "/metrics"); return body }
	if text := exposition(); !strings.Contains(text, "\nweir_controller_traffic_proxies 0\n") || strings.Contains(text, "newest_report") {
		t.Errorf("before a proxy has reported the metrics are\n%s", text)
	}
	r := telemetry.New()
	r.Edge(telemetry.EdgeLabels{At: telemetry.Side{Kind: "Pod", Namespace: "shop", Name: "edge-1"}}).Observe(0, true, time.Millisecond)
	c.traffic.embedded.Add("shop/edge-1", r.Report())
	if code, body := get(h, pods); code != http.StatusOK || !strings.Contains(body, `{"name":"success_count","value":"1"}`) {
		t.Errorf("%d %s", code, body)
	}
	if code, body := get(h, "/openapi/v3"); code != http.StatusOK || !strings.Contains(body, "apis/traffic.metrics.k8s.io/v1beta1") {
		t.Errorf("what the API is like: %d %s", code, body)
	}
	for _, line := range []string{"weir_controller_traffic_proxies 1", "weir_controller_traffic_proxies_failing 0", "weir_controller_traffic_edges 1",
		`weir_controller_traffic_readings_total{result="failure"} 0`, "weir_controller_traffic_newest_report_seconds "} {
		if !strings.Contains(exposition(), "\n"+line) {
			t.Errorf("/metrics lacks %s", line)
		}
	}
	body, err := json.Marshal(c.status())
	if err != nil || !strings.Contains(string(body), `"traffic":{"proxies":1,"edges":1,"failing":0,"newest":"`) {
		t.Errorf("/status is %s, %v", body, err)
	}
}

// TestAReplicaWaitsForTrafficMetricsOnlySoLong: without the right to answer about them it feeds proxies none the less.
func TestAReplicaWaitsForTrafficMetricsOnlySoLong(t *testing.T) {
	c := plane(t, "--traffic-metrics")
	c.converting.Store(true)
	c.feeding.Store(true)
	if ok, why := c.group.Ready(); ok || !strings.Contains(why, "Traffic Metrics are not served") {
		t.Errorf("at first: %t, %q", ok, why)
	}
	c.traffic.began = time.Now().Add(-trafficPatience - time.Second)
	if ok, why := c.group.Ready(); !ok || !strings.Contains(why, "Traffic Metrics are not served") {
		t.Errorf("later: %t, %q", ok, why)
	}
}

// TestAReplicaBesideOthersWaitsUntilItHasAskedTheirProxies, once, and one that is alone does not wait for proxies, which
// connect only after it is ready.
func TestAReplicaBesideOthersWaitsUntilItHasAskedTheirProxies(t *testing.T) {
	fresh := func(proxies ...string) *traffic {
		c := plane(t, "--traffic-metrics")
		c.traffic.identified = func() bool { return true }
		c.traffic.objects.Know(resource.NewCollection(metrics.Kinds()).Set())
		c.traffic.others = func() []string { return proxies }
		return c.traffic
	}
	alone := fresh()
	if ok, why := alone.ready(); !ok || why != "" {
		t.Errorf("alone: %t, %q", ok, why)
	}
	alone.others = func() []string { return []string{"shop/edge-1"} }
	if ok, why := alone.ready(); !ok || why != "" {
		t.Errorf("once it was ready: %t, %q", ok, why)
	}
	beside := fresh("shop/edge-1")
	if ok, why := beside.ready(); ok || !strings.Contains(why, "not every proxy was asked") {
		t.Errorf("beside others: %t, %q", ok, why)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- beside.embedded.Run(ctx, func() []embedded.Source {
			return []embedded.Source{{Name: "shop/edge-1", Read: func(context.Context) (telemetry.Report, error) { return telemetry.Report{}, errors.New("it is gone") }}}
		})
	}()
	for !beside.embedded.ReadAll() {
		time.Sleep(10 * time.Millisecond)
	}
	if ok, why := beside.ready(); !ok || why != "" {
		t.Errorf("asked: %t, %q", ok, why)
	}
	cancel()
	<-ended
	late := fresh("shop/edge-1")
	late.began = time.Now().Add(-trafficPatience - time.Second)
	if ok, why := late.ready(); !ok || why == "" {
		t.Errorf("after its patience: %t, %q", ok, why)
	}
}

// TestOneListenerAnswersAPIServers: conversions as before, and all else is for those whom the API server sends on.
func TestOneListenerAnswersAPIServers(t *testing.T) {
	for _, c := range []struct {
		args       []string
		path       string
		code       int
		text       string
		conversion bool
	}{
		{nil, "/convert", http.StatusMethodNotAllowed, "reviews are sent by POST", true},
		{nil, "/apis", http.StatusNotFound, "no reviews are answered here", true},
		{[]string{"--traffic-metrics"}, "/convert", http.StatusMethodNotAllowed, "reviews are sent by POST", true},
		{[]string{"--traffic-metrics"}, "/apis/traffic.metrics.k8s.io/v1beta1/pods", http.StatusServiceUnavailable, `"kind":"Status"`, false},
		{[]string{"--traffic-metrics"}, "/convert/", http.StatusServiceUnavailable, `"kind":"Status"`, false},
		{[]string{"--traffic-metrics"}, "//convert", http.StatusServiceUnavailable, `"kind":"Status"`, false},
	} {
		p := plane(t, c.args...)
		w := httptest.NewRecorder()
		p.webhooks().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "https://weir"+c.path, nil))
		if w.Code != c.code || !strings.Contains(w.Body.String(), c.text) {
			t.Errorf("%q %s: %d %s", c.args, c.path, w.Code, w.Body)
		}
		if refused := p.reviews.Refused() == 1; refused != c.conversion {
			t.Errorf("%q %s: it is taken for a conversion: %t", c.args, c.path, refused)
		}
	}
}
