package gateway

import (
	"slices"

	"github.com/weirmesh/weir/internal/resource"
)

const (
	codeForeignClass     = "WR501"
	codeParameters       = "WR502"
	codeAddressType      = "WR503"
	codeAddressUnusable  = "WR504"
	codeListenerProtocol = "WR505"
	codeConflict         = "WR506"
	codePortUnavailable  = "WR507"
	codeRouteKinds       = "WR508"
	codeCertificate      = "WR509"
	codeClientCA         = "WR510"
	codeNotPermitted     = "WR511"
	codeInsecureClient   = "WR512"
	codeClientCert       = "WR513"
	codeOverlap          = "WR514"
	codeIgnored          = "WR515"
	codeSetNotAllowed    = "WR516"
	codeUnwatched        = "WR519"

	codePathPolicy        = "WR517"
	codeUnknownAnnotation = "WR518"

	codeParentNotFound  = "WR520"
	codeParentKind      = "WR521"
	codeNoListener      = "WR522"
	codeNotAllowed      = "WR523"
	codeNoHostname      = "WR524"
	codeHostnameTaken   = "WR525"
	codeNoParent        = "WR526"
	codeHostnameIgnored = "WR527"
	codeListenerTaken   = "WR528"
	codeParentUnwatched = "WR529"
	codeParentService   = "WR580"
	codeNoPort          = "WR581"
	codePortTaken       = "WR582"

	codeHostnamesOfService = "WR583"
	codeHostnameOwned      = "WR566"
	codeHostnameFull       = "WR567"

	codeBackendNotFound     = "WR530"
	codeBackendKind         = "WR531"
	codeBackendPort         = "WR532"
	codeBackendProtocol     = "WR533"
	codeRegex               = "WR534"
	codeValue               = "WR535"
	codeFilterClash         = "WR536"
	codeFilterUnsupported   = "WR537"
	codeSessionShared       = "WR538"
	codeNoBackends          = "WR539"
	codeZeroWeights         = "WR540"
	codeShadowed            = "WR541"
	codeMirrorPrimary       = "WR542"
	codeMirrorNothing       = "WR543"
	codeMirrorRedirect      = "WR548"
	codeRepeatedMatch       = "WR544"
	codeBackendPolicy       = "WR545"
	codeBackendRefused      = "WR546"
	codeComesBack           = "WR565"
	codePolicyTarget        = "WR550"
	codePolicyConflict      = "WR551"
	codePolicyCA            = "WR552"
	codePolicyInvalid       = "WR553"
	codePolicyUnused        = "WR554"
	codePolicyPartlyClashes = "WR555"

	codeAnnotation    = "WR562"
	codeNobodyTrusted = "WR564"
	codeAllTrusted    = "WR572"
	codeHeaderIgnored = "WR573"
	codePatternLarge  = "WR560"
	codeNotSendable   = "WR561"
)

var codes = []resource.Code{
	{ID: codeForeignClass, Severity: resource.Info, Title: "gateway of another controller",
		Meaning: "The Gateway's class names another controller, so the Gateway and everything attached to it are ignored.",
		Fix:     "Set the class's spec.controllerName to " + ControllerName + ", or leave the GatewayClass out of the files."},
	{ID: codeParameters, Severity: resource.Error, Title: "parametersRef not supported",
		Meaning: "A GatewayClass or Gateway refers to parameters, which Weir does not support here. Nothing of it is served.",
		Fix:     "Remove parametersRef."},
	{ID: codeAddressType, Severity: resource.Error, Title: "address type not supported",
		Meaning: "spec.addresses asks for something other than an IP address. Nothing of the Gateway is served.",
		Fix:     "Use type IPAddress, or remove the address to listen on all."},
	{ID: codeAddressUnusable, Severity: resource.Error, Title: "address not usable",
		Meaning: "An entry of spec.addresses is not an IP address. The Gateway is served on its other addresses.",
		Fix:     "Write an IPv4 or IPv6 address."},
	{ID: codeListenerProtocol, Severity: resource.Error, Title: "listener protocol not supported",
		Meaning: "The listener's protocol is none of HTTP, HTTPS with TLS terminated, and TCP. It is left out.",
		Fix:     "Use HTTP, TCP, or HTTPS with tls.mode Terminate."},
	{ID: codeConflict, Severity: resource.Error, Title: "listeners in conflict",
		Meaning: "Several listeners share a port with the same hostname or with different protocols. Within one object none of them is served; between objects the oldest is served, or of the same age the first by name.",
		Fix:     "Give each its own hostname or port."},
	{ID: codePortUnavailable, Severity: resource.Error, Title: "port unavailable",
		Meaning: "A port is bound for all addresses by one Gateway and for one address by another. The older Gateway has it.",
		Fix:     "Use another port, or give both Gateways addresses."},
	{ID: codeRouteKinds, Severity: resource.Error, Title: "route kinds not supported",
		Meaning: "allowedRoutes.kinds names a kind that the listener cannot serve. The other kinds may attach.",
		Fix:     "Name HTTPRoute or GRPCRoute for listeners of HTTP and HTTPS, TCPRoute for TCP."},
	{ID: codeCertificate, Severity: resource.Error, Title: "certificate not usable",
		Meaning: "A certificate of a listener does not exist, has the wrong type or does not parse. Without any, the listener is left out.",
		Fix:     "Refer to a Secret of type kubernetes.io/tls with a certificate and the key that fits it."},
	{ID: codeClientCA, Severity: resource.Error, Title: "client CA not usable",
		Meaning: "A CA that client certificates are to be checked against cannot be read. Without any, the listener is left out.",
		Fix:     "Refer to a ConfigMap with certificates in PEM form under ca.crt."},
	{ID: codeNotPermitted, Severity: resource.Error, Title: "reference not permitted",
		Meaning: "A reference crosses namespaces and no ReferenceGrant allows it. It is treated as if its target were missing.",
		Fix:     "Add a ReferenceGrant to the namespace of the target."},
	{ID: codeUnwatched, Severity: resource.Error, Title: "reference to a namespace that is not watched",
		Meaning: "The controller reads only named namespaces (--namespaces), and the reference leads to another one. It is treated as if its target were missing, " +
			"whatever ReferenceGrants there are.",
		Fix: "Add the namespace to the controller's --namespaces (the chart's namespaces), or refer to an object of a namespace that is watched."},
	{ID: codeInsecureClient, Severity: resource.Warning, Title: "clients without valid certificate are accepted",
		Meaning: "The mode AllowInsecureFallback lets every client in.",
		Fix:     "Use AllowValidOnly unless the backends check clients themselves."},
	{ID: codeClientCert, Severity: resource.Error, Title: "client certificate not usable",
		Meaning: "The certificate of spec.tls.backend cannot be used. Connections to backends present none.",
		Fix:     "Refer to a Secret of type kubernetes.io/tls with a certificate and the key that fits it."},
	{ID: codeOverlap, Severity: resource.Info, Title: "overlapping TLS hostnames",
		Meaning: "Listeners with TLS on one port have overlapping hostnames. A client that reuses a connection for another host is answered 421.",
		Fix:     "Nothing, if this is intended."},
	{ID: codeIgnored, Severity: resource.Warning, Title: "field not honoured",
		Meaning: "The field has no effect in Weir, or less than it says.",
		Fix:     "Remove it, or do not rely on it."},
	{ID: codeSetNotAllowed, Severity: resource.Error, Title: "ListenerSet not allowed",
		Meaning: "The Gateway that a ListenerSet names does not let ListenerSets of that namespace attach. None of its listeners is served.",
		Fix:     "Extend spec.allowedListeners of the Gateway."},
	{ID: codePathPolicy, Severity: resource.Error, Title: "path policy not known",
		Meaning: "The annotation weirmesh.github.io/path-policy of a Gateway, a ListenerSet or a route has an unknown value. The policy strict applies.",
		Fix:     "Write strict or as-written; docs/paths.md explains both."},
	{ID: codeUnknownAnnotation, Severity: resource.Warning, Title: "annotation without effect",
		Meaning: "A Gateway, a ListenerSet or a route has an unknown annotation with Weir's prefix; its name may be misspelt.",
		Fix:     "Use a name from docs/paths.md or docs/client-address.md, or remove the annotation."},

	{ID: codeParentNotFound, Severity: resource.Error, Title: "parent not found",
		Meaning: "A route names a Gateway or ListenerSet, or a ListenerSet a Gateway, that does not exist. It is not attached there.",
		Fix:     "Create it or correct the name and namespace."},
	{ID: codeParentUnwatched, Severity: resource.Warning, Title: "parent in a namespace that is not watched",
		Meaning: "The controller reads only named namespaces (--namespaces), and the parent is in another one. Unless another controller serves that, the route or " +
			"ListenerSet is not attached there.",
		Fix: "Add the namespace of the parent to the controller's --namespaces (the chart's namespaces)."},
	{ID: codeParentKind, Severity: resource.Warning, Title: "parent kind not supported",
		Meaning: "A route names a parent of a kind that is not served here. A Service is for the clients of a mesh: the controller serves it with mesh.enabled of the chart, files with --as. The parent is ignored.",
		Fix:     "Name a Gateway or a ListenerSet, or serve a mesh."},
	{ID: codeParentService, Severity: resource.Error, Title: "Service that cannot be a parent",
		Meaning: "A route names a headless Service, or one of type ExternalName, as its parent. Its clients connect to addresses of their own choice, not to one of the Service's. The route is not attached there.",
		Fix:     "Name a Service with a cluster address."},
	{ID: codeNoPort, Severity: resource.Error, Title: "no such port of a Service",
		Meaning: "sectionName and port of a parentRef select no TCP port of the Service, or for an HTTPRoute or GRPCRoute only ports that carry no HTTP. The route is not attached there.",
		Fix:     "Correct sectionName and port, or the port's appProtocol."},
	{ID: codePortTaken, Severity: resource.Error, Title: "port of a Service taken by another route kind",
		Meaning: "A port of a Service has routes of one kind: GRPCRoutes go before HTTPRoutes, and these before TCPRoutes. This route is not attached there.",
		Fix:     "Give the routes different ports, or write them as one kind."},
	{ID: codeHostnamesOfService, Severity: resource.Warning, Title: "hostnames without effect",
		Meaning: "A route whose parent is a Service has hostnames. Requests to a Service are known by the address that they are sent to, so all of them are the route's, whatever host they name.",
		Fix:     "Remove the hostnames, or match the header Host."},
	{ID: codeNoListener, Severity: resource.Error, Title: "no such listener",
		Meaning: "sectionName and port of a parentRef select no listener of the Gateway. The route is not attached there.",
		Fix:     "Correct sectionName and port, or remove them to attach to all listeners."},
	{ID: codeNotAllowed, Severity: resource.Error, Title: "not allowed by listeners",
		Meaning: "No selected listener allows routes of this kind or from this namespace. The route is not attached there.",
		Fix:     "Extend the listener's allowedRoutes."},
	{ID: codeNoHostname, Severity: resource.Error, Title: "no common hostname",
		Meaning: "No hostname of the route meets one of the listeners. The route is not attached there.",
		Fix:     "Correct the hostnames of route or listener."},
	{ID: codeHostnameTaken, Severity: resource.Error, Title: "hostname taken by the other route kind",
		Meaning: "An HTTPRoute and a GRPCRoute on one listener share a hostname, which the API forbids. The older one is served.",
		Fix:     "Give them different hostnames or listeners."},
	{ID: codeNoParent, Severity: resource.Warning, Title: "route without parent",
		Meaning: "The route names no parent, so nothing uses it.",
		Fix:     "Add parentRefs."},
	{ID: codeHostnameIgnored, Severity: resource.Warning, Title: "hostname ignored",
		Meaning: "A hostname of the route meets none of the listeners it is attached to. Requests for it are answered 404.",
		Fix:     "Remove it, or add a listener for it."},
	{ID: codeListenerTaken, Severity: resource.Error, Title: "listener taken by another TCPRoute",
		Meaning: "Connections of a TCP listener cannot be told apart, so the oldest TCPRoute gets them all. This route is accepted and attached there, but gets no connection.",
		Fix:     "Merge the routes, or give each a listener of its own."},
	{ID: codeHostnameOwned, Severity: resource.Error, Title: "hostname belongs to another namespace",
		Meaning: "With --exclusive-hostnames (the chart's exclusiveHostnames) a hostname of a listener, and all that a wildcard stands for, belong to the namespace whose route had it first. " +
			"This route is not attached there for the hostname.",
		Fix: "Use another hostname, or have the routes of the other namespace deleted."},
	{ID: codeHostnameFull, Severity: resource.Error, Title: "no room on a shared hostname",
		Meaning: "Routes of several namespaces have the hostname on one listener, and older ones use up what their patterns, or their matches of one path, may cost each request together (docs/limits.md). " +
			"This route is not attached there for the hostname, so that requests of the older ones are not refused because of it.",
		Fix: "Use a hostname of your own, or paths and values without regular expressions."},

	{ID: codeBackendNotFound, Severity: resource.Error, Title: "backend not found",
		Meaning: "A reference leads to a Service that does not exist. A backend answers 500 for its share, a mirror is left out.",
		Fix:     "Create the Service or correct the name and namespace."},
	{ID: codeBackendKind, Severity: resource.Error, Title: "backend kind not supported",
		Meaning: "A reference leads to something other than a Service. A backend answers 500 for its share, a mirror is left out.",
		Fix:     "Refer to a Service."},
	{ID: codeBackendPort, Severity: resource.Error, Title: "backend port not found",
		Meaning: "A reference names no port or one that the Service does not have. A backend answers 500 for its share, a mirror is left out.",
		Fix:     "Name a port of the Service."},
	{ID: codeBackendProtocol, Severity: resource.Error, Title: "backend protocol not supported",
		Meaning: "The appProtocol of the Service's port cannot carry the route's requests. A backend answers 500 for its share, a mirror is left out.",
		Fix:     "Correct appProtocol; for https add a BackendTLSPolicy."},
	{ID: codeRegex, Severity: resource.Error, Title: "regular expression does not compile",
		Meaning: "A match has a regular expression that is not RE2 syntax. Its rule is left out.",
		Fix:     "Correct the expression; RE2 has neither look-around nor back-references."},
	{ID: codeValue, Severity: resource.Error, Title: "unsupported value",
		Meaning: "A field has a value that Weir does not know. The rule it belongs to is left out.",
		Fix:     "Use one of the values of the API."},
	{ID: codeFilterClash, Severity: resource.Error, Title: "incompatible filters",
		Meaning: "Filters of one rule or backend exclude each other. The rule is left out.",
		Fix:     "Keep one of them."},
	{ID: codeFilterUnsupported, Severity: resource.Error, Title: "filter not supported",
		Meaning: "A filter cannot be applied. Its requests are answered 500, as they must not bypass it.",
		Fix:     "Remove the filter."},
	{ID: codeSessionShared, Severity: resource.Warning, Title: "session name used twice",
		Meaning: "Two rules of a route use the same session name. Rules do not share sessions: each begins a new one when a client sends the other's token.",
		Fix:     "Give each rule a sessionName of its own, or none."},
	{ID: codeNoBackends, Severity: resource.Warning, Title: "rule without backends",
		Meaning: "The rule has neither backends nor a redirect. Its requests are answered 500.",
		Fix:     "Add backendRefs or a RequestRedirect filter."},
	{ID: codeZeroWeights, Severity: resource.Warning, Title: "all weights are zero",
		Meaning: "No backend of the rule gets requests. They are answered 500, but for those of sessions that have begun (docs/sessions.md).",
		Fix:     "Give one of them a weight."},
	{ID: codeShadowed, Severity: resource.Warning, Title: "rule never matches",
		Meaning: "An older route or an earlier rule has equal matches and gets all requests of this rule.",
		Fix:     "Remove the rule or change its matches."},
	{ID: codeMirrorPrimary, Severity: resource.Warning, Title: "mirror to the primary's service",
		Meaning: "A mirror copies requests to the Service that serves them, which sees them twice.",
		Fix:     "Mirror to another Service."},
	{ID: codeMirrorNothing, Severity: resource.Warning, Title: "mirror of nothing",
		Meaning: "The mirror's share is 0, so it copies no request.",
		Fix:     "Raise percent or fraction.numerator, or remove the filter."},
	{ID: codeMirrorRedirect, Severity: resource.Warning, Title: "mirror beside a redirect",
		Meaning: "A rule or a backend has a RequestMirror and a RequestRedirect filter. The redirect answers all its requests, and Weir copies only requests that it forwards. The mirror copies nothing.",
		Fix:     "Remove one of the two filters."},
	{ID: codeRepeatedMatch, Severity: resource.Warning, Title: "repeated match ignored",
		Meaning: "A match names a header or query parameter twice. Only the first counts.",
		Fix:     "Remove the second."},
	{ID: codeBackendPolicy, Severity: resource.Error, Title: "backend's TLS policy not usable",
		Meaning: "The BackendTLSPolicy of the Service cannot be honoured. A backend answers 500 for its share, a mirror is left out.",
		Fix:     "Correct the policy."},
	{ID: codeBackendRefused, Severity: resource.Error, Title: "backend refused for its host name",
		Meaning: "In a cluster, a reference leads to a Service that stands for a host name (type ExternalName, or EndpointSlices of type FQDN) which the controller does not allow. " +
			"The reference does not resolve; a backend answers 500 for its share, a mirror is left out.",
		Fix: "Refer to a Service with addresses, in another namespace with a ReferenceGrant; or have the administrator allow the domain (externalNames.allow of the chart)."},
	{ID: codeComesBack, Severity: resource.Error, Title: "TCP backend that leads back",
		Meaning: "A backend of a TCPRoute leads to a TCP listener of the route's own Gateway, of another one that leads back to it, or of the same process: by an address of the machine " +
			"or of the Gateway, by the Gateway's Service in a cluster, or by a TrafficSplit. Each connection would be accepted again and again until no descriptor is left. " +
			"Connections of the backend's share are reset.",
		Fix: "Name the Service of the servers themselves."},

	{ID: codePolicyTarget, Severity: resource.Error, Title: "policy target not found",
		Meaning: "A BackendTLSPolicy targets something that is not a Service, or a Service or port name that does not exist. It has no effect there.",
		Fix:     "Correct targetRefs."},
	{ID: codePolicyConflict, Severity: resource.Error, Title: "policy in conflict",
		Meaning: "An older BackendTLSPolicy has the same target. This one has no effect.",
		Fix:     "Keep one of them."},
	{ID: codePolicyCA, Severity: resource.Error, Title: "policy CA not usable",
		Meaning: "A CA of a BackendTLSPolicy cannot be read. Without any, requests to its Services are answered 500.",
		Fix:     "Refer to a ConfigMap with certificates in PEM form under ca.crt."},
	{ID: codePolicyInvalid, Severity: resource.Error, Title: "policy invalid",
		Meaning: "A BackendTLSPolicy asks for something that Weir does not support. Requests to its Services are answered 500.",
		Fix:     "Use caCertificateRefs, or wellKnownCACertificates System."},
	{ID: codePolicyUnused, Severity: resource.Info, Title: "policy without effect",
		Meaning: "No attached route leads to a Service the BackendTLSPolicy targets.",
		Fix:     "Nothing, if this is intended."},
	{ID: codePolicyPartlyClashes, Severity: resource.Warning, Title: "policy partly in conflict",
		Meaning: "An older BackendTLSPolicy has one of the targets. This one has its effect on the others.",
		Fix:     "Remove the target from one of them."},

	{ID: codeAnnotation, Severity: resource.Warning, Title: "annotation of a Gateway without effect",
		Meaning: "One of Weir's annotations of a Gateway has an invalid value, or a part of it is invalid. That is ignored: an address that cannot be read is not trusted.",
		Fix:     "Write a value of the kind that the message names; docs/client-address.md lists them."},
	{ID: codeNobodyTrusted, Severity: resource.Error, Title: "PROXY protocol without trusted senders",
		Meaning: "Connections to a port must begin with a PROXY header, which only trusted addresses may send, and there are none. Every connection is closed.",
		Fix:     "Name the addresses of the load balancer in weirmesh.github.io/trusted-proxies."},
	{ID: codeAllTrusted, Severity: resource.Warning, Title: "everybody is trusted",
		Meaning: "A Gateway trusts every address to name the client, so any client can claim any address: limits, logs and policies by address mean nothing.",
		Fix:     "Name the addresses of what is in front."},
	{ID: codeHeaderIgnored, Severity: resource.Warning, Title: "header that filters cannot change",
		Meaning: "A header modifier names a header that only the proxy may write, because connections and message framing depend on it (Connection, Content-Length, Host, " +
			"Keep-Alive, TE, Trailer, Transfer-Encoding, Upgrade and the like), or loop detection does (Via of requests). That part of the filter has no effect; the rest applies.",
		Fix: "Remove it from the filter. To send another Host, use set in a RequestHeaderModifier, or a URLRewrite filter."},
	{ID: codePatternLarge, Severity: resource.Error, Title: "regular expression too large",
		Meaning: "A match has a regular expression that would cost too much memory, or too much time with each request: the message names its instructions and the bound (docs/limits.md). Its rule is left out.",
		Fix:     "Repeat less: x{0,1000} counts a thousand times, and nested repeats multiply."},
	{ID: codeNotSendable, Severity: resource.Error, Title: "path, host name or header that no request can have",
		Meaning: "A path to be matched or sent, a host name or a header of a filter has bytes or escapes that no valid request has, or that servers read in different ways. Its rule is left out.",
		Fix:     "Write it as the message says; in a path % is %25, ? is %3F and a space is %20."},
}

// Codes documents the codes of this package's findings.
func Codes() []resource.Code { return slices.Clone(codes) }

var severities = resource.Severities(slices.Concat(resource.Codes(), codes))
