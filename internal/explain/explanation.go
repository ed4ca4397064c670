package explain

import (
	"github.com/weirmesh/weir/internal/curl"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/routing"
)

// Explanation is what happens to a request, and why. Its JSON form is the output of "weir explain -o json".
type Explanation struct {
	Request *curl.Request `json:"request"`
	// Gateway, "namespace/name", gets the request in a cluster; GatewayBy is how it was found.
	Gateway   model.Owner `json:"gateway,omitempty"`
	GatewayBy string      `json:"gatewayBy,omitempty"`
	// Listener takes the request. If it is nil, no listener does, and Reason is why.
	Listener *model.Listener `json:"listener,omitempty"`
	Reason   string          `json:"reason,omitempty"`
	// Client is the client's address as the proxy sees it, if the connection's source is known. ForwardedFor is the
	// X-Forwarded-For that backends get.
	Client       string `json:"client,omitempty"`
	ForwardedFor string `json:"forwardedFor,omitempty"`
	// Note is a remark about how the listener was chosen.
	Note string `json:"note,omitempty"`
	// Rule takes the connection, if the request is a connection to a TCP port.
	Rule *model.Ref `json:"rule,omitempty"`
	*routing.Explanation
	// PathPolicy is set if the policy is strict, or if common servers read the path in several ways.
	PathPolicy *routing.PathExplanation `json:"pathPolicy,omitempty"`

	Filters  *model.Filters `json:"filters,omitempty"`
	Timeouts model.Timeouts `json:"timeouts,omitzero"`
	Retry    *model.Retry   `json:"retry,omitempty"`
	Session  *model.Session `json:"session,omitempty"`
	// LeftOut lists objects that would take the request if they were valid.
	LeftOut []LeftOut `json:"leftOut,omitempty"`

	// Answer is given without a backend: a redirect, a fault, or because the request is refused.
	Answer   *Answer   `json:"answer,omitempty"`
	Backends []Backend `json:"backends,omitempty"`
	Mirrors  []Mirror  `json:"mirrors,omitempty"`
	// MirrorsOff lists mirror filters that copy nothing because they are wrong.
	MirrorsOff []OffMirror `json:"mirrorsOff,omitempty"`

	asked *question
}

// Answer is an answer by the proxy itself.
type Answer struct {
	// Status is 0 for a connection, which is reset.
	Status   int    `json:"status"`
	Location string `json:"location,omitempty"`
	Reason   string `json:"reason,omitempty"`
}

// Backend is a backend that may answer the request.
type Backend struct {
	// Ref is the place of the backend, or of the leaf of a split.
	Ref     model.Ref `json:"ref,omitzero"`
	Service string    `json:"service,omitempty"`
	// Probability is 0..1; exactly Weight of every WeightSum requests.
	Probability float64  `json:"probability"`
	Weight      uint64   `json:"weight"`
	WeightSum   uint64   `json:"weightSum"`
	Endpoints   []string `json:"endpoints,omitempty"`
	Places
	// ProxyProtocol is the version of the PROXY header that begins connections to the endpoints.
	ProxyProtocol int            `json:"proxyProtocol,omitempty"`
	Forwarded     *Forwarded     `json:"forwarded,omitempty"`
	Filters       *model.Filters `json:"filters,omitempty"`
	Answer        *Answer        `json:"answer,omitempty"`
	Mirrors       []Mirror       `json:"mirrors,omitempty"`
	// Splits are the splits of the service that were tried. If the last takes the request, Leaves answer it instead of
	// the service.
	Splits []routing.ExplainedSplit `json:"splits,omitempty"`
	Leaves []Backend                `json:"leaves,omitempty"`
}

// Places say which of the endpoints a proxy uses, by where it runs, and which of these a client gets.
type Places struct {
	// Zones and Nodes are the endpoints that are meant for clients there, by the names of these. With NodeLocal, a proxy uses
	// those of its own node alone.
	Zones     map[string][]string `json:"zones,omitempty"`
	Nodes     map[string][]string `json:"nodes,omitempty"`
	NodeLocal bool                `json:"nodeLocal,omitempty"`
	// ClientAffinity means that what comes from one client address goes to one endpoint.
	ClientAffinity bool `json:"clientAffinity,omitempty"`
}

// Forwarded is the request line and host that a backend or a mirror gets.
type Forwarded struct {
	Method string `json:"method"`
	Target string `json:"target"`
	Host   string `json:"host"`
	// Mark is the default field that marks copies for a mirror; the proxy's options may set another.
	Mark string `json:"mark,omitempty"`
}

// Mirror is a mirror that may get a copy of the request.
type Mirror struct {
	// Ref is the place of the mirror, or of the leaf of a split.
	Ref         model.Ref `json:"ref,omitzero"`
	Service     string    `json:"service"`
	Probability float64   `json:"probability"`
	Numerator   uint32    `json:"numerator,omitempty"`
	Denominator uint32    `json:"denominator,omitempty"`
	Endpoints   []string  `json:"endpoints,omitempty"`
	// Copies are the possible copies. A copy is the request as the answering backend gets it, so there are several if
	// backends get different requests.
	Copies []Forwarded `json:"copies,omitempty"`
	// Splits are the splits of the service that were tried. If the last takes the request, Leaves get the copies
	// instead of the service.
	Splits []routing.ExplainedSplit `json:"splits,omitempty"`
	Leaves []Mirror                 `json:"leaves,omitempty"`
}
