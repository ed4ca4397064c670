package control

import (
	"fmt"
	"net/netip"
	"slices"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/dialect"
	"github.com/weirmesh/weir/internal/dialect/sidecar"
	"github.com/weirmesh/weir/internal/dialect/tlsconfig"
	"github.com/weirmesh/weir/internal/finding"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// Result is the translation of a set.
type Result struct {
	Config *model.Config
	// Gateways are those of the set that are Weir's.
	Gateways []*gatewayv1.Gateway
	Statuses []resource.Status
	// Events are warnings to tell once on the objects they are about.
	Events []resource.Event
	// Findings are those of the set and those of the dialects.
	Findings []resource.Finding
	// Invalid are the owners, Gateways, that Config leaves out because their configuration is not valid, and the errors.
	// Their proxies must keep what they have. It is only used with Options.ProxyPerGateway.
	Invalid map[model.Owner]error
	// Sidecars makes configurations of sidecars; nil without Options.Mesh.
	Sidecars *Sidecars
	// Calls makes configurations for what pods send to Services; nil without Options.Mesh and Options.Calls.
	Calls *Calls
}

// owners are those who are to have a configuration, be it an empty one.
func (r *Result) owners() []model.Owner {
	all := make([]model.Owner, 0, len(r.Gateways))
	for _, g := range r.Gateways {
		all = append(all, model.GatewayOwner(g.Namespace, g.Name))
	}
	return all
}

// Options are the settings that are not part of a set. The zero value is the command line's without flags.
type Options struct {
	// Dialects are the front ends; none is all of Weir's (dialect.All).
	Dialects dialect.List
	// Serve is smi.Options.Serve.
	Serve []string
	// ProxyPerGateway is gateway.Options.ProxyPerGateway.
	ProxyPerGateway bool
	// Partial means that the set is only a part of a cluster's objects, as manifests are; it is core.Options.Partial,
	// gateway.Options.Partial and smi.Options.Partial.
	Partial bool
	// PathPolicy is the policy for requests for which nothing sets another; empty is model.PathAsWritten.
	PathPolicy model.PathPolicy
	// Names is core.Options.Names and gateway.Options.Names.
	Names *resource.HostNames
	// ExclusiveHostnames is gateway.Options.ExclusiveHostnames.
	ExclusiveHostnames bool
	// TrustedProxies is gateway.Options.TrustedProxies, and for listeners that no Gateway has.
	TrustedProxies []netip.Prefix
	// Sidecar says beside which pod this process stands, if it does.
	Sidecar sidecar.Options
	// Mesh has results and reports make configurations for sidecars of the set's pods.
	Mesh bool
	// Calls has routes judged whose parents are Services, and what pods send to Services asked for, whoever serves it.
	Calls bool
	// Deny and TrustDomain are those of access.Options.
	Deny        model.Deny
	TrustDomain string
	// SubjectNames are names that pods may have beside those of Services, by TLSConfigs.
	SubjectNames []tlsconfig.Grant
	// Excluded are the namespaces whose pods never have sidecars.
	Excluded []string
}

// Translate runs every dialect over the set and merges what they say. It is pure. What of the model is not valid, which no
// input may bring about, is left out, and a finding says so. The error means that what is left is not valid either; the
// result is still complete, so that it can be looked at. With Separate only the Gateways are left out then whose own part
// of the model is invalid, and that is no error.
func (o Options) Translate(set *resource.Set) (Result, error) { return NewTranslator(o).Translate(set) }

// Translator translates one set after another, each as Options.Translate would, and makes again only what something changed
// for: see core.Translator and gateway.Translator. Roots of splits that it served it serves on without their splits: see smi.Translator. It is
// for one goroutine at a time.
type Translator struct {
	options    Options
	translates []func(*resource.Set, dialect.Known) dialect.Result // of the dialects

	merged, sound *model.Config // what was made of the last set, and what of it is sound
	left          []model.Omission
	sidecars      *Sidecars // of the last set
}

// NewTranslator returns a Translator without an earlier set.
func NewTranslator(o Options) *Translator {
	t := &Translator{options: o}
	for _, d := range o.dialects() {
		t.translates = append(t.translates, d.New(dialect.Options{
			Serve: o.Serve, ProxyPerGateway: o.ProxyPerGateway, Partial: o.Partial, Names: o.Names, TrustedProxies: o.TrustedProxies, ExclusiveHostnames: o.ExclusiveHostnames,
			Deny: o.Deny, TrustDomain: o.TrustDomain, Sidecar: o.Sidecar, Mesh: o.Mesh, Calls: o.Calls, SubjectNames: o.SubjectNames, Excluded: o.Excluded,
		}))
	}
	return t
}

func (o Options) dialects() dialect.List {
	if o.Dialects == nil {
		return dialect.All()
	}
	return o.Dialects
}

// Kinds are those that are read for the dialects.
func (o Options) Kinds() resource.Kinds { return o.dialects().Kinds() }

// Translate is as Options.Translate.
func (t *Translator) Translate(set *resource.Set) (Result, error) {
	read := set.Findings
	if t.options.Partial {
		// Manifests are full of kinds that Weir does not read.
		read = slices.DeleteFunc(slices.Clone(read), func(f resource.Finding) bool { return f.Code == resource.CodeUnknownKind })
	}
	r := Result{Findings: slices.Clone(read)}
	configs := make([]model.Config, len(t.translates))
	var known dialect.Known
	var uses []resource.Key
	for i, translate := range t.translates {
		of := translate(set, known)
		known = known.With(of)
		configs[i] = of.Config
		r.Statuses = append(r.Statuses, of.Statuses...)
		r.Events = append(r.Events, of.Events...)
		r.Findings = append(r.Findings, of.Findings...)
		uses = append(uses, of.Uses...)
	}
	r.Findings = set.Unused(r.Findings, uses)
	switch {
	case t.options.Mesh:
		t.sidecars = newSidecars(set, t.options, configs, known.AtServices, t.sidecars)
		r.Sidecars, r.Calls = t.sidecars, &Calls{t.sidecars}
		r.Findings = append(r.Findings, r.Sidecars.index.Findings()...)
	case t.options.Calls:
		r.Calls = &Calls{newSidecars(set, t.options, configs, known.AtServices, nil)}
	}
	config := model.Merge(configs...)
	if r.Sidecars != nil {
		r.Sidecars.secure(&config)
	}
	if t.options.PathPolicy == model.PathStrict {
		config.DefaultPathPolicy(t.options.PathPolicy)
	}
	r.Config, r.Gateways = &config, known.Gateways
	r.Findings = append(r.Findings, ambiguousPaths(&config, set)...)
	resource.SortStatuses(r.Statuses)
	resource.SortFindings(r.Findings)
	sound, left := t.soundOf(&config)
	if r.Config = sound; left == nil {
		return r, nil
	}
	r.Findings = append(r.Findings, finding.LeftOut(left, set.Origin)...)
	resource.SortFindings(r.Findings)
	if err := sound.Validate(); err != nil && !(t.options.ProxyPerGateway && r.leaveOut(set)) {
		return r, fmt.Errorf("invalid model (please report this): %w", err)
	}
	return r, nil
}

// soundOf is model.Config.Sound. A configuration that means the same as the one before is not judged again: it is that one.
func (t *Translator) soundOf(merged *model.Config) (*model.Config, []model.Omission) {
	if t.merged == nil || !t.merged.Equal(merged) {
		if t.merged != nil {
			for _, l := range model.Lists {
				l.Share(merged, t.merged)
			}
		}
		t.merged = merged
		t.sound, t.left = merged.Sound()
	}
	return t.sound, t.left
}

// Codes returns the documentation of every code that a finding of these dialects can have, in order.
func (o Options) Codes() []resource.Code {
	return slices.Concat(resource.Codes(), o.dialects().Codes(), pathCodes, codes)
}
