package model

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Merge makes one configuration out of several, in canonical order and without the services and certificates that
// nothing refers to. Equal inputs give byte-equal results. The inputs are not changed; the result may share memory with
// them.
//
// Of two listeners, services or certificates of one name, the first stays: that of the earlier configuration, or the
// first in one configuration. A listener can clash with an earlier one of the same owner: by the same address, port
// and hostname, or by another protocol (with or without a PROXY header) on the same address and port. Then it is left
// out with the attachments to it, and so are routes without other attachments. Routes are never merged with each other:
// precedence decides about a request that several match. Nor are splits: those of an earlier configuration come first.
func Merge(configs ...Config) Config {
	var out Config
	var accepted listenerSet
	for _, l := range Lists {
		l.merge(&out, configs, &accepted)
	}
	out.Prune()
	out.Sort()
	return out
}

// keepListeners keeps those that clash with no earlier one.
func keepListeners(_ *list[Listener], all [][]Listener, accepted *listenerSet) []Listener {
	var out []Listener
	for _, s := range all {
		for _, l := range s {
			if accepted.add(l) {
				out = append(out, l)
			}
		}
	}
	return out
}

// keepRoutes keeps those that are attached to listeners which stay, with these attachments.
func keepRoutes(_ *list[Route], all [][]Route, accepted *listenerSet) []Route {
	n := 0
	for _, s := range all {
		n += len(s)
	}
	out := make([]Route, 0, n)
	for _, s := range all {
		for _, r := range s {
			if r.Attachments = accepted.keep(r.Attachments); len(r.Attachments) > 0 {
				out = append(out, r)
			}
		}
	}
	return out
}

// keepServices keeps the first service of each name and lays the ones that extend over them.
func keepServices(_ *list[Service], all [][]Service, _ *listenerSet) []Service {
	var services, overlays []Service
	at := map[string]int{}
	for _, given := range all {
		for _, s := range given {
			if s.Extends != "" {
				overlays = append(overlays, s)
			} else if _, ok := at[s.Name]; !ok {
				at[s.Name] = len(services)
				services = append(services, s)
			}
		}
	}
	bases := slices.Clone(services)
	laid := map[string]bool{}
	for _, s := range overlays {
		if laid[s.Name] {
			continue
		}
		laid[s.Name] = true
		if i, ok := at[s.Extends]; ok {
			base := bases[i]
			base.Name, base.TLS, base.Fault = s.Name, s.TLS, s.Fault
			s = base
		} else {
			s.Fault = &Fault{Status: 500, Reason: "BackendNotFound", Message: "service " + s.Extends + " does not exist"}
			s.Protocol = HTTP
		}
		s.Extends = ""
		if i, ok := at[s.Name]; ok {
			services[i] = s
		} else {
			at[s.Name] = len(services)
			services = append(services, s)
		}
	}
	return services
}

type bind struct {
	owner    Owner
	redirect string
	network  string
	address  string
	port     int32
}

// listenerSet holds the listeners accepted so far.
type listenerSet struct {
	names    map[string]bool
	framings map[bind]string
	hosts    map[bind]map[string]bool
}

func (s *listenerSet) add(l Listener) bool {
	if s.names == nil {
		s.names, s.framings, s.hosts = map[string]bool{}, map[bind]string{}, map[bind]map[string]bool{}
	}
	b := bind{l.Owner, l.Redirect, l.Protocol.Network(), l.Address, l.Port}
	framing := l.framing()
	if f, ok := s.framings[b]; s.names[l.Name] || ok && f != framing || s.hosts[b][l.Hostname] {
		return false
	}
	s.names[l.Name] = true
	s.framings[b] = framing
	if s.hosts[b] == nil {
		s.hosts[b] = map[string]bool{}
	}
	s.hosts[b][l.Hostname] = true
	return true
}

// keep returns the attachments to accepted listeners.
func (s *listenerSet) keep(all []Attachment) []Attachment {
	gone := func(a Attachment) bool { return !s.names[a.Listener] }
	if !slices.ContainsFunc(all, gone) {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), gone)
}

// Prune drops the splits, services and certificates that nothing refers to, and of routes the client certificates that none of their services asks for.
func (c *Config) Prune() {
	c.pruneClientCertificates()
	for _, l := range slices.Backward(Lists[:]) {
		l.prune(c)
	}
}

// usedServices returns what routes lead to and, before configurations are merged, what this extends.
func (c *Config) usedServices() Presented {
	services := c.Presented()
	for _, s := range c.Services {
		if services.has(s.Name) && s.Extends != "" {
			services.add(s.Extends, "")
		}
	}
	return services
}

// pruneClientCertificates takes client certificates from routes that lead to no service with TLS.
func (c *Config) pruneClientCertificates() {
	if !slices.ContainsFunc(c.Routes, func(r Route) bool { return r.ClientCertificate != "" }) {
		return
	}
	secured := map[string]bool{}
	for i := range c.Services {
		if c.Services[i].TLS != nil {
			secured[c.Services[i].Name] = true
		}
	}
	leads := map[string]bool{} // roots, whose leaves are led to; splits do not nest
	for _, s := range c.Splits {
		for _, l := range s.Leaves {
			leads[s.Root] = leads[s.Root] || secured[l.Service]
		}
	}
	own := false
	for i := range c.Routes {
		if c.Routes[i].ClientCertificate == "" {
			continue
		}
		asked := false
		c.Routes[i].eachService(func(name string) { asked = asked || secured[name] || leads[name] })
		if asked {
			continue
		}
		if !own {
			c.Routes, own = slices.Clone(c.Routes), true
		}
		c.Routes[i].ClientCertificate = ""
	}
}

// usedCertificates returns the names of those that listeners and routes refer to.
func (c *Config) usedCertificates() nameSet {
	out := nameSet{}
	for _, l := range c.Listeners {
		if l.TLS != nil {
			for _, name := range l.TLS.Certificates {
				out[name] = true
			}
		}
	}
	for i := range c.Routes {
		out[c.Routes[i].ClientCertificate] = true
	}
	return out
}

// Presented are the services that requests are led to, by name, and for each the client certificates that are presented to it, should it be reached
// over TLS: names of Config.Certificates, "" for requests that present none.
type Presented map[string][]string

// presentsNone is what most services have.
var presentsNone = []string{""}

func (p Presented) add(service, certificate string) {
	switch have := p[service]; {
	case have == nil && certificate == "":
		p[service] = presentsNone
	case !slices.Contains(have, certificate):
		p[service] = append(slices.Clip(have), certificate)
	}
}

func (p Presented) has(service string) bool { return p[service] != nil }

func (p Presented) each(visit func(service string)) {
	for service := range p {
		visit(service)
	}
}

// Presented returns what the routes of the configuration lead to, directly and by splits. It is the one place where that is decided.
func (c *Config) Presented() Presented {
	direct := c.direct()
	if len(c.Splits) == 0 {
		return direct
	}
	all := maps.Clone(direct)
	for _, s := range c.Splits {
		for _, certificate := range direct[s.Root] {
			for _, l := range s.Leaves {
				if l.Service != "" {
					all.add(l.Service, certificate)
				}
			}
		}
	}
	return all
}

// direct is what routes refer to.
func (c *Config) direct() Presented {
	out := Presented{}
	for i := range c.Routes {
		r := &c.Routes[i]
		r.eachService(func(name string) { out.add(name, r.ClientCertificate) })
	}
	return out
}

// eachService calls visit with the services that the route refers to.
func (r *Route) eachService(visit func(name string)) {
	mirrors := func(f *Filters) {
		for _, m := range f.Mirrors {
			visit(m.Service)
		}
	}
	for i := range r.Rules {
		rule := &r.Rules[i]
		mirrors(&rule.Filters)
		for j := range rule.Backends {
			if b := &rule.Backends[j]; b.Service != "" {
				visit(b.Service)
			}
			mirrors(&rule.Backends[j].Filters)
		}
	}
}

// Sort puts everything whose order has no meaning into canonical order: listeners, services and certificates by name,
// routes by reference, splits by root, attachments by listener, hostnames and endpoints alphabetically. It keeps the
// order of rules, matches, backends, filters, certificates of a listener and splits of one root, which has a meaning.
func (c *Config) Sort() {
	for _, l := range Lists {
		l.sort(c)
	}
}

// sortEndpoints puts endpoints of services into order.
func sortEndpoints(services []Service) []Service {
	compare := func(a, b Endpoint) int { return cmp.Compare(a.Address, b.Address) }
	cloned := false
	for i := range services {
		if slices.IsSortedFunc(services[i].Endpoints, compare) {
			continue
		}
		if !cloned {
			services, cloned = slices.Clone(services), true
		}
		services[i].Endpoints = sorted(services[i].Endpoints, compare)
	}
	return services
}

func compareRoutes(a, b Route) int {
	if c := a.Ref.Compare(b.Ref); c != 0 {
		return c
	}
	return slices.CompareFunc(a.Attachments, b.Attachments, compareAttachments)
}

func compareAttachments(a, b Attachment) int { return cmp.Compare(a.Listener, b.Listener) }

// sortAttachments puts attachments of routes into order.
func sortAttachments(routes []Route) []Route {
	unordered := func(a Attachment) bool { return !slices.IsSorted(a.Hostnames) }
	cloned := false
	for i := range routes {
		all := routes[i].Attachments
		if slices.IsSortedFunc(all, compareAttachments) && !slices.ContainsFunc(all, unordered) {
			continue
		}
		if !cloned {
			routes, cloned = slices.Clone(routes), true
		}
		all = slices.Clone(all)
		slices.SortStableFunc(all, compareAttachments)
		for j := range all {
			all[j].Hostnames = sorted(all[j].Hostnames, strings.Compare)
		}
		routes[i].Attachments = all
	}
	return routes
}

// sorted returns the elements in order. It returns a copy, unless they are in order already, since others may use the
// original.
func sorted[T any](s []T, compare func(a, b T) int) []T {
	if slices.IsSortedFunc(s, compare) {
		return s
	}
	s = slices.Clone(s)
	slices.SortStableFunc(s, compare)
	return s
}

// Compare orders references by kind, namespace, name and field.
func (r Ref) Compare(o Ref) int {
	if c := cmp.Compare(r.Kind, o.Kind); c != 0 {
		return c
	}
	if c := cmp.Compare(r.Namespace, o.Namespace); c != 0 {
		return c
	}
	if c := cmp.Compare(r.Name, o.Name); c != 0 {
		return c
	}
	return cmp.Compare(r.Field, o.Field)
}

// CompareNames compares the texts "namespace/name", as Gateway API orders objects of one age: "a-b/x" comes before "a/x".
func CompareNames(namespaceA, nameA, namespaceB, nameB string) int {
	if namespaceA == namespaceB {
		return cmp.Compare(nameA, nameB)
	}
	n := min(len(namespaceA), len(namespaceB))
	if c := cmp.Compare(namespaceA[:n], namespaceB[:n]); c != 0 {
		return c
	}
	return cmp.Compare(namespaceA[n:]+"/"+nameA, namespaceB[n:]+"/"+nameB)
}

// String is "Kind namespace/name field".
func (r Ref) String() string {
	var b strings.Builder
	b.WriteString(r.Kind)
	b.WriteByte(' ')
	if r.Namespace != "" {
		b.WriteString(r.Namespace)
		b.WriteByte('/')
	}
	b.WriteString(r.Name)
	if r.Field != "" {
		b.WriteByte(' ')
		b.WriteString(r.Field)
	}
	return b.String()
}

// FieldAt is the path of an element of a list, for a Ref's field: "list[i]".
func FieldAt(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }

// ServiceName is the name of the model's service for a port of a Service.
func ServiceName(namespace, name string, port int32) string {
	return namespace + "/" + name + ":" + strconv.Itoa(int(port))
}
