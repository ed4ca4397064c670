package model

import "time"

// Config is one whole configuration. Equal inputs give byte-equal JSON: every slice is in a defined order (see
// Merge) and no map occurs in it. Every field is a list with a row in Lists.
type Config struct {
	Listeners    []Listener    `json:"listeners,omitempty"`
	Routes       []Route       `json:"routes,omitempty"`
	Splits       []Split       `json:"splits,omitempty"`
	Services     []Service     `json:"services,omitempty"`
	Certificates []Certificate `json:"certificates,omitempty"`
	Workloads    []Workload    `json:"workloads,omitempty"`
	Policies     []Policy      `json:"policies,omitempty"`
}

// Ref is the provenance of a part of the model: the object, and inside it the field, that a user wrote.
type Ref struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Field is the path inside the object as the API server prints it, such as "spec.rules[0].filters[1]"; empty
	// for the whole object.
	Field string `json:"field,omitempty"`
}

// Listener is a port that accepts traffic for one hostname or for any. Several listeners of one gateway may share an
// address and port. The one with the most specific hostname that matches a request's host (with TLS, the SNI) serves
// it. Only the routes attached to that listener are considered (Gateway API, "listener isolation").
type Listener struct {
	// Name identifies the listener in the whole configuration: "namespace/gateway/section", or
	// "namespace/gateway/namespace/listenerset/section".
	Name string `json:"name"`
	Ref  Ref    `json:"ref"`
	// Owner is whose own proxies serve the listener. If it is empty, every proxy that has the configuration serves it.
	// Listeners of different owners never clash. See Config.ByOwner. In JSON it is "gateway", as in releases before there
	// were other owners.
	Owner Owner `json:"gateway,omitempty"`
	// Address is the IP address to bind; empty means all addresses.
	Address string `json:"address,omitempty"`
	Port    int32  `json:"port"`
	// Protocol is one of ListenerProtocols, the same for all listeners of an address and port.
	Protocol Protocol `json:"protocol"`
	// Hostname is a lower-case DNS name, "*.suffix", or empty for any host. A TCP or TLS listener has none.
	Hostname string       `json:"hostname,omitempty"`
	TLS      *ListenerTLS `json:"tls,omitempty"`
	// PathPolicy is the policy of routes that set none; empty is PathAsWritten. A TCP or TLS listener has none.
	PathPolicy PathPolicy `json:"pathPolicy,omitempty"`
	// Front describes the trusted proxies in front; nil means none.
	Front *Front `json:"front,omitempty"`
	// Workload is the Name of the workload in front of whose port the listener stands: only what the workload's policies
	// allow passes. If there is no such workload, nothing does. Empty is for listeners of gateways, which judge nobody.
	Workload string `json:"workload,omitempty"`
	// WorkloadPort is the port of the workload's pods that policies judge by; 0, for a listener of a redirect, is the one
	// that the client meant.
	WorkloadPort int32 `json:"workloadPort,omitempty"`
	// Redirect names the redirect of the pod's network that brings the listener's connections, one of Redirects. The
	// listener has no socket of its own then: Address and Port are those that clients meant, and Port may be 0 for any that
	// no other listener of the redirect has. Empty is for listeners with a socket.
	Redirect string `json:"redirect,omitempty"`
	// Detect means that nobody knows what the connections carry. The listener takes routes for requests and a route for TCP.
	// A connection that begins with an HTTP request gets the former, any other the latter. If the client is silent and there
	// is a route for TCP, its endpoint is connected, and who speaks first decides. Protocol is HTTP, or HTTPS with an
	// identity: then MeshProtocol tells connections of the mesh from those of an application's own TLS, and inside TLS the
	// client's offer of an HTTP version tells requests from other connections. The listener has its port alone, and no
	// Hostname.
	Detect bool `json:"detect,omitempty"`
}

// Redirects of a pod's network: RedirectInbound brings connections to the pod, RedirectOutbound those from it.
const (
	RedirectInbound  = "inbound"
	RedirectOutbound = "outbound"
)

// Redirects returns the redirects that there are.
func Redirects() []string { return []string{RedirectInbound, RedirectOutbound} }

// ListenerTLS terminates TLS on a listener.
type ListenerTLS struct {
	// Certificates names entries of Config.Certificates, in the order the user wrote them. The one that fits the SNI is
	// presented, otherwise the first. Or it has one name, of an identity (see IdentityPrefix): then TLS is 1.3, and
	// every client must prove a SPIFFE ID that the identity's roots vouch for; ClientCAs and ClientOptional are not set.
	Certificates []string `json:"certificates"`
	// ClientCAs, when not empty, is a PEM bundle that client certificates are checked against.
	ClientCAs string `json:"clientCAs,omitempty"`
	// ClientOptional accepts connections without a (valid) client certificate.
	ClientOptional bool `json:"clientOptional,omitempty"`
	// Plain serves clients without TLS, too, beside those with it. They have proved no identity. Only a listener with an
	// identity may have it. One of requests takes all TLS for its own. One of connections, or one that detects what they
	// carry, takes only TLS that offers MeshProtocol; all else is passed on as it is.
	Plain bool `json:"plain,omitempty"`
	// Issued says what the certificate of the identity would be if it were signed now; nil is that nobody says. A process has
	// one that differs signed anew. Of several listeners with one identity, one says it.
	Issued *Issued `json:"issued,omitempty"`
}

// Issued are digests of what is signed for an identity.
type Issued struct {
	// Names is of the DNS names of the certificate, Roots of the roots that come with it.
	Names string `json:"names,omitempty"`
	Roots string `json:"roots,omitempty"`
}

// Certificate is a TLS certificate chain with its private key.
type Certificate struct {
	// Name is "namespace/secret".
	Name string `json:"name"`
	// Chain is PEM, leaf first.
	Chain string `json:"chain"`
	Key   Secret `json:"key"`
}

// Route is a set of rules attached to listeners.
type Route struct {
	Ref Ref `json:"ref"`
	// Created orders routes that match equally well: the older wins, then the lower "namespace/name".
	Created time.Time `json:"created,omitzero"`
	// Kind is what the route carries, and so which listeners take it; see Protocol.Takes.
	Kind RouteKind `json:"kind,omitempty"`
	// PathPolicy is that of the route's requests; empty is the listener's. A route for TCP has none.
	PathPolicy PathPolicy `json:"pathPolicy,omitempty"`
	// ClientCertificate names the entry of Config.Certificates, or the identity (see IdentityPrefix), that is presented to
	// services with TLS which the route leads to, also by splits and for copies; empty presents none. It is the Gateways':
	// a route that is attached to Gateways with different ones is there once for each. Where an identity is presented, TLS
	// is 1.3. To a service that is known by an identity (ServiceTLS.CAs), that identity is presented, unless this names one.
	ClientCertificate string       `json:"clientCertificate,omitempty"`
	Attachments       []Attachment `json:"attachments"`
	Rules             []Rule       `json:"rules"`
}

// Attachment binds a route to a listener for some hostnames.
type Attachment struct {
	// Listener is the Name of a listener.
	Listener string `json:"listener"`
	// Hostnames are the effective ones (route's intersected with the listener's), lower case, exact or "*.suffix";
	// "*" alone is any host. Never empty.
	Hostnames []string `json:"hostnames"`
}

// Rule is matches, filters and backends. A request that meets any of the matches (OR) is served by the rule.
type Rule struct {
	Ref Ref `json:"ref"`
	// Name is the rule's own name, if the user gave one.
	Name string `json:"name,omitempty"`
	// Matches is never empty after translation: a rule without matches gets one that matches every path. A rule for TCP
	// has none.
	Matches  []Match   `json:"matches,omitempty"`
	Filters  Filters   `json:"filters,omitzero"`
	Backends []Backend `json:"backends,omitempty"`
	Timeouts Timeouts  `json:"timeouts,omitzero"`
	Retry    *Retry    `json:"retry,omitempty"`
	Session  *Session  `json:"session,omitempty"`
	// Fault, when set, answers every request of the rule (unless a redirect filter answers it first).
	Fault *Fault `json:"fault,omitempty"`
}

// Match is a set of conditions which must all hold (AND).
type Match struct {
	Path    PathMatch    `json:"path"`
	Method  string       `json:"method,omitempty"`
	Headers []ValueMatch `json:"headers,omitempty"`
	Query   []ValueMatch `json:"query,omitempty"`
}

// MatchType says how a value is compared.
type MatchType string

const (
	Exact MatchType = "exact"
	// Prefix matches whole path segments: "/a" matches "/a" and "/a/b", not "/ab".
	Prefix MatchType = "prefix"
	// Regex is RE2 syntax and must match the whole value.
	Regex MatchType = "regex"
)

// PathMatch compares the request's path. Paths are compared after normalisation, case-sensitively.
type PathMatch struct {
	Type  MatchType `json:"type"`
	Value string    `json:"value"`
}

// ValueMatch compares a header field (name case-insensitive, several lines joined by a comma) or a query parameter
// (name case-sensitive, the first of several). Type is Exact or Regex. An absent one never matches.
type ValueMatch struct {
	Type  MatchType `json:"type"`
	Name  string    `json:"name"`
	Value string    `json:"value"`
}

// Backend is a weighted reference to a service.
type Backend struct {
	Ref Ref `json:"ref"`
	// Service is the Name of an entry of Config.Services; empty exactly when Fault is set.
	Service string `json:"service,omitempty"`
	// Weight is the backend's part of the sum of all weights. A backend of weight 0 only gets the requests of its
	// sessions.
	Weight  uint32  `json:"weight"`
	Filters Filters `json:"filters,omitzero"`
	// Fault answers the backend's share in its stead: a bad backend keeps its weight.
	Fault *Fault `json:"fault,omitempty"`
}

// Fault is an answer given without a backend, and why.
type Fault struct {
	// Status is the HTTP status code.
	Status int `json:"status"`
	// Reason is a CamelCase word such as "BackendNotFound".
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
}

// Filters change, answer or copy a request. At most one of Redirect and Rewrite is set.
type Filters struct {
	RequestHeaders  *HeaderEdit `json:"requestHeaders,omitempty"`
	ResponseHeaders *HeaderEdit `json:"responseHeaders,omitempty"`
	Redirect        *Redirect   `json:"redirect,omitempty"`
	Rewrite         *Rewrite    `json:"rewrite,omitempty"`
	CORS            *CORS       `json:"cors,omitempty"`
	Mirrors         []Mirror    `json:"mirrors,omitempty"`
}

// HeaderEdit changes header fields: remove, then set, then add. Names are compared without case.
type HeaderEdit struct {
	Set    []HeaderValue `json:"set,omitempty"`
	Add    []HeaderValue `json:"add,omitempty"`
	Remove []string      `json:"remove,omitempty"`
}

// HeaderValue is a field line.
type HeaderValue struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Redirect answers with a Location. Empty fields keep the request's own part.
type Redirect struct {
	Scheme   string     `json:"scheme,omitempty"`
	Hostname string     `json:"hostname,omitempty"`
	Port     int32      `json:"port,omitempty"`
	Path     *PathPatch `json:"path,omitempty"`
	// Status is 301, 302, 303, 307 or 308.
	Status int `json:"status"`
}

// Rewrite changes the request's host and path towards the backend.
type Rewrite struct {
	Hostname string     `json:"hostname,omitempty"`
	Path     *PathPatch `json:"path,omitempty"`
}

// PathPatch replaces the whole path, or the prefix that the rule's PathPrefix match matched (Prefix true).
type PathPatch struct {
	Prefix bool   `json:"prefix,omitempty"`
	Value  string `json:"value"`
}

// CORS answers preflight requests and marks responses (Fetch standard, "CORS protocol").
type CORS struct {
	AllowOrigins     []string `json:"allowOrigins,omitempty"`
	AllowCredentials bool     `json:"allowCredentials,omitempty"`
	AllowMethods     []string `json:"allowMethods,omitempty"`
	AllowHeaders     []string `json:"allowHeaders,omitempty"`
	ExposeHeaders    []string `json:"exposeHeaders,omitempty"`
	// MaxAge is how long a preflight answer may be cached, in seconds.
	MaxAge int32 `json:"maxAge,omitempty"`
}

// Mirror copies a fraction of the requests to a service and discards the answers (GEP-3171). Of every Denominator
// requests exactly Numerator are copied.
type Mirror struct {
	Ref Ref `json:"ref"`
	// Service is the Name of an entry of Config.Services.
	Service     string `json:"service"`
	Numerator   uint32 `json:"numerator"`
	Denominator uint32 `json:"denominator"`
}

// Timeouts bound an exchange; zero means that only the proxy's own defaults hold.
type Timeouts struct {
	// Request bounds the whole exchange, from the request's head to the end of the response.
	Request Duration `json:"request,omitzero"`
	// BackendRequest bounds each single attempt towards a backend.
	BackendRequest Duration `json:"backendRequest,omitzero"`
}

// Retry repeats failed attempts (Gateway API GEP-1731). Connection errors before a response are always retried
// while attempts remain; answers only when their status is among Codes.
type Retry struct {
	Codes []int `json:"codes,omitempty"`
	// Attempts is the number of retries beyond the first attempt.
	Attempts int `json:"attempts"`
	// Backoff is the minimum time between two attempts. All pauses of a request together last MaxBackoff at most.
	Backoff Duration `json:"backoff,omitzero"`
}

// MaxBackoff is how long all pauses before the retries of a request last at most, together. A request keeps its place
// while it pauses.
const MaxBackoff = Duration(time.Minute)

// Service is a named set of endpoints on a port.
type Service struct {
	// Name is "namespace/name:port".
	Name string `json:"name"`
	Ref  Ref    `json:"ref"`
	// Extends names a service from which Merge takes everything except TLS and Fault. It is empty in the result of
	// Merge.
	Extends string `json:"extends,omitempty"`
	// Protocol is HTTP or H2C. If TLS is set, it is the protocol inside TLS; with HTTP, ALPN chooses the version.
	Protocol  Protocol    `json:"protocol"`
	TLS       *ServiceTLS `json:"tls,omitempty"`
	Endpoints []Endpoint  `json:"endpoints,omitempty"`
	// Meant means that the endpoint of each connection is the address that its client meant, at listeners whose connections
	// a redirect brings. Endpoints is empty then, and the service is for connections of TCP and TLS routes alone: others
	// find no endpoint.
	Meant bool `json:"meant,omitempty"`
	// NodeLocal means that a proxy that knows its node uses the endpoints of that node alone (Service,
	// spec.internalTrafficPolicy).
	NodeLocal bool `json:"nodeLocal,omitempty"`
	// ClientAffinity means that what comes from one client address goes to one endpoint (Service, spec.sessionAffinity).
	ClientAffinity bool `json:"clientAffinity,omitempty"`
	// Fault, when set, answers every request to the service, such as for a BackendTLSPolicy that cannot be honoured.
	// Connections of TCP listeners do not meet one of the reason UnsupportedProtocol.
	Fault *Fault `json:"fault,omitempty"`
	// Limits, Ejection and HealthCheck keep the service's endpoints from harm and requests from bad endpoints.
	Limits      *Limits      `json:"limits,omitempty"`
	Ejection    *Ejection    `json:"ejection,omitempty"`
	HealthCheck *HealthCheck `json:"healthCheck,omitempty"`
	// ProxyProtocol is the version, 1 or 2, of the PROXY header with which each connection to an endpoint begins,
	// before TLS; 0 means no header. A connection with a header carries the requests of one client only.
	ProxyProtocol int `json:"proxyProtocol,omitempty"`
}

// ServiceTLS is how a service's certificate is checked (Gateway API, BackendTLSPolicy).
type ServiceTLS struct {
	// Hostname is the SNI, and the name the certificate must carry unless SubjectAltNames is set.
	Hostname string `json:"hostname"`
	// CAs is a PEM bundle; empty means the system's. Or it names an identity (see IdentityPrefix): then its roots vouch
	// for the endpoints, TLS is 1.3, and each of SubjectAltNames, at least one, is a SPIFFE ID.
	CAs string `json:"cas,omitempty"`
	// SubjectAltNames, when not empty, replaces Hostname for authentication: one of them must match. An entry is a
	// DNS name, "*.suffix", or a URI.
	SubjectAltNames []string `json:"subjectAltNames,omitempty"`
	// Pods, when not nil, are the only endpoints that are spoken to over TLS, and who each is, in place of
	// SubjectAltNames; others are spoken to in cleartext. CAs names an identity then.
	Pods []PodIdentity `json:"pods,omitzero"`
}

// PodIdentity is the pod that has an address, as its certificate says.
type PodIdentity struct {
	// Address is an IP address of the pod's.
	Address string `json:"address"`
	// ID is the pod's SPIFFE ID.
	ID string `json:"id"`
	// Pod is the pod's name in the certificate; empty is any.
	Pod string `json:"pod,omitempty"`
}

// Endpoint is one address: "ip:port" or, for a service outside the set, "host:port".
type Endpoint struct {
	Address string `json:"address"`
	// Pod is the name of the pod that has the address, in the Service's namespace; empty if it is not known.
	Pod string `json:"pod,omitempty"`
	// Nodes and Zones have the names of those, separated by commas, for whose clients the endpoint is meant (EndpointSlice,
	// endpoints[].hints). All endpoints of a service have some, or none has. Of one that is NodeLocal, Nodes is the endpoint's own.
	Nodes string `json:"nodes,omitempty"`
	Zones string `json:"zones,omitempty"`
}
