package kube

import (
	"cmp"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/resource"
)

// references are the Secrets and ConfigMaps that a Set's objects refer to: classes of the controller, their Gateways,
// and policies. References out of scope are left out.
func references(set *resource.Set, controller string, scope Scope) map[resource.Key]bool {
	r := referrer{set: set, controller: controller, scope: scope, keys: make(map[resource.Key]bool)}
	for _, class := range set.GatewayClasses {
		if p := class.Spec.ParametersRef; p != nil && r.ours(class) && p.Namespace != nil {
			r.add(string(p.Group), string(p.Kind), string(*p.Namespace), p.Name)
		}
	}
	for _, g := range set.Gateways {
		if r.ours(set.GatewayClass(string(g.Spec.GatewayClassName))) {
			r.gateway(g)
		}
	}
	for _, l := range set.ListenerSets {
		if g := r.parent(l); g != nil && r.ours(set.GatewayClass(string(g.Spec.GatewayClassName))) {
			for i := range l.Spec.Listeners {
				r.listener(l.Spec.Listeners[i].TLS, l.Namespace)
			}
		}
	}
	for _, p := range set.BackendTLSPolicies {
		for _, ref := range p.Spec.Validation.CACertificateRefs {
			r.add(string(ref.Group), string(ref.Kind), p.Namespace, string(ref.Name))
		}
	}
	return r.keys
}

type referrer struct {
	set        *resource.Set
	controller string
	scope      Scope
	keys       map[resource.Key]bool
}

func (r *referrer) ours(class *gatewayv1.GatewayClass) bool {
	return class != nil && string(class.Spec.ControllerName) == r.controller
}

func (r *referrer) parent(l *gatewayv1.ListenerSet) *gatewayv1.Gateway {
	namespace := l.Namespace
	if l.Spec.ParentRef.Namespace != nil {
		namespace = string(*l.Spec.ParentRef.Namespace)
	}
	return r.set.Gateway(namespace, string(l.Spec.ParentRef.Name))
}

func (r *referrer) gateway(g *gatewayv1.Gateway) {
	for i := range g.Spec.Listeners {
		r.listener(g.Spec.Listeners[i].TLS, g.Namespace)
	}
	if p := g.Spec.Infrastructure; p != nil && p.ParametersRef != nil {
		r.add(string(p.ParametersRef.Group), string(p.ParametersRef.Kind), g.Namespace, p.ParametersRef.Name)
	}
	if g.Spec.TLS == nil {
		return
	}
	if b := g.Spec.TLS.Backend; b != nil && b.ClientCertificateRef != nil {
		r.secret(*b.ClientCertificateRef, g.Namespace)
	}
	if f := g.Spec.TLS.Frontend; f != nil {
		r.clients(f.Default, g.Namespace)
		for _, p := range f.PerPort {
			r.clients(p.TLS, g.Namespace)
		}
	}
}

func (r *referrer) listener(tls *gatewayv1.ListenerTLSConfig, namespace string) {
	if tls == nil {
		return
	}
	for _, ref := range tls.CertificateRefs {
		r.secret(ref, namespace)
	}
}

func (r *referrer) clients(tls gatewayv1.TLSConfig, namespace string) {
	if tls.Validation == nil {
		return
	}
	for _, ref := range tls.Validation.CACertificateRefs {
		if ref.Namespace != nil {
			namespace := string(*ref.Namespace)
			r.add(string(ref.Group), string(ref.Kind), namespace, string(ref.Name))
			continue
		}
		r.add(string(ref.Group), string(ref.Kind), namespace, string(ref.Name))
	}
}

func (r *referrer) secret(ref gatewayv1.SecretObjectReference, namespace string) {
	group, kind := "", "Secret"
	if ref.Group != nil {
		group = string(*ref.Group)
	}
	if ref.Kind != nil {
		kind = string(*ref.Kind)
	}
	if ref.Namespace != nil {
		namespace = string(*ref.Namespace)
	}
	r.add(group, kind, namespace, string(ref.Name))
}

// add keeps references to kinds that are read on reference, and drops others: the dialect reports them.
func (r *referrer) add(group, kind, namespace, name string) {
	k := resource.Key{Kind: kind, Namespace: namespace, Name: name}
	if onReference(resource.Kind{Group: group, Name: kind}) && namespace != "" && name != "" && r.scope.reads(k) {
		r.keys[k] = true
	}
}

func compare(a, b resource.Key) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
