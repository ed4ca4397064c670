package model

import (
	"fmt"
	"slices"
	"strconv"
)

// Protocol is what a listener or a service speaks. All listeners of a port have one, so it is the kind of a port too.
type Protocol string

const (
	// HTTP on a listener is HTTP/1.1 and HTTP/2 with prior knowledge in cleartext. On a service it is HTTP/1.1, but
	// gRPC requests, which HTTP/1.1 cannot carry, go over cleartext HTTP/2.
	HTTP Protocol = "http"
	// HTTPS on a listener is HTTP/1.1 and HTTP/2 over TLS, by ALPN.
	HTTPS Protocol = "https"
	// H2C on a service is HTTP/2 with prior knowledge (appProtocol kubernetes.io/h2c, KEP-3726). A listener has none.
	H2C Protocol = "h2c"
	// TCP on a listener is connections of which nothing is known: their bytes are relayed.
	TCP Protocol = "tcp"
	// TLS on a listener is TLS, and inside it connections as of TCP. No ALPN is asked for: a client may offer what it likes.
	TLS Protocol = "tls"
)

// RouteKind is what a route carries. It decides what the route's rules may hold and which listeners take it.
type RouteKind string

const (
	// RouteHTTP carries HTTP requests. It is the zero value, which the JSON form leaves out.
	RouteHTTP RouteKind = ""
	// RouteGRPC carries gRPC requests, which are HTTP requests: a GRPCRoute.
	RouteGRPC RouteKind = "grpc"
	// RouteTCP carries connections. The route has one rule, which has nothing but backends, without filters, and perhaps a
	// fault: a fault's connections are reset.
	RouteTCP RouteKind = "tcp"
)

// listenerTraits is a row of the table of listeners' protocols.
type listenerTraits struct {
	protocol Protocol
	network  string
	// requests: HTTP requests come; else it is connections.
	requests bool
	// hosts: clients name a host, which tells the listeners of a port apart.
	hosts bool
	// tls: TLS ends here.
	tls    bool
	routes []RouteKind
}

// listenerTable and routeTable are what this release knows; anything else is unknown. Whatever depends on a protocol or on a
// kind has a row or a case for each of them, and a test that goes through ListenerProtocols or RouteKinds.
var listenerTable = []listenerTraits{
	{protocol: HTTP, network: "tcp", requests: true, hosts: true, routes: []RouteKind{RouteHTTP, RouteGRPC}},
	{protocol: HTTPS, network: "tcp", requests: true, hosts: true, tls: true, routes: []RouteKind{RouteHTTP, RouteGRPC}},
	{protocol: TCP, network: "tcp", routes: []RouteKind{RouteTCP}},
	{protocol: TLS, network: "tcp", tls: true, routes: []RouteKind{RouteTCP}},
}

var routeTable = []struct {
	kind     RouteKind
	name     string
	requests bool
}{
	{RouteHTTP, "HTTP", true},
	{RouteGRPC, "gRPC", true},
	{RouteTCP, "TCP", false},
}

// ListenerProtocols returns the protocols that a listener may have.
func ListenerProtocols() []Protocol {
	all := make([]Protocol, len(listenerTable))
	for i := range listenerTable {
		all[i] = listenerTable[i].protocol
	}
	return all
}

// RouteKinds returns the kinds that a route may have.
func RouteKinds() []RouteKind {
	all := make([]RouteKind, len(routeTable))
	for i := range routeTable {
		all[i] = routeTable[i].kind
	}
	return all
}

// unknownListener has no trait at all.
var unknownListener listenerTraits

func (p Protocol) listener() *listenerTraits {
	for i := range listenerTable {
		if listenerTable[i].protocol == p {
			return &listenerTable[i]
		}
	}
	return &unknownListener
}

// OnListeners says whether a listener may have the protocol. Where it may not, the methods below are false or empty.
func (p Protocol) OnListeners() bool { return p.listener() != &unknownListener }

// Network is the network of a listener's socket: "tcp". See net.Listen and net.ListenPacket.
func (p Protocol) Network() string { return p.listener().network }

// Requests says whether what comes to a listener is HTTP requests, to which a path policy applies; else it is connections.
func (p Protocol) Requests() bool { return p.listener().requests }

// Hosts says whether clients name a host. Only then may a listener have a hostname, and a port several listeners.
func (p Protocol) Hosts() bool { return p.listener().hosts }

// TLS says whether TLS ends at a listener, for which it needs certificates.
func (p Protocol) TLS() bool { return p.listener().tls }

// Takes says whether routes of a kind can be attached to a listener.
func (p Protocol) Takes(k RouteKind) bool { return slices.Contains(p.listener().routes, k) }

// Known says whether this release knows the kind.
func (k RouteKind) Known() bool { return slices.Contains(RouteKinds(), k) }

// Requests says whether the kind's rules match requests, by path, method and so on; those of others have no matches.
func (k RouteKind) Requests() bool {
	for i := range routeTable {
		if routeTable[i].kind == k {
			return routeTable[i].requests
		}
	}
	return false
}

// String is the kind's name for messages, such as "HTTP"; an unknown one is quoted.
func (k RouteKind) String() string {
	for i := range routeTable {
		if routeTable[i].kind == k {
			return routeTable[i].name
		}
	}
	return strconv.Quote(string(k))
}

// Withheld returns what stands in for a route of an unknown kind, and what that leaves out: a route that answers 500 to the requests that
// r matches. They must not fall to another route, which may let pass what this one would not. It is nil if no requests come to the listeners
// that r is attached to, or r matches none. protocol is that of a listener.
func (r *Route) Withheld(protocol func(listener string) Protocol) (*Route, Omission) {
	reason := fmt.Sprintf("kind: %s is unknown to this version", r.Kind)
	out := *r
	out.Kind, out.Rules = RouteHTTP, nil
	out.Attachments = slices.DeleteFunc(slices.Clone(r.Attachments), func(a Attachment) bool { return !protocol(a.Listener).Requests() })
	for i := range r.Rules {
		if x := &r.Rules[i]; len(x.Matches) > 0 {
			out.Rules = append(out.Rules, Rule{Ref: x.Ref, Name: x.Name, Matches: x.Matches, Fault: notValid(reason)})
		}
	}
	if len(out.Attachments) == 0 || len(out.Rules) == 0 {
		return nil, Omission{r.Ref, reason + "; the route is left out"}
	}
	return &out, Omission{r.Ref, reason + "; requests that the route matches are answered 500"}
}
