package controller

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/inject"
	"github.com/weirmesh/weir/internal/kube"
	"github.com/weirmesh/weir/internal/kube/aggregated"
	"github.com/weirmesh/weir/internal/kube/infra"
	"github.com/weirmesh/weir/internal/kube/replica"
	"github.com/weirmesh/weir/internal/kube/scrape"
	"github.com/weirmesh/weir/internal/metrics"
	"github.com/weirmesh/weir/internal/metrics/embedded"
	"github.com/weirmesh/weir/internal/metrics/prometheus"
	"github.com/weirmesh/weir/internal/metrics/rest"
	"github.com/weirmesh/weir/internal/metrics/schema"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/tapping"
)

// traffic answers about Traffic Metrics: what proxies counted, in terms of the cluster's objects. Every replica knows the
// same objects, and reads the same proxies at the same times, so that they answer alike.
type traffic struct {
	// source reads the objects apart from the control loop's, which pods that come and go are not to keep busy.
	source  *kube.Source
	objects metrics.Newest
	store   metrics.Store
	// embedded is nil if a Prometheus is asked; fleets are what it reads, of pods.
	embedded *embedded.Store
	fleets   []*scrape.Fleet
	pods     scrape.Pods
	// taps are those of requests at the proxies.
	taps *tapping.Hub
	// api answers API servers.
	api   *aggregated.API
	began time.Time
	// identified says that it is known how the API server identifies itself.
	identified func() bool
	// others returns the proxies that are connected to any replica; wasReady says that ready was true once.
	others   func() []string
	wasReady atomic.Bool
}

// trafficPatience is how long a replica that has begun waits with being ready until it can answer about traffic. Proxies
// are not to lack their controller for longer because it has no right to.
const trafficPatience = 10 * time.Second

// trafficSettle is how long changes of the cluster are gathered before the objects that Traffic Metrics are about are
// others: a Deployment that is rolled out has many.
const trafficSettle = 500 * time.Millisecond

// newTraffic returns nil if Traffic Metrics are not served.
func newTraffic(c *controlPlane, log *slog.Logger) (*traffic, error) {
	if !c.trafficMetrics.on {
		return nil, nil
	}
	t := &traffic{began: time.Now(), source: kube.NewSource(c.client, kube.SourceOptions{Kinds: metrics.Kinds(), Scope: c.scope(), Settle: trafficSettle, Logger: log.With("for", "traffic metrics")})}
	if c.trafficMetrics.prometheus.URL == "" {
		t.embedded = embedded.New(embedded.Options{Aligned: true, Log: log})
		t.others = c.connected
		t.fleets = []*scrape.Fleet{{Pods: &t.pods, Connected: c.connected, Read: embedded.NewClient().Read, Port: infra.AdminPort}}
		if c.sidecars != nil {
			t.others = func() []string { return slices.Concat(c.connected(), c.connectedSidecars()) }
			t.fleets = append(t.fleets, &scrape.Fleet{Pods: &t.pods, Connected: c.connectedSidecars, Read: embedded.NewPodClient().Read, Port: inject.AdminPort, Sidecars: true})
		}
		t.store = t.embedded
	} else {
		store, err := prometheus.New(c.trafficMetrics.prometheus)
		if err != nil {
			return nil, flags.Errorf("--prometheus: %w", err)
		}
		t.store = store
	}
	t.taps = newTaps(c)
	t.api = &aggregated.API{Client: c.client, Handler: t.handler(), Logger: log}
	t.identified = t.api.Ready
	return t, nil
}

// handler answers those who may ask.
func (t *traffic) handler() http.Handler {
	answers := &rest.Handler{
		Index: t.objects.Index, Store: t.store, Shown: aggregated.Shown, Custom: &rest.Custom{Index: t.objects.Index, Store: t.store},
		Tap: t.taps.ServeTap, Missing: t.missing,
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/openapi/") {
			schema.ServeHTTP(w, r)
			return
		}
		answers.ServeHTTP(w, r)
	})
}

// missing says of how many proxies the traffic is missing, if this replica reads them.
func (t *traffic) missing() string {
	if t.embedded == nil {
		return ""
	}
	return t.embedded.Stats().Missing()
}

// ready says whether API servers may rely on this replica; after trafficPatience it only says why not. Beside others it
// waits until it has asked each of their proxies once, since it would answer 503 or know too little, and they answer
// meanwhile. Alone it does not: its proxies connect only once it is ready.
func (t *traffic) ready() (ok bool, why string) {
	switch {
	case !t.identified():
		why = "Traffic Metrics are not served, as it is not known how the API server identifies itself"
	case !t.objects.Known():
		why = "Traffic Metrics are not served, as their objects are not known yet"
	case t.embedded != nil && !t.wasReady.Load() && !t.embedded.ReadAll() && len(t.others()) > 0:
		why = "Traffic Metrics are not served, as not every proxy was asked for its traffic yet"
	}
	ok = why == "" || time.Since(t.began) > trafficPatience
	if ok {
		t.wasReady.Store(true)
	}
	return ok, why
}

// know is the task that keeps the objects.
func (t *traffic) know(ctx context.Context) error {
	return t.source.Run(ctx, func(set *resource.Set) {
		t.objects.Know(set)
		if t.embedded != nil {
			t.pods.Known(set)
		}
	})
}

// read is the task that reads the proxies.
func (t *traffic) read(ctx context.Context) error {
	sources := make([]func() []embedded.Source, len(t.fleets))
	for i, f := range t.fleets {
		sources[i] = f.Sources
	}
	return t.embedded.Run(ctx, sources...)
}

// leftOut is how many proxies and sidecars are not read, as there are too many.
func (t *traffic) leftOut() (n int) {
	for _, f := range t.fleets {
		n += f.LeftOut()
	}
	return n
}

// connected are the pods of the proxies that are connected to any replica.
func (c *controlPlane) connected() (out []string) {
	if accounts := c.accounts.Load(); accounts != nil {
		for _, owner := range *accounts {
			for _, p := range replica.Newest(c.feeds.Running(owner), c.board.Others(owner)) {
				out = append(out, p.Name)
			}
		}
	}
	return out
}

// connectedSidecars are the pods whose sidecars are connected to any replica and serve a configuration.
func (c *controlPlane) connectedSidecars() (out []string) {
	for _, s := range replica.Sidecars(c.runningSidecars(), c.board.OtherSidecars()) {
		if s.Serves {
			out = append(out, s.Pod)
		}
	}
	return out
}

// runningSidecars are the sidecars that are connected to this replica.
func (c *controlPlane) runningSidecars() []replica.Sidecar {
	return replica.SidecarsOf(c.feeds.Alone())
}

// trafficStatus is how the reading of proxies stands, for /status.
type trafficStatus struct {
	// Proxies are those, sidecars included, that reported within the last minute, Edges their series.
	Proxies int `json:"proxies"`
	Edges   int `json:"edges"`
	// Failing are those that could not be read when they were last asked, LeftOut those beyond the bound.
	Failing int `json:"failing"`
	LeftOut int `json:"leftOut,omitempty"`
	// Newest is when the newest report came.
	Newest *time.Time `json:"newest,omitempty"`
	// Prometheus is the one that is asked in their place.
	Prometheus string `json:"prometheus,omitempty"`
}

func (c *controlPlane) trafficStatus() *trafficStatus {
	switch {
	case c.traffic == nil:
		return nil
	case c.traffic.embedded == nil:
		return &trafficStatus{Prometheus: c.trafficMetrics.prometheus.URL}
	}
	s := c.traffic.embedded.Stats()
	out := &trafficStatus{Proxies: s.Proxies, Edges: s.Edges, Failing: s.Failing, LeftOut: c.traffic.leftOut()}
	if !s.Newest.IsZero() {
		out.Newest = &s.Newest
	}
	return out
}
