package explain

import (
	"slices"

	"github.com/weirmesh/weir/internal/curl"
	"github.com/weirmesh/weir/internal/finding"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// Served is the input for explaining requests. It is read-only.
type Served struct {
	Config *model.Config
	// Set is the set that Config was made from. Without it, explanations omit what is left out, where objects were
	// written, and Gateways' addresses.
	Set *resource.Set
	// Findings about Set are the reasons why routes and mirrors are left out.
	Findings []finding.Finding
	// ProxyPerGateway reports whether each Gateway has addresses and proxies of its own, as in a cluster. Otherwise one proxy
	// serves all Gateways.
	ProxyPerGateway bool
}

// Explain explains what happens to a request at a Gateway. With an empty gateway, it finds the Gateway, or uses the
// only one. A *GatewayError means that it found none.
func (s *Served) Explain(r *curl.Request, gateway model.Owner) (*Explanation, error) {
	switch {
	case !s.ProxyPerGateway && gateway == "":
		return s.at(s.Config, r), nil
	case gateway == "":
		return s.find(r)
	}
	part, err := s.Part(gateway)
	if err != nil {
		return nil, err
	}
	e := s.at(part, r)
	e.Gateway = gateway
	return e, nil
}

// Part returns the configuration of one Gateway's proxies; the error is a *GatewayError.
func (s *Served) Part(gateway model.Owner) (*model.Config, error) {
	all := s.Config.Owners()
	switch {
	case !s.ProxyPerGateway:
		return nil, &GatewayError{Problem: NotSeparate, Gateway: gateway}
	case !slices.Contains(all, gateway):
		return nil, &GatewayError{Problem: UnknownGateway, Gateway: gateway, Gateways: s.gateways(all)}
	}
	return s.Config.Of(gateway), nil
}

// Origin returns where an object was written, or what is invalid in it; zero if that is unknown.
func (s *Served) Origin(r model.Ref) finding.Origin {
	if s.Set == nil {
		return finding.Origin{}
	}
	if at := s.Set.Origin(r); at != (finding.Origin{}) {
		return at
	}
	for k, f := range s.Set.Rejected {
		if ref := k.Ref(); ref.Kind == r.Kind && ref.Namespace == r.Namespace && ref.Name == r.Name {
			return f.Origin
		}
	}
	return finding.Origin{}
}

// at explains a request by a configuration, including what is left out of it.
func (s *Served) at(cfg *model.Config, r *curl.Request) *Explanation {
	e := explain(cfg, ask(r))
	s.leftOut(cfg, e)
	e.mirrorsOff(s.Findings)
	return e
}
