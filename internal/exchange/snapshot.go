package exchange

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/weirmesh/weir/internal/mirror"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/policy"
	"github.com/weirmesh/weir/internal/routing"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/upstream"
)

// Snapshot is one configuration, ready for exchanges. Each exchange begins with one and uses no other. Its slices are
// parallel to the dense IDs of the table.
type Snapshot struct {
	Table     *routing.Table
	Upstream  []*upstream.Service // all, by name
	Listeners []Listener
	Rules     []Rule
	Backends  []Backend
	Leaves    []Backend // of splits
	mirrors   []*mirror.Target
	// mirrorLeaves are the targets of copies that splits redirect.
	mirrorLeaves []*mirror.Target
	tables       map[string]*policy.Table // by the names of workloads in front of which listeners stand
	replaced     chan struct{}
}

// Replaced is closed when another configuration has taken the place of this one.
func (s *Snapshot) Replaced() <-chan struct{} { return s.replaced }

// Replace closes Replaced. It must be called only once, after the other configuration is in its place.
func (s *Snapshot) Replace() { close(s.replaced) }

// NewSnapshot prepares everything that does not depend on services; Attach adds the services. prev is the snapshot
// before, or nil.
func NewSnapshot(cfg *model.Config, table *routing.Table, prev *Snapshot) *Snapshot {
	snap := &Snapshot{Table: table, Listeners: make([]Listener, len(table.Listeners())), replaced: make(chan struct{})}
	for _, l := range table.Listeners() {
		snap.Listeners[l.ID].Front = newFront(l.Listener.Front)
	}
	snap.guards(cfg, prev)
	return snap
}

// Service returns the successor of another configuration's service, nil if no service has the same name and client
// certificate.
func (s *Snapshot) Service(old *upstream.Service) *upstream.Service {
	for _, u := range s.Upstream {
		if u.Name == old.Name && u.ClientCertificate == old.ClientCertificate {
			return u
		}
	}
	return nil
}

// Listener is the proxies that a listener trusts, and what it requires of clients' certificates.
type Listener struct {
	Auth  ClientAuth
	Front *Front
	// guard is nil for listeners that judge nobody.
	guard    *guard
	observer *observer
}

// Rule is what serving a rule needs beyond the decision.
type Rule struct {
	Metrics *telemetry.Exchange // of answers that no backend gave
	Route   string
	Name    string
	Fault   *model.Fault
	filters filters

	request        time.Duration
	backendRequest time.Duration
	retry          *retry
	session        *session // nil: requests are not kept together
}

// retry is a rule's retry policy.
type retry struct {
	attempts int
	backoff  time.Duration
	codes    [10]uint64 // bit set of the statuses 0..639
}

func (r *retry) code(status int) bool {
	return status >= 0 && status < 640 && r.codes[status/64]&(1<<(status%64)) != 0
}

// Backend is what forwarding to a backend needs.
type Backend struct {
	Metrics *telemetry.Exchange
	Name    string // of the service, or of the reference's target
	Service *upstream.Service
	Fault   *model.Fault
	filters filters
	// root is the name of the service that was split, if the backend is a leaf of a split.
	root string
	// edges are where attempts at its endpoints are counted: *upstream.Endpoint to *observed.
	edges sync.Map
}

// Attach adds the services and counters to the snapshot, and reports which counters are in use. It cannot fail.
func (p *Pipeline) Attach(cfg *model.Config, snap *Snapshot, services *upstream.Snapshot) (used telemetry.InUse) {
	snap.Upstream = services.Services()
	snap.observe(p.At)
	exchange := func(l telemetry.ExchangeLabels) *telemetry.Exchange {
		x := p.Metrics.Exchange(l)
		used.Exchanges = append(used.Exchanges, x)
		return x
	}
	for i := range snap.Listeners {
		if g := snap.Listeners[i].guard; g != nil {
			g.metric = p.Metrics.Access(g.table.Workload().Name())
			used.Access = append(used.Access, g.metric)
		}
	}
	snap.Rules = make([]Rule, len(snap.Table.Rules()))
	snap.Backends = make([]Backend, len(snap.Table.Backends()))
	specs := make([]mirror.Spec, len(snap.Table.Mirrors()))
	for i, r := range snap.Table.Rules() {
		rs := &snap.Rules[i]
		rs.Route = r.Route.Ref.Namespace + "/" + r.Route.Ref.Name
		if rs.Name = r.Rule.Name; rs.Name == "" {
			rs.Name = strconv.Itoa(r.Index)
		}
		rs.Metrics = exchange(telemetry.ExchangeLabels{Route: rs.Route, Rule: rs.Name})
		rs.Fault = r.Rule.Fault
		rs.filters = compileFilters(&r.Rule.Filters)
		rs.request = time.Duration(r.Rule.Timeouts.Request)
		rs.backendRequest = time.Duration(r.Rule.Timeouts.BackendRequest)
		rs.retry = compileRetry(r.Rule.Retry)
		mirror := func(m *routing.Mirror) {
			metric := p.Metrics.Mirror(telemetry.MirrorLabels{Route: rs.Route, Rule: rs.Name, Mirror: m.Mirror.Service})
			used.Mirrors = append(used.Mirrors, metric)
			specs[m.ID] = mirror.Spec{Key: mirror.Key{Name: m.Mirror.Service, ClientCertificate: r.Route.ClientCertificate}, Metric: metric, Ref: m.Mirror.Ref}
		}
		for _, m := range r.Mirrors {
			mirror(m)
		}
		for _, b := range r.Backends {
			bs := &snap.Backends[b.ID]
			bs.Name = b.Backend.Service
			if bs.Name == "" {
				bs.Name = b.Backend.Ref.Namespace + "/" + b.Backend.Ref.Name
			}
			bs.Metrics = exchange(telemetry.ExchangeLabels{Route: rs.Route, Rule: rs.Name, Backend: bs.Name})
			bs.filters = compileFilters(&b.Backend.Filters)
			bs.lead(services, b.Backend.Service, r.Route.ClientCertificate, b.Backend.Fault)
			for _, m := range b.Mirrors {
				mirror(m)
			}
		}
	}
	snap.Leaves = make([]Backend, len(snap.Table.Leaves()))
	for i, l := range snap.Table.Leaves() {
		ls := &snap.Leaves[i]
		of := &snap.Rules[l.Backend.Rule.ID]
		if ls.Name = l.Service; ls.Name == "" {
			ls.Name = l.Split.Root
			if l.Leaf != nil { // a service that is not there
				ls.Name = l.Leaf.Ref.Namespace + "/" + l.Leaf.Ref.Name + " " + l.Leaf.Ref.Field
			}
		}
		ls.root = l.Split.Root
		ls.Metrics = exchange(telemetry.ExchangeLabels{Route: of.Route, Rule: of.Name, Backend: ls.Name})
		ls.filters = snap.Backends[l.Backend.ID].filters
		ls.lead(services, l.Service, l.Backend.Rule.Route.ClientCertificate, l.Fault)
	}
	for i, r := range snap.Table.Rules() {
		snap.Rules[i].session = compileSession(r.Rule.Session, r, snap, p.sessionKeys)
	}
	for _, l := range snap.Table.MirrorLeaves() {
		// The selected copies are counted. A backend that cannot be served has no service, and so no endpoint.
		of := specs[l.Mirror.ID]
		specs = append(specs, mirror.Spec{Key: mirror.Key{Name: l.Service, ClientCertificate: of.ClientCertificate}, Metric: of.Metric, Ref: of.Ref})
	}
	targets := p.around.Mirrors.Apply(cfg, specs)
	n := len(snap.Table.Mirrors())
	snap.mirrors, snap.mirrorLeaves = targets[:n], targets[n:]
	return used
}

// lead sets the service that gets the requests, with a client certificate unless that is empty, or the fault that
// answers them.
func (b *Backend) lead(services *upstream.Snapshot, service, clientCertificate string, fault *model.Fault) {
	if b.Fault = fault; fault != nil {
		return
	}
	if b.Service = services.Service(service, clientCertificate); b.Service == nil {
		b.Fault = &model.Fault{Status: http.StatusInternalServerError, Reason: "BackendNotFound", Message: "service does not exist"}
		return
	}
	b.Fault = b.Service.Fault
}

func compileRetry(r *model.Retry) *retry {
	if r == nil || r.Attempts <= 0 {
		return nil
	}
	c := &retry{attempts: r.Attempts, backoff: time.Duration(min(r.Backoff, model.MaxBackoff))}
	for _, code := range r.Codes {
		if code >= 0 && code < 640 {
			c.codes[code/64] |= 1 << (code % 64)
		}
	}
	return c
}

// ConnectionFault is the fault that connections meet. A service that cannot take requests is not such a fault.
func (b *Backend) ConnectionFault() *model.Fault {
	if b.Service != nil && b.Fault == b.Service.Fault && b.Fault != nil && b.Fault.Reason == model.UnsupportedProtocol {
		return nil
	}
	return b.Fault
}
