package smi

import (
	"slices"

	"github.com/weirmesh/weir/internal/resource"
)

const (
	codeRootNotFound    = "WR601"
	codeRootName        = "WR602"
	codeConflict        = "WR603"
	codeBackendNotFound = "WR604"
	codeBackendName     = "WR605"
	codePortMissing     = "WR606"
	codePortNotSplit    = "WR607"
	codeZeroWeights     = "WR608"
	codeSelf            = "WR609"
	codeNested          = "WR610"
	codeGroupNotFound   = "WR611"
	codeMatchKind       = "WR612"
	codeNoMatches       = "WR613"
	codeRegex           = "WR614"
	codeNotHTTP         = "WR615"
	codeTCPMatches      = "WR616"
	codeUnused          = "WR617"

	codeServeNotFound = "WR620"
	codePortTaken     = "WR621"
	codeShortName     = "WR622"
	codeNotConverted  = "WR623"
	codeServedOn      = "WR624"
	codePatternLarge  = "WR630"
	codeMatchInvalid  = "WR631"
)

const notInForce = "The split is not in force: the root's own endpoints serve."

var codes = []resource.Code{
	{ID: codeRootNotFound, Severity: resource.Warning, Title: "split root not found",
		Meaning: "The Service that a TrafficSplit divides does not exist, or is left out because it is not valid. The split has no effect.",
		Fix:     "Create or correct the Service, or correct spec.service."},
	{ID: codeRootName, Severity: resource.Error, Title: "split root in another namespace",
		Meaning: "spec.service is neither the name nor the full name of a Service in the split's own namespace. The split has no effect.",
		Fix:     "Name a Service of the split's own namespace."},
	{ID: codeConflict, Severity: resource.Error, Title: "splits in conflict",
		Meaning: "Another TrafficSplit without matches has the same root, and is older or, of the same age, comes first by name. This one has no effect.",
		Fix:     "Keep one of them, or limit this one by matches."},
	{ID: codeBackendNotFound, Severity: resource.Error, Title: "split backend not found",
		Meaning: "A backend with a weight names a Service that does not exist, or is left out because it is not valid. Its share is answered 500, except on ports that no backend has: those are not split. With the weight 0 there is no finding.",
		Fix:     "Create the Service, or give it the weight 0 until it exists."},
	{ID: codeBackendName, Severity: resource.Error, Title: "split backend in another namespace",
		Meaning: "A backend is neither the name nor the full name of a Service in the split's own namespace. Its share is answered 500.",
		Fix:     "Name a Service of the split's own namespace."},
	{ID: codePortMissing, Severity: resource.Warning, Title: "split backend without a port",
		Meaning: "A backend lacks a port of the root and gets none of that port's traffic; the others share it by their weights.",
		Fix:     "Give the backend the ports of the root. The targetPort may differ."},
	{ID: codePortNotSplit, Severity: resource.Warning, Title: "port not split",
		Meaning: "No backend that exists has a port of the root. The root's own endpoints serve that port.",
		Fix:     "Add the port to the backends, if it should be split."},
	{ID: codeZeroWeights, Severity: resource.Warning, Title: "all split weights are zero",
		Meaning: "No backend of the split gets requests. They are answered 500.",
		Fix:     "Give one backend a weight, or delete the split."},
	{ID: codeSelf, Severity: resource.Warning, Title: "split of a service to itself",
		Meaning: "The root is one of the backends. Its share goes to all of the root's own endpoints, and is not split again.",
		Fix:     "Name a Service that selects one version."},
	{ID: codeNested, Severity: resource.Warning, Title: "nested split",
		Meaning: "A backend is the root of another TrafficSplit. Splits do not nest: its share goes to its own endpoints.",
		Fix:     "Name the Services that the other split leads to."},
	{ID: codeGroupNotFound, Severity: resource.Error, Title: "HTTPRouteGroup not found",
		Meaning: "A match names an HTTPRouteGroup that does not exist, or is left out because it is not valid. " + notInForce,
		Fix:     "Create or correct the HTTPRouteGroup, or correct the name."},
	{ID: codeMatchKind, Severity: resource.Error, Title: "match of another kind",
		Meaning: "A match names something other than an HTTPRouteGroup. " + notInForce,
		Fix:     "Name an HTTPRouteGroup of specs.smi-spec.io."},
	{ID: codeNoMatches, Severity: resource.Error, Title: "no usable match",
		Meaning: "The HTTPRouteGroups of a split have no match that could be used. " + notInForce,
		Fix:     "Add matches to them, or remove spec.matches to split all requests."},
	{ID: codeRegex, Severity: resource.Error, Title: "invalid expression in an HTTPRouteGroup",
		Meaning: "A pathRegex or a header's expression is not RE2 syntax. The match is left out.",
		Fix:     "Correct the expression."},
	{ID: codeNotHTTP, Severity: resource.Warning, Title: "split of a port that is not TCP",
		Meaning: "A port of the root is UDP or SCTP, which Weir does not serve. Its traffic is not split.",
		Fix:     "Leave the port to kube-proxy."},
	{ID: codeTCPMatches, Severity: resource.Warning, Title: "matches for TCP connections",
		Meaning: "A split with matches has a root with a port whose connections carry no HTTP requests that Weir can see: its appProtocol is not an HTTP protocol, or a TCPRoute leads there. " +
			"Matches cannot apply to connections: they go to the root's own endpoints, or where a split without matches sends them.",
		Fix: "Use a split without matches for a Service with that port alone."},
	{ID: codeUnused, Severity: resource.Info, Title: "split without effect",
		Meaning: "No route leads to the root of a TrafficSplit, and it is not served by its host names.",
		Fix:     "Add a route to it, or use --serve."},

	{ID: codeServeNotFound, Severity: resource.Error, Title: "service to serve not found",
		Meaning: "--serve names a Service that does not exist.",
		Fix:     "Create it or correct the name."},
	{ID: codePortTaken, Severity: resource.Error, Title: "port taken",
		Meaning: "A Service cannot be served by its host names on a port: a listener or another Service uses the port for another protocol, or the port is not HTTP, where host names cannot tell Services apart.",
		Fix:     "Change one of the two ports, or leave one of the Services out of --serve."},
	{ID: codeShortName, Severity: resource.Info, Title: "short host name taken",
		Meaning: "Services of one name in several namespaces are served by host name. The bare name means the one in the namespace default, else the first.",
		Fix:     "Call the others by name.namespace."},
	{ID: codeNotConverted, Severity: resource.Error, Title: "split not converted",
		Meaning: "weir convert cannot write the TrafficSplit as a route of the Gateway API, for the reason given.",
		Fix:     "Write the route by hand, or keep the split."},
	{ID: codeServedOn, Severity: resource.Info, Title: "served without its split",
		Meaning: "A Service was served because it was the root of a TrafficSplit, and no split has it as its root any more. It is still served by its host names, by its own endpoints. A restart of Weir ends that.",
		Fix:     "To keep it after a restart, use --serve; to end it, delete the Service or restart Weir."},
	{ID: codePatternLarge, Severity: resource.Error, Title: "expression too large",
		Meaning: "A pathRegex or a header's expression would cost too much memory, or too much time with each request: the message names its instructions and the bound (docs/limits.md). The match is left out.",
		Fix:     "Repeat less: x{0,1000} counts a thousand times, and nested repeats multiply."},
	{ID: codeMatchInvalid, Severity: resource.Error, Title: "invalid match in an HTTPRouteGroup",
		Meaning: "A match names a method or a header that no request can have. The match is left out.",
		Fix:     "Correct the name."},
}

// Codes documents the codes of this package's findings.
func Codes() []resource.Code { return slices.Clone(codes) }

var severities = resource.Severities(slices.Concat(resource.Codes(), codes))
