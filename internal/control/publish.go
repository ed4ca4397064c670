package control

import (
	"errors"
	"log/slog"
	"maps"
	"slices"

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

// publishing holds the configurations made from sets, owner by owner, and the result of publishing them. It detects
// unchanged configurations and passes them on as the same pointer.
type publishing struct {
	// whole is the configuration that parts were made from.
	whole *model.Config
	parts map[model.Owner]*model.Config
	// wanted is each owner's intended configuration. served is its present one, by the errors of the last Publish.
	wanted, served map[model.Owner]*model.Config
	errs           map[model.Owner]error
	// tried are the configurations that errs are about.
	tried map[model.Owner]*model.Config
}

// want sets the wanted configurations; nil means that they are unknown.
func (p *publishing) want(wanted map[model.Owner]*model.Config) {
	for owner, c := range wanted {
		for _, known := range []*model.Config{p.served[owner], p.wanted[owner]} {
			if known != nil && (known == c || known.Equal(c)) {
				wanted[owner] = known
				break
			}
		}
	}
	p.wanted = wanted
}

// nothing is for owners without listeners: it ends what was served for them before.
var nothing = &model.Config{}

// divide returns each owner's configuration. It is the owner's part of whole, its previous one if the new one is
// invalid, or nothing if there is no part.
func (p *publishing) divide(whole *model.Config, owners []model.Owner, invalid map[model.Owner]error) map[model.Owner]*model.Config {
	if p.whole != whole {
		p.whole, p.parts = whole, whole.ByOwner()
	}
	out := make(map[model.Owner]*model.Config, len(owners))
	maps.Copy(out, p.parts)
	for _, owner := range owners {
		switch {
		case out[owner] != nil:
		case invalid[owner] == nil:
			out[owner] = nothing
		case p.served[owner] != nil:
			out[owner] = p.served[owner]
		}
	}
	return out
}

// differs reports whether something must be published: it is not served, and was not refused for good.
func (p *publishing) differs() bool {
	for owner := range p.served {
		if p.wanted[owner] == nil {
			return true
		}
	}
	return p.pending()
}

// pending reports whether something wanted is not served yet and may still be.
func (p *publishing) pending() bool {
	for owner, c := range p.wanted {
		var final finalError
		if p.served[owner] != c && (p.tried[owner] != c || !errors.As(p.errs[owner], &final)) {
			return true
		}
	}
	return false
}

// note records the errors of Publish for the wanted configurations.
func (p *publishing) note(errs map[model.Owner]error) {
	served := make(map[model.Owner]*model.Config, len(p.wanted))
	p.tried = map[model.Owner]*model.Config{}
	for owner, c := range p.wanted {
		if err := errs[owner]; err != nil && !onlyListeners(err) {
			p.tried[owner] = c
			if c = p.served[owner]; c == nil {
				continue
			}
		}
		served[owner] = c
	}
	p.served, p.errs = served, errs
}

// forget drops errors about configurations that are no longer wanted.
func (p *publishing) forget() {
	errs := map[model.Owner]error{}
	for owner, err := range p.errs {
		if c := p.tried[owner]; c == nil || c == p.wanted[owner] {
			errs[owner] = err
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
func (p *publishing) tell(log *slog.Logger, told map[model.Owner]error) {
	for _, owner := range slices.Sorted(maps.Keys(p.tried)) {
		if err := p.errs[owner]; told[owner] == nil || told[owner].Error() != err.Error() {
			log.Error("configuration of a Gateway not applied, the last good one keeps serving", "gateway", owner, "error", err)
		}
	}
}
