package resource

import (
	"fmt"
	"iter"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/api/split"
)

// Use is a reference from a route or a TrafficSplit to a Service. The Service may not exist, and the reference may not
// be permitted.
type Use struct {
	// Namespace and Service name the Service.
	Namespace, Service string
	// Port is the Service's port; 0 if the reference names none.
	Port int32
	// By is the referring object.
	By Key
	// Connections means that the Service gets connections, not requests.
	Connections bool
	// Mirror means that the Service gets only copies.
	Mirror bool
	// Idle means that the weight is 0 and the Service gets nothing. It need not exist yet, or any more.
	Idle bool
}

// RouteUses yields the references of the routes in the set.
func (s *Set) RouteUses() iter.Seq[Use] {
	return func(yield func(Use) bool) {
		for _, r := range s.HTTPRoutes {
			w := useWalk{by: routeKey("HTTPRoute", r.Namespace, r.Name), yield: yield}
			for _, rule := range r.Spec.Rules {
				ok := w.http(rule.Filters)
				for _, b := range rule.BackendRefs {
					ok = ok && w.backend(b.BackendRef) && w.http(b.Filters)
				}
				if !ok {
					return
				}
			}
		}
		for _, r := range s.GRPCRoutes {
			w := useWalk{by: routeKey("GRPCRoute", r.Namespace, r.Name), yield: yield}
			for _, rule := range r.Spec.Rules {
				ok := w.grpc(rule.Filters)
				for _, b := range rule.BackendRefs {
					ok = ok && w.backend(b.BackendRef) && w.grpc(b.Filters)
				}
				if !ok {
					return
				}
			}
		}
		for _, r := range s.TCPRoutes {
			w := useWalk{by: routeKey("TCPRoute", r.Namespace, r.Name), connections: true, yield: yield}
			for _, rule := range r.Spec.Rules {
				for _, b := range rule.BackendRefs {
					if !w.backend(b) {
						return
					}
				}
			}
		}
	}
}

func routeKey(kind, namespace, name string) Key {
	return Key{Group: gatewayv1.GroupName, Kind: kind, Namespace: namespace, Name: name}
}

// useWalk yields the references of one route. Its methods report whether to continue.
type useWalk struct {
	by          Key
	connections bool
	yield       func(Use) bool
}

func (w *useWalk) http(filters []gatewayv1.HTTPRouteFilter) bool {
	for i := range filters {
		if m := filters[i].RequestMirror; m != nil && !w.use(m.BackendRef, Use{Mirror: true}) {
			return false
		}
	}
	return true
}

func (w *useWalk) grpc(filters []gatewayv1.GRPCRouteFilter) bool {
	for i := range filters {
		if m := filters[i].RequestMirror; m != nil && !w.use(m.BackendRef, Use{Mirror: true}) {
			return false
		}
	}
	return true
}

func (w *useWalk) backend(ref gatewayv1.BackendRef) bool {
	return w.use(ref.BackendObjectReference, Use{Idle: ref.Weight != nil && *ref.Weight <= 0})
}

func (w *useWalk) use(ref gatewayv1.BackendObjectReference, u Use) bool {
	k := BackendOf(ref, w.by.Namespace)
	if k.Group != "" || k.Kind != "Service" {
		return true
	}
	u.Namespace, u.Service, u.By, u.Connections = k.Namespace, k.Name, w.by, w.connections
	if ref.Port != nil {
		u.Port = *ref.Port
	}
	return w.yield(u)
}

// BackendOf returns the key of the backend that a route of a namespace names, with the defaults of the API
// (BackendObjectReference).
func BackendOf(ref gatewayv1.BackendObjectReference, namespace string) Key {
	k := Key{Kind: "Service", Namespace: namespace, Name: string(ref.Name)}
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

// SplitUses returns the Service that a TrafficSplit splits, and its backends. The Service is empty if the split names
// none in its own namespace. The port of each backend is the port of the requests.
func SplitUses(s *split.TrafficSplit) (root string, backends []Use) {
	root, _, why := LocalService(s.Spec.Service, s.Namespace)
	if why != "" {
		return "", nil
	}
	for _, b := range s.Spec.Backends {
		if name, _, why := LocalService(b.Service, s.Namespace); why == "" {
			backends = append(backends, Use{
				Namespace: s.Namespace, Service: name, Idle: b.Weight == 0, By: Key{Group: split.Group, Kind: "TrafficSplit", Namespace: s.Namespace, Name: s.Name},
			})
		}
	}
	return root, backends
}

// LocalService returns the name of the Service that a TrafficSplit's text refers to in its namespace. The text is a
// bare name, or a name followed by the namespace, "svc" and the cluster's domain, which is also returned. If the text
// is neither, why is not empty.
func LocalService(text, namespace string) (name, domain, why string) {
	parts := strings.SplitN(strings.ToLower(strings.TrimSuffix(text, ".")), ".", 4)
	if len(validation.IsDNS1123Label(parts[0])) > 0 {
		return "", "", fmt.Sprintf("%q is not the name of a Service", text)
	}
	switch {
	case len(parts) > 2 && parts[2] != "svc":
		return "", "", fmt.Sprintf("%q is not the name of a Service: after name and namespace comes svc", text)
	case len(parts) > 1 && parts[1] != namespace:
		return "", "", fmt.Sprintf("%q is in the namespace %s, but a split and its Services are in one namespace, here %s", text, parts[1], namespace)
	case len(parts) > 3:
		domain = parts[3]
	}
	return parts[0], domain, ""
}
