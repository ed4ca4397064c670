package istio

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/rollout"
)

// matches returns the canary's routes that go before one of the user's, one for each match of the step.
func (v *virtual) matches(route map[string]any, at string) (before []any) {
	for s := range v.Routing.Matches {
		step := &v.Routing.Matches[s]
		own, _ := route["match"].([]any)
		if len(own) == 0 {
			own = []any{map[string]any{}}
		}
		var list []any
		for i, each := range own {
			match, _ := each.(map[string]any)
			both, verdict := and(match, step)
			if verdict != never {
				v.reached[s] = true
			}
			switch verdict {
			case possible:
				list = append(list, both)
			case inexpressed:
				v.told = append(v.told, rollout.Shortf(fmt.Sprintf("matches[%d]", s), "write an exact value that lies inside what the route matches",
					"two conditions on one part of a request cannot be demanded together with %s.match[%d] of %s, so its requests stay with the stable version", at, i, v.Target))
			}
		}
		if list == nil {
			continue
		}
		if p := step.Path; p != nil && p.Value != nil && *p.Value != "/" && (p.Type == nil || *p.Type == gatewayv1.PathMatchPathPrefix) && !strings.HasSuffix(*p.Value, "/") {
			v.told = append(v.told, rollout.Notef(fmt.Sprintf("matches[%d].path", s), "write the type Exact or a slash at the end, if that is not meant",
				"Istio compares prefixes as text, so paths such as %sx are meant by it, too", *p.Value))
		}
		before = append(before, v.like(route, list))
	}
	return before
}

// tellUnreached tells of matches of the step that no request of the stable Service's routes fulfils.
func (v *virtual) tellUnreached() {
	for s := range v.Routing.Matches {
		if !v.reached[s] {
			v.told = append(v.told, rollout.Shortf(fmt.Sprintf("matches[%d]", s), "write conditions that can hold together with those of the route",
				"no request that %s leads to Service %s fulfils this match, so it sends nothing to the canary", v.Target, v.Stable))
		}
	}
}

// like is a copy of a route with other matches that leads to the canary.
func (v *virtual) like(route map[string]any, match []any) map[string]any {
	out := runtime.DeepCopyJSON(route)
	out["match"] = match
	if name, ok := out["name"].(string); ok && name != "" {
		out["name"] = name + "-canary"
	}
	list, _ := out["route"].([]any)
	whole := true
	for i, each := range list {
		d, _ := each.(map[string]any)
		if !v.leads(d) {
			whole = false
			continue
		}
		list[i] = v.canary(d)
	}
	if m := v.Routing.Modifier; m != nil && whole {
		modify(out, m)
	} else if m != nil {
		original, _ := route["route"].([]any)
		for i, each := range list {
			if d, _ := original[i].(map[string]any); v.leads(d) {
				modify(each.(map[string]any), m)
			}
		}
	}
	return out
}

// verdict is what is known of two conditions together.
type verdict int

const (
	possible    verdict = iota // both can hold, and a match can say so
	never                      // no request fulfils both
	inexpressed                // some may, but no match says so
)

// and is a user's match together with a step's.
func and(own map[string]any, step *rollouts.Match) (map[string]any, verdict) {
	out := runtime.DeepCopyJSON(own)
	if out == nil {
		out = map[string]any{}
	}
	total := possible
	merge := func(in map[string]any, key string, want map[string]any) bool {
		have, _ := in[key].(map[string]any)
		both, v := meet(have, want)
		if v == never {
			return false
		}
		if in[key] = both; v == inexpressed {
			total = inexpressed
		}
		return true
	}
	if p := step.Path; p != nil {
		kind, value := "prefix", "/"
		if p.Value != nil {
			value = *p.Value
		}
		if p.Type != nil && *p.Type == gatewayv1.PathMatchExact {
			kind = "exact"
		} else if p.Type != nil && *p.Type == gatewayv1.PathMatchRegularExpression {
			kind = "regex"
		}
		if out["uri"] != nil && out["ignoreUriCase"] == true {
			total = inexpressed
		}
		if !merge(out, "uri", map[string]any{kind: value}) {
			return nil, never
		}
	}
	for _, h := range rollout.Headers(step) {
		headers := child(out, "headers")
		name := string(h.Name)
		for key := range headers { // Istio wants lower case, but the user may have written another
			if strings.EqualFold(key, name) {
				name = key
			}
		}
		if !merge(headers, name, value(h.Type != nil && *h.Type == gatewayv1.HeaderMatchRegularExpression, h.Value)) {
			return nil, never
		}
	}
	for _, q := range step.QueryParams {
		if !merge(child(out, "queryParams"), string(q.Name), value(q.Type != nil && *q.Type == gatewayv1.QueryParamMatchRegularExpression, q.Value)) {
			return nil, never
		}
	}
	return out, total
}

func value(expression bool, text string) map[string]any {
	if expression {
		return map[string]any{"regex": text}
	}
	return map[string]any{"exact": text}
}

// meet is a StringMatch for what two of them match; one without a kind matches what is there at all.
func meet(have, want map[string]any) (map[string]any, verdict) {
	kind, a := only(have)
	wantKind, b := only(want)
	if kind == "" {
		return want, possible
	}
	if kind == wantKind && a == b {
		return have, possible
	}
	if kind != "exact" && (wantKind == "exact" || kind == "regex" && wantKind == "prefix") {
		kind, a, have, wantKind, b, want = wantKind, b, want, kind, a, have
	}
	holds := false
	switch {
	case kind == "exact" && wantKind == "exact":
	case kind == "exact" && wantKind == "prefix":
		holds = strings.HasPrefix(a, b)
	case kind == "exact" && wantKind == "regex":
		pattern, err := model.CompilePattern(b)
		if err != nil {
			return nil, inexpressed
		}
		holds = pattern.MatchString(a)
	case kind == "prefix" && wantKind == "prefix":
		if strings.HasPrefix(b, a) {
			return want, possible
		}
		holds = strings.HasPrefix(a, b)
	case kind == "prefix" && wantKind == "regex":
		pattern, err := model.CompilePattern(b)
		if err != nil {
			return nil, inexpressed
		}
		if strings.HasPrefix(pattern.Prefix, a) {
			return want, possible
		}
		return nil, inexpressed
	default:
		return nil, inexpressed
	}
	if !holds {
		return nil, never
	}
	return have, possible
}

// only is the kind and the text of a StringMatch; the kind is empty if it has none.
func only(m map[string]any) (kind, text string) {
	for _, kind := range []string{"exact", "prefix", "regex"} {
		if text, ok := m[kind].(string); ok {
			return kind, text
		}
	}
	return "", ""
}
