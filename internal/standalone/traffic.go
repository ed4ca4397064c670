package standalone

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	api "github.com/weirmesh/weir/api/metrics"
	"github.com/weirmesh/weir/internal/metrics"
	"github.com/weirmesh/weir/internal/metrics/embedded"
	"github.com/weirmesh/weir/internal/metrics/rest"
	"github.com/weirmesh/weir/internal/process"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/telemetry"
)

// ownSource is the name of this process's proxy among those that are read.
const ownSource = "this process"

// trafficInterval is the time between two readings of the proxies.
const trafficInterval = 2 * time.Second

// Traffic answers requests about Traffic Metrics for a process that serves files: by what its own proxy counted, and the
// proxies of other such processes.
type Traffic struct {
	registry *telemetry.Registry
	store    *embedded.Store

	objects metrics.Newest

	mu      sync.Mutex
	sources []embedded.Source
}

// NewTraffic has the proxy that counts in a registry, and those whose admin endpoints have the URLs in from.
func NewTraffic(registry *telemetry.Registry, from []string, log *slog.Logger) *Traffic {
	t := &Traffic{registry: registry, store: embedded.New(embedded.Options{Interval: trafficInterval, Log: log})}
	t.sources = []embedded.Source{{Name: ownSource, Read: func(context.Context) (telemetry.Report, error) { return registry.Report(), nil }}}
	client := embedded.NewClient()
	for _, url := range from {
		t.sources = append(t.sources, embedded.Source{Name: url, Read: client.Read(strings.TrimSuffix(url, "/") + telemetry.ReportPath)})
	}
	return t
}

// Beside adds another proxy of this process.
func (t *Traffic) Beside(name string, registry *telemetry.Registry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sources = append(t.sources, embedded.Source{Name: name, Read: func(context.Context) (telemetry.Report, error) { return registry.Report(), nil }})
}

// Run reads the proxies until ctx ends.
func (t *Traffic) Run(ctx context.Context) error {
	return t.store.Run(ctx, func() []embedded.Source {
		t.mu.Lock()
		defer t.mu.Unlock()
		return slices.Clone(t.sources)
	})
}

// Known says which objects there are.
func (t *Traffic) Known(set *resource.Set) { t.objects.Know(set) }

// Ask implements metrics.Store: the own proxy is read at once.
func (t *Traffic) Ask(ctx context.Context, q metrics.Question) (metrics.Answer, error) {
	t.store.Add(ownSource, t.registry.Report())
	return t.store.Ask(ctx, q)
}

// List implements traffic.API, for the last half minute.
func (t *Traffic) List(ctx context.Context, of api.Resource) (l api.TrafficMetricsList, err error) {
	if x := t.objects.Index(); x != nil {
		return x.List(ctx, t, of, "", metrics.Selection{Window: rest.DefaultWindow})
	}
	return l, errNothingKnown
}

// Edges implements traffic.API, for the last half minute.
func (t *Traffic) Edges(ctx context.Context, of api.Resource, namespace, name string) (l api.TrafficMetricsList, err error) {
	if x := t.objects.Index(); x != nil {
		return x.Edges(ctx, t, of, namespace, name, metrics.Selection{Window: rest.DefaultWindow})
	}
	return l, errNothingKnown
}

var errNothingKnown = errors.New("the objects are not known yet")

// Pages are those of the admin endpoint: the API, and what other such processes read.
func (t *Traffic) Pages() []process.Page {
	served := &rest.Handler{Index: t.objects.Index, Store: t, Tap: t.registry.ServeTap}
	beside := process.Beside(served)
	serve := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/tap") {
			served.ServeHTTP(w, r) // waits, and computes little
			return
		}
		beside.ServeHTTP(w, r)
	})
	return []process.Page{
		{Pattern: "/apis", Handler: serve, Lasting: true},
		{Pattern: "/apis/", Index: "/apis/", About: "Traffic Metrics, as an API server has them (docs/traffic.md)", Handler: serve, Lasting: true},
		{Pattern: "GET " + telemetry.ReportPath, Index: telemetry.ReportPath, About: "what this proxy counted of its traffic with others", Handler: http.HandlerFunc(t.registry.ServeReport)},
	}
}
