package upstream

import (
	"cmp"
	"context"
	"iter"
	"log/slog"
	"maps"
	"math"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirmesh/weir/internal/http2"
	"github.com/weirmesh/weir/internal/identity/spiffe"
	"github.com/weirmesh/weir/internal/model"
)

// Options are a Set's limits; the zero value is usable.
type Options struct {
	// ConnectTimeout bounds resolving, connecting and the TLS handshake together; 0 means 5 s.
	ConnectTimeout time.Duration
	// IdleTimeout is how long an unused connection is kept; 0 means 60 s. HTTP/1.1 connections are closed at most a quarter of it
	// (and at most a second) later.
	IdleTimeout time.Duration
	// MaxIdlePerEndpoint bounds the idle HTTP/1.1 connections of one endpoint; 0 means 1024, less than 0 none.
	MaxIdlePerEndpoint int
	// ReadBuffer is the size of a connection's read buffer; 0 means 4 KiB.
	ReadBuffer int
	// MaxHTTP2Connections bounds the HTTP/2 connections to one endpoint; 0 means 4. One is used until its streams are all taken.
	MaxHTTP2Connections int
	// ShareFrom is from how many exchanges on an endpoint that Shares is Busy; 0 means 4, less than 0 always. Fewer are quicker
	// over connections of their own, and cost less: a request is written and answered by one goroutine in one step.
	ShareFrom int
	// StallTimeout is how long an endpoint may read nothing of what is sent over HTTP/2, on a stream or on a
	// connection; 0 means 30 s.
	StallTimeout time.Duration
	// MaxHeaderBytes bounds the header list of a response over HTTP/2; 0 means 64 KiB.
	MaxHeaderBytes int
	// EjectAfter is the number of consecutive failures that ejects an endpoint, unless its service sets another; 0
	// means 3, less than 0 never.
	EjectAfter int
	// MaxInFlightPerEndpoint bounds the exchanges in flight at one endpoint, unless its service sets another bound; 0
	// means 16,384.
	MaxInFlightPerEndpoint int
	// MaxConnections bounds the HTTP/1.1 connections to all endpoints together. Beyond it, idle ones are closed for new
	// ones; if none is idle, the new one fails with ConnectLocal. 0 means no bound.
	MaxConnections int64
	// MaxRelays bounds the connections relayed to one service (Service.BeginRelay), unless its own bound of requests does; 0 means
	// no bound.
	MaxRelays int64
	// Memory, if not nil, is the budget for heads of answers larger than ReadBuffer, and for what exchanges over HTTP/2
	// have not taken yet.
	Memory http2.Memory
	// Strained is true while this process cannot keep up with its work. Then slow connects and timed-out checks do not
	// count against endpoints. nil means never.
	Strained func() bool
	// Refuse returns why an address may not be dialled, in words that follow the address, or "" if it may. It is called
	// for the address to connect to, after names were resolved, for each attempt and every purpose. A refused address
	// fails with ConnectForbidden. nil refuses nothing.
	Refuse func(netip.AddrPort) (why string)
	// Isolated is for endpoints whose authors must not reach what is close to this process. Names are looked up as they
	// are written, without the system's search domains. A connection with the same address at both ends is this
	// machine's own and fails with ConnectForbidden.
	Isolated bool
	// Identities returns the identity of a name (model.IsIdentity) as it is now: its certificate, and the roots of its
	// trust domain. It is asked at each handshake, so that what was renewed counts at once; connections that exist stay,
	// and are used until a certificate ends that they were made with. It returns nil if there is none yet: the
	// handshake fails then, before it begins. It must not block. nil knows none.
	Identities func(name string) *spiffe.Identity
	// Own, if set, connects to an address in place of the network, where an identity vouches for the endpoint. It returns nil
	// without an error for an address that the network is to connect to.
	Own func(ctx context.Context, to netip.AddrPort) (net.Conn, error)
	// Node and Zone are where the process runs, as endpoints name it (model.Endpoint): those that are meant for clients there
	// are used while any of them is healthy and has room. Empty: not known.
	Node, Zone string
	// Logger logs ejections, recoveries and unusable services; nil discards them.
	Logger *slog.Logger

	// dial replaces the network in tests.
	dial func(ctx context.Context, network, address string) (net.Conn, error)
	// resolver replaces the system's in tests.
	resolver *net.Resolver
}

func (o Options) withDefaults() Options {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	if o.ConnectTimeout <= 0 {
		o.ConnectTimeout = 5 * time.Second
	}
	if o.IdleTimeout <= 0 {
		o.IdleTimeout = 60 * time.Second
	}
	if o.StallTimeout <= 0 {
		o.StallTimeout = 30 * time.Second
	}
	def(&o.MaxIdlePerEndpoint, 1024)
	def(&o.ReadBuffer, 4<<10)
	def(&o.MaxHTTP2Connections, 4)
	def(&o.ShareFrom, 4)
	def(&o.MaxHeaderBytes, 64<<10)
	def(&o.EjectAfter, defaultEjectAfter)
	def(&o.MaxInFlightPerEndpoint, defaultMaxInFlight)
	if o.MaxConnections <= 0 {
		o.MaxConnections = math.MaxInt64
	}
	if o.MaxRelays <= 0 {
		o.MaxRelays = math.MaxInt64
	}
	if o.Strained == nil {
		o.Strained = func() bool { return false }
	}
	if o.Identities == nil {
		o.Identities = func(string) *spiffe.Identity { return nil }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.dial == nil {
		o.dial = o.guarded(&net.Dialer{KeepAlive: 15 * time.Second, Resolver: o.resolver})
	}
	return o
}

// Set owns the endpoints' state of a process. Its methods may be called at the same time.
type Set struct {
	opt     Options
	buffers sync.Pool // of *buffer, each opt.ReadBuffer large

	mu        sync.Mutex // serialises Apply, Close and the sweep
	endpoints map[key]*Endpoint
	drained   map[*Endpoint]struct{} // in no service, but with connections still used
	uses      map[string]*use        // by service
	checks    map[*Endpoint]*checker
	aged      int64 // when the retry budgets were last aged
	closed    bool

	open     atomic.Int64 // HTTP/1.1 connections to all endpoints, including those being opened
	healthMu sync.Mutex   // held while an endpoint is ejected, and for Endpoint.services; taken after health.mu

	start  time.Time
	tick   time.Duration
	epoch  atomic.Uint32 // counts ticks: the coarse clock of idle connections
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// key is an endpoint's identity.
type key struct {
	address  string
	protocol model.Protocol
	tls      string // digest of the TLS identity, with the client certificate; empty for cleartext
	header   int    // version of the PROXY header; 0 for none
}

// New starts a Set. Close it.
func New(opt Options) *Set {
	s := &Set{
		opt:       opt.withDefaults(),
		endpoints: map[key]*Endpoint{},
		drained:   map[*Endpoint]struct{}{},
		uses:      map[string]*use{},
		checks:    map[*Endpoint]*checker{},
		start:     time.Now(),
	}
	size := s.opt.ReadBuffer
	s.buffers.New = func() any { return &buffer{make([]byte, size)} }
	s.tick = max(min(time.Second, s.opt.IdleTimeout/4), time.Millisecond)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.wg.Go(s.sweepLoop)
	return s
}

// Close closes every connection, idle or not, and waits for all that the Set started. Get fails with ErrClosed afterwards.
func (s *Set) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	all := slices.Collect(maps.Values(s.endpoints))
	all = slices.AppendSeq(all, maps.Keys(s.drained))
	s.mu.Unlock()
	s.cancel()
	for _, e := range all {
		e.close()
	}
	s.wg.Wait()
	return nil
}

// Apply makes a snapshot of the configuration's services; one over TLS is there once for each client certificate that routes present to it, and these
// share limits and counters, but no connections. Endpoints whose address, protocol and TLS identity stay keep their state,
// across services and configurations; those that are in no service any more are drained: idle connections are closed now, used ones when
// their exchange ends. A service whose TLS identity cannot be used keeps its endpoints, each attempt fails with a *TLSError of reason
// TLSConfig. A service with a Fault has no endpoints, unless only requests meet it. Of services that share an endpoint the first that says
// anything about its limits, ejection or health check decides. An error (the Set is closed) leaves everything as it was.
func (s *Set) Apply(cfg *model.Config) (*Snapshot, error) { return s.ApplyFor(cfg, cfg.Presented()) }

// ApplyFor is Apply where others than the configuration's own routes lead to its services.
func (s *Set) ApplyFor(cfg *model.Config, presented model.Presented) (*Snapshot, error) {
	certificates := make(map[string]*model.Certificate, len(cfg.Certificates))
	for i := range cfg.Certificates {
		certificates[cfg.Certificates[i].Name] = &cfg.Certificates[i]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	next := make(map[key]*Endpoint, len(s.endpoints))
	snap := &Snapshot{services: make(map[serviceKey]*Service, len(cfg.Services))}
	uses := make(map[string]*use, len(cfg.Services))
	policies := map[*Endpoint]*policy{}
	identities := map[string]*tlsIdentity{}
	for ms, client := range variants(cfg, presented) {
		sv := &Service{set: s, Name: ms.Name, ClientCertificate: client, Protocol: ms.Protocol, TLS: ms.TLS != nil, meshed: ms.TLS != nil && ms.TLS.Identity() != "", sticky: ms.ClientAffinity, Fault: ms.Fault, retryPercent: defaultRetryPercent, maxRelays: s.opt.MaxRelays}
		if l := ms.Limits; l != nil {
			sv.maxRequests = int64(l.Requests)
			if l.RetryPercent != nil {
				sv.retryPercent = int64(*l.RetryPercent)
			}
		}
		if sv.use = cmp.Or(uses[ms.Name], s.uses[ms.Name]); sv.use == nil {
			sv.use = &use{}
		}
		uses[ms.Name] = sv.use
		snap.services[serviceKey{ms.Name, client}] = sv
		if ms.Fault != nil && ms.Fault.Reason != model.UnsupportedProtocol {
			continue
		}
		var identity *tlsIdentity
		digest := ""
		if ms.TLS != nil {
			certificate := certificates[client]
			digest = tlsDigest(ms.TLS, client, certificate)
			if identity = identities[digest]; identity == nil {
				identity = newTLSIdentity(ms.TLS, client, certificate, s.opt.Identities)
				identities[digest] = identity
			}
			if identity.err != nil {
				s.opt.Logger.Warn("service cannot be reached over TLS", "service", ms.Name, "reason", identity.err)
			}
		}
		pods := pods(ms.TLS)
		if ms.Meant {
			sv.meant = func(address string) *Endpoint {
				of, _ := identity.of(pods, digest, address, map[string]*tlsIdentity{})
				e := newEndpoint(s, address, ms.Protocol, of)
				e.header = ms.ProxyProtocol
				e.limit(ms.Limits)
				return e
			}
		}
		var atNode, inZone []*Endpoint
		for _, me := range ms.Endpoints {
			here := listed(me.Nodes, s.opt.Node)
			if ms.NodeLocal && s.opt.Node != "" && !here {
				continue
			}
			identity, digest := identity.of(pods, digest, me.Address, identities)
			k := key{me.Address, ms.Protocol, digest, ms.ProxyProtocol}
			e := next[k]
			if e == nil {
				if e = s.endpoints[k]; e == nil {
					e = newEndpoint(s, me.Address, ms.Protocol, identity)
					e.header = ms.ProxyProtocol
				}
				next[k] = e
			}
			if !slices.Contains(sv.endpoints, e) {
				sv.endpoints = append(sv.endpoints, e)
				if me.Pod != "" && sv.pods == nil {
					sv.pods = make([]string, len(sv.endpoints)-1, len(ms.Endpoints))
				}
				if sv.pods != nil {
					sv.pods = append(sv.pods, me.Pod)
				}
				policies[e] = policies[e].with(ms)
				if here {
					atNode = append(atNode, e)
				}
				if listed(me.Zones, s.opt.Zone) {
					inZone = append(inZone, e)
				}
			}
		}
		if sv.near = atNode; len(atNode) == 0 {
			sv.near = inZone
		}
		if len(sv.near) == len(sv.endpoints) {
			sv.near = nil
		}
		sv.use.has(len(sv.endpoints) > 0, s.now())
		sv.maxEjected = maxEjected(len(sv.endpoints), ms.Ejection)
	}
	for e, p := range policies {
		e.limit(p.limits)
		e.healthPolicy(p.ejection)
	}
	s.enlist(next, snap.services)
	s.check(policies)
	for k, e := range s.endpoints {
		if next[k] == nil {
			s.drained[e] = struct{}{}
			e.drain()
		}
	}
	s.endpoints, s.uses = next, uses
	return snap, nil
}

// listed reports whether a list of names, separated by commas, has one that is not empty.
func listed(list, name string) bool {
	if list == "" || name == "" {
		return false
	}
	for each := range strings.SplitSeq(list, ",") {
		if each == name {
			return true
		}
	}
	return false
}

// variants yields each service once for each client certificate that is presented to it: once without one if that is none, or it has no TLS.
func variants(cfg *model.Config, presented model.Presented) iter.Seq2[*model.Service, string] {
	return func(yield func(*model.Service, string) bool) {
		for i := range cfg.Services {
			ms := &cfg.Services[i]
			clients := presented[ms.Name]
			if len(clients) == 0 || ms.TLS == nil {
				clients = []string{""}
			}
			for _, client := range clients {
				if !yield(ms, client) {
					return
				}
			}
		}
	}
}

// policy is what services say about an endpoint.
type policy struct {
	limits   *model.Limits
	ejection *model.Ejection
	check    *model.HealthCheck
}

// with adds what a service says, unless one before it said something else. It works on nil.
func (p *policy) with(s *model.Service) *policy {
	if p == nil {
		p = &policy{}
	}
	if p.limits == nil {
		p.limits = s.Limits
	}
	if p.ejection == nil {
		p.ejection = s.Ejection
	}
	if p.check == nil {
		p.check = s.HealthCheck
	}
	return p
}

// sweepLoop turns the coarse clock and closes what was idle too long.
func (s *Set) sweepLoop() {
	t := time.NewTicker(s.tick)
	defer t.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-t.C:
			s.sweep()
		}
	}
}

func (s *Set) sweep() {
	now := s.epoch.Add(1)
	keep := uint32((s.opt.IdleTimeout + s.tick - 1) / s.tick)
	s.mu.Lock()
	defer s.mu.Unlock()
	wall := time.Now()
	for _, e := range s.endpoints {
		e.expire(now, keep)
		e.retire(wall)
	}
	for e := range s.drained {
		if e.finished() {
			delete(s.drained, e)
		}
	}
	for now := s.now(); now-s.aged >= int64(time.Second); s.aged += int64(time.Second) {
		for _, u := range s.uses {
			u.age()
		}
	}
}

// adopt takes a drained endpoint back under Close's care, since an exchange that began with an older snapshot has opened a connection to
// it. False: the Set is closed.
func (s *Set) adopt(e *Endpoint) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.drained[e] = struct{}{}
	}
	return !s.closed
}

// now is nanoseconds since the Set came into being.
func (s *Set) now() int64 { return int64(time.Since(s.start)) }

// closedError is the answer to whoever asks a closed Set for a connection.
func closedError(address string) error {
	return &ConnectError{Address: address, Reason: ConnectClosed, Err: ErrClosed}
}

// Snapshot is the services of one configuration. It never changes.
type Snapshot struct {
	services map[serviceKey]*Service
}

// serviceKey names a service as some routes reach it.
type serviceKey struct{ name, clientCertificate string }

// Service returns the service named "namespace/name:port", as it is reached by routes that present a client certificate, "" for none; nil if there is
// none. A service without TLS is the same for all.
func (s *Snapshot) Service(name, clientCertificate string) *Service {
	if sv := s.services[serviceKey{name, clientCertificate}]; sv != nil {
		return sv
	}
	if sv := s.services[serviceKey{name, ""}]; sv != nil && !sv.TLS {
		return sv
	}
	return nil
}
