package mirror

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weirmesh/weir/internal/budget"
	"github.com/weirmesh/weir/internal/clientaddr"
	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/loglimit"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/upstream"
)

// Options bound the resources of mirrors. All bounds apply to one service that copies go to, whichever filters name it.
// The zero value is usable.
type Options struct {
	// Header is the field that marks a copy, with the value "1". The proxy drops a field of that name from the client,
	// whether or not copies are marked. Empty means "Weir-Mirrored".
	Header string
	// Unmarked sends copies without the field.
	Unmarked bool

	// MaxInFlight bounds the copies that are being sent or answered; 0 means 512. It also bounds connections and
	// goroutines.
	MaxInFlight int
	// MaxBytes bounds the bytes that are copied and not sent yet; 0 means 64 MiB.
	MaxBytes int64
	// MaxCopyBytes is the same for a single copy; 0 means 8 MiB. A copy that falls further behind its primary is given
	// up. One that falls behind by more than 256 KiB may take no more of MaxBytes than it leaves to others.
	MaxCopyBytes int
	// MaxAnswerBytes is how much of an answer's body is read to reuse the connection; 0 means 1 MiB.
	MaxAnswerBytes int64

	// ConnectTimeout bounds connecting, TLS included; 0 means 1 s.
	ConnectTimeout time.Duration
	// Timeout is how long the service may take to accept bytes, and to answer once it has the whole copy; 0 means 5 s.
	Timeout time.Duration
	// MaxDuration bounds a copy as a whole, however long its primary streams; 0 means 1 min.
	MaxDuration time.Duration

	// BreakAfter is the number of consecutive failures after which the service gets no copies for a second. Then one
	// copy is sent. While that copy fails, the pause doubles each time, up to 30 s. 0 means 10, less than 0 never.
	BreakAfter int
}

// DefaultHeader marks copies unless Options set another field.
const DefaultHeader = "Weir-Mirrored"

func (o Options) withDefaults() Options {
	if o.Header == "" {
		o.Header = DefaultHeader
	}
	if o.MaxInFlight <= 0 {
		o.MaxInFlight = 512
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = 64 << 20
	}
	if o.MaxCopyBytes <= 0 {
		o.MaxCopyBytes = 8 << 20
	}
	if o.MaxAnswerBytes <= 0 {
		o.MaxAnswerBytes = 1 << 20
	}
	if o.ConnectTimeout <= 0 {
		o.ConnectTimeout = time.Second
	}
	if o.Timeout <= 0 {
		o.Timeout = 5 * time.Second
	}
	if o.MaxDuration <= 0 {
		o.MaxDuration = time.Minute
	}
	if o.BreakAfter == 0 {
		o.BreakAfter = 10
	}
	return o
}

// Mark returns the name of the field that marks copies.
func (o Options) Mark() string { return o.withDefaults().Header }

// Set owns the copies of requests: the services they go to, connections of its own, and goroutines. A primary never
// waits here: a copy is memory that a worker sends, and a copy that exceeds a bound is dropped and counted.
type Set struct {
	opt    Options
	log    *slog.Logger
	panics loglimit.Limiter
	set    *upstream.Set

	budget  *budget.Budget
	waiting waitingCopies

	mu       sync.Mutex
	services map[Key]*service
	closed   bool
	quit     chan struct{} // closed when copies must be given up
	workers  sync.WaitGroup
	helpers  sync.WaitGroup

	dropsMu sync.Mutex    // locked after all other locks
	news    chan struct{} // copies are dropped for a further cause
	tell    func()        // is called then, and when one ends; may be nil

	ended func() // tests get each copy that ended
}

// New makes a Set. It takes from connections what opt does not set; copies draw from memory. tell, which may be nil, is
// called when Drops changes, except by Apply.
func New(opt Options, connections upstream.Options, memory *budget.Budget, log *slog.Logger, metrics *telemetry.Registry, tell func()) *Set {
	opt = opt.withDefaults()
	log = log.With("pool", "mirror")
	connections.ConnectTimeout = opt.ConnectTimeout
	connections.MaxIdlePerEndpoint = opt.MaxInFlight
	connections.MaxConnections /= 4 // in addition to those of primaries
	connections.StallTimeout = opt.Timeout
	connections.Logger = log
	m := &Set{opt: opt, log: log, budget: memory, set: upstream.New(connections), services: map[Key]*service{}, quit: make(chan struct{})}
	m.waiting.wake, m.news = make(chan struct{}, 1), make(chan struct{}, 1)
	m.tell = tell
	m.helpers.Go(m.tidy)
	m.helpers.Go(func() { m.waiting.run(m.quit) })
	metrics.WatchMirrors(m.States)
	return m
}

// Key is a service that copies go to, with the client certificate presented to it; "" means none.
type Key struct{ Name, ClientCertificate string }

// Spec is one mirror filter of a table.
type Spec struct {
	Key
	Metric *telemetry.Mirror
	Ref    model.Ref // the filter's place
}

// Target is the destination of one mirror filter's copies.
type Target struct {
	Name    string
	Metric  *telemetry.Mirror
	service *service
	ref     model.Ref
}

// Apply returns the targets of a new configuration, in the order of specs. State is kept by the service's name and
// client certificate. A service that no spec names any more accepts no further copies.
func (m *Set) Apply(cfg *model.Config, specs []Spec) []*Target {
	m.waiting.flush() // finished legs go to the previous services
	m.mu.Lock()
	defer m.mu.Unlock()
	named := make(map[Key]*service, len(specs))
	presented := model.Presented{}
	targets := make([]*Target, len(specs))
	for i, spec := range specs {
		s := named[spec.Key]
		if s == nil {
			if s = m.services[spec.Key]; s == nil {
				s = newService(m, spec.Name)
			}
			named[spec.Key] = s
			presented[spec.Name] = append(presented[spec.Name], spec.ClientCertificate)
		}
		targets[i] = &Target{Name: spec.Name, Metric: spec.Metric, service: s, ref: spec.Ref}
	}
	own := model.Config{Certificates: cfg.Certificates}
	for i := range cfg.Services {
		if presented[cfg.Services[i].Name] != nil {
			service := cfg.Services[i]
			service.HealthCheck = nil // one check, by the primaries' pool, is enough
			own.Services = append(own.Services, service)
		}
	}
	snap, err := m.set.ApplyFor(&own, presented)
	for key, s := range named {
		if err == nil {
			s.upstream.Store(snap.Service(key.Name, key.ClientCertificate))
		}
		if m.closed {
			s.close()
		}
	}
	for key, s := range m.services {
		if named[key] == nil {
			s.close()
		}
	}
	m.services = named
	m.keepDrops(specs)
	return targets
}

// Close accepts no more copies. It lets existing ones continue as long as ctx lasts, and returns with the last
// goroutine.
func (m *Set) Close(ctx context.Context) {
	m.waiting.flush()
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return
	}
	m.closed = true
	for _, s := range m.services {
		s.close()
	}
	m.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		m.workers.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		close(m.quit)
	case <-ctx.Done():
		close(m.quit)
		m.set.Close()
		<-ended
	}
	m.helpers.Wait()
	m.set.Close()
}

// States yields the present state of the services, by name, whatever client certificates they get.
func (m *Set) States(yield func(telemetry.MirrorState)) {
	m.mu.Lock()
	all := make(map[string]telemetry.MirrorState, len(m.services))
	for _, s := range m.services {
		state := all[s.name]
		state.Service, state.InFlight, state.QueuedBytes = s.name, state.InFlight+s.inFlight.Load(), state.QueuedBytes+s.queued.Load()
		state.BreakerOpen = state.BreakerOpen || s.breaker.open()
		all[s.name] = state
	}
	m.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		yield(all[name])
	}
}

// tidy ends workers that were idle for a while, and reports drops.
func (m *Set) tidy() {
	t := time.NewTicker(idleTime / 2)
	defer t.Stop()
	for {
		news := false
		select {
		case <-m.quit:
			return
		case <-m.news:
			news = true
		case now := <-t.C:
			m.mu.Lock()
			for _, s := range m.services {
				s.retire(now.Add(-idleTime))
			}
			m.mu.Unlock()
			news = m.forgetDrops(now.Add(-dropsQuiet))
		}
		if news && m.tell != nil {
			m.tell()
		}
	}
}

// Head is the request as the primary's backend gets it. Its strings are valid only during begin.
type Head struct {
	Method    string
	Target    string // path and query
	Authority string
	Fields    []http1.Field // without framing fields and those of the connection
	Body      http1.Body    // BodyChunked if the length is not known
	GRPC      bool          // it can only be sent over HTTP/2
	Trailers  bool          // the client accepts trailers (RFC 9110 §10.1.4)
	// From says where the request is from, for endpoints that expect PROXY headers; nil: nowhere.
	From interface{ Addresses() clientaddr.Pair }
}

// Begin starts a copy, or returns why it was dropped and counts the drop; then the leg is nil.
func (m *Set) Begin(t *Target, head *Head, shard uint32) (*Leg, telemetry.MirrorOutcome) {
	l, o := t.service.begin(t, head)
	if l == nil {
		t.Metric.Count(shard, o)
		return nil, o
	}
	l.target, l.metric, l.shard = t, t.Metric, shard
	return l, telemetry.MirrorPending
}
