package kube

import (
	"cmp"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/resource"
)

// references returns the Secrets and ConfigMaps that a Set's objects refer to, and may. These references are in classes
// of the controller, their Gateways and policies, and where the descriptors of kinds say. It leaves out objects outside
// the scope.
func references(set *resource.Set, controller string, scope Scope) map[resource.Key]bool {
	r := referrer{set: set, scope: scope, keys: make(map[resource.Key]bool)}
	for _, class := range set.GatewayClasses {
		if at, ok := resource.ClassParameters(class); ok && resource.OwnsClass(controller, class) {
			r.add(at)
		}
	}
	for _, g := range set.Gateways {
		if set.OwnerOf(controller, g) == resource.Ours {
			r.gateway(g)
		}
	}
	for _, l := range set.ListenerSets {
		parent, ok := resource.ParentOf(l)
		if g := set.Gateway(parent.Namespace, parent.Name); ok && g != nil && set.OwnerOf(controller, g) == resource.Ours {
			for i := range l.Spec.Listeners {
				r.listener("ListenerSet", l.Namespace, l.Spec.Listeners[i].TLS)
			}
		}
	}
	for _, p := range set.BackendTLSPolicies {
		for _, ref := range p.Spec.Validation.CACertificateRefs {
			r.add(resource.Key{Group: string(ref.Group), Kind: string(ref.Kind), Namespace: p.Namespace, Name: string(ref.Name)})
		}
	}
	for _, k := range set.Kinds() {
		if k.References == nil {
			continue
		}
		for o := range set.Of(k) {
			for _, to := range k.References(o) {
				r.add(to)
			}
		}
	}
	return r.keys
}

type referrer struct {
	set   *resource.Set
	scope Scope
	keys  map[resource.Key]bool
}

func (r *referrer) gateway(g *gatewayv1.Gateway) {
	const kind = "Gateway"
	for i := range g.Spec.Listeners {
		r.listener(kind, g.Namespace, g.Spec.Listeners[i].TLS)
	}
	if at, ok := resource.GatewayParameters(g); ok {
		r.add(at)
	}
	if g.Spec.TLS == nil {
		return
	}
	if b := g.Spec.TLS.Backend; b != nil && b.ClientCertificateRef != nil {
		r.from(kind, g.Namespace, resource.SecretOf(*b.ClientCertificateRef, g.Namespace))
	}
	if f := g.Spec.TLS.Frontend; f != nil {
		r.clients(kind, g.Namespace, f.Default)
		for _, p := range f.PerPort {
			r.clients(kind, g.Namespace, p.TLS)
		}
	}
}

// listener adds the certificates of a listener of an object of a kind and a namespace.
func (r *referrer) listener(kind, namespace string, tls *gatewayv1.ListenerTLSConfig) {
	if tls == nil {
		return
	}
	for _, ref := range tls.CertificateRefs {
		r.from(kind, namespace, resource.SecretOf(ref, namespace))
	}
}

func (r *referrer) clients(kind, namespace string, tls gatewayv1.TLSConfig) {
	if tls.Validation == nil {
		return
	}
	for _, ref := range tls.Validation.CACertificateRefs {
		r.from(kind, namespace, resource.ObjectOf(ref, namespace))
	}
}

// from adds the reference from an object of a kind and a namespace, if it is permitted.
func (r *referrer) from(kind, namespace string, to resource.Key) {
	if r.set.Permits(kind, namespace, to) {
		r.add(to)
	}
}

// add keeps references to kinds that are read on reference, and drops others: the dialect reports them.
func (r *referrer) add(k resource.Key) {
	if of := r.set.Kinds().Find(k.Group, k.Kind); of != nil && of.OnReference && k.Namespace != "" && k.Name != "" && r.scope.reads(k) {
		r.keys[k] = true
	}
}

func compare(a, b resource.Key) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
