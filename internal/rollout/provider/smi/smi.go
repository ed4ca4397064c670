// Package smi lays steps of a Rollout over TrafficSplits of SMI. A percentage becomes weights. Matches become a second
// split of the same root, limited to the requests of an HTTPRouteGroup: of the splits of one root those with matches come
// first, so the user's stays as it is, for all other requests.
package smi

import (
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/api/specs"
	"github.com/weirmesh/weir/api/split"
	"github.com/weirmesh/weir/internal/rollout"
)

// Provider is the provider.
var Provider = rollout.Provider{
	Name:  "smi",
	Kinds: []rollout.Kind{{Group: split.Group, Name: "TrafficSplit", Plural: "trafficsplits"}},
	Made:  []rollout.Kind{{Group: split.Group, Name: "TrafficSplit", Plural: "trafficsplits"}, {Group: specs.Group, Name: "HTTPRouteGroup", Plural: "httproutegroups"}},
	Lay:   lay,
}

func lay(r rollout.Request) (laid rollout.Laid) {
	laid.Object = r.Object
	apiVersion, _ := r.Object["apiVersion"].(string)
	_, version := rollout.SplitVersion(apiVersion)
	s, errs := split.Decode(version, r.Object)
	leads := false
	if len(errs) == 0 {
		for _, b := range s.Spec.Backends {
			leads = leads || rollout.IsService(b.Service, r.Stable, r.Namespace) && b.Weight > 0
		}
	}
	object := func(fix, format string, args ...any) rollout.Laid {
		laid.Told = []rollout.Told{rollout.Objectf(fix, format, args...)}
		return laid
	}
	switch {
	case len(errs) > 0:
		return object("correct it", "%s is not valid: %s", r.Target, errs[0])
	case !leads:
		return object("name a TrafficSplit with a backend that is the Service, or correct trafficRoutings[0].service",
			"no backend of %s with a weight is Service %s, so no request goes to the canary by it", r.Target, r.Stable)
	case r.Stable == r.Canary:
		return object("leave out disableGenerateCanaryService, so that the canary has a Service of its own",
			"%s cannot tell the versions apart behind the one Service %s", r.Target, r.Stable)
	}
	if r.Routing.Modifier != nil {
		laid.Told = append(laid.Told, rollout.Shortf("requestHeaderModifier", "route by an object that can change requests",
			"%s cannot say it, so requests reach the canary as they are", r.Target))
	}
	if len(r.Routing.Matches) == 0 {
		weights(&laid, r, s, version)
		return laid
	}
	matches(&laid, r, s)
	return laid
}

// weights divides the share of the stable Service. A version without a share is no backend: at weight 0 the sessions of
// routes that lead to the root would go on.
func weights(laid *rollout.Laid, r rollout.Request, s *split.TrafficSplit, version string) {
	percent := int64(r.Routing.Percent)
	out := runtime.DeepCopyJSON(r.Object)
	spec, _ := out["spec"].(map[string]any)
	written, _ := spec["backends"].([]any)
	var list []any
	var shares []int64
	for i, b := range s.Spec.Backends {
		own, _ := written[i].(map[string]any)
		if !rollout.IsService(b.Service, r.Stable, r.Namespace) || b.Weight == 0 {
			list, shares = append(list, own), append(shares, int64(b.Weight)*100)
			continue
		}
		canary := runtime.DeepCopyJSON(own)
		canary["service"] = r.Canary + strings.TrimPrefix(b.Service, r.Stable)
		if percent < 100 {
			list, shares = append(list, own), append(shares, int64(b.Weight)*(100-percent))
		}
		if percent > 0 {
			list, shares = append(list, canary), append(shares, int64(b.Weight)*percent)
		}
	}
	shares, ok := rollout.Scale(shares, split.MaxWeight)
	if !ok {
		laid.Told = append(laid.Told, rollout.Shortf("traffic", "use smaller weights",
			"%s has weights of which %d%% cannot be written in numbers up to %d, so it stays as it is", r.Target, percent, int64(split.MaxWeight)))
		return
	}
	for i, b := range list {
		b.(map[string]any)["weight"] = weight(version, shares[i])
	}
	spec["backends"] = list
	laid.Object = out
}

// weight is a weight as a version writes it: some have quantities.
func weight(version string, n int64) any {
	if version == "v1alpha1" || version == split.Draft {
		return fmt.Sprint(n)
	}
	return n
}

// matches adds a split for the requests that a step names.
func matches(laid *rollout.Laid, r rollout.Request, s *split.TrafficSplit) {
	if len(s.Spec.Matches) > 0 {
		laid.Told = append(laid.Told, rollout.Shortf("matches", "name a TrafficSplit without matches",
			"%s has matches itself, and comes before a younger split of its root: no request goes to the canary by it", r.Target))
		return
	}
	var conditions []any
	for i := range r.Routing.Matches {
		m := &r.Routing.Matches[i]
		if len(m.QueryParams) > 0 {
			laid.Told = append(laid.Told, rollout.Shortf(fmt.Sprintf("matches[%d].queryParams", i), "name the requests by path or header",
				"HTTPRouteGroups have no query parameters, so requests that only this match names stay with the stable version"))
			continue
		}
		conditions = append(conditions, condition(i, m))
	}
	if conditions == nil {
		return
	}
	name := r.Target.Name + "-canary"
	owned := func(group, version, kind string, spec map[string]any) map[string]any {
		return map[string]any{"apiVersion": group + "/" + version, "kind": kind, "metadata": map[string]any{"name": name, "namespace": r.Namespace}, "spec": spec}
	}
	var backends []any
	for _, b := range s.Spec.Backends {
		service := b.Service
		if rollout.IsService(service, r.Stable, r.Namespace) {
			service = r.Canary + strings.TrimPrefix(service, r.Stable)
		}
		backends = append(backends, map[string]any{"service": service, "weight": b.Weight})
	}
	whole := true
	for _, b := range s.Spec.Backends {
		whole = whole && b.Weight.Whole()
	}
	for _, b := range backends { // only their proportion counts
		w := b.(map[string]any)["weight"].(split.Weight)
		if b.(map[string]any)["weight"] = int64(w); whole {
			b.(map[string]any)["weight"] = int64(w) / 1000
		}
	}
	laid.Owned = []map[string]any{
		owned(specs.Group, specs.Versions[0], "HTTPRouteGroup", map[string]any{"matches": conditions}),
		owned(split.Group, split.Versions[0], "TrafficSplit", map[string]any{
			"service": s.Spec.Service, "backends": backends,
			"matches": []any{map[string]any{"apiGroup": specs.Group, "kind": "HTTPRouteGroup", "name": name}},
		}),
	}
}

// condition is a step's match as one of an HTTPRouteGroup, whose expressions match a path from its start, and header
// fields as wholes.
func condition(i int, m *rollouts.Match) map[string]any {
	out := map[string]any{"name": fmt.Sprintf("match-%d", i)}
	if p := m.Path; p != nil && p.Value != nil {
		kind := gatewayv1.PathMatchPathPrefix
		if p.Type != nil {
			kind = *p.Type
		}
		switch prefix := strings.TrimRight(*p.Value, "/"); {
		case kind == gatewayv1.PathMatchExact:
			out["pathRegex"] = regexp.QuoteMeta(*p.Value) + "$"
		case kind == gatewayv1.PathMatchRegularExpression:
			out["pathRegex"] = "(?:" + *p.Value + ")$"
		case prefix != "":
			out["pathRegex"] = regexp.QuoteMeta(prefix) + "(/|$)"
		}
	}
	var headers []any
	for _, h := range rollout.Headers(m) {
		value := h.Value
		if h.Type == nil || *h.Type == gatewayv1.HeaderMatchExact {
			value = regexp.QuoteMeta(value)
		}
		headers = append(headers, map[string]any{string(h.Name): value})
	}
	if headers != nil {
		out["headers"] = headers
	}
	return out
}
