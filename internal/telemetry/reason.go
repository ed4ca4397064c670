package telemetry

// Reason is why an exchange failed: one code a failure, the same in the access log, the metrics and the proxy's own
// log. The empty Reason is success. The set is closed, so that it can be a label; an unknown Reason counts as Internal.
type Reason string

// Party is whose fault a failure is.
type Party string

const (
	// PartyClient: the request was wrong, or its client went away. Never counts against a backend.
	PartyClient Party = "client"
	// PartyRouting: the configuration has no answer for the request.
	PartyRouting Party = "routing"
	// PartyBackend: the chosen backend did not answer, or not properly.
	PartyBackend Party = "backend"
	// PartyProxy: the proxy refused or failed.
	PartyProxy Party = "proxy"
)

// The client's faults.
const (
	// BadRequest: the request is malformed (400).
	BadRequest Reason = "bad_request"
	// AmbiguousPath: common servers read the request's path in several ways, and a path policy refuses such requests (400).
	AmbiguousPath Reason = "ambiguous_path"
	// HeadTooLarge: the request line or the header fields are over their limit (414, 431).
	HeadTooLarge Reason = "head_too_large"
	// BodyTooLarge: the request's body is over its limit (413).
	BodyTooLarge Reason = "body_too_large"
	// BadBody: the body's framing broke while it streamed, such as an invalid chunk.
	BadBody Reason = "bad_body"
	// Unsupported: a method, version, transfer coding or expectation the proxy does not serve (405, 417, 501).
	Unsupported Reason = "unsupported"
	// ClientTimeout: the client did not send its request, or did not take its answer, in time (408).
	ClientTimeout Reason = "client_timeout"
	// ClientClosed: the client went away before the answer was complete.
	ClientClosed Reason = "client_closed"
	// ClientProtocol: the client broke HTTP/2, or flooded the connection with frames.
	ClientProtocol Reason = "client_protocol"
	// ClientTLS: the TLS handshake with the client failed.
	ClientTLS Reason = "client_tls"
	// ProxyHeader: a connection to a port of the PROXY protocol brought no header, or came from an address that is not trusted.
	ProxyHeader Reason = "proxy_header"
	// AccessDenied: no policy allows the client what it asked for (403).
	AccessDenied Reason = "access_denied"
	// ClientOverload: while few requests could begin, the client had its part of them, or did not send its body (503).
	ClientOverload Reason = "client_overload"
)

// Routing.
const (
	// NoListener: no listener of the port serves the request's host.
	NoListener Reason = "no_listener"
	// Misdirected: the connection's TLS name and the request's host belong to different listeners (421).
	Misdirected Reason = "misdirected"
	// NoRoute: no rule of the listener matches.
	NoRoute Reason = "no_route"
	// NoBackend: the rule has no backend, or all its weights are zero.
	NoBackend Reason = "no_backend"
	// BackendNotFound: the reference to the backend does not resolve.
	BackendNotFound Reason = "backend_not_found"
	// RefNotPermitted: no ReferenceGrant allows the reference.
	RefNotPermitted Reason = "ref_not_permitted"
	// InvalidKind: the reference names a kind that cannot be a backend.
	InvalidKind Reason = "invalid_kind"
	// LoopDetected: the request has come through this proxy before, or through too many (508).
	LoopDetected Reason = "loop_detected"
	// AddressRefused: backends may not have the endpoint's address, such as the proxy's own (500).
	AddressRefused Reason = "address_refused"
	// InvalidConfig: another fault of the configuration, named in the status of the object.
	InvalidConfig Reason = "invalid_config"
)

// The backend's faults.
const (
	// NoEndpoint: the service has no endpoint.
	NoEndpoint Reason = "no_endpoint"
	// ConnectFailed: the endpoint refused the connection or was unreachable.
	ConnectFailed Reason = "connect_failed"
	// ConnectTimeout: the endpoint did not accept the connection in time.
	ConnectTimeout Reason = "connect_timeout"
	// BackendTLS: the TLS handshake with the endpoint failed or its certificate was not accepted.
	BackendTLS Reason = "backend_tls"
	// BackendReset: the endpoint closed or reset the connection before its answer was complete.
	BackendReset Reason = "backend_reset"
	// BackendTimeout: one attempt took longer than the rule's backendRequest timeout, or the endpoint fell silent.
	BackendTimeout Reason = "backend_timeout"
	// RequestTimeout: the whole exchange took longer than the rule's request timeout (504).
	RequestTimeout Reason = "request_timeout"
	// MalformedResponse: the answer is not valid HTTP, or its head is over the limit.
	MalformedResponse Reason = "malformed_response"
	// BackendOverload: as many requests as allowed, or connects, are under way to the service or its endpoints (503).
	BackendOverload Reason = "backend_overload"
	// BackendProtocol: the endpoint does not speak the protocol that the exchange needs, such as HTTP/2 for gRPC.
	BackendProtocol Reason = "backend_protocol"
)

// The proxy's own.
const (
	// Draining: the proxy is shutting down.
	Draining Reason = "draining"
	// Overload: a limit on connections, exchanges or memory was reached.
	Overload Reason = "overload"
	// Internal: a fault of the proxy itself.
	Internal Reason = "internal"
)

// reasons fixes each reason's place in the counters, and its party.
var reasons = [...]struct {
	reason Reason
	party  Party
}{
	{Internal, PartyProxy}, // first: unknown reasons are counted here
	{BadRequest, PartyClient},
	{AccessDenied, PartyClient},
	{HeadTooLarge, PartyClient},
	{BodyTooLarge, PartyClient},
	{BadBody, PartyClient},
	{Unsupported, PartyClient},
	{ClientTimeout, PartyClient},
	{ClientClosed, PartyClient},
	{ClientProtocol, PartyClient},
	{ClientTLS, PartyClient},
	{AmbiguousPath, PartyClient},
	{ProxyHeader, PartyClient},
	{ClientOverload, PartyClient},
	{NoListener, PartyRouting},
	{Misdirected, PartyRouting},
	{NoRoute, PartyRouting},
	{NoBackend, PartyRouting},
	{BackendNotFound, PartyRouting},
	{RefNotPermitted, PartyRouting},
	{InvalidKind, PartyRouting},
	{InvalidConfig, PartyRouting},
	{LoopDetected, PartyRouting},
	{AddressRefused, PartyRouting},
	{NoEndpoint, PartyBackend},
	{ConnectFailed, PartyBackend},
	{ConnectTimeout, PartyBackend},
	{BackendTLS, PartyBackend},
	{BackendReset, PartyBackend},
	{BackendTimeout, PartyBackend},
	{RequestTimeout, PartyBackend},
	{MalformedResponse, PartyBackend},
	{BackendProtocol, PartyBackend},
	{BackendOverload, PartyBackend},
	{Draining, PartyProxy},
	{Overload, PartyProxy},
}

var reasonIndex = func() map[Reason]int {
	m := make(map[Reason]int, len(reasons))
	for i, r := range reasons {
		m[r.reason] = i
	}
	return m
}()

// Party is whose fault the failure is; "" for the empty Reason.
func (r Reason) Party() Party {
	if r == "" {
		return ""
	}
	return reasons[reasonIndex[r]].party
}

// FaultReason is the Reason for the CamelCase word of a model.Fault, such as "BackendNotFound".
func FaultReason(fault string) Reason {
	switch fault {
	case "BackendNotFound":
		return BackendNotFound
	case "RefNotPermitted":
		return RefNotPermitted
	case "InvalidKind":
		return InvalidKind
	case "NoEndpoint", "NoEndpoints":
		return NoEndpoint
	case "NoBackend", "NoBackends":
		return NoBackend
	}
	return InvalidConfig
}

// Reasons returns all reasons, those of one party together.
func Reasons() []Reason {
	var out []Reason
	for _, party := range []Party{PartyClient, PartyRouting, PartyBackend, PartyProxy} {
		for _, r := range reasons {
			if r.party == party {
				out = append(out, r.reason)
			}
		}
	}
	return out
}
