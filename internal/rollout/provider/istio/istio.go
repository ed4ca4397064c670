// Package istio lays steps of a Rollout over Istio's VirtualService and, where subsets tell the versions of one Service
// apart, over its DestinationRule.
//
// Istio tries the routes of a VirtualService in their order. So a match becomes a route right before each of the user's
// that leads to the stable Service, and asks for what both ask for: requests of other Services are never touched.
package istio

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/rollout"
)

// Group is that of Istio's kinds, in every version.
const Group = "networking.istio.io"

// Provider is the provider.
var Provider = rollout.Provider{
	Name:  "istio",
	Kinds: []rollout.Kind{{Group: Group, Name: "VirtualService", Plural: "virtualservices"}, {Group: Group, Name: "DestinationRule", Plural: "destinationrules"}},
	Lay: func(r rollout.Request) rollout.Laid {
		if r.Target.Kind == "DestinationRule" {
			return layRule(r)
		}
		return layService(r)
	},
}

// The subset of the canary's pods, and the label that they have, as OpenKruise names them.
const (
	subset      = "canary"
	subsetLabel = "istio.service.tag"
	subsetValue = "gray"
)

// maxWeight is the most that a weight may be (RouteDestination.weight, an int32).
const maxWeight = 1<<31 - 1

// layRule adds the subset of the canary.
func layRule(r rollout.Request) rollout.Laid {
	if r.Stable != r.Canary {
		return rollout.Laid{Object: r.Object, Told: []rollout.Told{rollout.Notef("", "leave it out",
			"%s stays as it is: the canary has a Service of its own, %s", r.Target, r.Canary)}}
	}
	out := runtime.DeepCopyJSON(r.Object)
	spec, _ := out["spec"].(map[string]any)
	if host, _ := spec["host"].(string); !rollout.IsService(host, r.Stable, r.Namespace) {
		return rollout.Laid{Object: r.Object, Told: []rollout.Told{rollout.Objectf("name the DestinationRule of the Service",
			"%s is for the host %q, not for Service %s", r.Target, host, r.Stable)}}
	}
	subsets, _ := spec["subsets"].([]any)
	for _, v := range subsets {
		if s, _ := v.(map[string]any); s["name"] == subset {
			return rollout.Laid{Object: r.Object}
		}
	}
	spec["subsets"] = append(subsets, map[string]any{"name": subset, "labels": map[string]any{subsetLabel: subsetValue}})
	return rollout.Laid{Object: out}
}

// virtual is a VirtualService to be changed.
type virtual struct {
	rollout.Request
	told []rollout.Told
	// reached are the matches of the step that some request fulfils; nil before any route of http was looked at.
	reached map[int]bool
}

func layService(r rollout.Request) rollout.Laid {
	out := runtime.DeepCopyJSON(r.Object)
	spec, _ := out["spec"].(map[string]any)
	v := &virtual{Request: r}
	leads, changed := false, false
	for _, protocol := range []string{"http", "tcp", "tls"} {
		routes, _ := spec[protocol].([]any)
		var list []any
		for i, each := range routes {
			route, _ := each.(map[string]any)
			if !v.stable(route) {
				list = append(list, each)
				continue
			}
			leads = true
			at := fmt.Sprintf("spec.%s[%d]", protocol, i)
			switch {
			case len(r.Routing.Matches) > 0 && protocol == "http":
				if v.reached == nil {
					v.reached = map[int]bool{}
				}
				before := v.matches(route, at)
				changed = changed || len(before) > 0
				list = append(append(list, before...), each)
			case len(r.Routing.Matches) > 0:
				v.told = append(v.told, rollout.Notef("matches", "", "connections of %s of %s stay with the stable version, since they have no paths, headers and queries", at, r.Target))
				list = append(list, each)
			default:
				changed = v.weights(route, at, protocol == "http") || changed
				list = append(list, each)
			}
		}
		if list != nil {
			spec[protocol] = list
		}
	}
	if !leads {
		return rollout.Laid{Object: r.Object, Told: []rollout.Told{rollout.Objectf("name a VirtualService that leads to the Service, or correct trafficRoutings[0].service",
			"no route of %s leads to Service %s, so no request goes to the canary by it", r.Target, r.Stable)}}
	}
	if v.reached != nil {
		v.tellUnreached()
	}
	if !changed {
		return rollout.Laid{Object: r.Object, Told: v.told}
	}
	return rollout.Laid{Object: out, Told: v.told}
}

// destinations of a route, with the weights that they have.
func destinations(route map[string]any) (all []map[string]any, weights []int64) {
	list, _ := route["route"].([]any)
	for _, v := range list {
		d, _ := v.(map[string]any)
		w, written := d["weight"].(int64)
		if !written && len(list) == 1 {
			w = 100
		}
		all, weights = append(all, d), append(weights, w)
	}
	return all, weights
}

// leads reports whether a destination is the stable Service, and not a subset of it that is the canary's.
func (v *virtual) leads(d map[string]any) bool {
	to, _ := d["destination"].(map[string]any)
	host, _ := to["host"].(string)
	return rollout.IsService(host, v.Stable, v.Namespace) && (v.Stable != v.Canary || to["subset"] != subset)
}

// stable reports whether a route sends requests to the stable Service.
func (v *virtual) stable(route map[string]any) bool {
	all, weights := destinations(route)
	for i, d := range all {
		if v.leads(d) && weights[i] > 0 {
			return true
		}
	}
	return false
}

// canary is a destination like a stable one that leads to the canary.
func (v *virtual) canary(d map[string]any) map[string]any {
	out := runtime.DeepCopyJSON(d)
	to, _ := out["destination"].(map[string]any)
	if v.Stable == v.Canary {
		to["subset"] = subset
		return out
	}
	host, _ := to["host"].(string)
	to["host"] = v.Canary + strings.TrimPrefix(host, v.Stable) // as it is written: with its namespace or without
	delete(to, "subset")                                       // subsets are of the stable Service
	return out
}

// weights divides the share of the stable Service in a route, which is for requests, or else for connections. One with
// matches is not a share of all: it stays.
func (v *virtual) weights(route map[string]any, at string, requests bool) bool {
	if route["match"] != nil {
		v.told = append(v.told, rollout.Notef("traffic", "name the requests by matches, if they should be shifted",
			"%s of %s has a match: its requests stay with the stable version", at, v.Target))
		return false
	}
	percent := int64(v.Routing.Percent)
	all, have := destinations(route)
	var list []any
	var weights []int64
	for i, d := range all {
		list = append(list, d)
		if !v.leads(d) || have[i] == 0 {
			weights = append(weights, have[i]*100)
			continue
		}
		canary := v.canary(d)
		if v.Routing.Modifier != nil && requests {
			modify(canary, v.Routing.Modifier)
		}
		list = append(list, canary)
		weights = append(weights, have[i]*(100-percent), have[i]*percent)
	}
	weights, ok := rollout.Scale(weights, maxWeight)
	if !ok {
		v.told = append(v.told, rollout.Shortf("traffic", "use smaller weights in the route",
			"%s of %s has weights of which %d%% cannot be written in numbers up to %d, so it stays as it is", at, v.Target, percent, maxWeight))
		return false
	}
	for i, d := range list {
		d.(map[string]any)["weight"] = weights[i]
	}
	route["route"] = list
	return true
}

// modify adds what a modifier does with requests to the headers of a route or a destination, as if it came after what is
// there.
func modify(to map[string]any, m *gatewayv1.HTTPHeaderFilter) {
	headers := child(to, "headers")
	request := child(headers, "request")
	for _, h := range m.Set {
		drop(request, string(h.Name))
		child(request, "set")[string(h.Name)] = h.Value
	}
	for _, h := range m.Add {
		name := string(h.Name)
		list := "add"
		if key, old, ok := find(request, "set", name); ok {
			request["set"].(map[string]any)[key] = old + "," + h.Value
			continue
		}
		if key, old, ok := find(request, "add", name); ok {
			request["add"].(map[string]any)[key] = old + "," + h.Value
			continue
		}
		if removed(request, name) {
			drop(request, name)
			list = "set"
		}
		child(request, list)[name] = h.Value
	}
	for _, name := range m.Remove {
		drop(request, name)
		old, _ := request["remove"].([]any)
		request["remove"] = append(old, name)
	}
}

func child(of map[string]any, name string) map[string]any {
	c, ok := of[name].(map[string]any)
	if !ok {
		c = map[string]any{}
		of[name] = c
	}
	return c
}

func find(request map[string]any, list, name string) (key, value string, ok bool) {
	all, _ := request[list].(map[string]any)
	for k, v := range all {
		if strings.EqualFold(k, name) {
			value, _ = v.(string)
			return k, value, true
		}
	}
	return "", "", false
}

func removed(request map[string]any, name string) bool {
	all, _ := request["remove"].([]any)
	return slices.ContainsFunc(all, func(v any) bool { s, _ := v.(string); return strings.EqualFold(s, name) })
}

// drop removes what a request's headers have done with a field.
func drop(request map[string]any, name string) {
	for _, list := range []string{"set", "add"} {
		if key, _, ok := find(request, list, name); ok {
			all := request[list].(map[string]any)
			if delete(all, key); len(all) == 0 {
				delete(request, list)
			}
		}
	}
	if removed(request, name) {
		all, _ := request["remove"].([]any)
		all = slices.DeleteFunc(all, func(v any) bool { s, _ := v.(string); return strings.EqualFold(s, name) })
		if request["remove"] = all; len(all) == 0 {
			delete(request, "remove")
		}
	}
}
