package gateway

import (
	"maps"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// Translator translates one set after another. What it made of the set before it makes again only
// where something changed: if only routes came, went or are others, these routes; if nothing that it reads changed,
// nothing. What did not change shares memory with the result before. It is for one goroutine at a time.
type Translator struct {
	Options Options

	last *translator
}

// Translate returns the listeners and routes of the set, the status of every object that is Weir's, and the findings. The order of the objects in
// the set has no influence, nor have the sets before. What it returns may share memory with what it will return.
func (x *Translator) Translate(set *resource.Set) (model.Config, []resource.Status, []resource.Finding) {
	t := &translator{Options: x.Options, set: set, used: map[*listener]*usage{}, reached: map[reach]bool{}}
	if last := x.last; last != nil && last.basis.serves(last.set, set, x.Options) {
		if sameRoutes(last.set, set) {
			last.set = set // let the older one go
			return last.cfg, last.statuses, last.findings
		}
		t.begin(last.basis)
		t.readRoutes(last.routes)
	} else {
		t.begin(t.readBasis())
		t.readRoutes(nil)
	}
	t.attachRoutes()
	t.emit()
	t.lint()
	t.finish()
	x.last = t
	return t.cfg, t.statuses, t.findings
}

// Gateways returns the Gateways of the last set that are Weir's, in the order of the set: whoever else has to know is told by this.
func (x *Translator) Gateways() []*gatewayv1.Gateway {
	if x.last == nil {
		return nil
	}
	return x.last.ours
}

// ServiceRoutes returns the routes of the last set whose parents are Services, in the order of model.SortServiceRoutes.
func (x *Translator) ServiceRoutes() []model.ServiceRoute {
	if x.last == nil {
		return nil
	}
	return x.last.atServices
}

// begin takes over what is known before any route is.
func (t *translator) begin(b *basis) {
	t.basis = b
	t.cfg = model.Config{Certificates: slices.Clip(b.baseConfig.Certificates), Services: slices.Clip(b.baseConfig.Services)}
	t.findings = slices.Clone(b.baseFindings) // they will be sorted
}

// finish adds the statuses and puts everything in order, in which most of it is already.
func (t *translator) finish() {
	t.statuses = make([]resource.Status, 0, len(t.allPolicies)+len(t.order)+len(t.baseStatuses)+len(t.sets)+len(t.listed))
	t.policyStatuses()
	t.routeStatuses("GRPCRoute")
	t.gatewayStatuses()
	t.statuses = append(t.statuses, t.baseStatuses...)
	t.routeStatuses("HTTPRoute")
	t.listenerSetStatuses()
	t.routeStatuses("TCPRoute")
	t.cfg.Sort()
	resource.SortStatuses(t.statuses)
	resource.SortFindings(t.findings)
}

// translator holds one translation. Its steps run in the order of Translator.Translate; each uses the results of the
// earlier ones.
type translator struct {
	Options
	set *resource.Set
	*basis
	routes []*route // oldest first
	listed []*route // as in the set, kind by kind

	cfg        model.Config
	atServices []model.ServiceRoute
	statuses   []resource.Status
	findings   []resource.Finding

	used    map[*listener]*usage
	first   map[clientsOf]*route // by port of a Service: the first route of the kind that has it
	reached map[reach]bool
}

// basis is everything by which routes are judged. It does not change once it was read.
type basis struct {
	// brokenGrants are the first of each namespace that are left out because they are not valid.
	brokenGrants map[string]resource.Key
	certificates map[string]bool // in found, by name
	rejected     map[string]bool // classes of ours that are not accepted
	gateways     map[key]*gateway
	order        []*gateway           // oldest first
	ours         []*gatewayv1.Gateway // those of order, as in the set
	sets         map[key]*listenerSet // also those of Gateways that are not ours, as nil
	policies     map[target]*policy
	allPolicies  []*policy         // oldest first
	aimedAt      map[key][]*policy // by Service, in force or not
	leaves       map[key][]key     // by root, see readSplits
	// named are the EndpointSlices that say whether a backend is refused for its names; nil without Options.Names.
	named []*discoveryv1.EndpointSlice
	// wildService is set when some gRPC match can only be a regular expression (see grpcPath).
	wildService bool
	loops       loops

	// found, classes and said are the configuration, statuses and findings before routes are read.
	baseConfig   model.Config
	baseStatuses []resource.Status
	baseFindings []resource.Finding
}

// readBasis reads everything but routes.
func (t *translator) readBasis() *basis {
	t.basis = &basis{
		brokenGrants: map[string]resource.Key{},
		certificates: map[string]bool{},
		rejected:     map[string]bool{},
		gateways:     map[key]*gateway{},
		sets:         map[key]*listenerSet{},
		policies:     map[target]*policy{},
		aimedAt:      map[key][]*policy{},
		leaves:       map[key][]key{},
		wildService:  slices.ContainsFunc(t.set.GRPCRoutes, wildService),
	}
	if t.Names != nil {
		t.named = t.set.NamedSlices()
	}
	for k := range t.set.Rejected {
		if first, ok := t.brokenGrants[k.Namespace]; k.Kind == "ReferenceGrant" && (!ok || k.Name < first.Name) {
			t.brokenGrants[k.Namespace] = k
		}
	}
	t.readSplits()
	t.readClasses()
	t.readGateways()
	t.readPolicies()
	t.secure()
	t.loops = t.readLoops(t.set, t.ProxyPerGateway)
	t.baseConfig, t.baseStatuses, t.baseFindings = t.cfg, t.statuses, t.findings
	t.cfg, t.statuses, t.findings = model.Config{}, nil, nil
	return t.basis
}

// serves reports whether the basis, read from one set, is also that of another.
func (b *basis) serves(read, set *resource.Set, o Options) bool {
	return (o.Names == nil || slices.Equal(read.EndpointSlices, set.EndpointSlices) || slices.Equal(b.named, set.NamedSlices())) &&
		slices.Equal(read.GatewayClasses, set.GatewayClasses) && slices.Equal(read.Gateways, set.Gateways) &&
		slices.Equal(read.ListenerSets, set.ListenerSets) && slices.Equal(read.ReferenceGrants, set.ReferenceGrants) &&
		slices.Equal(read.BackendTLSPolicies, set.BackendTLSPolicies) && slices.Equal(read.TrafficSplits, set.TrafficSplits) &&
		slices.Equal(read.Services, set.Services) && slices.Equal(read.Secrets, set.Secrets) &&
		slices.Equal(read.ConfigMaps, set.ConfigMaps) && slices.Equal(read.Namespaces, set.Namespaces) &&
		slices.Equal(read.Watched, set.Watched) && maps.Equal(read.Expiries, set.Expiries) && maps.Equal(read.Origins, set.Origins) && maps.Equal(read.Rejected, set.Rejected) &&
		b.wildService == slices.ContainsFunc(set.GRPCRoutes, wildService) &&
		b.loops.equal(b.readLoops(set, o.ProxyPerGateway))
}

func sameRoutes(a, b *resource.Set) bool {
	return slices.Equal(a.HTTPRoutes, b.HTTPRoutes) && slices.Equal(a.GRPCRoutes, b.GRPCRoutes) && slices.Equal(a.TCPRoutes, b.TCPRoutes)
}

// reach means that requests reach a policy's targets through a Gateway.
type reach struct {
	policy  *policy
	gateway *gateway
}

// usage is the use of a listener by routes.
type usage struct {
	routes int32
	// claims are the hostnames that accepted routes of each kind have here.
	claims map[string][]claim
	// hosts are the hostnames that accepted routes have here.
	hosts map[string]*hosted
}

func (t *translator) on(l *listener) *usage {
	u := t.used[l]
	if u == nil {
		u = &usage{claims: map[string][]claim{}}
		t.used[l] = u
	}
	return u
}
