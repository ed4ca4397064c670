package exchange

import (
	"cmp"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/weirmesh/weir/internal/identity/claim"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/upstream"
)

// observer is one of a snapshot for all listeners that have the same. It is who observes the requests of a listener, and which of their two ends: a sidecar's listeners for the pod's
// own requests count where these go, those in front of its ports where they come from.
type observer struct {
	at      telemetry.Side
	in, out bool
}

// observe sets the observers of listeners. at is the pod that the proxy runs in; without one, the owner of a listener
// observes, or the Gateway that has it.
func (s *Snapshot) observe(at telemetry.Side) {
	known := map[observer]*observer{}
	for _, l := range s.Table.Listeners() {
		o := observer{at, true, true}
		owner := cmp.Or(l.Listener.Owner, model.OwnerOfListener(l.Listener.Name, l.Listener.Ref))
		if owner.Kind() == model.OwnerWorkload || l.Listener.Redirect != "" { // what a redirect brings from the pod is nobody's
			o.in, o.out = l.Listener.Workload != "", l.Listener.Workload == ""
		}
		if at == (telemetry.Side{}) {
			o.at = sideOf(owner)
		}
		if known[o] == nil {
			known[o] = &o
		}
		s.Listeners[l.ID].observer = known[o]
	}
}

func sideOf(o model.Owner) telemetry.Side {
	return telemetry.Side{Kind: string(o.Kind()), Namespace: o.Namespace(), Name: o.Name()}
}

// countIn counts the request at the peer that it came from.
func (ex *Exchange) countIn(d time.Duration) {
	if o := ex.observer; o != nil && o.in {
		ex.from.Peer.edgeAt(ex.pipe.Metrics, o).Observe(ex.from.Shard, ex.succeeded(), d)
	}
}

// succeeded reports whether the client got an answer that is no failure of a server's: its status is below 500, and it
// did not break off.
func (ex *Exchange) succeeded() bool {
	return ex.status > 0 && ex.status < 500 && (ex.status >= 400 || ex.reason == "" || ex.reason.Party() == telemetry.PartyClient)
}

// countOut counts an attempt at the endpoint that it went to. An attempt that failed by the client's fault, such as a
// broken body, says nothing about the endpoint.
func (ex *Exchange) countOut(success bool, d time.Duration) {
	if !ex.attempt.counts {
		return
	}
	ex.attempt.counts = false
	if o := ex.observer; o.out {
		ex.edgeTo(ex.endpoint, o).Observe(ex.from.Shard, success, d)
	}
}

// endAttempt counts an attempt that another one follows.
func (ex *Exchange) endAttempt(err error) {
	if ex.attempt.counts {
		ex.countOut(err == nil && ex.resp.Status < 500, time.Since(ex.attempt.start))
	}
	if ex.trying != nil {
		ex.endTraced(time.Now(), ex.resp.Status, err)
	}
}

// endLastAttempt counts the attempt that decided the exchange, if there was one. d is the time of the exchange.
func (ex *Exchange) endLastAttempt(d time.Duration) {
	if !ex.attempt.counts || ex.reason.Party() == telemetry.PartyClient && ex.reason != telemetry.ClientClosed {
		return
	}
	ex.countOut(ex.succeeded(), d-ex.attempt.start.Sub(ex.from.Start))
}

// observed is an edge, and who observes it.
type observed struct {
	by   *observer
	edge *telemetry.Edge
	next *observed
}

// edgeAt is where requests of the peer are counted that o observes. It is looked up once for a connection and a
// configuration.
func (p *Peer) edgeAt(all *telemetry.Registry, o *observer) *telemetry.Edge {
	if e := p.edge.Load(); e != nil && e.by == o && !e.edge.Dropped() {
		return e.edge
	}
	e := &observed{by: o, edge: all.Edge(telemetry.EdgeLabels{At: o.at, Peer: p.side()})}
	p.edge.Store(e)
	return e.edge
}

// side is who the peer is: what its certificate proved, otherwise its address if that may be a pod's, otherwise unknown.
func (p *Peer) side() telemetry.Side {
	if p.TLS != nil && !p.TLS.ID.IsZero() {
		id := p.TLS.ID
		if node, ok := id.Node(); ok {
			return telemetry.Side{Kind: model.KindNode, Name: node}
		}
		namespace, account, ok := id.ServiceAccount()
		if !ok {
			return telemetry.Side{Kind: model.KindSPIFFE, Name: id.String()}
		}
		if p.TLS.Verified != nil {
			if claims, err := claim.Of(p.TLS.Verified); err == nil && claims.Pod != "" {
				return telemetry.Side{Kind: model.KindPod, Namespace: namespace, Name: claims.Pod}
			}
		}
		return telemetry.Side{Kind: model.KindServiceAccount, Namespace: namespace, Name: account}
	}
	if mayBePod(p.Address) {
		return telemetry.Side{Kind: telemetry.KindAddress, Name: p.Address.String()}
	}
	return telemetry.Side{}
}

// shared is the shared address space (RFC 6598), which networks of pods use like private addresses.
var shared = netip.MustParsePrefix("100.64.0.0/10")

// mayBePod reports whether an address is of a private network. Others are clients of the internet, who are too many to
// be told apart.
func mayBePod(a netip.Addr) bool {
	a = a.Unmap()
	return a.IsPrivate() || shared.Contains(a)
}

// edgeTo is where attempts at an endpoint are counted that by observes.
func (ex *Exchange) edgeTo(e *upstream.Endpoint, by *observer) *telemetry.Edge {
	edges := &ex.backend.edges
	known, _ := edges.Load(e)
	first, _ := known.(*observed)
	for n := first; n != nil; n = n.next {
		if n.by == by && !n.edge.Dropped() {
			return n.edge
		}
	}
	labels := telemetry.EdgeLabels{At: by.at, Out: true, Peer: ex.sideOf(e), Route: ex.rule.Route, Backend: ex.backend.Service.Name}
	if labels.Service = labels.Backend; ex.backend.root != "" {
		labels.Service = ex.backend.root
	}
	n := &observed{by: by, edge: ex.pipe.Metrics.Edge(labels)}
	for o := first; o != nil; o = o.next {
		if o.by != by {
			n.next = &observed{o.by, o.edge, n.next}
		}
	}
	edges.Store(e, n) // who stores at the same time looks up again what this loses
	return n.edge
}

// sideOf is the pod of an endpoint; if that is not known, the Service, or the address if the client meant that.
func (ex *Exchange) sideOf(e *upstream.Endpoint) telemetry.Side {
	s := ex.backend.Service
	if s.Meant() {
		if at, err := netip.ParseAddrPort(e.Address); err == nil && mayBePod(at.Addr()) {
			return telemetry.Side{Kind: telemetry.KindAddress, Name: at.Addr().Unmap().String()}
		}
		return telemetry.Side{}
	}
	namespace, rest, _ := strings.Cut(s.Name, "/")
	pod, ok := s.Pod(e)
	if !ok { // it may be of a later configuration
		if current := ex.pipe.around.Current; current != nil {
			if later := current().Service(s); later != nil {
				pod, _ = later.Pod(e)
			}
		}
	}
	if pod != "" {
		return telemetry.Side{Kind: model.KindPod, Namespace: namespace, Name: pod}
	}
	name := rest
	if i := strings.LastIndexByte(rest, ':'); i >= 0 {
		name = rest[:i]
	}
	return telemetry.Side{Kind: model.KindService, Namespace: namespace, Name: name}
}

// offer shows the request to those who look at requests that end.
func (ex *Exchange) offer(taps []*telemetry.Tap, d time.Duration) {
	r := &ex.req
	x := offered.Get().(*telemetry.Tapped)
	*x = telemetry.Tapped{
		Time: ex.from.Start, Method: r.Method, Host: r.Authority, Path: r.Path, Protocol: r.Proto,
		Status: ex.status, Reason: ex.reason, Duration: d, Attempts: ex.attempts, BytesIn: ex.in, BytesOut: ex.out,
	}
	if o := ex.observer; o != nil {
		x.At = o.at
		if o.in {
			x.From = ex.from.Peer.edgeAt(ex.pipe.Metrics, o).Labels().Peer
		}
		if ex.endpoint != nil && o.out {
			x.To = ex.edgeTo(ex.endpoint, o).Labels().Peer
		}
	}
	if ex.rule != nil {
		x.Route = ex.rule.Route
	}
	if ex.backend != nil {
		x.Backend = ex.backend.Name
	}
	if ex.endpoint != nil {
		x.Endpoint = ex.endpoint.Address
	}
	for _, t := range taps {
		t.Offer(x)
	}
	*x = telemetry.Tapped{} // it holds no request's memory
	offered.Put(x)
}

// offered has what is offered to taps, which keep none of it.
var offered = sync.Pool{New: func() any { return new(telemetry.Tapped) }}
