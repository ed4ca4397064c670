package resource

import (
	"context"
	"iter"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/api/specs"
	"github.com/weirmesh/weir/api/split"
	"github.com/weirmesh/weir/internal/model"
)

// Key identifies an object. Namespace is empty for kinds that belong to no namespace. The version is not part of it: all
// versions of a kind are one object.
type Key struct {
	Group, Kind, Namespace, Name string
}

// String is "Kind namespace/name".
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Kind + " " + k.Name
	}
	return k.Kind + " " + k.Namespace + "/" + k.Name
}

// PortsKind is the Kind of references to SMI's TCPRoutes, to distinguish them from those of Gateway API.
const PortsKind = "TCPRoute." + specs.Group

// Ref is the key as provenance.
func (k Key) Ref() model.Ref {
	if k.Group == specs.Group && k.Kind == "TCPRoute" {
		k.Kind = PortsKind
	}
	return model.Ref{Kind: k.Kind, Namespace: k.Namespace, Name: k.Name}
}

// Set is every object that was read and is valid, each kind sorted by namespace and name. All versions of a kind are
// decoded into the one Go type here, with the defaults of the API filled in; a missing namespace is "default". A Set
// and everything it points to is shared and read-only.
//
// There are two exceptions for a RequestMirror filter (GEP-3171). percent and fraction may be out of range or both be
// set: the object is kept, and Findings report it. A fraction without numerator or denominator has 100 in its place.
type Set struct {
	GatewayClasses     []*gatewayv1.GatewayClass
	Gateways           []*gatewayv1.Gateway
	ListenerSets       []*gatewayv1.ListenerSet
	HTTPRoutes         []*gatewayv1.HTTPRoute
	GRPCRoutes         []*gatewayv1.GRPCRoute
	TCPRoutes          []*gatewayv1.TCPRoute
	ReferenceGrants    []*gatewayv1.ReferenceGrant
	BackendTLSPolicies []*gatewayv1.BackendTLSPolicy

	TrafficSplits   []*split.TrafficSplit
	HTTPRouteGroups []*specs.HTTPRouteGroup
	// TCPPorts and UDPPorts are SMI's TCPRoutes and UDPRoutes, which only name ports; those of Gateway API are
	// separate.
	TCPPorts []*specs.TCPRoute
	UDPPorts []*specs.UDPRoute

	Services       []*corev1.Service
	EndpointSlices []*discoveryv1.EndpointSlice
	Secrets        []*corev1.Secret
	ConfigMaps     []*corev1.ConfigMap
	Namespaces     []*corev1.Namespace

	// Watched are the only namespaces that were read, sorted; empty means all. Objects of other namespaces are not
	// known to be missing.
	Watched []string

	// Unread are kinds that Weir has no permission to read. Their objects are not known to be missing.
	Unread Kinds

	// PassedOver counts the objects of kinds that are not read, by "apiVersion kind".
	PassedOver map[string]int
	// Origins are the places where each object was read.
	Origins map[Key]Origin
	// Fields are the positions of the fields of each object; nil for a cluster.
	Fields map[Key]Fields
	// Expiries are the findings about certificates that were not valid, or not for long, when the set was made. The key
	// is the object that has the certificate; the user of the certificate reports the finding.
	Expiries map[Key]Finding
	// Rejected are the objects that were read but are not valid, and have no earlier version that is served: for each
	// the first finding that explains it. So references to such an object can report that it must be mended rather than
	// created.
	Rejected map[Key]Finding
	// Drafts are the same objects as they were written: maps, slices and scalars, which may be invalid.
	Drafts map[Key]map[string]any
	// Findings are the findings of decoding and validation, sorted (see SortFindings).
	Findings []Finding

	// kinds are those that were read; lists has the objects of kinds without a field, by Kind.Objects.
	kinds Kinds
	lists map[Store]any
	// overlooked are where the finding about a kind that is not read is, by "apiVersion kind".
	overlooked map[string]Origin
	// foreign are the positions of objects of kinds that are not read.
	foreign map[Key]Fields

	once  sync.Once
	index index
	byKey struct {
		once    sync.Once
		objects map[Key]metav1.Object
	}
}

// NewSet returns a Set with objects of some kinds, in the order given, and of the sources nothing. It panics for objects of other types.
func NewSet(kinds Kinds, objects ...metav1.Object) *Set {
	s := &Set{kinds: kinds}
	for _, o := range objects {
		s.put(kinds.holding(o), o)
	}
	return s
}

// Kinds are those that were read.
func (s *Set) Kinds() Kinds { return s.kinds }

// Objects yields all objects, by kind, namespace and name.
func (s *Set) Objects() iter.Seq2[*Kind, metav1.Object] {
	return func(yield func(*Kind, metav1.Object) bool) {
		for _, k := range s.kinds {
			for o := range s.Of(k) {
				if !yield(k, o) {
					return
				}
			}
		}
	}
}

// Of yields the objects of a kind, by namespace and name.
func (s *Set) Of(k *Kind) iter.Seq[metav1.Object] {
	return func(yield func(metav1.Object) bool) {
		if k.Objects != nil {
			k.Objects.each(s, yield)
		}
	}
}

// Object returns the object of a key, or nil. The first call makes an index of all objects.
func (s *Set) Object(key Key) metav1.Object {
	s.byKey.once.Do(func() {
		s.byKey.objects = make(map[Key]metav1.Object)
		for k, o := range s.Objects() {
			s.byKey.objects[k.Key(o.GetNamespace(), o.GetName())] = o
		}
	})
	return s.byKey.objects[key]
}

// put adds an object of a kind, if the kind has a place for its objects.
func (s *Set) put(k *Kind, object any) {
	if k.Objects != nil {
		k.Objects.add(s, object)
	}
}

func (s *Set) sort() {
	for _, k := range s.kinds {
		if k.Objects != nil {
			k.Objects.sort(s)
		}
	}
	SortFindings(s.Findings)
}

// Watches reports whether the objects of a namespace were read.
func (s *Set) Watches(namespace string) bool {
	return len(s.Watched) == 0 || slices.Contains(s.Watched, namespace)
}

// Source yields a Set at the start and another after each change.
type Source interface {
	// Run blocks until ctx ends, which is not an error, or until the source fails. It calls emit from one goroutine at
	// a time, first with the initial state.
	Run(ctx context.Context, emit func(*Set)) error
}

// Missing returns why an object that others refer to is not served, and what to do about it, as the end of a sentence
// that begins with the object: it does not exist, or it is left out because of an error that must be mended.
func (s *Set) Missing(k Key) (why, fix string) {
	f, ok := s.Rejected[k]
	if !ok {
		return "does not exist", "create it or correct the name"
	}
	at := ""
	if o := f.Origin.String(); o != "" {
		at = " at " + o
	}
	return "is left out, because it is not valid (" + f.Code + at + ")", "mend " + f.Code + at
}

// Elsewhere reports whether an object that is not in the set may be in the cluster nevertheless, if the set is only a
// part of a cluster's objects. Secrets and ConfigMaps are often created there. Others may be there if the set has none
// of their kind and namespace: if it has some, the name is most likely misspelt.
func (s *Set) Elsewhere(k Key) bool {
	if _, ok := s.Rejected[k]; ok {
		return false
	}
	of := s.kinds.Find(k.Group, k.Kind)
	return of != nil && of.OnReference || !s.indexed().written[Key{Group: k.Group, Kind: k.Kind, Namespace: k.Namespace}]
}

// Absent is Missing with the code of the finding. If the set is a part of a cluster's objects and the object may be
// elsewhere, the code is CodeElsewhere.
func (s *Set) Absent(code string, k Key, partial bool) (finding, why, fix string) {
	if partial && s.Elsewhere(k) {
		return CodeElsewhere, "is not among the files, so it must exist in the cluster", "nothing, if it exists in the cluster or will be created there"
	}
	why, fix = s.Missing(k)
	return code, why, fix
}
