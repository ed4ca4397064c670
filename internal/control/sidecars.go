package control

import (
	"cmp"
	"sync"

	"github.com/weirmesh/weir/internal/dialect/sidecar"
	"github.com/weirmesh/weir/internal/identity/spiffe"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/workload"
)

// plainText is the annotation of pods that says whether clients without an identity are served: "served", or "refused".
// What is neither counts as refused.
const plainText = "weirmesh.github.io/plain-text"

// Sidecars makes the configurations of the sidecars of a set's pods, each when it is asked for, so that those of sidecars
// that are not there cost nothing. It may be used from any goroutine. The loop makes one for each set.
type Sidecars struct {
	set     *resource.Set
	options Options
	configs []model.Config // of the dialects

	once   sync.Once
	supply *model.Supply
	pods   map[string]*workload.Pod // by "namespace/name"
}

// Of returns the configuration of a pod's sidecar, and what of it cannot be served; nil if the set has no such pod. It
// has the pod's own listeners, what these lead to, and the policies about the pod; of other pods and of Gateways nothing,
// and no keys.
func (s *Sidecars) Of(namespace, pod string) (*model.Config, []model.Omission) {
	s.once.Do(s.index)
	p := s.pods[namespace+"/"+pod]
	if p == nil {
		return nil, nil
	}
	annotation := p.Annotations[plainText]
	o := sidecar.Options{
		Namespace: namespace, Name: pod, Plain: annotation == "" || annotation == "served", TrustDomain: cmp.Or(s.options.TrustDomain, spiffe.DefaultTrustDomain),
	}
	own, _ := sidecar.Translate(s.set, o)
	config := s.supply.For(o.Owner(), own)
	if s.options.PathPolicy == model.PathStrict {
		config.DefaultPathPolicy(s.options.PathPolicy)
	}
	return config.Sound()
}

// index is what all have in common.
func (s *Sidecars) index() {
	s.supply = model.NewSupply(s.configs...)
	pods := workload.PodList.In(s.set)
	s.pods = make(map[string]*workload.Pod, len(pods))
	for _, p := range pods {
		s.pods[p.Namespace+"/"+p.Name] = p
	}
}
