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

// Final marks an error of Loop.Publish that the same configuration would cause again, so it is not published again.
func Final(err error) error { return finalError{err} }

type finalError struct{ error }

// Unwrap returns the marked error.
func (e finalError) Unwrap() error { return e.error }

// onlyListeners reports whether an error of Publish affects only listeners, and the rest of the configuration is
// served.
func onlyListeners(err error) bool {
	var unserved finding.UnservedError
	return errors.As(err, &unserved)
}

// publishing holds the configurations made from sets, Gateway by Gateway, and the result of publishing them. It detects
// unchanged configurations and passes them on as the same pointer.
type publishing struct {
	// whole is the configuration that parts were made from.
	whole *model.Config
	parts map[model.GatewayKey]*model.Config
	// wanted is each Gateway's intended configuration. served is its present one, by the errors of the last Publish.
	wanted, served map[model.GatewayKey]*model.Config
	errs           map[model.GatewayKey]error
	// tried are the configurations that errs are about.
	tried map[model.GatewayKey]*model.Config
}

// want sets the wanted configurations; nil means that they are unknown.
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

// nothing is for Gateways without listeners: it ends what was served for them before.
var nothing = &model.Config{}

// divide returns each Gateway's configuration. It is the Gateway's part of whole, its previous one if the new one is
// invalid, or nothing if there is no part.
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

// differs reports whether something must be published: it is not served, and was not refused for good.
func (p *publishing) differs() bool {
	for gateway := range p.served {
		if p.wanted[gateway] == nil {
			return true
		}
	}
	return p.pending()
}

// pending reports whether something wanted is not served yet and may still be.
func (p *publishing) pending() bool {
	for gateway, c := range p.wanted {
		var final finalError
		if p.served[gateway] != c && (p.tried[gateway] != c || !errors.As(p.errs[gateway], &final)) {
			return true
		}
	}
	return false
}

// note records the errors of Publish for the wanted configurations.
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

// forget drops errors about configurations that are no longer wanted.
func (p *publishing) forget() {
	errs := map[model.GatewayKey]error{}
	for gateway, err := range p.errs {
		if c := p.tried[gateway]; c == nil || c == p.wanted[gateway] {
			errs[gateway] = err
		}
	}
	p.errs = errs
}

// failed returns why this process serves no wanted configuration. It returns nil if it does serve one, or serves
// nothing itself.
func (p *publishing) failed() error {
	if err := p.errs[""]; err != nil && !onlyListeners(err) {
		return err
	}
	return nil
}

// tell logs the Gateways that keep their previous configuration, if the reason is new.
func (p *publishing) tell(log *slog.Logger, told map[model.GatewayKey]error) {
	for _, gateway := range slices.Sorted(maps.Keys(p.tried)) {
		if err := p.errs[gateway]; told[gateway] == nil || told[gateway].Error() != err.Error() {
			log.Error("configuration of a Gateway not applied, the last good one keeps serving", "gateway", gateway, "error", err)
		}
	}
}
