package resource

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/model"
)

// Status is the status to report on one object. Its JSON form is that of the object's status in Kubernetes, with the
// object's reference and generation. Conditions have neither time nor generation; a writer adds them.
type Status struct {
	Ref        model.Ref `json:"ref"`
	Generation int64     `json:"observedGeneration,omitempty"`

	// Conditions of a GatewayClass, a Gateway or a ListenerSet.
	Conditions []Condition `json:"conditions,omitempty"`
	// Addresses of a Gateway.
	Addresses []gatewayv1.GatewayStatusAddress `json:"addresses,omitempty"`
	// Listeners of a Gateway or a ListenerSet.
	Listeners []ListenerStatus `json:"listeners,omitempty"`
	// AttachedListenerSets of a Gateway counts the accepted ListenerSets that are its children.
	AttachedListenerSets *int32 `json:"attachedListenerSets,omitempty"`
	// SupportedFeatures of a GatewayClass, sorted.
	SupportedFeatures []string `json:"supportedFeatures,omitempty"`
	// Parents of a route.
	Parents []ParentStatus `json:"parents,omitempty"`
	// Ancestors of a policy.
	Ancestors []AncestorStatus `json:"ancestors,omitempty"`
	// Own are the fields of a kind's own status, such as a Rollout's, as that kind's API has them. Whoever carries the
	// objects out makes them; no status writer of ours writes them.
	Own any `json:"status,omitempty"`
}

// Condition is metav1.Condition as a value: without time, and mostly without generation.
type Condition struct {
	Type    string                 `json:"type"`
	Status  metav1.ConditionStatus `json:"status"`
	Reason  string                 `json:"reason"`
	Message string                 `json:"message"`
	// Generation is the generation of the object that the condition is about, if it differs from the Status's: an older
	// one, for a condition that still holds while a change is on its way. Zero means the Status's.
	Generation int64 `json:"observedGeneration,omitempty"`
}

// ListenerStatus is gatewayv1.ListenerStatus, or gatewayv1.ListenerEntryStatus, with conditions as values.
type ListenerStatus struct {
	Name           string                     `json:"name"`
	SupportedKinds []gatewayv1.RouteGroupKind `json:"supportedKinds"`
	AttachedRoutes int32                      `json:"attachedRoutes"`
	Conditions     []Condition                `json:"conditions"`
}

// ParentStatus is gatewayv1.RouteParentStatus with conditions as values.
type ParentStatus struct {
	ParentRef      gatewayv1.ParentReference `json:"parentRef"`
	ControllerName string                    `json:"controllerName"`
	Conditions     []Condition               `json:"conditions"`
}

// AncestorStatus is gatewayv1.PolicyAncestorStatus with conditions as values.
type AncestorStatus struct {
	AncestorRef    gatewayv1.ParentReference `json:"ancestorRef"`
	ControllerName string                    `json:"controllerName"`
	Conditions     []Condition               `json:"conditions"`
}

// Event is something that happened to an object, to be told once.
type Event struct {
	Ref model.Ref `json:"ref"`
	// Type is "Normal" or "Warning".
	Type string `json:"type"`
	// Reason is a CamelCase word.
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// SortStatuses orders by kind, namespace and name. Entries of a status keep their order, which is that of the object's
// own fields.
func SortStatuses(statuses []Status) {
	compare := func(a, b Status) int { return a.Ref.Compare(b.Ref) }
	if !slices.IsSortedFunc(statuses, compare) { // most are: moving them costs more than a look
		slices.SortStableFunc(statuses, compare)
	}
}
