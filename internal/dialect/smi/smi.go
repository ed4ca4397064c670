// Package smi translates SMI objects (TrafficSplit and the HTTPRouteGroups it names) into the model's splits, and
// reports the result for each object in statuses, events and findings. The specification's text is the authority
// (Traffic Split v1alpha4 and the first draft); docs/smi.md lists what it leaves open and what Weir does there.
//
// It is pure: it reads a resource.Set, which it does not change, and nothing else. dialect/core makes the services that
// its splits name. Other dialects make routes to the roots; this one makes them for the host names of roots that are
// reached without a route.
//
// A user's mistake never fails the translation. The bad part is left out or answers an error for its share, the rest is
// served, and a condition, an event and a finding say why.
package smi

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/api/split"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// Options are settings that are not part of a set.
type Options struct {
	// Serve names Services, as "name" (in the namespace default) or "namespace/name", that are reached by their host
	// names on their own ports without any route. Empty means the roots of all splits if there are no Gateways; "none"
	// means none.
	Serve []string
	// Gateways are those of the set that are served. Others take no ports.
	Gateways []*gatewayv1.Gateway
	// Partial says that the set is a part of a cluster's objects, as manifests are: others that are referred to may be elsewhere
	// (resource.Set.Elsewhere).
	Partial bool
}

// Translate returns the splits of the set, the listeners and routes of the services to be served by host name, the
// status of every TrafficSplit, the events about it and the findings. The order of the objects in the set has no
// influence.
func Translate(set *resource.Set, options Options) (model.Config, []resource.Status, []resource.Event, []resource.Finding) {
	return (&Translator{Options: options}).Translate(set)
}

// Translator translates one set after another, each as Translate would, with one exception. A Service that is served
// because it was the root of a split is still served by its own endpoints when the split is deleted. Deleting the split
// is the last step of the specification's workflow (Traffic Split, "Workflow"), and clients must not notice it. It is
// for one goroutine at a time.
type Translator struct {
	Options Options
	served  map[key]bool // by the last translation, as roots of splits or because they once were
}

// Translate is as the function of that name.
func (m *Translator) Translate(set *resource.Set) (model.Config, []resource.Status, []resource.Event, []resource.Finding) {
	t := &translator{set: set, options: m.Options, before: m.served, roots: map[key][]*trafficSplit{}}
	defer func() {
		m.served = nil
		if t.byDefault() {
			m.served = t.served
		}
	}()
	for _, o := range set.TrafficSplits {
		t.read(o)
	}
	slices.SortFunc(t.splits, func(a, b *trafficSplit) int {
		return cmp.Or(a.object.CreationTimestamp.Compare(b.object.CreationTimestamp.Time),
			cmp.Compare(a.ref.Namespace, b.ref.Namespace), cmp.Compare(a.ref.Name, b.ref.Name))
	})
	for _, s := range t.splits {
		if s.service != nil {
			t.roots[s.root] = append(t.roots[s.root], s)
		}
	}
	for _, s := range t.splits {
		t.resolve(s)
	}
	t.conflicts()
	for _, s := range t.splits {
		t.emit(s)
	}
	// Of the splits of one root, those with matches come first; they were added oldest first.
	slices.SortStableFunc(t.cfg.Splits, func(a, b model.Split) int {
		return cmp.Or(cmp.Compare(a.Root, b.Root), cmp.Compare(min(len(b.Matches), 1), min(len(a.Matches), 1)))
	})
	t.serve()
	t.unused()
	for _, s := range t.splits {
		t.status(s)
	}
	t.cfg.Sort()
	resource.SortStatuses(t.statuses)
	slices.SortStableFunc(t.events, func(a, b resource.Event) int {
		return cmp.Or(a.Ref.Compare(b.Ref), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Message, b.Message))
	})
	resource.SortFindings(t.findings)
	return t.cfg, t.statuses, t.events, t.findings
}

// translator holds one translation. Its steps run in the order of Translate; each uses the results of the earlier ones.
type translator struct {
	set      *resource.Set
	options  Options
	cfg      model.Config
	statuses []resource.Status
	events   []resource.Event
	findings []resource.Finding

	splits []*trafficSplit         // oldest first
	roots  map[key][]*trafficSplit // by root, if it exists; oldest first
	served map[key]bool            // by host name
	before map[key]bool            // roots served by the translation before
	// relayed are the TCPRoutes that lead connections to ports of Services; nil until somebody asks.
	relayed map[portKey]string
}

type key struct{ namespace, name string }

func (k key) String() string { return k.namespace + "/" + k.name }

// portKey is a port of a Service.
type portKey struct {
	service key
	number  int32
}

func serviceKey(k key) resource.Key {
	return resource.Key{Kind: "Service", Namespace: k.namespace, Name: k.name}
}

// trafficSplit is a TrafficSplit in translation.
type trafficSplit struct {
	object  *split.TrafficSplit
	ref     model.Ref
	root    key
	domain  string          // of the full name it is called by, if any
	service *corev1.Service // nil if there is no root
	matches []model.SplitMatch
	// patterns bounds the patterns of the matches.
	patterns model.PatternBudget

	// What is wrong, by the condition it belongs to.
	rejected   []resource.Finding // why the split is not in force
	unresolved []resource.Finding // backends and groups that do not exist
	ports      []resource.Finding
	warnings   []resource.Finding
	conflicted bool
}

// read finds the root.
func (t *translator) read(o *split.TrafficSplit) {
	s := &trafficSplit{object: o, ref: model.Ref{Kind: "TrafficSplit", Namespace: o.Namespace, Name: o.Name}}
	t.splits = append(t.splits, s)
	name, domain, why := resource.LocalService(o.Spec.Service, o.Namespace)
	if why != "" {
		t.reject(s, resource.Problem(codeRootName, "InvalidRoot", "spec.service", why, "name a Service of the split's own namespace"))
		return
	}
	s.root, s.domain = key{o.Namespace, name}, domain
	if s.service = t.set.Service(o.Namespace, name); s.service == nil {
		code, why, fix := t.set.Absent(codeRootNotFound, serviceKey(s.root), t.options.Partial)
		t.reject(s, resource.Problem(code, "RootNotFound", "spec.service",
			fmt.Sprintf("Service %s %s, so there is nothing to split", s.root, why), fix))
	}
}

// resolve looks up the groups of routes and judges the backends as far as no port matters.
func (t *translator) resolve(s *trafficSplit) {
	if len(s.object.Spec.Matches) > 0 {
		t.resolveMatches(s)
	}
	var sum split.Weight
	for i, b := range s.object.Spec.Backends {
		sum += b.Weight
		field := fmt.Sprintf("spec.backends[%d].service", i)
		name, _, why := resource.LocalService(b.Service, s.ref.Namespace)
		at := key{s.ref.Namespace, name}
		switch {
		case why != "":
			t.add(s, &s.unresolved, resource.Problem(codeBackendName, "InvalidBackend", field,
				why+": "+t.missingShare(s), "name a Service of the split's own namespace"))
		case t.set.Service(at.namespace, at.name) == nil:
			// The workflow names a Service before it exists. While it has no weight, nothing is reported.
			if b.Weight > 0 {
				code, why, fix := t.set.Absent(codeBackendNotFound, serviceKey(at), t.options.Partial)
				t.add(s, &s.unresolved, resource.Problem(code, "BackendNotFound", field,
					fmt.Sprintf("Service %s %s: %s", at, why, t.missingShare(s)), fix+", or give it the weight 0 until then"))
			}
		case at == s.root:
			t.add(s, &s.warnings, resource.Problem(codeSelf, "SelfReference", field,
				fmt.Sprintf("Service %s is the split's own root: its share goes to all of the root's endpoints, whichever version they are", at),
				"name a Service that selects one version"))
		case len(t.roots[at]) > 0:
			t.add(s, &s.warnings, resource.Problem(codeNested, "NestedSplit", field,
				fmt.Sprintf("Service %s is the root of TrafficSplit %s, which does not apply to this share: splits do not nest", at, t.roots[at][0].ref.Name),
				"name the Services that it leads to"))
		}
	}
	if sum == 0 {
		t.add(s, &s.warnings, resource.Problem(codeZeroWeights, "AllWeightsZero", "spec.backends",
			"all weights are 0, so the requests are answered 500", "give one backend a weight, or delete the split"))
	}
}

// conflicts keeps, of the splits of each root, those with matches, oldest first, and the oldest without.
func (t *translator) conflicts() {
	taken := map[key]*trafficSplit{}
	for _, s := range t.splits {
		if len(s.rejected) > 0 || len(s.object.Spec.Matches) > 0 {
			continue
		}
		first := taken[s.root]
		if first == nil {
			taken[s.root] = s
			continue
		}
		s.conflicted = true
		t.reject(s, resource.Problem(codeConflict, "Conflicted", "spec.service",
			fmt.Sprintf("TrafficSplit %s, %s, splits all requests for Service %s already", first.ref.Name, before(first, s), s.root),
			"keep one of them, or limit this one by matches"))
	}
}

// before says why the first of two splits of one root counts.
func before(first, s *trafficSplit) string {
	if first.object.CreationTimestamp.Equal(&s.object.CreationTimestamp) {
		return "whose name comes first"
	}
	return "which is older"
}

// missingShare says what happens to the share of a missing backend: it is answered 500, except on ports that no backend
// has, which are not split.
func (t *translator) missingShare(s *trafficSplit) string {
	known, split := 0, false
	for _, b := range s.object.Spec.Backends {
		name, _, why := resource.LocalService(b.Service, s.ref.Namespace)
		service := t.set.Service(s.ref.Namespace, name)
		if why != "" || service == nil {
			continue
		}
		known++
		split = split || s.service != nil && slices.ContainsFunc(s.service.Spec.Ports, func(p corev1.ServicePort) bool { return hasPort(service, p.Port) })
	}
	if known > 0 && !split {
		return "nothing is split, as no backend that exists has a port of the root"
	}
	return "its share is answered 500"
}

// reject keeps the split out of force.
func (t *translator) reject(s *trafficSplit, p resource.Finding) { t.add(s, &s.rejected, p) }

// add reports a problem of the split and keeps it for a condition.
func (t *translator) add(s *trafficSplit, to *[]resource.Finding, p resource.Finding) {
	*to = append(*to, p)
	t.report(s.ref, p)
}
