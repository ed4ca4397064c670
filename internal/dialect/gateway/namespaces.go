package gateway

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/resource"
)

// namespaces is a set of namespaces (RouteNamespaces, ListenerNamespaces). The zero value is empty.
type namespaces struct {
	all      bool
	same     string
	selector labels.Selector
}

func readRouteNamespaces(written *gatewayv1.RouteNamespaces, own string) (namespaces, error) {
	if written == nil {
		return namespaces{same: own}, nil
	}
	return readNamespaces(value(written.From, gatewayv1.NamespacesFromSame), written.Selector, own)
}

// readListenerNamespaces reads from which namespaces ListenerSets may attach to a Gateway: by default from none.
func readListenerNamespaces(written *gatewayv1.AllowedListeners, own string) (namespaces, error) {
	if written == nil || written.Namespaces == nil {
		return namespaces{}, nil
	}
	return readNamespaces(value(written.Namespaces.From, gatewayv1.NamespacesFromNone), written.Namespaces.Selector, own)
}

func readNamespaces(from gatewayv1.FromNamespaces, selector *metav1.LabelSelector, own string) (namespaces, error) {
	switch from {
	case gatewayv1.NamespacesFromAll:
		return namespaces{all: true}, nil
	case gatewayv1.NamespacesFromSame:
		return namespaces{same: own}, nil
	case gatewayv1.NamespacesFromNone:
		return namespaces{}, nil
	case gatewayv1.NamespacesFromSelector:
		if selector == nil {
			return namespaces{}, fmt.Errorf("from is Selector, but there is no selector")
		}
		s, err := metav1.LabelSelectorAsSelector(selector)
		if err != nil {
			return namespaces{}, fmt.Errorf("the selector is invalid: %s", resource.Plain(err.Error()))
		}
		return namespaces{selector: s}, nil
	default:
		return namespaces{}, fmt.Errorf("from has the unknown value %q", from)
	}
}

func (n namespaces) contain(t *translator, namespace string) bool {
	switch {
	case n.all:
		return true
	case n.selector != nil:
		return n.selector.Matches(labels.Set(t.set.NamespaceLabels(namespace)))
	default:
		return n.same == namespace
	}
}
