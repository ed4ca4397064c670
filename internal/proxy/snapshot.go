package proxy

import (
	"crypto/tls"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/routing"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/upstream"
)

// snapshot is one configuration, ready to serve. An exchange loads it once and uses no other. Its slices are parallel to the
// dense IDs of the table.
type snapshot struct {
	table     *routing.Table
	left      []model.Omission // out of the configuration
	ports     map[*bind]*routing.Port
	upstream  []*upstream.Service // all, by name
	listeners []listenerState
	// certificates are those that listeners present, by name.
	certificates map[string]*certificate
	rules        []ruleState
	backends     []backendState
	leaves       []backendState // of splits
	mirrors      []*mirrorTarget
	// mirrorLeaves are where splits lead copies.
	mirrorLeaves []*mirrorTarget
}

// service is what has become of one of another configuration, nil if there is none of its name and client certificate.
func (s *snapshot) service(old *upstream.Service) *upstream.Service {
	for _, u := range s.upstream {
		if u.Name == old.Name && u.ClientCertificate == old.ClientCertificate {
			return u
		}
	}
	return nil
}

// listenerState is a listener's TLS side, nil config for cleartext and for a listener that cannot be served, and whom it trusts.
type listenerState struct {
	config *tls.Config
	auth   clientAuth
	front  *front
}

// ruleState is what serving a rule needs beyond the decision.
type ruleState struct {
	metrics *telemetry.Exchange // of answers that no backend gave
	route   string
	name    string
	fault   *model.Fault
	filters filters

	request        time.Duration
	backendRequest time.Duration
	retry          *retry
	session        *session // nil: requests are not kept together
}

// retry is a rule's policy.
type retry struct {
	attempts int
	backoff  time.Duration
	codes    [10]uint64 // bit set of the statuses 0..639
}

func (r *retry) code(status int) bool {
	return status >= 0 && status < 640 && r.codes[status/64]&(1<<(status%64)) != 0
}

// backendState is what forwarding to a backend needs.
type backendState struct {
	metrics *telemetry.Exchange
	name    string // of the service, or of what the reference names
	service *upstream.Service
	fault   *model.Fault
	filters filters
}

// compile prepares a configuration; it changes nothing that the current one uses. What cannot be served is left out. The services of the new
// snapshot come later, with attach.
func (s *Server) compile(cfg *model.Config, prev *snapshot) *snapshot {
	var prevTable *routing.Table
	if prev != nil {
		prevTable = prev.table
	}
	table, left := routing.Compile(cfg, prevTable)
	snap := &snapshot{table: table, left: left, ports: map[*bind]*routing.Port{}}
	s.compileTLS(cfg, snap, prev)
	for _, l := range table.Listeners() {
		snap.listeners[l.ID].front = newFront(l.Listener.Front)
	}
	snap.left = model.SortOmissions(snap.left)
	return snap
}

// LeftOut returns what the configuration being served has that cannot be served, sorted by object, and why. There is none of it in one that
// model.Config.Validate accepts and whose certificates are good.
func (s *Server) LeftOut() []model.Omission {
	if snap := s.state.Load(); snap != nil {
		return slices.Clone(snap.left)
	}
	return nil
}

// tellLeftOut logs what a snapshot leaves out and the one before did not.
func (s *Server) tellLeftOut(snap, prev *snapshot) {
	told := map[model.Omission]bool{}
	if prev != nil {
		for _, o := range prev.left {
			told[o] = true
		}
	}
	for _, o := range snap.left {
		if !told[o] {
			s.log.Error("part of the configuration is not served", "object", o.Ref.String(), "reason", o.Reason)
		}
	}
}

// attach gives the snapshot its services and counters. It cannot fail.
func (s *Server) attach(cfg *model.Config, snap *snapshot, services *upstream.Snapshot) {
	snap.upstream = services.Services()
	var used telemetry.InUse
	exchange := func(l telemetry.ExchangeLabels) *telemetry.Exchange {
		x := s.opt.Metrics.Exchange(l)
		used.Exchanges = append(used.Exchanges, x)
		return x
	}
	snap.rules = make([]ruleState, len(snap.table.Rules()))
	snap.backends = make([]backendState, len(snap.table.Backends()))
	specs := make([]mirrorSpec, len(snap.table.Mirrors()))
	for i, r := range snap.table.Rules() {
		rs := &snap.rules[i]
		rs.route = r.Route.Ref.Namespace + "/" + r.Route.Ref.Name
		if rs.name = r.Rule.Name; rs.name == "" {
			rs.name = strconv.Itoa(r.Index)
		}
		rs.metrics = exchange(telemetry.ExchangeLabels{Route: rs.route, Rule: rs.name})
		rs.fault = r.Rule.Fault
		rs.filters = compileFilters(&r.Rule.Filters)
		rs.request = time.Duration(r.Rule.Timeouts.Request)
		rs.backendRequest = time.Duration(r.Rule.Timeouts.BackendRequest)
		rs.retry = compileRetry(r.Rule.Retry)
		mirror := func(m *routing.Mirror) {
			metric := s.opt.Metrics.Mirror(telemetry.MirrorLabels{Route: rs.route, Rule: rs.name, Mirror: m.Mirror.Service})
			used.Mirrors = append(used.Mirrors, metric)
			specs[m.ID] = mirrorSpec{mirrorKey: mirrorKey{m.Mirror.Service, r.Route.ClientCertificate}, metric: metric, ref: m.Mirror.Ref}
		}
		for _, m := range r.Mirrors {
			mirror(m)
		}
		for _, b := range r.Backends {
			bs := &snap.backends[b.ID]
			bs.name = b.Backend.Service
			if bs.name == "" {
				bs.name = b.Backend.Ref.Namespace + "/" + b.Backend.Ref.Name
			}
			bs.metrics = exchange(telemetry.ExchangeLabels{Route: rs.route, Rule: rs.name, Backend: bs.name})
			bs.filters = compileFilters(&b.Backend.Filters)
			bs.lead(services, b.Backend.Service, r.Route.ClientCertificate, b.Backend.Fault)
			for _, m := range b.Mirrors {
				mirror(m)
			}
		}
	}
	snap.leaves = make([]backendState, len(snap.table.Leaves()))
	for i, l := range snap.table.Leaves() {
		ls := &snap.leaves[i]
		of := &snap.rules[l.Backend.Rule.ID]
		if ls.name = l.Service; ls.name == "" {
			ls.name = l.Split.Root
			if l.Leaf != nil { // a service that is not there
				ls.name = l.Leaf.Ref.Namespace + "/" + l.Leaf.Ref.Name + " " + l.Leaf.Ref.Field
			}
		}
		ls.metrics = exchange(telemetry.ExchangeLabels{Route: of.route, Rule: of.name, Backend: ls.name})
		ls.filters = snap.backends[l.Backend.ID].filters
		ls.lead(services, l.Service, l.Backend.Rule.Route.ClientCertificate, l.Fault)
	}
	for i, r := range snap.table.Rules() {
		snap.rules[i].session = compileSession(r.Rule.Session, r, snap, s.sessionKeys)
	}
	for _, l := range snap.table.MirrorLeaves() {
		// Counted where the copy was selected. What cannot be served has no service, and so no endpoint.
		of := specs[l.Mirror.ID]
		specs = append(specs, mirrorSpec{mirrorKey: mirrorKey{l.Service, of.clientCertificate}, metric: of.metric, ref: of.ref})
	}
	targets := s.mirrors.apply(cfg, specs)
	n := len(snap.table.Mirrors())
	snap.mirrors, snap.mirrorLeaves = targets[:n], targets[n:]
	for b := range snap.ports {
		used.Listeners = append(used.Listeners, b.metrics)
	}
	s.opt.Metrics.Keep(used)
}

// lead sets the service that requests go to, presenting a client certificate unless that is empty, or the fault they are answered with.
func (b *backendState) lead(services *upstream.Snapshot, service, clientCertificate string, fault *model.Fault) {
	if b.fault = fault; fault != nil {
		return
	}
	if b.service = services.Service(service, clientCertificate); b.service == nil {
		b.fault = &model.Fault{Status: http.StatusInternalServerError, Reason: "BackendNotFound", Message: "service does not exist"}
		return
	}
	b.fault = b.service.Fault
}

func compileRetry(r *model.Retry) *retry {
	if r == nil || r.Attempts <= 0 {
		return nil
	}
	c := &retry{attempts: r.Attempts, backoff: time.Duration(r.Backoff)}
	for _, code := range r.Codes {
		if code >= 0 && code < 640 {
			c.codes[code/64] |= 1 << (code % 64)
		}
	}
	return c
}
