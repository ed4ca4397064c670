package explain

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

const splitKind = "TrafficSplit"

// leftSplits finds splits that are not in force and would split the request's service.
func (s *Served) leftSplits(e *Explanation, whys map[resource.Key][]resource.Finding) {
	if asked := s.asked(e); asked != nil {
		for _, x := range s.splitsOf(asked, whys) {
			e.leave(x)
		}
	}
}

// LeftSplits returns the splits that are not in force and would split one of the services, each "namespace/name"; a few
// of them, if there are many.
func (s *Served) LeftSplits(services []string) []LeftOut {
	if s.Set == nil {
		return nil
	}
	whys, _ := s.whys()
	out := s.splitsOf(amongst(services), whys)
	return out[:min(len(out), maxLeftOut)]
}

// splitsOf finds splits that are not in force. A split whose root is unknown may mean any Service of its namespace.
func (s *Served) splitsOf(asked func(namespace, name string) bool, whys map[resource.Key][]resource.Finding) (out []LeftOut) {
	for _, k := range sortedObjects(whys) {
		inForce := func(x model.Split) bool { return x.Ref.Namespace == k.Namespace && x.Ref.Name == k.Name }
		if k.Kind != splitKind || slices.ContainsFunc(s.Config.Splits, inForce) {
			continue
		}
		root := s.rootOf(k)
		if !asked(k.Namespace, root) {
			continue
		}
		left := LeftOut{Ref: k.Ref(), Findings: gravest(whys[k])}
		if root != "" {
			left.Root = k.Namespace + "/" + root
		}
		out = append(out, left)
	}
	return out
}

// amongst returns whether a Service is one of services; an empty name stands for any of the namespace.
func amongst(services []string) func(namespace, name string) bool {
	return func(namespace, name string) bool {
		return slices.ContainsFunc(services, func(of string) bool {
			return of == namespace+"/"+name || name == "" && strings.HasPrefix(of, namespace+"/")
		})
	}
}

// asked returns whether a request may be for a Service; an empty name stands for any of the namespace. It is nil if no
// split can have an effect.
func (s *Served) asked(e *Explanation) func(namespace, name string) bool {
	switch {
	case e.Matched():
		return amongst(e.Services())
	case len(s.Config.Owners()) > 0 || s.ProxyPerGateway:
		return nil // without a Gateway, roots are served by their host names
	case e.Request.Protocol().Requests():
		return func(namespace, name string) bool {
			called, _, why := resource.LocalService(e.asked.host, namespace)
			return why == "" && (name == "" || called == name)
		}
	}
	return func(namespace, name string) bool { // a connection names no host
		service := s.Set.Service(namespace, name)
		onPort := func(p corev1.ServicePort) bool { return p.Port == e.Request.WantedPort() }
		return service == nil || slices.ContainsFunc(service.Spec.Ports, onPort)
	}
}

// Services returns the services that answer the request or get copies of it, each "namespace/name".
func (e *Explanation) Services() (out []string) {
	add := func(service string) {
		name, _, _ := strings.Cut(service, ":")
		out = append(out, name)
	}
	mirrors := func(all []Mirror) {
		for i := range all {
			add(all[i].Service)
		}
	}
	mirrors(e.Mirrors)
	for i := range e.Backends {
		add(e.Backends[i].Service)
		mirrors(e.Backends[i].Mirrors)
	}
	return out
}

// rootOf returns the name of the Service that a split is written for; empty if it is unknown.
func (s *Served) rootOf(k resource.Key) string {
	name, _, why := resource.LocalService(written(s.Set, s.Set.Kinds().Key(k.Ref())).at("spec").text("service", ""), k.Namespace)
	if why != "" {
		return ""
	}
	return name
}

// gravest keeps the findings of the highest severity there is.
func gravest(all []resource.Finding) (out []resource.Finding) {
	for _, severity := range []resource.Severity{resource.Error, resource.Warning, resource.Info} {
		for _, f := range all {
			if f.Severity == severity {
				out = append(out, f)
			}
		}
		if out != nil {
			break
		}
	}
	return out
}
