package control

import (
	"errors"
	"log/slog"
	"maps"
	"slices"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/finding"
	"github.com/weirmesh/weir/internal/model"
)

// Final marks an error of Loop.Publish that the same configuration would meet again: it is not tried again.
func Final(err error) error { return finalError{err} }

type finalError struct{ error }

// Unwrap returns the error that is marked.
func (e finalError) Unwrap() error { return e.error }

// onlyListeners says whether an error of Publish leaves the rest of its configuration served.
func onlyListeners(err error) bool {
	var unserved finding.UnservedError
	return errors.As(err, &unserved)
}

// publishing is what was made of sets, Gateway by Gateway, and what became of it. That something did not change is found here, and handed on: it is
// the same configuration, by its address.
type publishing struct {
	// whole is what parts were made of.
	whole *model.Config
	parts map[model.GatewayKey]*model.Config
	// wanted is what each Gateway is to have, served what it has, by the error of the last Publish.
	wanted, served map[model.GatewayKey]*model.Config
	errs           map[model.GatewayKey]error
	// tried are those that errs are about.
	tried map[model.GatewayKey]*model.Config
}

// want makes these the configurations that are to be served; nil is that nobody knows.
func (p *publishing) want(wanted map[model.GatewayKey]*model.Config) {
	for gateway, c := range wanted {
		for _, known := range []*model.Config{p.served[gateway], p.wanted[gateway]} {
			if known != nil && (known == c || known.Equal(c)) {
				wanted[gateway] = known
				break
			}
		}
	}
	p.wanted = wanted
}

// nothing is for Gateways that have no listeners: what was served of them before is to end.
var nothing = &model.Config{}

// divide returns what each Gateway is to have: its part of a configuration; what it had if that is invalid; nothing if there is none.
func (p *publishing) divide(whole *model.Config, gateways []*gatewayv1.Gateway, invalid map[model.GatewayKey]error) map[model.GatewayKey]*model.Config {
	if p.whole != whole {
		p.whole, p.parts = whole, whole.ByGateway()
	}
	out := make(map[model.GatewayKey]*model.Config, len(gateways))
	maps.Copy(out, p.parts)
	for _, g := range gateways {
		name := model.GatewayOf(g.Namespace, g.Name)
		switch {
		case out[name] != nil:
		case invalid[name] == nil:
			out[name] = nothing
		case p.served[name] != nil:
			out[name] = p.served[name]
		}
	}
	return out
}

// differs says whether something has to be published: it is not served, and was not refused for good.
func (p *publishing) differs() bool {
	for gateway := range p.served {
		if p.wanted[gateway] == nil {
			return true
		}
	}
	return p.pending()
}

// pending says whether something is wanted that is not served and may yet be.
func (p *publishing) pending() bool {
	for gateway, c := range p.wanted {
		var final finalError
		if p.served[gateway] != c && (p.tried[gateway] != c || !errors.As(p.errs[gateway], &final)) {
			return true
		}
	}
	return false
}

// note takes what Publish said of what is wanted.
func (p *publishing) note(errs map[model.GatewayKey]error) {
	served := make(map[model.GatewayKey]*model.Config, len(p.wanted))
	p.tried = map[model.GatewayKey]*model.Config{}
	for gateway, c := range p.wanted {
		if err := errs[gateway]; err != nil && !onlyListeners(err) {
			p.tried[gateway] = c
			if c = p.served[gateway]; c == nil {
				continue
			}
		}
		served[gateway] = c
	}
	p.served, p.errs = served, errs
}

// forget drops errors about what is not wanted any more.
func (p *publishing) forget() {
	errs := map[model.GatewayKey]error{}
	for gateway, err := range p.errs {
		if c := p.tried[gateway]; c == nil || c == p.wanted[gateway] {
			errs[gateway] = err
		}
	}
	p.errs = errs
}

// failed is why this process serves nothing of what is wanted; nil if it does, or serves nothing itself.
func (p *publishing) failed() error {
	if err := p.errs[""]; err != nil && !onlyListeners(err) {
		return err
	}
	return nil
}

// tell logs the Gateways that keep the configuration before, for another reason than was told.
func (p *publishing) tell(log *slog.Logger, told map[model.GatewayKey]error) {
	for _, gateway := range slices.Sorted(maps.Keys(p.tried)) {
		if err := p.errs[gateway]; told[gateway] == nil || told[gateway].Error() != err.Error() {
			log.Error("configuration of a Gateway not applied, the last good one keeps serving", "gateway", gateway, "error", err)
		}
	}
}
