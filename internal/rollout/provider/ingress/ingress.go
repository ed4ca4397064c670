// Package ingress lays steps of a Rollout beside an Ingress: a second one, of the canary, whose annotations say which
// requests it gets. The user's Ingress is never changed. Implementations differ in what their annotations can say; a class
// is a row of a table.
package ingress

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/runtime"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/rollout"
)

// Provider is the provider.
var Provider = rollout.Provider{
	Name:  "ingress",
	Kinds: kinds, Made: kinds,
	Lay: lay,
}

var kinds = []rollout.Kind{{Group: "networking.k8s.io", Name: "Ingress", Plural: "ingresses"}}

// class is what one implementation's annotations can say.
type class struct {
	// prefix of the annotations, with its slash.
	prefix string
	// query and headers are prefixes of those for query parameters and for changing requests; empty if there are none.
	query, headers string
	// subset is the annotation by which a Service's versions are told apart; empty if there is none.
	subset string
	// more are annotations that each Ingress of a canary has.
	more map[string]string
}

const (
	nginx = "nginx.ingress.kubernetes.io/"
	alb   = "alb.ingress.kubernetes.io/"
	mse   = "mse.ingress.kubernetes.io/"
)

// classes are those that OpenKruise has, by trafficRoutings.ingress.classType.
var classes = map[string]class{
	"":           {prefix: nginx},
	"nginx":      {prefix: nginx},
	"higress":    {prefix: nginx},
	"aliyun-alb": {prefix: alb, more: map[string]string{alb + "order": "1"}},
	"mse":        {prefix: nginx, query: mse, headers: mse, subset: mse + "service-subset"},
}

// cookie is the name of a header by which a match means a cookie, its value.
const cookie = "canary-by-cookie"

// applied is what kubectl keeps of an object for itself.
const applied = "kubectl.kubernetes.io/last-applied-configuration"

// canary is the Ingress of a canary in the making.
type canary struct {
	rollout.Request
	class
	annotations map[string]any
	told        []rollout.Told
}

func lay(r rollout.Request) rollout.Laid {
	laid := rollout.Laid{Object: r.Object}
	kind, known := classes[r.Target.Class]
	if !known {
		told := rollout.Objectf("write one of nginx, higress, mse, aliyun-alb", "the class type %q is not known, so %s is not shifted", r.Target.Class, r.Target)
		told.Field = "classType"
		laid.Told = []rollout.Told{told}
		return laid
	}
	c := &canary{Request: r, class: kind, annotations: map[string]any{}}
	meta, _ := r.Object["metadata"].(map[string]any)
	spec, _ := r.Object["spec"].(map[string]any)
	old, _ := meta["annotations"].(map[string]any)
	for name, v := range old {
		if name != applied {
			c.annotations[name] = v
		}
	}
	_, subsets := old[c.subset]
	switch {
	case old[c.prefix+"canary"] == "true":
		laid.Told = []rollout.Told{rollout.Objectf("name the Ingress of the stable version", "%s is the Ingress of a canary itself", r.Target)}
		return laid
	case r.Stable == r.Canary && (c.subset == "" || !subsets):
		laid.Told = []rollout.Told{rollout.Objectf("leave out disableGenerateCanaryService, so that the canary has a Service of its own",
			"%s cannot tell the versions apart behind the one Service %s", r.Target, r.Stable)}
		return laid
	}
	paths := c.paths(spec)
	if len(paths) == 0 {
		laid.Told = []rollout.Told{rollout.Objectf("name an Ingress that leads to the Service by a path, or correct trafficRoutings[0].service",
			"no path of %s leads to Service %s, so no request goes to the canary by it", r.Target, r.Stable)}
		return laid
	}
	if subsets {
		c.annotations[c.subset] = "gray"
	}
	c.annotations[c.prefix+"canary"] = "true"
	for name, v := range c.more {
		c.annotations[name] = v
	}
	names := len(r.Routing.Matches) == 0
	if names {
		c.annotations[c.prefix+"canary-weight"] = fmt.Sprint(r.Routing.Percent)
	}
	for i := range r.Routing.Matches {
		if names {
			c.short(i, "", "write one match, or route by an object that can have several", "annotations can say one match, so requests that only this one names stay with the stable version")
			continue
		}
		names = c.match(i, &r.Routing.Matches[i])
	}
	if laid.Told = c.told; !names {
		return laid // nothing of the step can be said: a canary without conditions is none
	}
	if r.Routing.Modifier != nil {
		c.modify(r.Routing.Modifier)
	}
	laid.Told, laid.Owned = c.told, []map[string]any{c.object(meta, spec, paths)}
	return laid
}

func (c *canary) short(match int, part, fix, format string, args ...any) {
	at := fmt.Sprintf("matches[%d]", match)
	if part != "" {
		at += "." + part
	}
	c.told = append(c.told, rollout.Shortf(at, fix, format, args...))
}

// object is the canary's Ingress.
func (c *canary) object(meta, spec map[string]any, rules []any) map[string]any {
	out := map[string]any{"rules": rules}
	for _, name := range []string{"ingressClassName", "tls"} {
		if v, ok := spec[name]; ok {
			out[name] = runtime.DeepCopyJSONValue(v)
		}
	}
	metadata := map[string]any{"name": c.Target.Name + "-canary", "namespace": c.Namespace, "annotations": c.annotations}
	if labels, ok := meta["labels"]; ok {
		metadata["labels"] = runtime.DeepCopyJSONValue(labels)
	}
	return map[string]any{"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": metadata, "spec": out}
}

// paths are the rules of an Ingress with only the paths that lead to the stable Service, which lead to the canary's.
func (c *canary) paths(spec map[string]any) (rules []any) {
	list, _ := spec["rules"].([]any)
	for _, v := range list {
		rule, _ := runtime.DeepCopyJSONValue(v).(map[string]any)
		http, _ := rule["http"].(map[string]any)
		paths, _ := http["paths"].([]any)
		var kept []any
		for _, p := range paths {
			path, _ := p.(map[string]any)
			backend, _ := path["backend"].(map[string]any)
			if service, _ := backend["service"].(map[string]any); service["name"] == c.Stable {
				service["name"] = c.Canary
				kept = append(kept, path)
			}
		}
		if len(kept) > 0 {
			http["paths"] = kept
			rules = append(rules, rule)
		}
	}
	return rules
}

// match says a match by annotations, as far as they can; false if they cannot at all. Where they cannot demand all kinds
// of conditions together, those on headers (or a cookie) win over those on the query (Add Path and QueryParams support to
// trafficRoutings, "MSE Ingress"), and that is told.
func (c *canary) match(i int, m *rollouts.Match) bool {
	lost := func(part, instead string) {
		c.short(i, part, "write it in another match or step, or route by an object that can have it", "annotations of %s cannot say it%s", c.Target, instead)
	}
	fields := rollout.Headers(m)
	headers, query := len(fields) == 1, len(m.QueryParams) == 1 && c.query != ""
	instead := ", so requests that only this match names stay with the stable version"
	switch {
	case headers:
		instead = ", so requests with this header go to the canary whether or not they fulfil it"
	case query && len(fields) == 0:
		instead = ", so requests with this query parameter go to the canary whether or not they fulfil it"
	}
	if m.Path != nil {
		lost("path", instead)
	}
	if len(fields) > 1 {
		lost("headers", ", as they are more than one, so requests that only this match names stay with the stable version")
		return false
	}
	if len(m.QueryParams) > 0 && (headers || !query) {
		lost("queryParams", instead)
	}
	switch {
	case headers:
		h := fields[0]
		expression := h.Type != nil && *h.Type == gatewayv1.HeaderMatchRegularExpression
		switch {
		case string(h.Name) == cookie && expression:
			lost("headers[0].type", ": the value of canary-by-cookie is the name of a cookie. Requests that only this match names stay with the stable version")
			return false
		case string(h.Name) == cookie:
			c.annotations[c.prefix+cookie] = h.Value
		default:
			c.annotations[c.prefix+"canary-by-header"] = string(h.Name)
			c.say(c.prefix+"canary-by-header", expression, h.Value)
		}
	case query:
		q := m.QueryParams[0]
		c.annotations[c.query+"canary-by-query"] = string(q.Name)
		c.say(c.query+"canary-by-query", q.Type != nil && *q.Type == gatewayv1.QueryParamMatchRegularExpression, q.Value)
	default:
		return false
	}
	return true
}

func (c *canary) say(name string, expression bool, value string) {
	if expression {
		c.annotations[name+"-pattern"] = value
	} else {
		c.annotations[name+"-value"] = value
	}
}

// modify has requests to the canary changed.
func (c *canary) modify(m *gatewayv1.HTTPHeaderFilter) {
	if c.headers == "" {
		c.told = append(c.told, rollout.Shortf("requestHeaderModifier", "route by an object that can change requests",
			"annotations of %s cannot say it, so requests reach the canary as they are", c.Target))
		return
	}
	lines := func(part string, list []gatewayv1.HTTPHeader) string {
		var b strings.Builder
		for i, h := range list {
			if strings.ContainsFunc(h.Value, unicode.IsControl) { // a line break would begin another field
				c.told = append(c.told, rollout.Shortf(fmt.Sprintf("requestHeaderModifier.%s[%d].value", part, i), "write a value without control characters",
					"the value of %s has a control character, so requests reach the canary without this change", h.Name))
				continue
			}
			fmt.Fprintf(&b, "%s %s\n", h.Name, h.Value)
		}
		return b.String()
	}
	for name, text := range map[string]string{"update": lines("set", m.Set), "add": lines("add", m.Add), "remove": strings.Join(slices.Clone(m.Remove), ",")} {
		if text != "" {
			c.annotations[c.headers+"request-header-control-"+name] = text
		}
	}
}
