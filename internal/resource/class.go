package resource

import gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

// Owner says to whom a Gateway belongs.
type Owner int

const (
	// NoClass is for a Gateway whose class is not in the Set. The caller, who has the Set, knows what that means.
	NoClass Owner = iota
	// Ours is for a Gateway of a class that names the controller.
	Ours
	// Others is for a Gateway of a class that names another controller.
	Others
)

// OwnsClass reports whether a class names the controller (GatewayClass.spec.controllerName). It is false for nil.
func OwnsClass(controller string, class *gatewayv1.GatewayClass) bool {
	return class != nil && string(class.Spec.ControllerName) == controller
}

// OwnerOf returns the owner of a Gateway, by its class. The Gateway need not be in the Set.
func (s *Set) OwnerOf(controller string, g *gatewayv1.Gateway) Owner {
	class := s.GatewayClass(string(g.Spec.GatewayClassName))
	switch {
	case class == nil:
		return NoClass
	case OwnsClass(controller, class):
		return Ours
	}
	return Others
}

// ParentOf returns the key of the Gateway that a ListenerSet names (ListenerSet.spec.parentRef), even if it does not
// exist. It returns false if the reference is not to a Gateway; the key then has the group and kind of the reference.
func ParentOf(l *gatewayv1.ListenerSet) (Key, bool) {
	ref := l.Spec.ParentRef
	k := Key{Group: gatewayv1.GroupName, Kind: "Gateway", Namespace: l.Namespace, Name: string(ref.Name)}
	if ref.Group != nil {
		k.Group = string(*ref.Group)
	}
	if ref.Kind != nil {
		k.Kind = string(*ref.Kind)
	}
	if ref.Namespace != nil {
		k.Namespace = string(*ref.Namespace)
	}
	return k, k.Group == gatewayv1.GroupName && k.Kind == "Gateway"
}
