package control

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/weirmesh/weir/internal/dialect/core"
	"github.com/weirmesh/weir/internal/dialect/gateway"
	"github.com/weirmesh/weir/internal/dialect/smi"
	"github.com/weirmesh/weir/internal/finding"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// Result is the translation of a set.
type Result struct {
	Config   *model.Config
	Statuses []resource.Status
	// Events are warnings to tell once on the objects they are about.
	Events []resource.Event
	// Findings are those of the set and those of the dialects.
	Findings []resource.Finding
	// Invalid are the Gateways ("namespace/name") that Config leaves out because their configuration is not valid, and
	// the errors. Their proxies must keep what they have. It is only used with Options.Separate.
	Invalid map[model.GatewayKey]error
}

// Options are the settings that are not part of a set. The zero value is the command line's without flags.
type Options struct {
	// Serve is smi.Options.Serve.
	Serve []string
	// Separate is gateway.Options.Separate.
	Separate bool
	// Partial means that the set is only a part of a cluster's objects, as manifests are; it is core.Options.Partial,
	// gateway.Options.Partial and smi.Options.Partial.
	Partial bool
	// PathPolicy is the policy for requests for which nothing sets another; empty is model.PathAsWritten.
	PathPolicy model.PathPolicy
	// Names is core.Options.Names and gateway.Options.Names.
	Names *resource.HostNames
	// TrustedProxies is gateway.Options.TrustedProxies, and for listeners that no Gateway has.
	TrustedProxies []netip.Prefix
}

// Translate is Options.Translate without options.
func Translate(set *resource.Set) (Result, error) { return Options{}.Translate(set) }

// Translate runs every dialect over the set and merges their results. It is pure. Invalid parts of the model, which no
// input may cause, are left out with a finding. An error means that the rest is not valid either; the result is still
// complete, for inspection. With Separate, only the Gateways whose own part of the model is invalid are left out, and
// that is not an error.
func (o Options) Translate(set *resource.Set) (Result, error) { return NewTranslator(o).Translate(set) }

// Translator translates one set after another, each with the result of Options.Translate. It only repeats the work for
// what changed: see gateway.Translator. It continues to serve roots whose splits were deleted: see smi.Translator. It
// is for one goroutine at a time.
type Translator struct {
	options Options
	gateway gateway.Translator
	splits  smi.Translator
}

// NewTranslator returns a Translator without an earlier set.
func NewTranslator(o Options) *Translator {
	return &Translator{
		options: o,
		gateway: gateway.Translator{Options: gateway.Options{Separate: o.Separate, Partial: o.Partial, Names: o.Names, TrustedProxies: o.TrustedProxies}},
		splits:  smi.Translator{Options: smi.Options{Serve: o.Serve, Partial: o.Partial}},
	}
}

// Translate is as Options.Translate.
func (t *Translator) Translate(set *resource.Set) (Result, error) {
	services, serviceStatuses, serviceFindings := core.Options{Names: t.options.Names, Cluster: t.options.Separate, Partial: t.options.Partial}.Translate(set)
	routes, statuses, routeFindings := t.gateway.Translate(set)
	splits, splitStatuses, events, splitFindings := t.splits.Translate(set)
	if trusted := model.TrustedProxies(t.options.TrustedProxies); len(trusted) > 0 {
		for i := range splits.Listeners {
			splits.Listeners[i].Front = &model.Front{TrustedProxies: trusted}
		}
	}
	config := model.Merge(services, routes, splits)
	if t.options.PathPolicy == model.PathStrict {
		config.DefaultPathPolicy(t.options.PathPolicy)
	}

	routeFindings = append(slices.Clone(routeFindings), ambiguousPaths(&config, set)...)

	read := set.Findings
	if t.options.Partial {
		// Manifests are full of kinds that Weir does not read.
		read = slices.DeleteFunc(slices.Clone(read), func(f resource.Finding) bool { return f.Code == resource.CodeUnknownKind })
	}
	r := Result{
		Config:   &config,
		Statuses: slices.Concat(serviceStatuses, statuses, splitStatuses),
		Events:   events,
		Findings: slices.Concat(read, serviceFindings, routeFindings, splitFindings),
	}
	resource.SortStatuses(r.Statuses)
	resource.SortFindings(r.Findings)
	sound, left := config.Sound()
	if left == nil {
		return r, nil
	}
	r.Config = sound
	r.Findings = append(r.Findings, finding.LeftOut(left, set.Origin)...)
	resource.SortFindings(r.Findings)
	if err := sound.Validate(); err != nil && !(t.options.Separate && r.leaveOut()) {
		return r, fmt.Errorf("invalid model (please report this): %w", err)
	}
	return r, nil
}

// Codes returns the documentation of every code a finding can have, in order.
func Codes() []resource.Code {
	return slices.Concat(resource.Codes(), core.Codes(), gateway.Codes(), pathCodes, smi.Codes(), codes)
}
