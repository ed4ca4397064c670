package gateway

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// backend resolves a reference of a route to a service of the model. A problem means that the reference is invalid (see
// HTTPBackendRef.backendRef).
func (t *translator) backend(r *route, ref gatewayv1.BackendObjectReference, field string) (string, *problem) {
	group, kind := value(ref.Group, ""), value(ref.Kind, "Service")
	if group != "" || kind != "Service" {
		return "", &problem{codeBackendKind, "InvalidKind", field + ".kind",
			fmt.Sprintf("kind %s is not supported", kindName(string(group), string(kind))), "refer to a Service"}
	}
	to := key{string(value(ref.Namespace, gatewayv1.Namespace(r.namespace))), string(ref.Name)}
	if !t.permitted(r.ref.Kind, r.namespace, "", "Service", to.namespace, to.name) {
		p := t.notPermitted(field, r.ref.Kind, r.namespace, "Service", to.namespace, to.name)
		return "", &p
	}
	service := t.set.Service(to.namespace, to.name)
	if service == nil {
		code, why, fix := t.absent(codeBackendNotFound, "", "Service", to)
		return "", &problem{code, "BackendNotFound", field + ".name", why, fix}
	}
	if refused, all := t.set.RefusedNames(service, t.Names); all {
		return "", &problem{codeBackendRefused, "UnsupportedValue", field + ".name",
			fmt.Sprintf("Service %s is refused: %s", to, refused[0].Why), refused[0].Fix}
	}
	if ref.Port == nil {
		return "", &problem{codeBackendPort, "BackendNotFound", field + ".port",
			"a reference to a Service needs a port", "name a port of Service " + to.String()}
	}
	i := slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool {
		return p.Port == *ref.Port && (p.Protocol == "" || p.Protocol == corev1.ProtocolTCP)
	})
	if i < 0 {
		return "", &problem{codeBackendPort, "BackendNotFound", field + ".port",
			fmt.Sprintf("Service %s has no TCP port %d", to, *ref.Port), "name one of its ports or add this one"}
	}
	return t.backendPort(r, to, service.Spec.Ports[i], field)
}

func (t *translator) backendPort(r *route, to key, port corev1.ServicePort, field string) (string, *problem) {
	name := model.ServiceName(to.namespace, to.name, port.Port)
	unsupported := func(message, fix string) (string, *problem) {
		return "", &problem{codeBackendProtocol, "UnsupportedProtocol", field + ".port", message, fix}
	}
	app, known := resource.ParseAppProtocol(port.AppProtocol)
	policy := t.policyFor(to, port)
	switch {
	case r.tcp != nil: // connections may carry any protocol
	case !known:
		return unsupported(fmt.Sprintf("port %d of Service %s has the appProtocol %q, which is not supported", port.Port, to, *port.AppProtocol),
			"use http, https, kubernetes.io/h2c, kubernetes.io/ws or kubernetes.io/wss, or remove appProtocol")
	case r.grpc != nil && app.WebSocket:
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
		return "", &problem{codeBackendPolicy, "InvalidBackendTLSPolicy", field,
			fmt.Sprintf("BackendTLSPolicy %s/%s of Service %s cannot be honoured", policy.obj.Namespace, policy.obj.Name, to), "correct the policy"}
	}
	return name, nil
}

// readSplits notes which Services a route to a given one may lead to by TrafficSplits; dialect/smi decides which do.
func (t *translator) readSplits() {
	for _, s := range t.set.TrafficSplits {
		at := key{s.Namespace, shortName(s.Spec.Service)}
		for _, b := range s.Spec.Backends {
			t.leaves[at] = append(t.leaves[at], key{s.Namespace, shortName(b.Service)})
		}
	}
}

// shortName is the name of a Service that may be written in full.
func shortName(service string) string {
	name, _, _ := strings.Cut(service, ".")
	return strings.ToLower(name)
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
			t.secured[out.Name] = out
			t.cfg.Services = append(t.cfg.Services, out)
		}
	}
}

// presenting returns the name of the service that is as the named one and presents a client certificate, and adds it
// to the configuration. A service without TLS stays as it is.
func (t *translator) presenting(name, certificate string) string {
	s, ok := t.secured[name]
	if !ok || s.TLS == nil {
		return name
	}
	variant := name + "#" + certificate
	if !t.variants[variant] {
		settings := *s.TLS
		settings.ClientCertificate = certificate
		s.Name, s.TLS = variant, &settings
		t.variants[variant] = true
		t.cfg.Services = append(t.cfg.Services, s)
	}
	return variant
}
