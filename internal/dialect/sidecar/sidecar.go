// Package sidecar makes the part of a configuration that stands beside one pod: listeners in front of the pod's ports,
// which require an identity of every client and pass what policies allow, and listeners for the pod's own requests,
// which present the pod's identity to other pods.
//
// It is pure: it reads a resource.Set, which it does not change, and nothing else. dialect/core makes the services that
// it leads to, dialect/smi their splits, dialect/access the workloads and policies.
package sidecar

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/weirmesh/weir/internal/identity/spiffe"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/workload"
)

// Identity is the name under which the process has the pod's identity (model.IsIdentity).
const Identity = model.WorkloadIdentity

// Options say which pod it is, and where its sidecar listens. The zero value is no pod: nothing is made.
type Options struct {
	// Namespace and Name are the pod's. If the set has no such Pod, Name is that of what runs it, a Deployment for
	// example.
	Namespace, Name string
	// Inbound is where the sidecar accepts connections to ports of the pod; others are accepted at the pod's own
	// address, if that is known. App is where the application listens; by default at the port on 127.0.0.1.
	Inbound, App map[int32]netip.AddrPort
	// Outbound is where the pod's HTTP requests are accepted, for Services by their host names. The zero value is
	// nowhere.
	Outbound netip.AddrPort
	// Forwards are where connections to one port of a Service each are accepted.
	Forwards []Forward
	// Plain serves clients without TLS, too. They have no identity, so that they get what policies let everybody have.
	Plain bool
	// Strict, if set, says of pods of a namespace with labels that they refuse clients without TLS, whatever Plain says.
	Strict func(namespace string, labels map[string]string) bool
	// TrustDomain is that of the identities.
	TrustDomain string
	// Routes are about what the pod sends to Services.
	Routes Routes
}

// Forward is where connections to a port of a Service are accepted.
type Forward struct {
	Address         netip.AddrPort
	Namespace, Name string
	Port            int32
}

// Owner is the pod as an owner of listeners.
func (o *Options) Owner() model.Owner { return model.WorkloadOwner(o.Namespace, o.Name) }

// Pod returns the pods that the options name: the Pod, or what runs it; nil if there is none.
func (o *Options) Pod(set *resource.Set) *workload.Pods {
	return workload.Named(workload.Of(set), o.Namespace, o.Name)
}

// Translate returns the listeners, the routes and what they add to services, and the findings.
func Translate(set *resource.Set, o Options) (model.Config, []resource.Finding) {
	if o.Name == "" {
		return model.Config{}, nil
	}
	t := &translator{set: set, options: o, pod: o.Pod(set), routes: o.Routes, clients: o.Namespace}
	if t.pod == nil {
		ref := model.Ref{Kind: model.KindPod, Namespace: o.Namespace, Name: o.Name}
		why, fix := set.Missing(set.Kinds().Key(ref))
		t.report(ref, resource.Problem(codePodNotFound, "PodNotFound", "",
			fmt.Sprintf("Pod %s/%s, whose sidecar this is, %s; neither does anything run pods under this name", o.Namespace, o.Name, why), fix))
		return model.Config{}, t.findings
	}
	if o.Strict != nil && o.Strict(t.pod.Namespace, t.pod.PodLabels) {
		t.options.Plain = false
	}
	t.inbound()
	t.outbound()
	for i := range o.Forwards {
		t.forward(&o.Forwards[i])
	}
	t.trust()
	t.cfg.Sort()
	resource.SortFindings(t.findings)
	return t.cfg, t.findings
}

type translator struct {
	set      *resource.Set
	options  Options
	pod      *workload.Pods
	routes   Routes
	clients  string // the namespace of those that the routes are for
	cfg      model.Config
	findings []resource.Finding
}

func (t *translator) report(ref model.Ref, p resource.Finding) {
	t.findings = append(t.findings, t.set.About(ref, p, severities))
}

// ref is the pod's, or that of what runs it.
func (t *translator) ref(field string) model.Ref {
	return model.Ref{Kind: t.pod.Kind, Namespace: t.pod.Namespace, Name: t.pod.Name, Field: field}
}

// workload is the name of the pod's workload in the model.
func (t *translator) workload() string {
	w := model.Workload{Ref: t.ref("")}
	return w.Name()
}

// podPort is a port of the pod and what it speaks.
type podPort struct {
	number   int32
	protocol model.Protocol // HTTP, H2C, TCP or unknown
}

// unknown stands for what a port speaks of which nobody says it: its listeners detect it.
const unknown model.Protocol = ""

// ports are the pod's, and those at which to accept connections for it.
func (t *translator) ports() []podPort {
	services := slices.Clone(t.set.Services)
	sortServices(services)
	out := portsOf(t.pod, services, resource.WrittenProtocol)
	for n := range t.options.Inbound {
		if !slices.ContainsFunc(out, func(p podPort) bool { return p.number == n }) {
			t.report(t.ref(""), resource.Problem(codePortNotFound, "PortNotFound", "",
				fmt.Sprintf("neither a container nor a Service has port %d of the pod: it is taken for one of HTTP", n), "add it to a container's ports"))
			out = append(out, podPort{n, model.HTTP})
		}
	}
	slices.SortFunc(out, func(a, b podPort) int { return cmp.Compare(a.number, b.number) })
	return out
}

// sortServices orders Services by name, so that the order in which they were read decides nothing.
func sortServices(all []*corev1.Service) {
	slices.SortFunc(all, func(a, b *corev1.Service) int { return cmp.Compare(a.Name, b.Name) })
}

// portsOf are a pod's TCP ports, sorted: those of its containers, and those that Services lead to, which say what they speak.
// Of several Services, which are sorted, the last one that says something counts.
func portsOf(pod *workload.Pods, services []*corev1.Service, speaks func(*corev1.ServicePort) model.Protocol) (out []podPort) {
	of, said := map[int32]model.Protocol{}, map[int32]bool{}
	for _, c := range pod.Ports {
		if !c.UDP {
			of[c.Number] = speaks(&corev1.ServicePort{Port: c.Number})
		}
	}
	for _, s := range services {
		if !pod.SelectedBy(s) {
			continue
		}
		for i := range s.Spec.Ports {
			p := &s.Spec.Ports[i]
			if n := pod.Target(p); n != 0 && isTCP(p) {
				if protocol := speaks(p); protocol != unknown || !said[n] {
					of[n], said[n] = protocol, protocol != unknown
				}
			}
		}
	}
	for n, p := range of {
		out = append(out, podPort{n, p})
	}
	slices.SortFunc(out, func(a, b podPort) int { return cmp.Compare(a.number, b.number) })
	return out
}

// inbound makes a listener in front of each port of the pod.
func (t *translator) inbound() {
	for _, p := range t.ports() {
		at, ok := t.options.Inbound[p.number]
		if !ok {
			if at, ok = t.ownAddress(p.number); !ok {
				continue
			}
		}
		app, ok := t.options.App[p.number]
		if !ok {
			app = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(p.number))
		}
		if app == at {
			t.report(t.ref(""), resource.Problem(codeOwnPort, "OwnPort", "",
				fmt.Sprintf("port %d would be accepted at %s, where the application is to listen itself", p.number, at), "let one of them listen elsewhere"))
			continue
		}
		t.inboundPort(p, at, app)
	}
	if len(t.cfg.Listeners) == 0 && len(t.ports()) > 0 {
		t.report(t.ref(""), resource.Problem(codeNotInbound, "NoAddress", "", "nothing is accepted for the pod: its address is not known", "say where to accept connections, or write status.podIP"))
	}
}

// ownAddress is a port at the pod's own address.
func (t *translator) ownAddress(port int32) (netip.AddrPort, bool) {
	if len(t.pod.Addresses) == 0 {
		return netip.AddrPort{}, false
	}
	a, err := netip.ParseAddr(t.pod.Addresses[0])
	return netip.AddrPortFrom(a, uint16(port)), err == nil
}

func (t *translator) inboundPort(p podPort, at, app netip.AddrPort) {
	name := fmt.Sprintf("%s/%s/inbound/%d", t.options.Namespace, t.options.Name, p.number)
	service := model.ServiceName(t.options.Namespace, t.options.Name+".pod", p.number)
	l := t.listener(name, at)
	l.TLS = &model.ListenerTLS{Certificates: []string{Identity}}
	l.Workload, l.WorkloadPort = t.workload(), p.number
	s := model.Service{Name: service, Ref: t.ref(""), Protocol: cmp.Or(p.protocol, model.HTTP)}
	if app.IsValid() {
		s.Endpoints = []model.Endpoint{{Address: app.String()}}
	} else {
		s.Meant = true
	}
	r := model.Route{Ref: t.ref(fmt.Sprintf("inbound[%d]", p.number)), Attachments: []model.Attachment{{Listener: name, Hostnames: []string{"*"}}}}
	l.Protocol, l.TLS.Plain = model.HTTPS, t.options.Plain
	if p.protocol == model.TCP {
		l.Protocol, s.Protocol = model.TLS, model.HTTP
	}
	t.cfg.Services = append(t.cfg.Services, s)
	t.listen(l, p.protocol, r, r.Ref, service)
}

// listen adds a listener, with a route to a service for what the service speaks. of is the provenance of its rule.
func (t *translator) listen(l model.Listener, protocol model.Protocol, r model.Route, of model.Ref, service string) {
	kinds := []model.RouteKind{model.RouteHTTP}
	switch protocol {
	case model.TCP:
		kinds[0] = model.RouteTCP
	case unknown:
		l.Detect = true
		kinds = append(kinds, model.RouteTCP)
	}
	t.cfg.Listeners = append(t.cfg.Listeners, l)
	for _, kind := range kinds {
		r.Kind, r.Rules = kind, []model.Rule{t.rule(of, kind, service)}
		t.cfg.Routes = append(t.cfg.Routes, r)
	}
}

func (t *translator) listener(name string, at netip.AddrPort) model.Listener {
	l := model.Listener{Name: name, Ref: t.ref(""), Owner: t.options.Owner(), Port: int32(at.Port()), Protocol: model.HTTP}
	if at.Addr().IsValid() {
		l.Address = at.Addr().String()
	}
	return l
}

// rule leads everything to a service.
func (t *translator) rule(ref model.Ref, kind model.RouteKind, service string) model.Rule {
	r := model.Rule{Ref: ref, Backends: []model.Backend{{Ref: ref, Service: service, Weight: 1}}}
	if kind.Requests() {
		r.Matches = []model.Match{anyPath}
	}
	return r
}

var anyPath = model.Match{Path: model.PathMatch{Type: model.Prefix, Value: "/"}}

// hostnames are those that the pod calls a Service by. The bare name is for the Services of its own namespace.
func (t *translator) hostnames(s *corev1.Service) []string {
	full := s.Name + "." + s.Namespace
	all := []string{full, full + ".svc", full + ".svc.cluster.local"}
	if s.Namespace == t.options.Namespace {
		all = append(all, s.Name)
	}
	return all
}

// forward makes a listener for connections to one port of a Service.
func (t *translator) forward(f *Forward) {
	ref := model.Ref{Kind: model.KindService, Namespace: f.Namespace, Name: f.Name}
	s := t.set.Service(f.Namespace, f.Name)
	if s == nil || !slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == f.Port }) {
		why, fix := t.set.Missing(resource.Key{Kind: model.KindService, Namespace: f.Namespace, Name: f.Name})
		if s != nil {
			why, fix = fmt.Sprintf("has no port %d", f.Port), "add the port, or correct the number"
		}
		t.report(ref, resource.Problem(codeForward, "ServiceNotFound", "", fmt.Sprintf("Service %s/%s, to which %s is to lead, %s", f.Namespace, f.Name, f.Address, why), fix))
		return
	}
	name := fmt.Sprintf("%s/%s/forward/%s", t.options.Namespace, t.options.Name, f.Address)
	l := t.listener(name, f.Address)
	l.Protocol = model.TCP
	at := []model.Attachment{{Listener: name, Hostnames: []string{"*"}}}
	if t.serve(l, destination{service: model.ServiceName(f.Namespace, f.Name, f.Port), protocol: model.TCP, ref: ref}, at) {
		return
	}
	route := model.Route{
		Ref: model.Ref{Kind: t.pod.Kind, Namespace: t.pod.Namespace, Name: t.pod.Name, Field: "forward[" + f.Address.String() + "]"}, Kind: model.RouteTCP, ClientCertificate: Identity,
		Attachments: at,
	}
	route.Rules = []model.Rule{t.rule(ref, model.RouteTCP, model.ServiceName(f.Namespace, f.Name, f.Port))}
	t.cfg.Listeners, t.cfg.Routes = append(t.cfg.Listeners, l), append(t.cfg.Routes, route)
}

// trust says for every Service that leads to known pods by which identities these are known. Other Services are reached
// as they are.
func (t *translator) trust() {
	all := workload.Of(t.set)
	for _, s := range t.set.Services {
		var names []string
		for i := range all {
			if p := &all[i]; p.SelectedBy(s) {
				if id := spiffe.Scheme + t.options.TrustDomain + "/ns/" + p.Namespace + "/sa/" + p.Account; !slices.Contains(names, id) {
					names = append(names, id)
				}
			}
		}
		if len(names) == 0 {
			continue
		}
		slices.Sort(names)
		for i := range s.Spec.Ports {
			p := &s.Spec.Ports[i]
			if !isTCP(p) {
				continue
			}
			name := model.ServiceName(s.Namespace, s.Name, p.Port)
			t.cfg.Services = append(t.cfg.Services, model.Service{
				Name: name, Extends: name, Ref: model.Ref{Kind: model.KindService, Namespace: s.Namespace, Name: s.Name, Field: model.FieldAt("spec.ports", i)}, Protocol: model.HTTP,
				TLS: &model.ServiceTLS{Hostname: strings.Join([]string{s.Name, s.Namespace, "svc"}, "."), CAs: Identity, SubjectAltNames: names},
			})
		}
	}
}
