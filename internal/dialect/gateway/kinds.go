package gateway

import (
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/model"
)

// routeKinds are the kinds of routes, in the order in which a listener's supportedKinds list them, and what each carries.
var routeKinds = []struct {
	kind    gatewayv1.Kind
	carries model.RouteKind
}{
	{"HTTPRoute", model.RouteHTTP},
	{"GRPCRoute", model.RouteGRPC},
	{"TCPRoute", model.RouteTCP},
}

// listenerProtocols are the protocols of listeners that are served, in the order in which messages name them.
var listenerProtocols = []struct {
	written  gatewayv1.ProtocolType
	protocol model.Protocol
}{
	{gatewayv1.HTTPProtocolType, model.HTTP},
	{gatewayv1.HTTPSProtocolType, model.HTTPS},
	{gatewayv1.TCPProtocolType, model.TCP},
}

// unknownKind is a kind of no route; no listener takes it.
const unknownKind model.RouteKind = "unknown"

// Carries is what routes of a Kind of Gateway API carry; for a Kind that is no route's it is one that no listener takes.
func Carries(kind string) model.RouteKind {
	for _, k := range routeKinds {
		if string(k.kind) == kind {
			return k.carries
		}
	}
	return unknownKind
}

// protocolOf is the model's protocol of a listener; empty if it is not supported.
func protocolOf(written gatewayv1.ProtocolType) model.Protocol {
	for _, p := range listenerProtocols {
		if p.written == written {
			return p.protocol
		}
	}
	return ""
}

// protocolNames are the supported protocols, for messages.
func protocolNames() (names []string) {
	for _, p := range listenerProtocols {
		names = append(names, string(p.written))
	}
	return names
}

// oneOf is "a, b or c".
func oneOf(names []string) string {
	if n := len(names) - 1; n > 0 {
		return strings.Join(names[:n], ", ") + " or " + names[n]
	}
	return strings.Join(names, "")
}

// kindsFor are the kinds of routes that can attach to a listener of a protocol.
func kindsFor(p model.Protocol) (kinds []gatewayv1.RouteGroupKind, names []string) {
	group := gatewayv1.Group(gatewayv1.GroupName)
	for _, k := range routeKinds {
		if p.Takes(k.carries) {
			kinds, names = append(kinds, gatewayv1.RouteGroupKind{Group: &group, Kind: k.kind}), append(names, string(k.kind))
		}
	}
	return kinds, names
}
