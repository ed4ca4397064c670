package explain

import (
	"slices"

	"github.com/weirmesh/weir/internal/curl"
	"github.com/weirmesh/weir/internal/finding"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// Served is what requests are explained by. Nothing of it is changed.
type Served struct {
	Config *model.Config
	// Set is what Config was made of. Without it nothing is told of what is left out, of where objects were written, and of Gateways' addresses.
	Set *resource.Set
	// Findings about Set say why a route or a mirror is left out.
	Findings []finding.Finding
	// ProxyPerGateway says that each Gateway has addresses and proxies of its own, as in a cluster. Otherwise one proxy serves them all.
	ProxyPerGateway bool
}

// Explain says what becomes of a request at a Gateway. An empty gateway is the only one there may be, or is found; a *GatewayError says that none
// could be.
func (s *Served) Explain(r *curl.Request, gateway model.GatewayKey) (*Explanation, error) {
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
func (s *Served) Part(gateway model.GatewayKey) (*model.Config, error) {
	all := s.Config.Gateways()
	switch {
	case !s.ProxyPerGateway:
		return nil, &GatewayError{Problem: NotSeparate, Gateway: gateway}
	case !slices.Contains(all, gateway):
		return nil, &GatewayError{Problem: UnknownGateway, Gateway: gateway, Gateways: s.gateways(all)}
	}
	return s.Config.Of(gateway), nil
}

// Origin is where an object was written, or what of it is not valid; zero if that is not known.
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

// at explains a request by a configuration, with what is left out of it.
func (s *Served) at(cfg *model.Config, r *curl.Request) *Explanation {
	e := explain(cfg, ask(r))
	s.leftOut(cfg, e)
	e.mirrorsOff(s.Findings)
	return e
}
