package telemetry

import (
	"cmp"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// Side is who sends or gets traffic: a pod, a Gateway, or what else is known of who it is. The zero value is unknown.
type Side struct {
	Kind      string `json:"kind,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
}

// KindAddress is a side of which only the IP address is known, its Name; it may be a pod's.
const KindAddress = "Address"

// KindSidecar is a pod, as which a store has what the pod's own sidecar observed: any pod may have one, and say anything of
// others. Proxies report a Pod.
const KindSidecar = "Sidecar"

// Compare orders by namespace, kind and name.
func (p Side) Compare(q Side) int {
	return cmp.Or(strings.Compare(p.Namespace, q.Namespace), strings.Compare(p.Kind, q.Kind), strings.Compare(p.Name, q.Name))
}

// String is "Kind namespace/name", and "unknown" for the zero value.
func (p Side) String() string {
	switch {
	case p == Side{}:
		return "unknown"
	case p.Namespace == "":
		return p.Kind + " " + p.Name
	}
	return p.Kind + " " + p.Namespace + "/" + p.Name
}

func (p Side) valid() Side { return Side{valid(p.Kind), valid(p.Namespace), valid(p.Name)} }

// EdgeLabels names a series of traffic between two sides, as one of them observes it.
type EdgeLabels struct {
	// At is the side that observes the traffic: the pod of the proxy, or a Gateway of a proxy that runs in no pod.
	At Side `json:"at,omitzero"`
	// Out is traffic that At sent; otherwise At received it.
	Out bool `json:"out,omitempty"`
	// Peer is the other side.
	Peer Side `json:"peer,omitzero"`
	// Route, "namespace/name", led to Service, "namespace/name:port", and that to Backend: another Service if a split
	// redirected the request, otherwise the same. They are empty for traffic that At received.
	Route   string `json:"route,omitempty"`
	Service string `json:"service,omitempty"`
	Backend string `json:"backend,omitempty"`
}

// Compare orders by At, direction (from, to), Peer, Route, Service and Backend.
func (l EdgeLabels) Compare(m EdgeLabels) int {
	out := 0
	if l.Out != m.Out {
		if out = -1; l.Out {
			out = 1
		}
	}
	return cmp.Or(l.At.Compare(m.At), out, l.Peer.Compare(m.Peer), strings.Compare(l.Route, m.Route),
		strings.Compare(l.Service, m.Service), strings.Compare(l.Backend, m.Backend))
}

// direction is the label of an exposition: where the traffic went, as seen from At.
func (l EdgeLabels) direction() string {
	if l.Out {
		return "to"
	}
	return "from"
}

// edgeLabels are the names of the labels in an exposition, sorted; values are theirs, and ReadEdgeLabels reads them.
var edgeLabels = [...]string{"at_kind", "at_name", "at_namespace", "backend", "direction", "peer_kind", "peer_name", "peer_namespace", "route", "service"}

func (l EdgeLabels) values() [len(edgeLabels)]string {
	return [...]string{l.At.Kind, l.At.Name, l.At.Namespace, l.Backend, l.direction(), l.Peer.Kind, l.Peer.Name, l.Peer.Namespace, l.Route, l.Service}
}

// EdgeLabelNames are the names of the labels of edges in an exposition, sorted.
func EdgeLabelNames() []string { return edgeLabels[:] }

// ReadEdgeLabels are those whose values in an exposition value returns, by their names.
func ReadEdgeLabels(value func(name string) string) EdgeLabels {
	return EdgeLabels{
		At:      Side{value("at_kind"), value("at_namespace"), value("at_name")},
		Out:     value("direction") == "to",
		Peer:    Side{value("peer_kind"), value("peer_namespace"), value("peer_name")},
		Route:   value("route"),
		Service: value("service"),
		Backend: value("backend"),
	}
}

// Edge counts the traffic of one series. It is dropped when it has counted nothing for the grace time, and counts unseen
// then: who keeps one asks Dropped before each use, and takes another.
type Edge struct {
	labels  EdgeLabels
	shards  shards[edgeShard]
	dropped atomic.Bool

	// counted is how much there was when it was looked at last, and since when.
	counted uint64
	since   time.Time
}

// Dropped reports whether the series is not shown any more.
func (e *Edge) Dropped() bool { return e.dropped.Load() }

// edgeShard is one shard of an Edge, allocated on its first use.
type edgeShard struct {
	// results are failures and successes.
	results [2]atomic.Uint64
	nanos   atomic.Uint64
	latency latencyCounts
	_       [cacheLine]byte
}

// Labels are those that the series is shown under.
func (e *Edge) Labels() EdgeLabels { return e.labels }

// Observe counts a request that ended: whether it succeeded, and how long it took. It does not allocate but at its first
// use, and takes no lock.
func (e *Edge) Observe(shard uint32, success bool, d time.Duration) {
	s := e.shards.get(shard)
	bucket := s.latency.bucket(d)
	result := 0
	if success {
		result = 1
	}
	s.results[result].Add(1)
	bucket.Add(1)
	if d > 0 {
		s.nanos.Add(uint64(d))
	}
}

// EdgeSnapshot is the counts of an edge.
type EdgeSnapshot struct {
	EdgeLabels
	Success uint64  `json:"success"`
	Failure uint64  `json:"failure"`
	Latency Latency `json:"latency"`
}

// Snapshot is the state of the series now.
func (e *Edge) Snapshot() EdgeSnapshot {
	out := EdgeSnapshot{EdgeLabels: e.labels}
	var sum LatencySum
	e.shards.each(func(s *edgeShard) {
		out.Failure += s.results[0].Load()
		out.Success += s.results[1].Load()
		s.latency.addTo(&sum)
		sum.nanos += s.nanos.Load()
	})
	out.Latency = sum.Latency()
	return out
}

// count is how many requests were counted.
func (e *Edge) count() (n uint64) {
	e.shards.each(func(s *edgeShard) { n += s.results[0].Load() + s.results[1].Load() })
	return n
}

// edges are the series of one direction, bounded in number. Others than those of a configuration, nobody says when they
// have ended. Its owner locks.
type edges struct {
	options  Options
	byLabels map[EdgeLabels]*Edge
	overflow *Edge
	swept    time.Time
	// addresses is how many are of sides of KindAddress.
	addresses int
}

// maxAddresses bounds the series with sides of KindAddress: clients of a large network must not use up those of pods.
// The traffic of further ones is with an unknown side.
const maxAddresses = 1000

func newEdges(o Options, out bool) edges {
	return edges{options: o, byLabels: map[EdgeLabels]*Edge{}, overflow: newEdge(OtherEdge(out))}
}

// OtherEdge are the labels, all "other", of the traffic of one direction that is counted together because there were too
// many series.
func OtherEdge(out bool) EdgeLabels {
	return EdgeLabels{At: Side{Name: other}, Out: out, Peer: Side{Name: other}, Route: other, Service: other, Backend: other}
}

func newEdge(l EdgeLabels) *Edge {
	return &Edge{labels: l, shards: newShards[edgeShard](shardCount()), since: time.Now()}
}

func (all *edges) get(l EdgeLabels) *Edge {
	if e := all.byLabels[l]; e != nil {
		return e
	}
	if l.Peer.Kind == KindAddress && all.addresses >= maxAddresses {
		if all.sweepSometimes(); all.addresses >= maxAddresses {
			l.Peer = Side{}
			if e := all.byLabels[l]; e != nil {
				return e
			}
		}
	}
	if len(all.byLabels) >= all.options.MaxSeries {
		if all.sweepSometimes(); len(all.byLabels) >= all.options.MaxSeries {
			return all.overflow
		}
	}
	e := newEdge(l)
	all.byLabels[l] = e
	if l.Peer.Kind == KindAddress {
		all.addresses++
	}
	return e
}

// sweepSometimes sweeps if that is some time ago: each sweep looks at all.
func (all *edges) sweepSometimes() {
	if now := time.Now(); now.Sub(all.swept) >= all.options.Grace/8 {
		all.sweep(now)
	}
}

// sweep drops the series that have counted nothing for the grace time.
func (all *edges) sweep(now time.Time) {
	all.swept = now
	for l, e := range all.byLabels {
		n := e.count()
		switch {
		case n != e.counted:
			e.counted, e.since = n, now
		case now.Sub(e.since) >= all.options.Grace:
			e.dropped.Store(true)
			delete(all.byLabels, l)
			if l.Peer.Kind == KindAddress {
				all.addresses--
			}
		}
	}
}

// shown are all series with traffic.
func (all *edges) shown(now time.Time) (out []*Edge) {
	all.sweep(now)
	for _, e := range all.byLabels {
		if e.shards.used() {
			out = append(out, e)
		}
	}
	if all.overflow.shards.used() {
		out = append(out, all.overflow)
	}
	return out
}

// Edge returns the series with these labels. It takes a lock: keep it with the connection or the endpoint that it is
// about. Beyond the bound of series, each direction has one for all further ones, with the name "other".
func (r *Registry) Edge(labels EdgeLabels) *Edge {
	labels.At, labels.Peer = labels.At.valid(), labels.Peer.valid()
	labels.Route, labels.Service, labels.Backend = valid(labels.Route), valid(labels.Service), valid(labels.Backend)
	r.mu.Lock()
	defer r.mu.Unlock()
	if labels.Out {
		return r.edgesOut.get(labels)
	}
	return r.edgesIn.get(labels)
}

// Edges are the states of all edges with traffic, sorted by their labels.
func (r *Registry) Edges() []EdgeSnapshot {
	all := r.edges()
	out := make([]EdgeSnapshot, len(all))
	for i, e := range all {
		out[i] = e.Snapshot()
	}
	return out
}

func (r *Registry) edges() []*Edge {
	now := time.Now()
	r.mu.Lock()
	all := slices.Concat(r.edgesIn.shown(now), r.edgesOut.shown(now))
	r.mu.Unlock()
	slices.SortFunc(all, func(a, b *Edge) int { return a.labels.Compare(b.labels) })
	return all
}
