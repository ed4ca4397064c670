package resource

import gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

// Permits reports whether an object of a Gateway API kind in the namespace from may refer to another object. It may if
// the other object is in the same namespace, or if a ReferenceGrant there names it (ReferenceGrant.spec). Permits does
// not check whether the object exists.
func (s *Set) Permits(fromKind, from string, to Key) bool {
	if from == to.Namespace {
		return true
	}
	for _, g := range s.indexed().grants[to.Namespace] {
		trusted := false
		for _, f := range g.Spec.From {
			trusted = trusted || f.Group == gatewayv1.GroupName && string(f.Kind) == fromKind && string(f.Namespace) == from
		}
		if !trusted {
			continue
		}
		for _, x := range g.Spec.To {
			if string(x.Group) == to.Group && string(x.Kind) == to.Kind && (x.Name == nil || *x.Name == "" || string(*x.Name) == to.Name) {
				return true
			}
		}
	}
	return false
}

// SecretOf returns the key of the object that a reference from a namespace names, with the defaults of the API
// (SecretObjectReference).
func SecretOf(ref gatewayv1.SecretObjectReference, namespace string) Key {
	k := Key{Kind: "Secret", Namespace: namespace, Name: string(ref.Name)}
	if ref.Group != nil {
		k.Group = string(*ref.Group)
	}
	if ref.Kind != nil {
		k.Kind = string(*ref.Kind)
	}
	if ref.Namespace != nil {
		k.Namespace = string(*ref.Namespace)
	}
	return k
}

// ObjectOf returns the key of the object that a reference from a namespace names (ObjectReference).
func ObjectOf(ref gatewayv1.ObjectReference, namespace string) Key {
	k := Key{Group: string(ref.Group), Kind: string(ref.Kind), Namespace: namespace, Name: string(ref.Name)}
	if ref.Namespace != nil {
		k.Namespace = string(*ref.Namespace)
	}
	return k
}

// ParentRefOf returns the key of the parent that a route of a namespace names, with the defaults of the API
// (ParentReference).
func ParentRefOf(ref gatewayv1.ParentReference, namespace string) Key {
	k := Key{Group: gatewayv1.GroupName, Kind: "Gateway", Namespace: namespace, Name: string(ref.Name)}
	if ref.Group != nil {
		k.Group = string(*ref.Group)
	}
	if ref.Kind != nil {
		k.Kind = string(*ref.Kind)
	}
	if ref.Namespace != nil {
		k.Namespace = string(*ref.Namespace)
	}
	return k
}

// ClassParameters returns the key of the object with a class's parameters (GatewayClass.spec.parametersRef). The key
// has no namespace if the reference names none. It returns false if there is no reference.
func ClassParameters(class *gatewayv1.GatewayClass) (Key, bool) {
	ref := class.Spec.ParametersRef
	if ref == nil {
		return Key{}, false
	}
	k := Key{Group: string(ref.Group), Kind: string(ref.Kind), Name: ref.Name}
	if ref.Namespace != nil {
		k.Namespace = string(*ref.Namespace)
	}
	return k, true
}

// GatewayParameters returns the key of the object with a Gateway's own parameters
// (Gateway.spec.infrastructure.parametersRef), which is in its namespace. It returns false if there is no reference.
func GatewayParameters(g *gatewayv1.Gateway) (Key, bool) {
	if g.Spec.Infrastructure == nil || g.Spec.Infrastructure.ParametersRef == nil {
		return Key{}, false
	}
	ref := g.Spec.Infrastructure.ParametersRef
	return Key{Group: string(ref.Group), Kind: string(ref.Kind), Namespace: g.Namespace, Name: ref.Name}, true
}
