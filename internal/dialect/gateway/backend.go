package gateway

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// backend resolves a reference of a route to a service of the model. Clients of a mesh need nobody's leave to be led to a Service: they may connect to it themselves.
// A problem means that the reference is invalid (HTTPBackendRef.backendRef says when).
func (t *translator) backend(r *route, ref gatewayv1.BackendObjectReference, field string) (string, *resource.Finding) {
	named := resource.BackendOf(ref, r.namespace)
	if named.Group != "" || named.Kind != "Service" {
		return "", new(resource.Problem(codeBackendKind, "InvalidKind", field+".kind",
			fmt.Sprintf("kind %s is not supported", kindName(named.Group, named.Kind)), "refer to a Service"))
	}
	to := key{named.Namespace, named.Name}
	if !r.mesh && !t.set.Permits(r.ref.Kind, r.namespace, named) {
		p := t.notPermitted(field, r.ref.Kind, r.namespace, "Service", to.namespace, to.name)
		return "", &p
	}
	service := t.set.Service(to.namespace, to.name)
	if service == nil {
		code, why, fix := t.absent(codeBackendNotFound, "", "Service", to)
		return "", new(resource.Problem(code, "BackendNotFound", field+".name", why, fix))
	}
	if refused, all := t.set.RefusedNames(service, t.Names); all {
		return "", new(resource.Problem(codeBackendRefused, "UnsupportedValue", field+".name",
			fmt.Sprintf("Service %s is refused: %s", to, refused[0].Why), refused[0].Fix))
	}
	if ref.Port == nil {
		return "", new(resource.Problem(codeBackendPort, "BackendNotFound", field+".port",
			"a reference to a Service needs a port", "name a port of Service "+to.String()))
	}
	i := slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool {
		return p.Port == *ref.Port && (p.Protocol == "" || p.Protocol == corev1.ProtocolTCP)
	})
	if i < 0 {
		return "", new(resource.Problem(codeBackendPort, "BackendNotFound", field+".port",
			fmt.Sprintf("Service %s has no TCP port %d", to, *ref.Port), "name one of its ports or add this one"))
	}
	if !r.mesh && !r.carries.Requests() {
		if p := t.comesBack(r, portOf{to, *ref.Port}, field); p != nil {
			return "", p
		}
	}
	return t.backendPort(r, to, service.Spec.Ports[i], field)
}

func (t *translator) backendPort(r *route, to key, port corev1.ServicePort, field string) (string, *resource.Finding) {
	name := model.ServiceName(to.namespace, to.name, port.Port)
	unsupported := func(message, fix string) (string, *resource.Finding) {
		return "", new(resource.Problem(codeBackendProtocol, "UnsupportedProtocol", field+".port", message, fix))
	}
	app, known := resource.ParseAppProtocol(port.AppProtocol)
	policy := t.policyFor(to, port)
	switch {
	case !r.carries.Requests(): // whatever the connections carry
	case !known:
		return unsupported(fmt.Sprintf("port %d of Service %s has the appProtocol %q, which is not supported", port.Port, to, *port.AppProtocol),
			"use http, https, kubernetes.io/h2c, kubernetes.io/ws or kubernetes.io/wss, or remove appProtocol")
	case r.carries == model.RouteGRPC && app.WebSocket:
		return unsupported(fmt.Sprintf("port %d of Service %s has the appProtocol %q, which cannot carry gRPC", port.Port, to, *port.AppProtocol),
			"use kubernetes.io/h2c")
	case app.TLS && policy == nil:
		return unsupported(fmt.Sprintf("port %d of Service %s has the appProtocol %q, but nothing says how to check its certificate",
			port.Port, to, *port.AppProtocol), "add a BackendTLSPolicy for the Service")
	}
	r.uses = append(r.uses, use{to, port})
	for _, leaf := range t.leaves[to] {
		r.uses = append(r.uses, t.usesOfLeaf(leaf, port.Port)...)
	}
	if policy != nil && policy.tls == nil {
		return "", new(resource.Problem(codeBackendPolicy, "InvalidBackendTLSPolicy", field,
			fmt.Sprintf("BackendTLSPolicy %s/%s of Service %s cannot be honoured", policy.obj.Namespace, policy.obj.Name, to), "correct the policy"))
	}
	return name, nil
}

// readSplits notes which Services a route to a given one may lead to by TrafficSplits; dialect/smi decides which do.
func (t *translator) readSplits() {
	for _, s := range t.set.TrafficSplits {
		root, backends := resource.SplitUses(s)
		at := key{s.Namespace, root}
		for _, u := range backends {
			t.leaves[at] = append(t.leaves[at], key{u.Namespace, u.Service})
		}
	}
}

func (t *translator) usesOfLeaf(leaf key, number int32) []use {
	s := t.set.Service(leaf.namespace, leaf.name)
	if s == nil {
		return nil
	}
	for _, p := range s.Spec.Ports {
		if p.Port == number {
			return []use{{leaf, p}}
		}
	}
	return nil
}

// use is a port of a Service that a route leads to.
type use struct {
	service key
	port    corev1.ServicePort
}

// secure adds the services that a BackendTLSPolicy changes to the configuration: they extend core's. If a policy cannot
// be honoured, its service answers 500, whichever route leads to it.
func (t *translator) secure() {
	if len(t.policies) == 0 {
		return
	}
	for _, s := range t.set.Services {
		at := key{s.Namespace, s.Name}
		for i, port := range s.Spec.Ports {
			p := t.policyFor(at, port)
			if p == nil {
				continue
			}
			app, _ := resource.ParseAppProtocol(port.AppProtocol)
			out := model.Service{
				Name:     model.ServiceName(s.Namespace, s.Name, port.Port),
				Ref:      model.Ref{Kind: "Service", Namespace: s.Namespace, Name: s.Name, Field: model.FieldAt("spec.ports", i)},
				Protocol: cmp.Or(app.Protocol, model.HTTP),
				TLS:      p.tls,
			}
			if p.tls == nil {
				out.Fault = &model.Fault{Status: 500, Reason: "InvalidBackendTLSPolicy",
					Message: fmt.Sprintf("BackendTLSPolicy %s/%s cannot be honoured", p.obj.Namespace, p.obj.Name)}
			}
			if refused, all := t.set.RefusedNames(s, t.Names); all {
				out.Fault = &model.Fault{Status: 500, Reason: "UnsupportedValue", Message: "the Service's endpoints are refused: " + refused[0].Why}
			}
			out.Extends = out.Name
			t.cfg.Services = append(t.cfg.Services, out)
		}
	}
}
