package control

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"

	"github.com/weirmesh/weir/internal/dialect/sidecar"
	"github.com/weirmesh/weir/internal/dialect/tlsconfig"
	"github.com/weirmesh/weir/internal/identity/spiffe"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// Sidecars makes the configurations of the sidecars of a set's pods: what they have in common once, and what is a pod's own
// when it is asked for, so that sidecars that are not there cost nothing. It may be used from any goroutine. The loop makes
// one for each set.
type Sidecars struct {
	set     *resource.Set
	options Options
	configs []model.Config // of the dialects

	index  *sidecar.Index
	once   sync.Once
	supply *model.Supply

	every    sync.Once
	outbound *model.Config
	left     []model.Omission

	read sync.Once
	tls  *tlsconfig.Index
}

func newSidecars(set *resource.Set, options Options, configs []model.Config) *Sidecars {
	s := &Sidecars{set: set, options: options, configs: configs}
	s.index = sidecar.NewIndex(set, cmp.Or(options.TrustDomain, spiffe.DefaultTrustDomain), func(namespace string, labels map[string]string) bool {
		return s.selection(namespace, labels).Strict
	})
	return s
}

// secure has the services of a merged configuration reached over TLS where their pods have sidecars, by the pods' identities.
// A service that is reached over TLS already, as by a BackendTLSPolicy, stays as it is: the application ends that TLS.
func (s *Sidecars) secure(c *model.Config) {
	tls := map[string]*model.ServiceTLS{}
	for _, o := range s.index.Services() {
		tls[o.Extends] = o.TLS
	}
	own := false
	for i := range c.Services {
		by := tls[c.Services[i].Name]
		if by == nil || c.Services[i].TLS != nil {
			continue
		}
		if !own {
			c.Services, own = slices.Clone(c.Services), true
		}
		c.Services[i].TLS = by
	}
}

// Outbound returns what every sidecar has for what its pod calls that does not ask for its destinations (To), and what of it cannot be served. Its listeners are
// nobody's.
func (s *Sidecars) Outbound() (*model.Config, []model.Omission) {
	s.once.Do(s.prepare)
	s.every.Do(func() { s.outbound, s.left = s.complete("", s.index.Outbound()) })
	return s.outbound, s.left
}

// Inbound returns what a pod's sidecar has beside Outbound, and what of it cannot be served; nil if the set has no such
// pod. It has the pod's own listeners, what these lead to, and the policies about the pod; of other pods and of Gateways
// nothing, and no keys.
func (s *Sidecars) Inbound(namespace, pod string) (*model.Config, []model.Omission) {
	s.once.Do(s.prepare)
	own, _ := s.index.Sidecar(namespace, pod)
	if len(own.Listeners) == 0 {
		return nil, nil
	}
	return s.complete(model.WorkloadOwner(namespace, pod), own)
}

// Base returns what the sidecars have, beside Inbound, that ask for their destinations (To).
func (s *Sidecars) Base() *model.Config {
	s.once.Do(s.prepare)
	base := sidecar.Base()
	return &base
}

// To returns what connections from a pod to an address and port need, beside Base; nil if nothing is known there. It has no
// keys.
func (s *Sidecars) To(to netip.AddrPort) *model.Config {
	s.once.Do(s.prepare)
	own := s.index.To(to)
	if len(own.Listeners) == 0 {
		return nil
	}
	config, _ := s.complete("", own)
	return config
}

// prepare makes what all have in common.
func (s *Sidecars) prepare() {
	s.supply = model.NewSupply(append(s.configs[:len(s.configs):len(s.configs)], s.index.Shared())...)
}

func (s *Sidecars) complete(owner model.Owner, own model.Config) (*model.Config, []model.Omission) {
	config := s.supply.For(owner, own)
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

func (s *Sidecars) selection(namespace string, labels map[string]string) tlsconfig.Selection {
	s.read.Do(func() { s.tls = tlsconfig.NewIndex(s.set, s.options.SubjectNames) })
	return s.tls.Of(namespace, labels)
}
