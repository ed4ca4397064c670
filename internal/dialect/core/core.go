// Package core translates Services and EndpointSlices into the model's services: one for each port of each Service,
// named by model.ServiceName. Other dialects decide which of them are used; model.Merge drops the rest.
//
// It is pure: it reads a resource.Set, which it does not change, and nothing else.
package core

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// Options are settings that are not part of a set. The zero value is for files, whose authors may lead requests
// anywhere.
type Options struct {
	// Names, if not nil, are the host names that endpoints may have, because many people write them. Refused ones are
	// left out, and so are addresses that reach.Judge refuses. A Service without other endpoints answers 500.
	Names *resource.HostNames
	// Cluster means that Kubernetes makes the EndpointSlices of Services that have a selector.
	Cluster bool
	// Partial means that the set is only a part of a cluster's objects, as manifests are, without the objects that
	// Kubernetes makes. A Service with a selector then has its own name for an endpoint.
	Partial bool
}

// Translator translates one set after another. What it makes of a Service that is the same as before, with the same
// EndpointSlices, shares memory with what it made then, so that nobody has to look for differences in it. It is for one goroutine at a time.
type Translator struct {
	Options Options
	made    map[*corev1.Service]made
}

// made is what was made of a Service and its EndpointSlices, whatever else is in the set; stable is the Service whose
// annotations hold for it (resource.Set.StableOf).
type made struct {
	stable   *corev1.Service
	slices   []*discoveryv1.EndpointSlice
	services []model.Service
}

// Translate returns a service for every port of every Service of the set. It reports no statuses: a Service has none
// that a proxy would write.
func (x *Translator) Translate(set *resource.Set) (model.Config, []resource.Status, []resource.Finding) {
	t := translator{Options: x.Options, set: set}
	t.cfg.Services = make([]model.Service, 0, len(set.Services))
	next := make(map[*corev1.Service]made, len(set.Services))
	for _, s := range set.Services {
		of := set.EndpointSlicesOf(s.Namespace, s.Name)
		stable := set.StableOf(s)
		if m, ok := x.made[s]; ok && m.stable == stable && slices.Equal(m.slices, of) {
			t.cfg.Services, next[s] = append(t.cfg.Services, m.services...), m
			continue
		}
		from := len(t.cfg.Services)
		t.asked = false
		t.translate(s)
		if !t.asked {
			next[s] = made{stable, of, slices.Clone(t.cfg.Services[from:])}
		}
	}
	x.made = next
	t.cfg.Sort()
	resource.SortFindings(t.findings)
	return t.cfg, nil, t.findings
}

// translate makes the services of a Service.
func (t *translator) translate(s *corev1.Service) {
	own := t.settings(s)
	refused := t.refusals(s)
	for i := range s.Spec.Ports {
		t.service(s, i, own, refused)
	}
	if len(s.Spec.Ports) == 0 && t.isUsed(port{s.Namespace, s.Name, 0}) {
		t.report(codeNoPorts, model.Ref{Kind: "Service", Namespace: s.Namespace, Name: s.Name, Field: "spec.ports"},
			"the Service has no ports, so no route can lead to it", "add the port that the routes name")
	}
}

type translator struct {
	Options
	set *resource.Set
	// used are the ports that routes and splits lead to, requested those that get requests and not connections. They
	// are nil until they are needed.
	used, requested map[port]bool
	// asked says that something was reported, or may be if other routes come.
	asked    bool
	cfg      model.Config
	findings []resource.Finding
}

// port is a port of a Service; number 0 stands for the Service as a whole.
type port struct {
	namespace, service string
	number             int32
}

func (t *translator) service(s *corev1.Service, i int, own resilience, refused *refusals) {
	p := s.Spec.Ports[i]
	if p.Protocol != "" && p.Protocol != corev1.ProtocolTCP {
		return
	}
	out := model.Service{
		Name:     model.ServiceName(s.Namespace, s.Name, p.Port),
		Ref:      model.Ref{Kind: "Service", Namespace: s.Namespace, Name: s.Name, Field: model.FieldAt("spec.ports", i)},
		Protocol: model.HTTP,
		Limits:   own.limits, Ejection: own.ejection, HealthCheck: own.check, ProxyProtocol: own.header,
	}
	at := port{s.Namespace, s.Name, p.Port}
	app, known := resource.ParseAppProtocol(p.AppProtocol)
	switch {
	case !known:
		out.Fault = &model.Fault{Status: 500, Reason: model.UnsupportedProtocol,
			Message: fmt.Sprintf("appProtocol %q cannot carry HTTP requests", *p.AppProtocol)}
		if t.isRequested(at) {
			ref := out.Ref
			ref.Field += ".appProtocol"
			t.report(codeAppProtocol, ref, fmt.Sprintf("%q is not supported, so the port answers 500", *p.AppProtocol),
				"use http, kubernetes.io/h2c, kubernetes.io/ws or, with a BackendTLSPolicy, https; or remove the field")
		}
	case app.TLS:
		out.Protocol = app.Protocol
		out.Fault = &model.Fault{Status: 500, Reason: model.UnsupportedProtocol,
			Message: fmt.Sprintf("appProtocol %q needs a BackendTLSPolicy that says how to check the certificate", *p.AppProtocol)}
	default:
		out.Protocol = app.Protocol
	}
	out.NodeLocal, out.ClientAffinity = isNodeLocal(s), s.Spec.SessionAffinity == corev1.ServiceAffinityClientIP
	out.Endpoints = t.endpoints(s, p, refused)
	switch {
	case len(out.Endpoints) > 0:
	case refused != nil:
		out.Fault = &model.Fault{Status: 500, Reason: "UnsupportedValue", Message: "the Service's endpoints are refused: " + refused.first}
	case t.isUsed(at):
		t.noEndpoints(s, p, out.Ref)
	}
	t.cfg.Services = append(t.cfg.Services, out)
}

// endpoints returns where the port's requests go. The proxy always speaks to endpoints, never to a cluster IP, so a
// headless Service is no special case: its slices hold the target ports too.
func (t *translator) endpoints(s *corev1.Service, p corev1.ServicePort, refused *refusals) []model.Endpoint {
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		if refused != nil {
			return nil
		}
		number := p.Port
		if p.TargetPort.IntVal > 0 {
			number = p.TargetPort.IntVal
		}
		host := strings.TrimSuffix(s.Spec.ExternalName, ".")
		if host == "" {
			return nil
		}
		return []model.Endpoint{{Address: join(host, number)}}
	}
	var ready, draining []model.Endpoint
	all := t.set.EndpointSlicesOf(s.Namespace, s.Name)
	if len(all) == 0 && t.Cluster && t.Partial && len(s.Spec.Selector) > 0 {
		return []model.Endpoint{{Address: join(s.Name+"."+s.Namespace+".svc", p.Port)}}
	}
	for _, slice := range all {
		number, ok := resource.EndpointPort(slice, p)
		if !ok {
			continue
		}
		for i, e := range slice.Endpoints {
			to := &ready
			if !isTrue(e.Conditions.Ready, true) {
				// KEP-1669: if no endpoint is ready, those that terminate but still serve are better than none.
				if !isTrue(e.Conditions.Serving, false) || !isTrue(e.Conditions.Terminating, false) {
					continue
				}
				to = &draining
			}
			// Every address of an endpoint is the same backend (EndpointSlice.endpoints[].addresses): the first is it.
			if len(e.Addresses) > 0 && !refused.has(slice, i) {
				if a := join(e.Addresses[0], number); model.CheckEndpoint(a) == nil {
					out := model.Endpoint{Address: a, Pod: podOf(s, e.TargetRef)}
					out.Nodes, out.Zones = meantFor(s, &e)
					*to = append(*to, out)
				}
			}
		}
	}
	if len(ready) == 0 {
		ready = draining
	}
	slices.SortFunc(ready, func(a, b model.Endpoint) int {
		return cmp.Or(cmp.Compare(a.Address, b.Address), cmp.Compare(b.Pod, a.Pod)) // one whose pod is known comes first
	})
	ready = slices.CompactFunc(ready, func(a, b model.Endpoint) bool { return a.Address == b.Address })
	agree(ready, isNodeLocal(s))
	return ready
}

// maxName is the most characters of a pod's name.
const maxName = 253

// podOf is the pod that an endpoint is. A pod of another namespace is not one that the Service's author may name.
func podOf(s *corev1.Service, ref *corev1.ObjectReference) string {
	if ref == nil || ref.Kind != model.KindPod || ref.Namespace != "" && ref.Namespace != s.Namespace || len(ref.Name) > maxName ||
		strings.Trim(ref.Name, "abcdefghijklmnopqrstuvwxyz0123456789-.") != "" {
		return ""
	}
	return ref.Name
}

// noEndpoints explains why a port that routes lead to has nowhere to go.
func (t *translator) noEndpoints(s *corev1.Service, p corev1.ServicePort, ref model.Ref) {
	const fix = "add an EndpointSlice with the label kubernetes.io/service-name and a ready endpoint"
	answer := ", so its connections are reset"
	if t.isRequested(port{s.Namespace, s.Name, p.Port}) {
		answer = ", so its requests are answered 503"
	}
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		ref.Field = "spec.externalName"
		t.report(codeNoEndpoints, ref, "the name is empty"+answer, "write the host name to send requests to")
		return
	}
	all := t.set.EndpointSlicesOf(s.Namespace, s.Name)
	selected := t.Cluster && len(s.Spec.Selector) > 0
	switch {
	case selected && !hasEndpoints(all):
		selector := labels.FormatLabels(s.Spec.Selector)
		t.report(codeNoEndpoints, ref, fmt.Sprintf("no pod of the Service (%s) is ready%s", selector, answer),
			fmt.Sprintf("scale up what runs its pods, or find out why they are not ready: kubectl -n %s get pods -l %s", s.Namespace, selector))
		return
	case len(all) == 0 && len(s.Spec.Selector) > 0:
		t.report(codeNoEndpoints, ref, "the Service has no EndpointSlices"+answer, fix+"; outside of a cluster nothing makes them from the selector")
		return
	case len(all) == 0:
		t.report(codeNoEndpoints, ref, "the Service has no EndpointSlices"+answer, fix)
		return
	}
	var names []string
	for _, slice := range all {
		if _, ok := resource.EndpointPort(slice, p); ok {
			t.report(codeNoEndpoints, ref, "none of the Service's endpoints is ready"+answer, fix)
			return
		}
		for _, sp := range slice.Ports {
			name := ""
			if sp.Name != nil {
				name = *sp.Name
			}
			names = append(names, strconv.Quote(name))
		}
	}
	slices.Sort(names)
	advice := "give the slice's port the name of the Service's port"
	if selected {
		advice = "let targetPort name a port of the pods"
	}
	t.report(codeNoEndpoints, ref, fmt.Sprintf("no EndpointSlice of the Service has a port named %q (they have %s)%s",
		p.Name, cmp.Or(strings.Join(slices.Compact(names), ", "), "none"), answer), advice)
}

// hasEndpoints reports whether any endpoint is ready, on whatever port.
func hasEndpoints(all []*discoveryv1.EndpointSlice) bool {
	return slices.ContainsFunc(all, func(s *discoveryv1.EndpointSlice) bool {
		return slices.ContainsFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool { return isTrue(e.Conditions.Ready, true) })
	})
}

func join(host string, number int32) string { return net.JoinHostPort(host, strconv.Itoa(int(number))) }

func isTrue(b *bool, missing bool) bool {
	if b == nil {
		return missing
	}
	return *b
}

func (t *translator) isUsed(p port) bool {
	t.readUses()
	return t.used[p]
}

func (t *translator) isRequested(p port) bool {
	t.readUses()
	return t.requested[p]
}

func (t *translator) readUses() {
	t.asked = true
	if t.used == nil {
		t.used, t.requested = usedPorts(t.set)
	}
}

// usedPorts returns the ports to which the routes and splits of the set point, and those of them that get requests, so
// that only relevant problems are reported.
func usedPorts(set *resource.Set) (used, requested map[port]bool) {
	used, requested = map[port]bool{}, map[port]bool{}
	for u := range set.RouteUses() {
		if u.Idle {
			continue
		}
		at := port{u.Namespace, u.Service, u.Port}
		used[port{u.Namespace, u.Service, 0}], used[at] = true, true
		if !u.Connections {
			requested[port{u.Namespace, u.Service, 0}], requested[at] = true, true
		}
	}
	for _, s := range set.TrafficSplits {
		root, backends := resource.SplitUses(s)
		service := set.Service(s.Namespace, root)
		if service == nil {
			continue
		}
		for _, u := range backends { // on the root's ports
			if u.Idle {
				continue
			}
			used[port{u.Namespace, u.Service, 0}] = true
			for _, p := range service.Spec.Ports {
				at := port{u.Namespace, u.Service, p.Port}
				used[at] = true
				if _, known := resource.ParseAppProtocol(p.AppProtocol); known {
					requested[at] = true
				}
			}
		}
	}
	return used, requested
}
