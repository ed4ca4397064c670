package access

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"

	dialect "github.com/weirmesh/weir/internal/dialect/access"
	"github.com/weirmesh/weir/internal/finding"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/workload"
)

// Served is the input for questions about access. It is read-only, and for one goroutine.
type Served struct {
	// Config was made from Set.
	Config *model.Config
	Set    *resource.Set
	// TrustDomain is that of the own identities; empty is the default.
	TrustDomain string
	// Origin returns where an object was written; nil is nowhere.
	Origin func(model.Ref) finding.Origin
	// Mesh means that the sidecars of pods enforce what is allowed, and prove who calls: those without do neither.
	Mesh bool
	// Calls returns what becomes of what clients of a namespace send to a port of a Service, by its place in spec.ports, and whether users
	// wrote routes for it (control.Calls). Nil is that nothing but the Service counts.
	Calls func(clients string, s *corev1.Service, port int, requests bool) (config *model.Config, written bool)
	// Gateways are those that reach pods with sidecars by an identity.
	Gateways []Gateway
	// Notes are what answers have to say in any case: what could not be read, and whether anything is enforced.
	Notes []string

	known  []model.Workload
	ports  map[model.Ref][]workload.Port
	meshed map[model.Ref][2]int // how many have a sidecar, and how many there are, by what they are and what runs them
}

func (s *Served) trustDomain() string { return cmp.Or(s.TrustDomain, dialect.DefaultTrustDomain) }

// workloads are those of the configuration. It has none where there is nothing of access control: then nothing judges
// those that there are.
func (s *Served) workloads() []model.Workload {
	if len(s.Config.Workloads) > 0 {
		return s.Config.Workloads
	}
	if s.known == nil {
		s.known = dialect.Workloads(s.Set, dialect.Options{TrustDomain: s.TrustDomain})
	}
	return s.known
}

// portsOf are the ports of a workload's containers.
func (s *Served) portsOf(ref model.Ref) []workload.Port {
	if s.ports == nil {
		s.ports = map[model.Ref][]workload.Port{}
		for _, p := range workload.Of(s.Set) {
			s.ports[model.Ref{Kind: p.Kind, Namespace: p.Namespace, Name: p.Name}] = p.Ports
		}
	}
	return s.ports[ref]
}

// origin is where an object was written.
func (s *Served) origin(ref model.Ref) finding.Origin {
	if s.Origin == nil {
		return finding.Origin{}
	}
	return s.Origin(ref)
}

func (s *Served) where(ref model.Ref) string {
	if s.Origin == nil || ref == (model.Ref{}) {
		return ""
	}
	if at := s.Origin(ref).String(); at != "" {
		return "  (" + at + ")"
	}
	return ""
}
