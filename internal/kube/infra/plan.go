package infra

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// Plan is what one Gateway should have in the cluster.
type Plan struct {
	// Gateway is "namespace/name".
	Gateway model.Owner
	// Keep leaves everything unchanged: the Gateway cannot be judged now, and what its proxies serve is better than
	// nothing.
	Keep bool
	// Objects are all wanted objects, in the order of their creation. If there are none, without Keep, the Gateway
	// belongs to another controller, and its objects are deleted.
	Objects []*unstructured.Unstructured
}

// Plans returns the plan of each Gateway of the set, sorted by Gateway. The controller's name decides which are ours.
// The configuration, whose listeners name their Gateways, and the statuses are the translation of the set. A Gateway
// that is not in the set has no plan: the objects that it owns are deleted with it.
func (o Options) Plans(set *resource.Set, controllerName string, config *model.Config, statuses []resource.Status) []Plan {
	ports := map[model.Owner][]int32{}
	for i := range config.Listeners {
		l := &config.Listeners[i]
		ports[l.Owner] = append(ports[l.Owner], l.Port)
	}
	accepted := map[model.Owner]bool{}
	for i := range statuses {
		if s := &statuses[i]; s.Ref.Kind == "Gateway" {
			accepted[model.GatewayOwner(s.Ref.Namespace, s.Ref.Name)] = holds(s.Conditions, string(gatewayv1.GatewayConditionAccepted))
		}
	}
	classes := readClasses(set, controllerName)
	plans := make([]Plan, 0, len(set.Gateways))
	for _, g := range set.Gateways {
		plan := Plan{Gateway: model.GatewayOwner(g.Namespace, g.Name)}
		class, owner := classes[string(g.Spec.GatewayClassName)], set.OwnerOf(controllerName, g)
		switch {
		case owner == resource.NoClass:
			plan.Keep = true // nobody's: perhaps the class comes back
		case owner == resource.Others:
		case !accepted[plan.Gateway] || g.DeletionTimestamp != nil:
			plan.Keep = true
		default:
			parameters, problem := class.of(set, g)
			if problem != nil {
				plan.Keep = true
				break
			}
			addresses, dynamic := staticAddresses(g)
			plan.Objects = Render(o, g, parameters, portsOf(g, ports[plan.Gateway]), addresses, dynamic)
		}
		plans = append(plans, plan)
	}
	slices.SortFunc(plans, func(a, b Plan) int { return cmp.Compare(a.Gateway, b.Gateway) })
	return plans
}

// class is a GatewayClass and its parameters.
type class struct {
	object     *gatewayv1.GatewayClass
	parameters map[string]any
	problem    *resource.Finding
}

func readClasses(set *resource.Set, controllerName string) map[string]*class {
	out := map[string]*class{}
	for _, c := range set.GatewayClasses {
		read := &class{object: c}
		if resource.OwnsClass(controllerName, c) {
			read.parameters, read.problem = classParameters(set, c)
		}
		out[c.Name] = read
	}
	return out
}

// of returns the parameters of a Gateway of the class.
func (c *class) of(set *resource.Set, g *gatewayv1.Gateway) (Parameters, *resource.Finding) {
	if c.problem != nil {
		p := *c.problem
		p.Ref.Field = "GatewayClass " + string(g.Spec.GatewayClassName) + " " + p.Ref.Field
		return Parameters{}, &p
	}
	own, problem := gatewayParameters(set, g)
	if problem != nil {
		return Parameters{}, problem
	}
	if len(own) > 0 {
		at := fmt.Sprintf("spec.infrastructure.parametersRef: ConfigMap %s/%s data[%q]", g.Namespace, g.Spec.Infrastructure.ParametersRef.Name, ParametersKey)
		if problem := c.fields().check(own, at, c.object); problem != nil {
			return Parameters{}, problem
		}
	}
	merged, err := mergeParameters(c.parameters, own)
	if err != nil {
		return Parameters{}, new(resource.Problem("", "", "spec.infrastructure.parametersRef",
			"together with the parameters of GatewayClass "+string(g.Spec.GatewayClassName)+": "+err.Error(), "correct one of them"))
	}
	return merged, nil
}

// fields are the class's settings about the parameters that its Gateways may set.
func (c *class) fields() GatewayFields {
	own, err := mergeParameters(c.parameters, nil)
	if err != nil {
		return GatewayFields{} // it was read without one
	}
	return own.Gateways
}

// portsOf returns the ports of a Gateway's Services: the served ones, and those of its own listeners that cannot be
// served for now, so that repairing one changes no Service.
func portsOf(g *gatewayv1.Gateway, served []int32) []int32 {
	seen := map[int32]bool{}
	for _, port := range served {
		seen[port] = true
	}
	for _, l := range g.Spec.Listeners {
		if l.Protocol == gatewayv1.HTTPProtocolType || l.Protocol == gatewayv1.HTTPSProtocolType || l.Protocol == gatewayv1.TCPProtocolType ||
			l.Protocol == gatewayv1.TLSProtocolType {
			seen[l.Port] = true
		}
	}
	delete(seen, AdminPort)
	return slices.Sorted(maps.Keys(seen))
}

// staticAddresses returns the IP addresses that a Gateway requests, and whether the cluster chooses one: if it requests
// none, or leaves a value empty.
func staticAddresses(g *gatewayv1.Gateway) (addresses []netip.Addr, dynamic bool) {
	for _, a := range g.Spec.Addresses {
		if a.Type != nil && *a.Type != gatewayv1.IPAddressType {
			continue // the translator refuses it
		}
		if a.Value == "" {
			dynamic = true
		} else if address, err := netip.ParseAddr(a.Value); err == nil && address.Zone() == "" {
			addresses = append(addresses, address.Unmap())
		}
	}
	slices.SortFunc(addresses, netip.Addr.Compare)
	return slices.Compact(addresses), dynamic || len(g.Spec.Addresses) == 0
}

func holds(conditions []resource.Condition, kind string) bool {
	return slices.ContainsFunc(conditions, func(c resource.Condition) bool { return c.Type == kind && c.Status == "True" })
}
