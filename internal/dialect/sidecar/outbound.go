package sidecar

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// outbound makes a listener for the pod's own requests, with routes to every Service by its host names. A Service's
// first port of HTTP is the one for hosts without a port; requests for the others name them.
func (t *translator) outbound() {
	if !t.options.Outbound.IsValid() {
		return
	}
	name := fmt.Sprintf("%s/%s/outbound", t.options.Namespace, t.options.Name)
	t.cfg.Listeners = append(t.cfg.Listeners, t.listener(name, t.options.Outbound))
	for _, s := range t.set.Services {
		t.outboundTo(s, model.Attachment{Listener: name, Hostnames: t.hostnames(s)})
	}
}

// outboundTo makes the routes to a Service. What users wrote for a port takes the place of the rule that leads to it.
func (t *translator) outboundTo(s *corev1.Service, at model.Attachment) {
	ref := model.Ref{Kind: model.KindService, Namespace: s.Namespace, Name: s.Name}
	route := model.Route{Ref: ref, ClientCertificate: Identity, Attachments: []model.Attachment{at}}
	routed, ports := false, 0
	written := make([][]model.ServiceRoute, len(s.Spec.Ports)) // by port
	for i := range s.Spec.Ports {
		if p := &s.Spec.Ports[i]; isTCP(p) {
			written[i] = t.routes.of(model.ServiceName(s.Namespace, s.Name, p.Port), t.clients)
			routed = routed || len(written[i]) > 0
		}
	}
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		if !isTCP(p) || resource.WrittenProtocol(p) == model.TCP || len(written[i]) > 0 && !written[i][0].Route.Kind.Requests() {
			continue
		}
		first := ports == 0
		ports++
		var hosts *model.ValueMatch
		switch {
		case !first:
			hosts = &model.ValueMatch{Type: model.Regex, Name: "host", Value: fmt.Sprintf(`[^:]*:%d`, p.Port)}
		case routed && len(s.Spec.Ports) > 1: // a path of the first port's would go before the other ports
			hosts = &model.ValueMatch{Type: model.Regex, Name: "host", Value: fmt.Sprintf(`[^:]*(:%d)?`, p.Port)}
		}
		if len(written[i]) > 0 {
			for _, r := range written[i] {
				out := r.Route
				out.ClientCertificate, out.Attachments, out.Rules = Identity, route.Attachments, withHosts(out.Rules, hosts)
				out.Ref.Field = fmt.Sprintf("outbound[%s:%d]", s.Name, p.Port)
				t.cfg.Routes = append(t.cfg.Routes, out)
			}
			continue
		}
		of := ref
		of.Field = model.FieldAt("spec.ports", i)
		r := t.rule(of, model.RouteHTTP, model.ServiceName(s.Namespace, s.Name, p.Port))
		r.Name = fmt.Sprint(p.Port)
		route.Rules = append(route.Rules, withHosts([]model.Rule{r}, hosts)...)
	}
	if len(route.Rules) > 0 {
		t.cfg.Routes = append(t.cfg.Routes, route)
	}
}

// withHosts are rules for requests that also meet a match of their host, if there is one.
func withHosts(rules []model.Rule, hosts *model.ValueMatch) []model.Rule {
	if hosts == nil {
		return rules
	}
	rules = slices.Clone(rules)
	for i := range rules {
		matches := slices.Clone(rules[i].Matches)
		for j := range matches {
			matches[j].Headers = append(slices.Clone(matches[j].Headers), *hosts)
		}
		rules[i].Matches = matches
	}
	return rules
}
