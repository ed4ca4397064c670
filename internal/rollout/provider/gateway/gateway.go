// Package gateway lays steps of a Rollout over routes of the Gateway API: HTTPRoute and GRPCRoute.
//
// A percentage becomes weights: of each rule that leads to the stable Service, its share is divided. Matches become
// rules: exactly the requests that went to the stable Service and fulfil a match go to the canary, and every other goes
// where it went before, by the API's order of precedence. Where no rules say that, the step is told to fall short, and
// fewer requests go to the canary, never others.
package gateway

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/rollout"
)

// Provider is the provider.
var Provider = rollout.Provider{
	Name: "gateway",
	Kinds: []rollout.Kind{
		{Group: gatewayv1.GroupName, Name: "HTTPRoute", Plural: "httproutes"}, {Group: gatewayv1.GroupName, Name: "GRPCRoute", Plural: "grpcroutes"},
	},
	Lay: lay,
}

// Bounds of the definitions of the Gateway API.
const (
	maxRules      = 16
	maxMatches    = 64
	maxAllMatches = 128
	maxWeight     = 1_000_000
)

// route is an HTTPRoute or a GRPCRoute to be changed.
type route struct {
	rollout.Request
	form  form
	rules []any // as the user wrote them
	told  []rollout.Told
}

func lay(r rollout.Request) rollout.Laid {
	out := runtime.DeepCopyJSON(r.Object)
	spec, _ := out["spec"].(map[string]any)
	rules, _ := spec["rules"].([]any)
	t := &route{Request: r, form: forms[r.Target.Kind], rules: rules}
	leads := false
	for _, v := range rules {
		rule, _ := v.(map[string]any)
		leads = leads || t.stable(rule)
	}
	if !leads {
		return rollout.Laid{Object: r.Object, Told: []rollout.Told{rollout.Objectf("name a route that leads to the Service, or correct trafficRoutings[0].service",
			"no rule of %s leads to Service %s, so no request goes to the canary by it", r.Target, r.Stable)}}
	}
	if r.Stable == r.Canary {
		return rollout.Laid{Object: r.Object, Told: []rollout.Told{rollout.Objectf("leave out disableGenerateCanaryService, so that the canary has a Service of its own",
			"%s cannot tell the versions apart behind the one Service %s", r.Target, r.Stable)}}
	}
	var changed []any
	if len(r.Routing.Matches) > 0 {
		changed = t.matches()
	} else {
		changed = t.weights()
	}
	if changed == nil {
		return rollout.Laid{Object: r.Object, Told: t.told}
	}
	spec["rules"] = changed
	return rollout.Laid{Object: out, Told: t.told}
}

// stable reports whether a rule sends requests to the stable Service.
func (t *route) stable(rule map[string]any) bool {
	refs, _ := rule["backendRefs"].([]any)
	for _, v := range refs {
		if ref, _ := v.(map[string]any); t.leads(ref) && weight(ref) > 0 {
			return true
		}
	}
	return false
}

// sticky reports whether a rule keeps sessions.
func sticky(rule map[string]any) bool { return rule["sessionPersistence"] != nil }

// leads reports whether a backend is the stable Service.
func (t *route) leads(ref map[string]any) bool {
	kind, namespace := text(ref["kind"]), text(ref["namespace"])
	return ref["name"] == t.Stable && text(ref["group"]) == "" && (kind == "" || kind == "Service") && (namespace == "" || namespace == t.Namespace)
}

// weight of a backend; it is 1 where none is written.
func weight(ref map[string]any) int64 {
	switch w := ref["weight"].(type) {
	case int64:
		return w
	case float64:
		return int64(w)
	}
	return 1
}

// canary is a backend like a stable one that leads to the canary.
func (t *route) canary(ref map[string]any) map[string]any {
	out := runtime.DeepCopyJSON(ref)
	out["name"] = t.Canary
	if t.Routing.Modifier != nil {
		filters, _ := out["filters"].([]any)
		out["filters"] = modified(filters, t.Routing.Modifier)
	}
	return out
}

// weights divides the share of the stable Service in each rule. A rule that keeps sessions has no backend for a version
// without a share: at weight 0 its sessions would go on (GEP-1619), and a version that a step sends nobody to would
// still be used.
func (t *route) weights() []any {
	percent := int64(t.Routing.Percent)
	for i, v := range t.rules {
		rule, _ := v.(map[string]any)
		if !t.stable(rule) {
			continue
		}
		refs, _ := rule["backendRefs"].([]any)
		var all []any
		var weights []int64
		part := func(ref map[string]any, w int64) {
			if w > 0 || !sticky(rule) {
				all, weights = append(all, ref), append(weights, w)
			}
		}
		for _, v := range refs {
			ref, _ := v.(map[string]any)
			w := weight(ref)
			if !t.leads(ref) || w == 0 {
				all, weights = append(all, ref), append(weights, w*100)
				continue
			}
			canary := t.canary(ref)
			part(ref, w*(100-percent))
			part(canary, w*percent)
		}
		weights, ok := rollout.Scale(weights, maxWeight)
		if !ok {
			t.told = append(t.told, rollout.Shortf("traffic", "use smaller weights in the rule",
				"spec.rules[%d] of %s has weights of which %d%% cannot be written in numbers up to %d, so it stays as it is", i, t.Target, percent, maxWeight))
			continue
		}
		for k, v := range all {
			v.(map[string]any)["weight"] = weights[k]
		}
		rule["backendRefs"] = all
	}
	return t.rules
}

// modified adds a modifier to filters, which are copied: to the one of that type if there is one, as if it came after it.
func modified(filters []any, m *gatewayv1.HTTPHeaderFilter) []any {
	out := runtime.DeepCopyJSONValue(filters).([]any)
	for _, v := range out {
		filter, _ := v.(map[string]any)
		if filter["type"] != "RequestHeaderModifier" {
			continue
		}
		have, _ := filter["requestHeaderModifier"].(map[string]any)
		if have == nil {
			have = map[string]any{}
			filter["requestHeaderModifier"] = have
		}
		merge(have, m)
		return out
	}
	have := map[string]any{}
	merge(have, m)
	return append(out, map[string]any{"type": "RequestHeaderModifier", "requestHeaderModifier": have})
}

// merge makes one modifier of two, of which m comes second.
func merge(have map[string]any, m *gatewayv1.HTTPHeaderFilter) {
	for _, h := range m.Set {
		drop(have, string(h.Name))
		push(have, "set", map[string]any{"name": string(h.Name), "value": h.Value})
	}
	for _, h := range m.Add {
		name := string(h.Name)
		if existing := find(have, "set", name); existing != nil {
			existing["value"] = text(existing["value"]) + "," + h.Value
		} else if existing := find(have, "add", name); existing != nil {
			existing["value"] = text(existing["value"]) + "," + h.Value
		} else if removed(have, name) {
			drop(have, name)
			push(have, "set", map[string]any{"name": name, "value": h.Value})
		} else {
			push(have, "add", map[string]any{"name": name, "value": h.Value})
		}
	}
	for _, name := range m.Remove {
		drop(have, name)
		push(have, "remove", name)
	}
}

func push(have map[string]any, list string, v any) {
	old, _ := have[list].([]any)
	have[list] = append(old, v)
}

func find(have map[string]any, list, name string) map[string]any {
	all, _ := have[list].([]any)
	for _, v := range all {
		if h, _ := v.(map[string]any); strings.EqualFold(text(h["name"]), name) {
			return h
		}
	}
	return nil
}

func removed(have map[string]any, name string) bool {
	all, _ := have["remove"].([]any)
	for _, v := range all {
		if strings.EqualFold(text(v), name) {
			return true
		}
	}
	return false
}

// drop removes what a modifier does with a field.
func drop(have map[string]any, name string) {
	for _, list := range []string{"set", "add", "remove"} {
		all, _ := have[list].([]any)
		var kept []any
		for _, v := range all {
			h, _ := v.(map[string]any)
			if !strings.EqualFold(text(h["name"]), name) && !strings.EqualFold(text(v), name) || h == nil && text(v) == "" {
				kept = append(kept, v)
			}
		}
		if delete(have, list); len(kept) > 0 {
			have[list] = kept
		}
	}
}

func field(i int, name string) string {
	if name == "" {
		return fmt.Sprintf("matches[%d]", i)
	}
	return fmt.Sprintf("matches[%d].%s", i, name)
}
