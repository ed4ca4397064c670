package telemetry

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Options are the registry's limits. The zero value has the defaults.
type Options struct {
	// MaxSeries bounds the series of each family. Further ones are counted under the label value "other". Default
	// 20,000. A series costs memory from its first count, and is shown from then on.
	MaxSeries int
	// Grace is how long a series is still shown after the configuration dropped it. Default 5 minutes.
	Grace time.Duration
	// Version is the version in weir_build_info.
	Version string
}

// other is the label value for series beyond MaxSeries.
const other = "other"

// Registry holds all counters of a proxy. It is a prometheus.Collector.
type Registry struct {
	options  Options
	began    time.Time
	unrouted *Exchange

	mu           sync.Mutex
	exchanges    family[ExchangeLabels, Exchange]
	mirrors      family[MirrorLabels, Mirror]
	listeners    family[string, Listener]
	access       family[string, Access]
	edgesIn      edges
	edgesOut     edges
	mirrorStates func(yield func(MirrorState))
	certificates func(yield func(Certificate))
	accessLog    *AccessLog
	processLog   *Lines
	traces       func() Traces
	weights      func(yield func(ExchangeLabels, float64))
	load         func() Load
	services     func(yield func(ServiceState) bool)
	memory       func() Memory

	taps          taps
	reloads       [2]atomic.Uint64 // failed, succeeded
	lastReload    atomic.Int64     // unix nanoseconds of the last that succeeded
	lastSucceeded atomic.Bool
	generation    atomic.Uint64
}

// New is a registry with the default options.
func New() *Registry { return NewRegistry(Options{}) }

// NewRegistry is a registry.
func NewRegistry(options Options) *Registry {
	if options.MaxSeries <= 0 {
		options.MaxSeries = 20_000
	}
	if options.Grace <= 0 {
		options.Grace = 5 * time.Minute
	}
	if options.Version == "" {
		options.Version = "unknown"
	}
	n := shardCount()
	newExchange := func(l ExchangeLabels) *Exchange {
		return &Exchange{labels: l, shards: newShards[exchangeShard](n)}
	}
	return &Registry{
		options:  options,
		began:    time.Now(),
		edgesIn:  newEdges(options, false),
		edgesOut: newEdges(options, true),
		unrouted: newExchange(ExchangeLabels{}),
		exchanges: newFamily(options, newExchange, func(x *Exchange) *life { return &x.life },
			ExchangeLabels{Route: other, Rule: other, Backend: other}),
		mirrors: newFamily(options, func(l MirrorLabels) *Mirror {
			return &Mirror{labels: l, shards: newShards[mirrorShard](n)}
		}, func(m *Mirror) *life { return &m.life }, MirrorLabels{Route: other, Rule: other, Mirror: other}),
		listeners: newFamily(options, func(name string) *Listener {
			return &Listener{name: name, shards: newShards[listenerShard](n)}
		}, func(l *Listener) *life { return &l.life }, other),
		access: newFamily(options, func(workload string) *Access {
			return &Access{workload: workload, shards: newShards[accessShard](n)}
		}, func(a *Access) *life { return &a.life }, other),
	}
}

// Exchange returns the series with these labels, the same one each time. Take it when a configuration is applied, not
// for each request.
func (r *Registry) Exchange(labels ExchangeLabels) *Exchange {
	if labels == (ExchangeLabels{}) {
		return r.unrouted
	}
	labels = ExchangeLabels{valid(labels.Route), valid(labels.Rule), valid(labels.Backend)}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.exchanges.get(labels)
}

// Unrouted is the series, with empty labels, of the exchanges that reached no rule. It always exists.
func (r *Registry) Unrouted() *Exchange { return r.unrouted }

// Mirror returns the series with these labels, the same one each time.
func (r *Registry) Mirror(labels MirrorLabels) *Mirror {
	labels = MirrorLabels{valid(labels.Route), valid(labels.Rule), valid(labels.Mirror)}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mirrors.get(labels)
}

// Listener returns the series with this name, the same one each time.
func (r *Registry) Listener(name string) *Listener {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.listeners.get(valid(name))
}

// valid makes a label of any string: Prometheus takes UTF-8 only.
func valid(label string) string { return strings.ToValidUTF8(label, "\ufffd") }

// InUse are the series that a configuration uses.
type InUse struct {
	Exchanges []*Exchange
	Mirrors   []*Mirror
	Listeners []*Listener
	Access    []*Access
}

// Keep sets the series that the current configuration uses. All others are removed after the grace time, unless they
// are requested again before.
func (r *Registry) Keep(used InUse) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	r.exchanges.keep(used.Exchanges, now)
	r.mirrors.keep(used.Mirrors, now)
	r.listeners.keep(used.Listeners, now)
	r.access.keep(used.Access, now)
}

// ReloadSucceeded counts a configuration that was applied, and remembers its generation.
func (r *Registry) ReloadSucceeded(generation uint64) {
	r.reloads[1].Add(1)
	r.generation.Store(generation)
	r.lastReload.Store(time.Now().UnixNano())
	r.lastSucceeded.Store(true)
}

// ReloadFailed counts a refused configuration; the earlier one is still served.
func (r *Registry) ReloadFailed() {
	r.reloads[0].Add(1)
	r.lastSucceeded.Store(false)
}

// WatchMirrors shows the momentary states of the mirrors' targets; states is called at each scrape.
func (r *Registry) WatchMirrors(states func(yield func(MirrorState))) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mirrorStates = states
}

// Certificate is a certificate that listeners present.
type Certificate struct {
	// Name is "namespace/secret".
	Name string
	// Expiry is when the first certificate of its chain expires.
	Expiry time.Time
}

// WatchCertificates shows when certificates expire; certificates is called at each scrape, and yields each name once.
func (r *Registry) WatchCertificates(certificates func(yield func(Certificate))) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.certificates = certificates
}

// WatchAccessLog shows the lines that the access log dropped.
func (r *Registry) WatchAccessLog(l *AccessLog) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.accessLog = l
}

// WatchProcessLog shows the lines that the process's own log dropped.
func (r *Registry) WatchProcessLog(l *Lines) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.processLog = l
}

// Traces are the spans of traces, by what became of them.
type Traces struct {
	Exported, Rejected, Failed, Dropped uint64
	// Limited are the requests without a span, as there were too many.
	Limited uint64
}

// WatchTraces shows what becomes of spans; traces is called at each scrape.
func (r *Registry) WatchTraces(traces func() Traces) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.traces = traces
}

// series are the shown series.
type series struct {
	exchanges []*Exchange
	mirrors   []*Mirror
	listeners []*Listener
	access    []*Access
}

// series returns the shown series, sorted by labels. Reading the counters needs no lock.
func (r *Registry) series() series {
	r.mu.Lock()
	now := time.Now()
	s := series{
		exchanges: append(r.exchanges.shown(now), r.unrouted),
		mirrors:   r.mirrors.shown(now),
		listeners: r.listeners.shown(now),
		access:    r.access.shown(now),
	}
	r.mu.Unlock()
	slices.SortFunc(s.exchanges, func(a, b *Exchange) int { return a.labels.compare(b.labels) })
	slices.SortFunc(s.mirrors, func(a, b *Mirror) int { return a.labels.compare(b.labels) })
	slices.SortFunc(s.access, func(a, b *Access) int { return strings.Compare(a.workload, b.workload) })
	slices.SortFunc(s.listeners, func(a, b *Listener) int { return strings.Compare(a.name, b.name) })
	return s
}

func (l ExchangeLabels) compare(m ExchangeLabels) int {
	return cmp.Or(strings.Compare(l.Route, m.Route), strings.Compare(l.Rule, m.Rule), strings.Compare(l.Backend, m.Backend))
}

func (l MirrorLabels) compare(m MirrorLabels) int {
	return cmp.Or(strings.Compare(l.Route, m.Route), strings.Compare(l.Rule, m.Rule), strings.Compare(l.Mirror, m.Mirror))
}
