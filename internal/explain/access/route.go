package access

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/weirmesh/weir/internal/curl"
	"github.com/weirmesh/weir/internal/explain"
	"github.com/weirmesh/weir/internal/model"
)

// routed follows the routes and splits that a client's sidecar has for a port of a Service, and adds the workloads to which they lead.
// It returns false if there are none, or the client has no sidecar to serve them: then the call goes to the Service's pods.
func (s *Served) routed(a *Answer, r *curl.Request, service *corev1.Service, port *corev1.ServicePort) bool {
	requests := r.Protocol().Requests()
	if s.Calls == nil || r.Protocol().TLS() || a.Client.ID == "" {
		return false
	}
	at := slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == port.Port && p.Protocol != corev1.ProtocolUDP })
	cfg, written := s.Calls(a.Client.Ref.Namespace, service, at, requests)
	if cfg == nil || len(cfg.Listeners) == 0 || !written && len(cfg.Splits) == 0 {
		return false
	}
	if requests && !cfg.Listeners[0].Protocol.Requests() {
		a.Notes = append(a.Notes, "requests are connections there: nothing says that the port carries HTTP, but that its routes are for connections")
		raw := *r
		raw.Scheme, r = "tcp", &raw
	}
	a.Route = explain.Call(cfg, r)
	if !a.Route.Matched() {
		a.Verdict, a.Reason = Refused, "the client's sidecar answers it: "+a.Route.Reason
		return true
	}
	if answer := a.Route.Answer; answer != nil {
		a.Verdict, a.Reason = Refused, "the client's sidecar answers it itself"
		if answer.Status != 0 {
			a.Reason += fmt.Sprintf(", with %d", answer.Status)
		}
		return true
	}
	for i := range a.Route.Backends {
		b := &a.Route.Backends[i]
		if len(b.Leaves) == 0 {
			s.backend(a, r, b)
		}
		for j := range b.Leaves {
			s.backend(a, r, &b.Leaves[j])
		}
	}
	return true
}

// backend adds the workloads of a backend that gets calls.
func (s *Served) backend(a *Answer, r *curl.Request, b *explain.Backend) {
	if b.Weight == 0 {
		return
	}
	if b.Answer != nil && b.Answer.Reason != explain.NoEndpoint {
		a.Notes = append(a.Notes, fmt.Sprintf("%s of the calls have no backend: %s", b.Share(), b.Answer.Reason))
		return
	}
	namespace, rest, _ := strings.Cut(b.Service, "/")
	name, number, _ := strings.Cut(rest, ":")
	service := s.Set.Service(namespace, name)
	if service == nil {
		return
	}
	at := slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool {
		return strconv.Itoa(int(p.Port)) == number && p.Protocol != corev1.ProtocolUDP
	})
	if at < 0 {
		return
	}
	before, path, ambiguous, request := len(a.Targets), a.Path, a.Ambiguous, a.request
	a.forwarded(b)
	_ = s.toPods(a, r, service, &service.Spec.Ports[at], "")
	a.Path, a.Ambiguous, a.request = path, ambiguous, request
	if len(a.Targets) == before {
		a.Notes = append(a.Notes, fmt.Sprintf("of Service %s/%s, which gets %s of the calls: %s", namespace, name, b.Share(), a.Reason))
	}
	a.Reason = ""
}

// forwarded has workloads judge the request that a backend gets, as the filters of the client's route leave it.
func (a *Answer) forwarded(b *explain.Backend) {
	if a.request.Fields == nil {
		return // a connection
	}
	all := maps.Clone(a.request.Fields.(fields))
	for _, f := range []*model.Filters{a.Route.Filters, b.Filters} {
		if f == nil || f.RequestHeaders == nil {
			continue
		}
		for _, name := range f.RequestHeaders.Remove {
			delete(all, strings.ToLower(name))
		}
		for _, h := range f.RequestHeaders.Set {
			all[strings.ToLower(h.Name)] = h.Value
		}
		for _, h := range f.RequestHeaders.Add {
			name, value := strings.ToLower(h.Name), h.Value
			if before, ok := all[name]; ok {
				value = before + ", " + value
			}
			all[name] = value
		}
	}
	a.request.Fields = all
	if b.Forwarded == nil {
		return
	}
	path, _, _ := strings.Cut(b.Forwarded.Target, "?")
	if a.take(path) == nil { // what a sidecar forwards is valid
		a.request.Path, a.request.Ambiguous = a.Path, a.Ambiguous != ""
	}
}
