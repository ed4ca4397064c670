package metrics

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	api "github.com/weirmesh/weir/api/metrics"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/workload"
)

// Index knows which objects of Kubernetes the sides that proxies report belong to. It is made once for a set and does not
// change.
type Index struct {
	// objects are those of each of the kinds, by namespace and name.
	objects [len(kinds)][]*object
	byName  [len(kinds)]map[name]*object
	places  []*place
	bySide  map[telemetry.Side]*place
	// part means that the set has some namespaces of a cluster, so that nodes have pods that are not known.
	part bool
}

// The kinds of api.Resources that mean something of their own here, by their places there.
const (
	namespaces = 0
	nodes      = 1
	pods       = 2
	services   = 4
)

// kinds are those of api.Resources, kindOf are their places in it.
var kinds, kindOf = func() (all [10]api.Resource, of map[string]int) {
	of = map[string]int{}
	for i, r := range api.Resources() {
		all[i], of[r.Kind] = r, i
	}
	return all, of
}()

type name struct{ namespace, name string }

// object is one that metrics are associated with.
type object struct {
	kind int
	name
	labels labels.Set
	// places are what it is made of, no two of which are the same pods.
	places []*place
}

func (o *object) reference() corev1.ObjectReference {
	return kinds[o.kind].Reference(o.namespace, o.name.name)
}

// place is where traffic begins or ends: a pod, or what runs pods of which none is known. What proxies report of may also
// be some of several pods; that is a place apart, which belongs to what all of them belong to.
type place struct {
	id int
	// objects are what it belongs to.
	objects []*object
	// top is what it is, without going into details: the topmost object that runs it, else itself. It is empty if that
	// differs between the pods that it may be.
	top       corev1.ObjectReference
	namespace string
	// either are the places that it may be; itself if it is known which.
	either []*place
	// sides are what it is reported as.
	sides []telemetry.Side
	// template means that no pod of it is known.
	template bool
	// gone is the pod that it was, if it is no more.
	gone string
}

// NewIndex reads a set. Of a set of some namespaces of a cluster, it knows no nodes: their sums would lack pods. Pods that
// are gone are no objects, but what they did until then belongs to those that they were part of.
func NewIndex(set *resource.Set, gone ...*workload.Pod) *Index {
	x := &Index{bySide: map[telemetry.Side]*place{}, part: len(set.Watched) > 0}
	for i := range x.byName {
		x.byName[i] = map[name]*object{}
	}
	for _, n := range set.Namespaces {
		x.object(namespaces, "", n.Name).labels = n.Labels
	}
	for _, k := range workload.Kinds() {
		kind, ok := kindOf[k.Name]
		if !ok {
			continue
		}
		for o := range set.Of(k) {
			x.object(kind, o.GetNamespace(), o.GetName()).labels = o.GetLabels()
		}
	}
	for _, s := range set.Services {
		x.object(services, s.Namespace, s.Name).labels = s.Labels
	}
	all := workload.Of(set)
	selecting := selectors(set.Services)
	selected := map[name][]*place{}
	addresses := map[netip.Addr][]*place{}
	accounts := map[name][]*place{}
	alone := make([]*place, len(all))
	for i := range all {
		p := x.pods(&all[i])
		alone[i] = p
		for _, s := range selecting.of(all[i].Object) {
			x.join(p, x.object(services, s.Namespace, s.Name))
			selected[name{s.Namespace, s.Name}] = append(selected[name{s.Namespace, s.Name}], p)
		}
		for _, text := range all[i].Addresses {
			if a, err := netip.ParseAddr(text); err == nil {
				addresses[a.Unmap()] = append(addresses[a.Unmap()], p)
			}
		}
		account := name{p.namespace, all[i].Account}
		accounts[account] = append(accounts[account], p)
	}
	for i := range all {
		side := telemetry.Side{Kind: string(model.OwnerWorkload), Namespace: all[i].Namespace, Name: all[i].Name}
		if p := workload.Named(all, side.Namespace, side.Name); p == &all[i] {
			x.report(alone[i], side)
			// A certificate that was made for a pod without saying more than what runs it names it so.
			if side.Kind = model.KindPod; x.bySide[side] == nil {
				x.report(alone[i], side)
			}
		}
	}
	for _, a := range sorted(addresses, netip.Addr.Compare) {
		// The pods of a node's network have the same address, as what runs there in no pod has. Proxies report addresses
		// in this form.
		if p := addresses[a]; len(p) == 1 {
			x.report(p[0], telemetry.Side{Kind: telemetry.KindAddress, Name: a.String()})
		}
	}
	for _, a := range sorted(accounts, name.compare) {
		x.account(a, accounts[a])
	}
	for _, s := range set.Services {
		x.service(s, selected[name{s.Namespace, s.Name}])
	}
	if len(gone) > 0 {
		owners := workload.Owners(set)
		for _, p := range gone {
			x.departed(&p.Object, owners(&p.Object), selecting)
		}
	}
	for i, byName := range x.byName {
		for _, n := range sorted(byName, name.compare) {
			x.objects[i] = append(x.objects[i], byName[n])
		}
	}
	return x
}

// object is the one of a name, which is known from now on, as its namespace is.
func (x *Index) object(kind int, namespace, text string) *object {
	n := name{namespace, text}
	o := x.byName[kind][n]
	if o == nil {
		if namespace != "" {
			x.object(namespaces, "", namespace)
		}
		o = &object{kind: kind, name: n}
		x.byName[kind][n] = o
	}
	return o
}

// place makes one in a namespace.
func (x *Index) place(namespace string) *place {
	p := &place{id: len(x.places), namespace: namespace}
	p.either = []*place{p}
	x.places = append(x.places, p)
	x.join(p, x.object(namespaces, "", namespace))
	return p
}

func (x *Index) join(p *place, o *object) {
	p.objects = append(p.objects, o)
	o.places = append(o.places, p)
}

// report says what a place is reported as.
func (x *Index) report(p *place, s telemetry.Side) {
	x.bySide[s] = p
	p.sides = append(p.sides, s)
}

// pods makes the place of one pod, or of pods of which only the template is known.
func (x *Index) pods(of *workload.Pods) *place {
	p := x.place(of.Namespace)
	if of.Kind == model.KindPod {
		o := x.object(pods, of.Namespace, of.Name)
		x.join(p, o)
		x.report(p, telemetry.Side{Kind: of.Kind, Namespace: of.Namespace, Name: of.Name})
		p.top = o.reference()
		if of.Node != "" && !x.part {
			x.join(p, x.object(nodes, "", of.Node))
		}
		if of.Sidecar {
			x.report(p, telemetry.Side{Kind: telemetry.KindSidecar, Namespace: of.Namespace, Name: of.Name})
		}
	}
	p.template = of.Kind != model.KindPod
	for _, owner := range of.Owners {
		// A Pod may also be run by a Node or by another Pod, of which it is no part.
		if kind, ok := kindOf[owner.Kind]; ok && kinds[kind].Namespaced && kind != pods && kind != services {
			o := x.object(kind, of.Namespace, owner.Name)
			x.join(p, o)
			p.top = o.reference()
		}
	}
	return p
}

// departed makes the place of a pod that is gone, if something that ran it is still there, and no other pod has its name.
func (x *Index) departed(pod *workload.Object, owners []workload.Owner, selecting serviceSelectors) {
	side := telemetry.Side{Kind: model.KindPod, Namespace: pod.Namespace, Name: pod.Name}
	var of []*object
	for _, owner := range owners {
		if kind, ok := kindOf[owner.Kind]; ok && kind != pods {
			if o := x.byName[kind][name{pod.Namespace, owner.Name}]; o != nil {
				of = append(of, o)
			}
		}
	}
	if len(of) == 0 || x.bySide[side] != nil {
		return
	}
	p := x.place(pod.Namespace)
	p.gone, p.top = pod.Name, of[len(of)-1].reference()
	for _, s := range selecting.of(pod) {
		of = append(of, x.object(services, s.Namespace, s.Name))
	}
	if o := x.byName[nodes][name{"", pod.Node}]; o != nil {
		of = append(of, o)
	}
	for _, o := range of {
		x.join(p, o)
	}
	x.report(p, side)
	if pod.Sidecar {
		x.report(p, telemetry.Side{Kind: telemetry.KindSidecar, Namespace: pod.Namespace, Name: pod.Name})
	}
}

// account says whom the identity of a ServiceAccount stands for, which some pods have.
func (x *Index) account(a name, some []*place) {
	side := telemetry.Side{Kind: model.KindServiceAccount, Namespace: a.namespace, Name: a.name}
	if len(some) == 1 {
		x.report(some[0], side)
		return
	}
	p := x.place(a.namespace)
	p.either = some
	x.report(p, side)
	if slices.ContainsFunc(some, func(q *place) bool { return q.top != some[0].top }) {
		return
	}
	p.top = some[0].top
	for _, o := range some[0].objects {
		if o.kind != namespaces && !slices.ContainsFunc(some, func(q *place) bool { return !slices.Contains(q.objects, o) }) {
			x.join(p, o)
		}
	}
}

// service says where an endpoint of a Service is of which no pod is known. If the Service selects nothing but the pods of
// one template, it is one of these; otherwise it may be one of the pods that the Service selects, or yet another one.
func (x *Index) service(s *corev1.Service, selected []*place) {
	side := telemetry.Side{Kind: kinds[services].Kind, Namespace: s.Namespace, Name: s.Name}
	if len(selected) == 1 && selected[0].template {
		x.report(selected[0], side)
		return
	}
	p := x.place(s.Namespace)
	o := x.object(services, s.Namespace, s.Name)
	x.join(p, o)
	p.top = o.reference()
	if len(selected) > 0 {
		p.either = selected
	}
	x.report(p, side)
}

// resolve is the place of a side, nil if there is none.
func (x *Index) resolve(s telemetry.Side) *place { return x.bySide[s] }

func (n name) compare(m name) int {
	return cmp.Or(strings.Compare(n.namespace, m.namespace), strings.Compare(n.name, m.name))
}

func sorted[K comparable, V any](m map[K]V, compare func(K, K) int) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, compare)
	return keys
}

// serviceSelectors are Services by namespace and one of the labels that they select, whichever.
type serviceSelectors map[[3]string][]*corev1.Service

func selectors(all []*corev1.Service) serviceSelectors {
	out := serviceSelectors{}
	for _, s := range all {
		for label, value := range s.Spec.Selector {
			k := [3]string{s.Namespace, label, value}
			out[k] = append(out[k], s)
			break
		}
	}
	return out
}

// of are the Services that select pods, by name.
func (all serviceSelectors) of(o *workload.Object) (out []*corev1.Service) {
	for label, value := range o.PodLabels {
		for _, s := range all[[3]string{o.Namespace, label, value}] {
			if o.SelectedBy(s) {
				out = append(out, s)
			}
		}
	}
	slices.SortFunc(out, func(a, b *corev1.Service) int { return strings.Compare(a.Name, b.Name) })
	return out
}
