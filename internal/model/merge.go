package model

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// Merge makes one configuration out of several, in canonical order and without the services and certificates that
// nothing refers to. Equal inputs give byte-equal results. The inputs are not changed; the result may share memory with
// them.
//
// Of two listeners, services or certificates of one name, the first stays: that of the earlier configuration, or the
// first in one configuration. A listener can clash with an earlier one of the same gateway: by the same address, port
// and hostname, or by another protocol (with or without a PROXY header) on the same address and port. Then it is left
// out with the attachments to it, and so are routes without other attachments. Routes are never merged with each other:
// precedence decides about a request that several match. Nor are splits: those of an earlier configuration come first.
func Merge(configs ...Config) Config {
	var out Config
	listeners := listenerSet{}
	certificates := map[string]bool{}
	for _, c := range configs {
		for _, l := range c.Listeners {
			if listeners.add(l) {
				out.Listeners = append(out.Listeners, l)
			}
		}
		for _, cert := range c.Certificates {
			if !certificates[cert.Name] {
				certificates[cert.Name] = true
				out.Certificates = append(out.Certificates, cert)
			}
		}
	}
	n := 0
	for _, c := range configs {
		n += len(c.Routes)
	}
	out.Routes = make([]Route, 0, n)
	for _, c := range configs {
		for _, r := range c.Routes {
			if r.Attachments = listeners.keep(r.Attachments); len(r.Attachments) > 0 {
				out.Routes = append(out.Routes, r)
			}
		}
	}
	for _, c := range configs {
		out.Splits = append(out.Splits, c.Splits...)
	}
	out.Services = mergeServices(configs)
	out.leafVariants()
	out.Prune()
	out.Sort()
	return out
}

// mergeServices keeps the first service of each name and lays the ones that extend over them.
func mergeServices(configs []Config) []Service {
	var services, overlays []Service
	at := map[string]int{}
	for _, c := range configs {
		for _, s := range c.Services {
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
	gateway GatewayKey
	address string
	port    int32
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
	b := bind{l.Gateway, l.Address, l.Port}
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

// leafVariants gives each leaf of a split the variants that its root has: a client certificate that is presented to the
// root is presented to the leaf.
func (c *Config) leafVariants() {
	if len(c.Splits) == 0 {
		return
	}
	at := make(map[string]int, len(c.Services))
	variants := map[string][]string{} // by root
	for i, s := range c.Services {
		at[s.Name] = i
		if root := RootName(s.Name); root != s.Name {
			variants[root] = append(variants[root], s.Name[len(root):])
		}
	}
	for _, split := range c.Splits {
		for _, variant := range variants[split.Root] {
			for _, l := range split.Leaves {
				i, ok := at[l.Service]
				if _, there := at[l.Service+variant]; !ok || there || c.Services[i].TLS == nil {
					continue
				}
				s := c.Services[i]
				tls := *s.TLS
				tls.ClientCertificate = variant[1:]
				s.Name, s.TLS = s.Name+variant, &tls
				at[s.Name] = len(c.Services)
				c.Services = append(c.Services, s)
			}
		}
	}
}

// Prune drops the splits, services and certificates that nothing refers to.
func (c *Config) Prune() {
	services, certificates := c.uses()
	c.pruneSplits(services)
	for _, s := range c.Services {
		if services[s.Name] && s.Extends != "" {
			services[s.Extends] = true
		}
	}
	c.Services = slices.DeleteFunc(slices.Clone(c.Services), func(s Service) bool { return !services[s.Name] })
	for _, s := range c.Services {
		if s.TLS != nil {
			certificates[s.TLS.ClientCertificate] = true
		}
	}
	c.Certificates = slices.DeleteFunc(slices.Clone(c.Certificates), func(x Certificate) bool { return !certificates[x.Name] })
}

// uses returns the names of the services that routes, and of the certificates that listeners refer to.
func (c *Config) uses() (services, certificates map[string]bool) {
	services, certificates = map[string]bool{}, map[string]bool{}
	mirrors := func(f Filters) {
		for _, m := range f.Mirrors {
			services[m.Service] = true
		}
	}
	for _, r := range c.Routes {
		for _, rule := range r.Rules {
			mirrors(rule.Filters)
			for _, b := range rule.Backends {
				services[b.Service] = true
				mirrors(b.Filters)
			}
		}
	}
	for _, l := range c.Listeners {
		if l.TLS != nil {
			for _, name := range l.TLS.Certificates {
				certificates[name] = true
			}
		}
	}
	return services, certificates
}

// pruneSplits drops the splits of unused roots, and adds the leaves of the other splits to the used services.
func (c *Config) pruneSplits(used map[string]bool) {
	variants := map[string][]string{} // of used roots; "" for the root itself
	for name := range used {
		root := RootName(name)
		variants[root] = append(variants[root], name[len(root):])
	}
	c.Splits = slices.DeleteFunc(slices.Clone(c.Splits), func(s Split) bool { return variants[s.Root] == nil })
	for _, s := range c.Splits {
		used[s.Root] = true
		for _, variant := range variants[s.Root] {
			for _, l := range s.Leaves {
				used[l.Service], used[l.Service+variant] = true, true
			}
		}
	}
}

// Sort puts everything whose order has no meaning into canonical order: listeners, services and certificates by name,
// routes by reference, splits by root, attachments by listener, hostnames and endpoints alphabetically. It keeps the
// order of rules, matches, backends, filters, certificates of a listener and splits of one root, which has a meaning.
func (c *Config) Sort() {
	c.Listeners = sorted(c.Listeners, func(a, b Listener) int { return cmp.Compare(a.Name, b.Name) })
	c.Services = sorted(c.Services, func(a, b Service) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Extends, b.Extends))
	})
	c.Splits = sorted(c.Splits, func(a, b Split) int { return cmp.Compare(a.Root, b.Root) })
	c.Certificates = sorted(c.Certificates, func(a, b Certificate) int { return cmp.Compare(a.Name, b.Name) })
	c.sortEndpoints()
	c.sortAttachments()
	c.Routes = sorted(c.Routes, func(a, b Route) int {
		if c := a.Ref.Compare(b.Ref); c != 0 {
			return c
		}
		return slices.CompareFunc(a.Attachments, b.Attachments, compareAttachments)
	})
}

func (c *Config) sortEndpoints() {
	compare := func(a, b Endpoint) int { return cmp.Compare(a.Address, b.Address) }
	own := false
	for i := range c.Services {
		if slices.IsSortedFunc(c.Services[i].Endpoints, compare) {
			continue
		}
		if !own {
			c.Services, own = slices.Clone(c.Services), true
		}
		c.Services[i].Endpoints = sorted(c.Services[i].Endpoints, compare)
	}
}

func compareAttachments(a, b Attachment) int { return cmp.Compare(a.Listener, b.Listener) }

func (c *Config) sortAttachments() {
	unordered := func(a Attachment) bool { return !slices.IsSorted(a.Hostnames) }
	own := false
	for i := range c.Routes {
		all := c.Routes[i].Attachments
		if slices.IsSortedFunc(all, compareAttachments) && !slices.ContainsFunc(all, unordered) {
			continue
		}
		if !own {
			c.Routes, own = slices.Clone(c.Routes), true
		}
		all = slices.Clone(all)
		slices.SortStableFunc(all, compareAttachments)
		for j := range all {
			all[j].Hostnames = sorted(all[j].Hostnames, strings.Compare)
		}
		c.Routes[i].Attachments = all
	}
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
