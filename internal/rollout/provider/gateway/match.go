package gateway

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/rollout"
)

// form is how matches are written in a kind of routes.
type form struct {
	read func(match map[string]any) condition
	// write returns nil if the kind cannot say it.
	write func(condition) map[string]any
}

var httpForm = form{readHTTP, writeHTTP}

var grpcForm = form{readGRPC, writeGRPC}

// forms are those of the kinds that are routed.
var forms = map[string]form{"HTTPRoute": httpForm, "GRPCRoute": grpcForm}

func readHTTP(match map[string]any) condition {
	c := condition{path: path{kind: anyPath}}
	for name, v := range match {
		switch name {
		case "path":
			as, _ := v.(map[string]any)
			c.path = newPath(as)
		case "method":
			c.method = text(v)
		case "headers":
			c.headers = tests(v, true)
		case "queryParams":
			c.query = tests(v, false)
		default:
			c.set(name, v)
		}
	}
	return c
}

// set notes a field that is not known here.
func (c *condition) set(name string, v any) {
	if c.other == nil {
		c.other = map[string]any{}
	}
	c.other[name] = v
}

func tests(v any, fold bool) map[string]test {
	list, _ := v.([]any)
	out := make(map[string]test, len(list))
	for _, item := range list {
		as, _ := item.(map[string]any)
		t := test{text(as["name"]), as["type"] == "RegularExpression", text(as["value"]), as}
		key := t.name
		if fold {
			key = strings.ToLower(key)
		}
		if _, twice := out[key]; !twice { // the first of a name counts (HTTPRouteMatch.headers)
			out[key] = t
		}
	}
	return out
}

func writeHTTP(c condition) map[string]any {
	out := runtime.DeepCopyJSON(c.other)
	if out == nil {
		out = map[string]any{}
	}
	if kind, ok := map[int]string{exact: "Exact", prefix: "PathPrefix", expression: "RegularExpression"}[c.path.kind]; ok {
		out["path"] = writeAs(c.path.as, map[string]any{"type": kind, "value": c.path.value})
	}
	if c.method != "" {
		out["method"] = c.method
	}
	if list := writeTests(c.headers); len(list) > 0 {
		out["headers"] = list
	}
	if list := writeTests(c.query); len(list) > 0 {
		out["queryParams"] = list
	}
	return out
}

func writeAs(as, otherwise map[string]any) map[string]any {
	if as != nil {
		return runtime.DeepCopyJSON(as)
	}
	return otherwise
}

func writeTests(tests map[string]test) (list []any) {
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		t := tests[name]
		kind := "Exact"
		if t.expression {
			kind = "RegularExpression"
		}
		list = append(list, writeAs(t.as, map[string]any{"name": t.name, "type": kind, "value": t.value}))
	}
	return list
}

// readGRPC takes a method for the path that it has over HTTP: "/service/method" (GRPCRoute, GRPCMethodMatch). A service
// ranks before a method of any service, as prefixes before expressions.
func readGRPC(match map[string]any) condition {
	c := condition{path: path{kind: anyPath}}
	for name, v := range match {
		switch name {
		case "method":
			as, _ := v.(map[string]any)
			service, method := text(as["service"]), text(as["method"])
			switch {
			case service == "" && method == "":
			case as["type"] == "RegularExpression":
				part := func(re string) string {
					if re == "" {
						return "[^/]+"
					}
					return "(?:" + re + ")"
				}
				c.path = path{expression, "/" + part(service) + "/" + part(method), as}
			case service == "":
				c.path = path{expression, "/[^/]+/" + regexp.QuoteMeta(method), as}
			case method == "":
				c.path = path{prefix, "/" + service, as}
			default:
				c.path = path{exact, "/" + service + "/" + method, as}
			}
		case "headers":
			c.headers = tests(v, true)
		default:
			c.set(name, v)
		}
	}
	return c
}

func writeGRPC(c condition) map[string]any {
	out := runtime.DeepCopyJSON(c.other)
	if out == nil {
		out = map[string]any{}
	}
	if c.method != "" || len(c.query) > 0 {
		return nil
	}
	service, method, two := strings.Cut(strings.TrimPrefix(c.path.value, "/"), "/")
	switch {
	case c.path.kind == anyPath:
	case c.path.as != nil && (c.path.as["service"] != nil || c.path.as["method"] != nil):
		out["method"] = runtime.DeepCopyJSON(c.path.as)
	case c.path.kind == exact && two && service != "" && method != "" && !strings.Contains(method, "/"):
		out["method"] = map[string]any{"type": "Exact", "service": service, "method": method}
	case c.path.kind == prefix && !two && service != "":
		out["method"] = map[string]any{"type": "Exact", "service": service}
	default:
		return nil
	}
	if list := writeTests(c.headers); len(list) > 0 {
		out["headers"] = list
	}
	return out
}

// readStep reads a match of a Rollout's step.
func readStep(m *rollouts.Match) condition {
	c := condition{path: path{kind: anyPath}, headers: map[string]test{}, query: map[string]test{}}
	if p := m.Path; p != nil {
		as := map[string]any{"type": "PathPrefix", "value": "/"}
		if p.Type != nil {
			as["type"] = string(*p.Type)
		}
		if p.Value != nil {
			as["value"] = *p.Value
		}
		c.path = newPath(as)
	}
	for _, h := range rollout.Headers(m) {
		name := string(h.Name)
		c.headers[strings.ToLower(name)] = test{name: name, expression: h.Type != nil && *h.Type == "RegularExpression", value: h.Value}
	}
	for _, q := range m.QueryParams {
		c.query[string(q.Name)] = test{name: string(q.Name), expression: q.Type != nil && *q.Type == "RegularExpression", value: q.Value}
	}
	return c
}

func text(v any) string {
	s, _ := v.(string)
	return s
}
