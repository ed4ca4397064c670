package control

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"

	"github.com/weirmesh/weir/internal/dialect/sidecar"
	"github.com/weirmesh/weir/internal/dialect/tlsconfig"
	"github.com/weirmesh/weir/internal/finding"
	"github.com/weirmesh/weir/internal/identity/spiffe"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/workload"
)

// Sidecars makes the configurations of the sidecars of a set's pods when they are asked for, so that sidecars that are not there
// cost nothing. It may be used from any goroutine. The loop makes one for each set, which takes from the one before what did not
// change.
type Sidecars struct {
	set     *resource.Set
	options Options
	configs []model.Config // of the dialects
	routes  sidecar.Routes

	index  *sidecar.Index
	supply func() *model.Supply
	every  func(clients string) everything
	tls    func() *tlsconfig.Index

	made madeBefore
}

// everything is what sidecars have that do not ask for their destinations.
type everything struct {
	outbound *model.Config
	left     []model.Omission
}

func newSidecars(set *resource.Set, options Options, configs []model.Config, routes []model.ServiceRoute, earlier *Sidecars) *Sidecars {
	s := &Sidecars{set: set, options: options, configs: configs, routes: sidecar.NewRoutes(routes)}
	var before *sidecar.Index
	if earlier != nil {
		before = earlier.index
		s.made.take(s, earlier)
	}
	s.index = sidecar.NewIndex(set, cmp.Or(options.TrustDomain, spiffe.DefaultTrustDomain), func(namespace string, labels map[string]string) bool {
		return s.selection(namespace, labels).Strict
	}, s.routes, before)
	s.supply = sync.OnceValue(func() *model.Supply { return model.NewSupply(configs...) })
	all := sync.OnceValue(func() *model.Supply {
		return model.NewSupply(append(configs[:len(configs):len(configs)], s.index.Shared())...)
	})
	s.every = oncePer(func(clients string) (e everything) {
		e.outbound, e.left = s.complete(all(), "", s.index.Outbound(clients))
		return e
	})
	s.tls = sync.OnceValue(func() *tlsconfig.Index { return tlsconfig.NewIndex(set, options.SubjectNames) })
	return s
}

// secure has the services of a merged configuration reached over TLS where their pods have sidecars, by the pods' identities.
// A service that is reached over TLS already, as by a BackendTLSPolicy, stays as it is: the application ends that TLS.
func (s *Sidecars) secure(c *model.Config) {
	own := false
	for i := range c.Services {
		if c.Services[i].TLS != nil {
			continue
		}
		over, ok := s.index.Identified(c.Services[i].Name)
		if !ok {
			continue
		}
		if !own {
			c.Services, own = slices.Clone(c.Services), true
		}
		c.Services[i].TLS = over.TLS
	}
}

// Outbound returns what every sidecar of a namespace has for what its pod calls that does not ask for its destinations (To), and what of it
// cannot be served. Its listeners are nobody's.
func (s *Sidecars) Outbound(namespace string) (*model.Config, []model.Omission) {
	e := s.every(s.clients(namespace))
	return e.outbound, e.left
}

// Inbound returns what a pod's sidecar has beside Outbound, and what of it cannot be served; nil if the set has no such
// pod. It has the pod's own listeners, what these lead to, and the policies about the pod; of other pods and of Gateways
// nothing, and no keys.
func (s *Sidecars) Inbound(namespace, pod string) (*model.Config, []model.Omission) {
	own := s.index.Sidecar(namespace, pod)
	if len(own.Listeners) == 0 {
		return nil, nil
	}
	return s.complete(s.supply(), model.WorkloadOwner(namespace, pod), own)
}

// LeftOut are what of the configurations of all pods' sidecars cannot be served, as findings. It makes all of them.
func (s *Sidecars) LeftOut() []resource.Finding {
	_, left := s.Outbound("")
	left = slices.Clone(left)
	for _, p := range workload.PodList.In(s.set) {
		if p.Sidecar {
			_, own := s.Inbound(p.Namespace, p.Name)
			left = append(left, own...)
		}
	}
	findings := finding.LeftOut(left, s.set.Origin)
	resource.SortFindings(findings)
	return slices.CompactFunc(findings, func(a, b resource.Finding) bool { return a.Ref == b.Ref && a.Message == b.Message })
}

// Whole returns all that a pod's sidecar has, Inbound and Outbound together; nil if the set has no such pod. Of what both
// have, that of Inbound counts, as for sidecars themselves.
func (s *Sidecars) Whole(namespace, pod string) *model.Config {
	own, _ := s.Inbound(namespace, pod)
	if own == nil {
		return nil
	}
	common, _ := s.Outbound(namespace)
	known := map[string]bool{}
	for i := range own.Services {
		known[own.Services[i].Name] = true
	}
	rest := *common
	rest.Services = slices.DeleteFunc(slices.Clone(common.Services), func(o model.Service) bool { return known[o.Name] })
	out := &model.Config{}
	for _, l := range model.Lists {
		l.Concat(out, []*model.Config{own, &rest})
	}
	out.Sort()
	return out
}

// SameInbound reports whether Inbound is the same as that of another one, for all pods. It may say no though it is so.
func (s *Sidecars) SameInbound(other *Sidecars) bool { return s.set.SameBesideEndpoints(other.set) }

// Base returns what the sidecars have, beside Inbound, that ask for their destinations (To).
func (s *Sidecars) Base() *model.Config {
	base := sidecar.Base()
	return &base
}

// To returns what connections from pods of a namespace to an address and port need, beside Base; nil if nothing is known there. It has no
// keys. What did not change since an earlier set is the same, by its address.
func (s *Sidecars) To(namespace string, to netip.AddrPort) *model.Config {
	clients := s.index.Clients(namespace, to)
	return s.made.to(s, madeFor{to, clients}, func() *model.Config {
		own := s.index.To(clients, to)
		if len(own.Listeners) == 0 {
			return nil
		}
		for _, x := range s.supply().For("", own).Services { // splits lead to more than the listener does
			if over, ok := s.index.Identified(x.Name); ok {
				own.Services = append(own.Services, over)
			}
		}
		config, _ := s.complete(s.supply(), "", own)
		return config
	})
}

// clients is a namespace, if its clients have routes of their own, and else stands for all namespaces that have none.
func (s *Sidecars) clients(namespace string) string {
	if s.routes.Differs(namespace) {
		return namespace
	}
	return ""
}

// oncePer is a function that makes the value of each key once.
func oncePer[T any](make func(key string) T) func(key string) T {
	var mu sync.Mutex
	made := map[string]func() T{}
	return func(key string) T {
		mu.Lock()
		f := made[key]
		if f == nil {
			f = sync.OnceValue(func() T { return make(key) })
			made[key] = f
		}
		mu.Unlock()
		return f()
	}
}

func (s *Sidecars) complete(from *model.Supply, owner model.Owner, own model.Config) (*model.Config, []model.Omission) {
	config := from.For(owner, own)
	if s.options.PathPolicy == model.PathStrict {
		config.DefaultPathPolicy(s.options.PathPolicy)
	}
	return config.Sound()
}

// Names are the DNS names that TLSConfigs give the certificate of a pod of a namespace with labels. The pod may be none of
// the set's yet.
func (s *Sidecars) Names(namespace string, labels map[string]string) []string {
	return s.selection(namespace, labels).Names
}

// NamesOf are those of a pod of the set; nil if it has no such pod.
func (s *Sidecars) NamesOf(namespace, pod string) []string {
	labels, ok := s.index.Labels(namespace, pod)
	if !ok {
		return nil
	}
	return s.Names(namespace, labels)
}

func (s *Sidecars) selection(namespace string, labels map[string]string) tlsconfig.Selection {
	return s.tls().Of(namespace, labels)
}
