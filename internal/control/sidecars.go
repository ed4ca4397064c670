package control

import (
	"cmp"
	"slices"
	"sync"

	"github.com/weirmesh/weir/internal/dialect/sidecar"
	"github.com/weirmesh/weir/internal/identity/spiffe"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// Sidecars makes the configurations of the sidecars of a set's pods, each when it is asked for, so that those of sidecars
// that are not there cost nothing. It may be used from any goroutine. The loop makes one for each set.
type Sidecars struct {
	options Options
	configs []model.Config // of the dialects

	index  *sidecar.Index
	once   sync.Once
	supply *model.Supply
}

func newSidecars(set *resource.Set, options Options, configs []model.Config) *Sidecars {
	return &Sidecars{options: options, configs: configs, index: sidecar.NewIndex(set, cmp.Or(options.TrustDomain, spiffe.DefaultTrustDomain))}
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

// Of returns the configuration of a pod's sidecar, and what of it cannot be served; nil if the set has no such pod. It
// has the pod's own listeners, what these lead to, and the policies about the pod; of other pods and of Gateways nothing,
// and no keys.
func (s *Sidecars) Of(namespace, pod string) (*model.Config, []model.Omission) {
	s.once.Do(func() {
		s.supply = model.NewSupply(append(s.configs[:len(s.configs):len(s.configs)], s.index.Shared())...)
	})
	own, _ := s.index.Sidecar(namespace, pod)
	if len(own.Listeners) == 0 {
		return nil, nil
	}
	config := s.supply.For(model.WorkloadOwner(namespace, pod), own)
	if s.options.PathPolicy == model.PathStrict {
		config.DefaultPathPolicy(s.options.PathPolicy)
	}
	return config.Sound()
}
