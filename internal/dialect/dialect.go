// Package dialect lists the front ends: which kinds each reads, and what it makes of them. Whoever reads, translates, reports or documents
// kinds has them from here. A new front end is a folder with a translator and descriptors of its kinds, and an entry in All.
package dialect

import (
	"cmp"
	"net/netip"
	"slices"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/dialect/access"
	"github.com/weirmesh/weir/internal/dialect/core"
	"github.com/weirmesh/weir/internal/dialect/gateway"
	"github.com/weirmesh/weir/internal/dialect/roles"
	"github.com/weirmesh/weir/internal/dialect/rollouts"
	"github.com/weirmesh/weir/internal/dialect/sidecar"
	"github.com/weirmesh/weir/internal/dialect/smi"
	"github.com/weirmesh/weir/internal/dialect/tlsconfig"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/rollout/provider"
	"github.com/weirmesh/weir/internal/workload"
)

// Dialect is one front end.
type Dialect struct {
	Name string
	// Kinds are those that are read for it. No two dialects have the same.
	Kinds resource.Kinds
	// Codes document its findings.
	Codes []resource.Code
	// New returns what translates one set after another, each as if it were the first, for one goroutine at a time. It is pure: it reads the
	// set, which it leaves alone, and nothing else.
	New func(Options) func(*resource.Set, Known) Result
}

// Options say what a set does not. Each dialect documents what they mean to it.
type Options struct {
	// Serve is smi.Options.Serve.
	Serve []string
	// ProxyPerGateway is gateway.Options.ProxyPerGateway, and core.Options.Cluster.
	ProxyPerGateway bool
	// Partial says that the set is a part of a cluster's objects, as manifests are.
	Partial bool
	// Names are the host names that endpoints and backends may have; nil is any.
	Names *resource.HostNames
	// ExclusiveHostnames is gateway.Options.ExclusiveHostnames.
	ExclusiveHostnames bool
	// Deny and TrustDomain are those of access.Options.
	Deny        model.Deny
	TrustDomain string
	// Sidecar is the pod that the configuration is for, if it is for one.
	Sidecar sidecar.Options
	// Mesh says that configurations for sidecars of the set's pods are made of the results.
	Mesh bool
	// Calls says that what pods send to Services is asked for, whoever serves it.
	Calls bool
	// TrustedProxies is gateway.Options.TrustedProxies, and for listeners that no Gateway has.
	TrustedProxies []netip.Prefix
	// SubjectNames is tlsconfig.Options.Grants.
	SubjectNames []tlsconfig.Grant
	// Excluded is tlsconfig.Options.Excluded.
	Excluded []string
}

// Result is what a dialect makes of a set.
type Result struct {
	// Gateways are those of the set that are Weir's, if the dialect decides that.
	Gateways []*gatewayv1.Gateway
	Config   model.Config
	Statuses []resource.Status
	Events   []resource.Event
	Findings []resource.Finding
	// AtServices are routes for the clients of Services in a mesh.
	AtServices []model.ServiceRoute
	// Uses are objects of kinds that are not read, with which the dialect does something (resource.Set.Written).
	Uses []resource.Key
}

// Known is what dialects before one in the list have decided.
type Known struct {
	// Gateways are those of the set that are Weir's.
	Gateways []*gatewayv1.Gateway
	// AtServices are routes for the clients of Services in a mesh.
	AtServices []model.ServiceRoute
}

// With adds what another one has decided.
func (k Known) With(r Result) Known {
	if r.Gateways != nil {
		k.Gateways = r.Gateways
	}
	k.AtServices = append(k.AtServices[:len(k.AtServices):len(k.AtServices)], r.AtServices...)
	return k
}

// List is front ends that work together. Of what two of them say the first counts (model.Merge).
type List []Dialect

// All are the front ends of Weir.
func All() List {
	return List{
		{"core", core.Kinds(), core.Codes(), func(o Options) func(*resource.Set, Known) Result {
			t := &core.Translator{Options: core.Options{Names: o.Names, Cluster: o.ProxyPerGateway, Partial: o.Partial}}
			return func(set *resource.Set, _ Known) (r Result) {
				r.Config, r.Statuses, r.Findings = t.Translate(set)
				return r
			}
		}},
		{"gateway", gateway.Kinds(), gateway.Codes(), func(o Options) func(*resource.Set, Known) Result {
			t := &gateway.Translator{Options: gateway.Options{ProxyPerGateway: o.ProxyPerGateway, Partial: o.Partial, Names: o.Names, TrustedProxies: o.TrustedProxies, ExclusiveHostnames: o.ExclusiveHostnames, Mesh: o.Mesh || o.Calls || o.Sidecar.Name != ""}}
			return func(set *resource.Set, _ Known) (r Result) {
				r.Config, r.Statuses, r.Findings = t.Translate(set)
				r.Gateways, r.AtServices = t.Gateways(), t.ServiceRoutes()
				return r
			}
		}},
		{"smi", smi.Kinds(), smi.Codes(), func(o Options) func(*resource.Set, Known) Result {
			t := &smi.Translator{Options: smi.Options{Serve: o.Serve, Partial: o.Partial}}
			return func(set *resource.Set, known Known) (r Result) {
				t.Options.Gateways = known.Gateways
				r.Config, r.Statuses, r.Events, r.Findings = t.Translate(set)
				if trusted := model.TrustedProxies(o.TrustedProxies); len(trusted) > 0 {
					for i := range r.Config.Listeners { // which are of no Gateway
						r.Config.Listeners[i].Front = &model.Front{TrustedProxies: trusted}
					}
				}
				return r
			}
		}},
		{"sidecar", nil, sidecar.Codes(), func(o Options) func(*resource.Set, Known) Result {
			of := o.Sidecar
			of.TrustDomain = cmp.Or(o.TrustDomain, access.DefaultTrustDomain)
			return func(set *resource.Set, known Known) (r Result) {
				of := of
				of.Routes = sidecar.NewRoutes(known.AtServices)
				if of.Name != "" && of.Plain {
					index := tlsconfig.NewIndex(set, nil)
					of.Strict = func(namespace string, labels map[string]string) bool { return index.Of(namespace, labels).Strict }
				}
				r.Config, r.Findings = sidecar.Translate(set, of)
				return r
			}
		}},
		{"rollouts", rollouts.Kinds(), rollouts.Codes(), func(o Options) func(*resource.Set, Known) Result {
			return func(set *resource.Set, _ Known) (r Result) {
				r.Findings, r.Uses = rollouts.Translate(set, rollouts.Options{Providers: provider.All(), Partial: o.Partial})
				return r
			}
		}},
		{"roles", roles.Kinds(), roles.Codes(), func(Options) func(*resource.Set, Known) Result {
			return func(set *resource.Set, _ Known) (r Result) {
				r.Findings = roles.Translate(set)
				return r
			}
		}},
		{"access", slices.Concat(workload.Kinds(), access.Kinds()), access.Codes(), func(o Options) func(*resource.Set, Known) Result {
			return blindToEndpoints(func(set *resource.Set) (r Result) {
				r.Config, r.Statuses, r.Events, r.Findings = access.Translate(set, access.Options{
					Partial: o.Partial, Deny: o.Deny, TrustDomain: o.TrustDomain, Sidecar: o.Sidecar.Name != "" || o.Mesh, Unenforced: o.ProxyPerGateway && !o.Partial && !o.Mesh, Mesh: o.Mesh && !o.Partial,
				})
				return r
			})
		}},
		{"tlsconfig", tlsconfig.Kinds(), tlsconfig.Codes(), func(o Options) func(*resource.Set, Known) Result {
			return blindToEndpoints(func(set *resource.Set) (r Result) {
				r.Statuses, r.Events, r.Findings = tlsconfig.Translate(set, tlsconfig.Options{Grants: o.SubjectNames, Partial: o.Partial, Excluded: o.Excluded})
				return r
			})
		}},
	}
}

// blindToEndpoints is Dialect.New's result for a translation that reads no EndpointSlices, and nothing that is Known: what
// changes most often leaves its result as it is.
func blindToEndpoints(translate func(*resource.Set) Result) func(*resource.Set, Known) Result {
	var last *resource.Set
	var is Result
	return func(set *resource.Set, _ Known) Result {
		if last == nil || !set.SameBesideEndpoints(last) {
			is = translate(set)
		}
		last = set
		return is
	}
}

// Kinds are those of all front ends of Weir.
func Kinds() resource.Kinds { return All().Kinds() }

// Kinds are those of all front ends, in their order.
func (l List) Kinds() resource.Kinds {
	var all resource.Kinds
	for _, d := range l {
		all = append(all, d.Kinds...)
	}
	return all
}

// Codes are those of all front ends, in their order.
func (l List) Codes() []resource.Code {
	var all []resource.Code
	for _, d := range l {
		all = append(all, d.Codes...)
	}
	return all
}
