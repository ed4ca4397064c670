package sidecar

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/weirmesh/weir/internal/identity/spiffe"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/workload"
)

// Index is what the sidecars of a cluster are made from: a set, read once for all of them, when something is first needed. It is
// immutable, and may be used from any goroutine.
type Index struct {
	set         *resource.Set
	trustDomain string
	strict      func(namespace string, labels map[string]string) bool
	routes      Routes
	known       *known
	led         *led
	clashes     *clashes
	every       func() *every
}

// destination is where pods connect to.
type destination struct {
	to       netip.AddrPort
	service  string // the model's name
	protocol model.Protocol
	ref      model.Ref
}

// NewIndex makes one of a set. The identities are of a trust domain. If strict is set, pods about whose namespace and labels it
// says true refuse clients in plain text, as those whose annotation says so. The routes are about what pods send to Services. What did not change since an earlier index is not
// read again; there may be none.
func NewIndex(set *resource.Set, trustDomain string, strict func(namespace string, labels map[string]string) bool, routes Routes, earlier *Index) *Index {
	x := &Index{set: set, trustDomain: trustDomain, strict: strict, routes: routes}
	if earlier != nil && workload.Same(set, earlier.set) {
		x.known = earlier.known
	} else {
		x.known = &known{set: set}
	}
	if earlier != nil && slices.Equal(set.Services, earlier.set.Services) {
		x.led = earlier.led
	} else {
		x.led = &led{services: set.Services}
	}
	if earlier != nil && x.known == earlier.known && x.led == earlier.led {
		x.clashes = earlier.clashes
	} else {
		x.clashes = &clashes{}
	}
	x.every = sync.OnceValue(func() *every { return newEvery(x) })
	return x
}

// known are the pods of a set.
type known struct {
	once sync.Once
	set  *resource.Set // nil once it was read

	all  []workload.Pods
	pods map[string]*workload.Pods     // Pods by "namespace/name"
	at   map[netip.Addr]*workload.Pods // Pods by address
}

func (k *known) read() *known {
	k.once.Do(func() {
		k.all, k.pods, k.at = workload.Of(k.set), map[string]*workload.Pods{}, map[netip.Addr]*workload.Pods{}
		k.set = nil
		for i := range k.all {
			p := &k.all[i]
			if p.Kind != model.KindPod {
				continue
			}
			k.pods[p.Namespace+"/"+p.Name] = p
			for _, text := range p.Addresses {
				if a, err := netip.ParseAddr(text); err == nil && !p.HostNetwork {
					k.at[a.Unmap()] = p
				}
			}
		}
	})
	return k
}

// led are the Services of a set.
type led struct {
	once     sync.Once
	services []*corev1.Service

	selection *workload.Selection            // of Services by name
	to        map[netip.AddrPort]destination // by the cluster's addresses; of several Services the first has one
}

func (l *led) read() *led {
	l.once.Do(func() {
		sorted := slices.Clone(l.services)
		sortServices(sorted)
		l.selection, l.to = workload.NewSelection(sorted), map[netip.AddrPort]destination{}
		for _, s := range l.services {
			l.leads(s)
		}
	})
	return l
}

// every is what all sidecars together have, for those that have everything.
type every struct {
	ports    map[*workload.Pods][]podPort // of Pods with sidecars
	at       []netip.Addr                 // their addresses, sorted
	outbound []destination                // by address and port
}

func newEvery(x *Index) *every {
	e := &every{ports: map[*workload.Pods][]podPort{}}
	for a, p := range x.known.read().at {
		if p.Sidecar {
			e.at = append(e.at, a)
			if _, ok := e.ports[p]; !ok {
				e.ports[p] = x.portsOf(p)
			}
		}
	}
	slices.SortFunc(e.at, netip.Addr.Compare)
	e.outbound = slices.Collect(maps.Values(x.led.read().to))
	for _, a := range e.at {
		p := x.known.at[a]
		for _, port := range e.ports[p] {
			if d, ok := leadsTo(a, p, port); ok && x.led.to[d.to].service == "" {
				e.outbound = append(e.outbound, d)
			}
		}
	}
	slices.SortFunc(e.outbound, func(a, b destination) int { return a.to.Compare(b.to) })
	return e
}

// leads adds the cluster's addresses of a Service.
func (l *led) leads(s *corev1.Service) {
	addresses := s.Spec.ClusterIPs
	if len(addresses) == 0 {
		addresses = []string{s.Spec.ClusterIP}
	}
	for _, text := range addresses {
		a, err := netip.ParseAddr(text)
		if err != nil {
			continue // "None", or not assigned yet
		}
		for i := range s.Spec.Ports {
			p := &s.Spec.Ports[i]
			if !isTCP(p) {
				continue
			}
			to := netip.AddrPortFrom(a.Unmap(), uint16(p.Port))
			if _, ok := l.to[to]; !ok {
				l.to[to] = destination{to, model.ServiceName(s.Namespace, s.Name, p.Port), resource.ServedProtocol(p), portRef(s, i)}
			}
		}
	}
}

func portRef(s *corev1.Service, i int) model.Ref {
	return model.Ref{Kind: model.KindService, Namespace: s.Namespace, Name: s.Name, Field: model.FieldAt("spec.ports", i)}
}

// leadsTo is a port of a pod with a sidecar at an address, if it may speak HTTP: of others the bytes are passed on as they are.
func leadsTo(a netip.Addr, p *workload.Pods, port podPort) (d destination, ok bool) {
	if port.protocol == model.TCP {
		return d, false
	}
	return destination{netip.AddrPortFrom(a, uint16(port.number)), pathService(p, a, port.number), port.protocol, podRef(p)}, true
}

func podRef(p *workload.Pods) model.Ref {
	return model.Ref{Kind: p.Kind, Namespace: p.Namespace, Name: p.Name}
}

// pathService is the model's name of a pod's port as others reach it at an address.
func pathService(p *workload.Pods, a netip.Addr, port int32) string {
	return model.ServiceName(p.Namespace, p.Name+".at."+a.String(), port)
}

// anywhere is the model's name of the service for addresses that are no Service's and no known port's.
const anywhere = "cluster/anywhere:0"

// portsOf are the ports of a pod, as portsOf of the package.
func (x *Index) portsOf(p *workload.Pods) []podPort {
	return portsOf(p, x.led.read().selection.Of(p.Object), resource.ServedProtocol)
}

// Identified says which pods prove an identity behind a port of a Service, by the model's name, as a service that extends that
// one; ok is false if there are none, or no such port.
func (x *Index) Identified(service string) (over model.Service, ok bool) {
	namespace, rest, _ := strings.Cut(service, "/")
	name, port, _ := strings.Cut(rest, ":")
	s := x.set.Service(namespace, name)
	if s == nil {
		return over, false
	}
	for i := range s.Spec.Ports {
		if p := &s.Spec.Ports[i]; isTCP(p) && strconv.Itoa(int(p.Port)) == port {
			pods := x.behind(s)
			return identified(s, i, pods), len(pods) > 0
		}
	}
	return over, false
}

func identified(s *corev1.Service, i int, pods []model.PodIdentity) model.Service {
	name := model.ServiceName(s.Namespace, s.Name, s.Spec.Ports[i].Port)
	return model.Service{Name: name, Extends: name, Protocol: model.HTTP, TLS: tlsOf(strings.Join([]string{s.Name, s.Namespace, "svc"}, "."), pods), Ref: portRef(s, i)}
}

// Shared is what the sidecars have in common that have everything, of which each takes what it needs (model.Supply): which pods
// prove an identity behind each Service, and the services of pods themselves.
func (x *Index) Shared() model.Config {
	cfg := model.Config{}
	for _, s := range x.set.Services {
		pods := x.behind(s)
		for i := range s.Spec.Ports {
			if len(pods) > 0 && isTCP(&s.Spec.Ports[i]) {
				cfg.Services = append(cfg.Services, identified(s, i, pods))
			}
		}
	}
	var all []model.PodIdentity
	e := x.every()
	for _, a := range e.at {
		p := x.known.at[a]
		all = append(all, x.identity(a, p))
		for _, port := range e.ports[p] {
			if port.protocol != model.TCP {
				cfg.Services = append(cfg.Services, x.podService(a, p, port))
			}
		}
	}
	elsewhere := model.Service{Name: anywhere, Protocol: model.HTTP, Meant: true, Ref: model.Ref{Kind: model.KindPod, Name: "anywhere"}}
	if len(all) > 0 {
		elsewhere.TLS = tlsOf("pod", all)
	}
	cfg.Services = append(cfg.Services, elsewhere)
	cfg.Sort()
	return cfg
}

// podService is a port of a pod as others reach it at an address.
func (x *Index) podService(a netip.Addr, p *workload.Pods, port podPort) model.Service {
	return model.Service{
		Name: pathService(p, a, port.number), Protocol: cmp.Or(port.protocol, model.HTTP), TLS: tlsOf(p.Name+"."+p.Namespace+".pod", []model.PodIdentity{x.identity(a, p)}),
		Ref:       podRef(p),
		Endpoints: []model.Endpoint{{Address: netip.AddrPortFrom(a, uint16(port.number)).String(), Pod: p.Name}},
	}
}

func tlsOf(hostname string, pods []model.PodIdentity) *model.ServiceTLS {
	return &model.ServiceTLS{Hostname: hostname, CAs: Identity, Pods: pods}
}

// behind are the pods with sidecars that are endpoints of a Service, by address.
func (x *Index) behind(s *corev1.Service) []model.PodIdentity {
	var out []model.PodIdentity
	x.known.read()
	for _, slice := range x.set.EndpointSlicesOf(s.Namespace, s.Name) {
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			if len(e.Addresses) == 0 {
				continue
			}
			a, err := netip.ParseAddr(e.Addresses[0])
			if err != nil {
				continue
			}
			p := x.known.at[a.Unmap()]
			if ref := e.TargetRef; ref != nil && ref.Kind == model.KindPod { // it may be known before its address is
				p = x.known.pods[cmp.Or(ref.Namespace, s.Namespace)+"/"+ref.Name]
			}
			if p != nil && p.Sidecar {
				out = append(out, x.identity(a.Unmap(), p))
			}
		}
	}
	slices.SortFunc(out, func(a, b model.PodIdentity) int { return cmp.Compare(a.Address, b.Address) })
	return slices.CompactFunc(out, func(a, b model.PodIdentity) bool { return a.Address == b.Address })
}

func (x *Index) identity(a netip.Addr, p *workload.Pods) model.PodIdentity {
	return model.PodIdentity{Address: a.String(), ID: spiffe.Scheme + x.trustDomain + "/ns/" + p.Namespace + "/sa/" + p.Account, Pod: p.Name}
}

// Labels are those of a pod, if it is known.
func (x *Index) Labels(namespace, name string) (labels map[string]string, known bool) {
	pod := x.known.read().pods[namespace+"/"+name]
	if pod == nil {
		return nil, false
	}
	return pod.PodLabels, true
}

// Sidecar returns the listeners of a pod's sidecar for what a redirect brings to the pod, with their routes and services;
// what Shared has and what these refer to is needed beside them, and Outbound. It is empty for a pod that is not known, or
// whose address is not known yet: nothing could be accepted for it.
func (x *Index) Sidecar(namespace, name string) model.Config {
	pod := x.known.read().pods[namespace+"/"+name]
	if pod == nil || len(pod.Addresses) == 0 {
		return model.Config{}
	}
	plain := !pod.Strict && (x.strict == nil || !x.strict(namespace, pod.PodLabels))
	t := &translator{set: x.set, options: Options{Namespace: namespace, Name: name, TrustDomain: x.trustDomain, Plain: plain}, pod: pod}
	if a, ok := t.ownAddress(0); ok {
		for _, p := range x.portsOf(pod) {
			t.inboundPort(p, netip.AddrPortFrom(netip.Addr{}, uint16(p.number)), netip.AddrPortFrom(a.Addr(), uint16(p.number)))
		}
		t.inboundPort(podPort{}, netip.AddrPort{}, netip.AddrPort{})
	}
	for i := range t.cfg.Listeners {
		t.cfg.Listeners[i].Redirect = model.RedirectInbound
	}
	t.cfg.Sort()
	return t.cfg
}

// Outbound returns the listeners of every sidecar in a namespace for what a redirect brings from its pod, with their routes. They
// are nobody's, and the same for all clients of the namespace, and for those of all that Differs says nothing about.
func (x *Index) Outbound(namespace string) model.Config {
	t := &translator{set: x.set, routes: x.routes, clients: namespace}
	for _, d := range x.every().outbound {
		t.lead(d)
	}
	t.lead(destination{service: anywhere, protocol: model.TCP, ref: model.Ref{Kind: model.KindPod, Name: "anywhere"}})
	t.cfg.Sort()
	return t.cfg
}

// unknownService is the model's name of the service for addresses of which nothing is known, beside what To returns.
const unknownService = "cluster/unknown:0"

// Base returns the listener of every sidecar that asks for its destinations (To): what is not known passes as it is.
func Base() model.Config {
	t := &translator{}
	ref := model.Ref{Kind: model.KindPod, Name: "anywhere"}
	t.cfg.Services = []model.Service{{Name: unknownService, Protocol: model.HTTP, Meant: true, Ref: ref}}
	t.lead(destination{service: unknownService, protocol: model.TCP, ref: ref})
	t.cfg.Sort()
	return t.cfg
}

// To returns the listener for what pods of a namespace send to an address and port, with its routes and, if it is a pod's, its service; Services
// that these refer to are needed beside them, with what Identified says of each. It is empty if nothing is known at the address:
// then connections are none of the mesh's.
func (x *Index) To(namespace string, to netip.AddrPort) model.Config {
	t := &translator{set: x.set, routes: x.routes, clients: namespace}
	if d, ok := x.led.read().to[to]; ok {
		t.lead(d)
		return t.cfg
	}
	a := to.Addr()
	p := x.known.read().at[a]
	if p == nil || !p.Sidecar {
		return model.Config{}
	}
	for _, port := range x.portsOf(p) {
		if d, ok := leadsTo(a, p, port); ok && d.to == to {
			t.cfg.Services = []model.Service{x.podService(a, p, port)}
			t.lead(d)
			return t.cfg
		}
	}
	// All its ports of which nothing more is known have one listener, and connections to them the pod's identity.
	of := x.podService(a, p, podPort{})
	of.Meant, of.Endpoints = true, nil
	t.cfg.Services = []model.Service{of}
	t.lead(destination{to: netip.AddrPortFrom(a, 0), service: of.Name, ref: of.Ref})
	return t.cfg
}

// lead makes a listener for connections to a destination; the zero value of its address is every other one.
func (t *translator) lead(d destination) {
	at := "other"
	if d.to.IsValid() {
		at = d.to.String()
	}
	l := model.Listener{Name: "outbound/" + at, Ref: d.ref, Redirect: model.RedirectOutbound, Port: int32(d.to.Port()), Protocol: model.HTTP}
	if d.to.IsValid() {
		l.Address = d.to.Addr().String()
	}
	if d.protocol == model.TCP {
		l.Protocol = model.TCP
	}
	r := model.Route{Ref: d.ref, ClientCertificate: Identity, Attachments: []model.Attachment{{Listener: l.Name, Hostnames: []string{"*"}}}}
	r.Ref.Field = cmp.Or(r.Ref.Field, "outbound["+at+"]")
	if !t.serve(l, d, r.Attachments) {
		t.listen(l, d.protocol, r, d.ref, d.service)
	}
}

func isTCP(p *corev1.ServicePort) bool { return p.Protocol == "" || p.Protocol == corev1.ProtocolTCP }
