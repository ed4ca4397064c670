package gateway

import (
	"fmt"
	"regexp"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

func (t *translator) grpcRule(r *route, i int, rule *gatewayv1.GRPCRouteRule) {
	parts := ruleParts{
		field:   model.FieldAt("spec.rules", i),
		name:    rule.Name,
		filters: httpFilters(rule.Filters),
		sticky:  rule.SessionPersistence,
	}
	for _, b := range rule.BackendRefs {
		parts.backends = append(parts.backends, gatewayv1.HTTPBackendRef{BackendRef: b.BackendRef, Filters: httpFilters(b.Filters)})
	}
	for j := range rule.Matches {
		field := model.FieldAt(parts.field+".matches", j)
		written := &rule.Matches[j]
		path, problems := t.grpcPath(field+".method", written.Method)
		if len(problems) == 0 {
			var err error
			if path.Type == model.Regex {
				err = r.patterns.Add(path.Value)
			} else {
				err = model.CheckMatchPath(path.Value)
			}
			if err != nil {
				problems = []resource.Finding{valueProblem(field+".method", path.Value, err)}
			}
		}
		parts.unmatched = append(parts.unmatched, problems...)
		var headers []valueMatch
		for _, h := range written.Headers {
			headers = append(headers, valueMatch{strings.ToLower(string(h.Name)), string(value(h.Type, gatewayv1.GRPCHeaderMatchExact)), h.Value})
		}
		m := model.Match{Path: path}
		m.Headers, problems = t.values(r, field+".headers", headers)
		parts.unmatched = append(parts.unmatched, problems...)
		parts.matches = append(parts.matches, m)
	}
	if len(rule.Matches) == 0 {
		path, _ := t.grpcPath("", nil)
		parts.matches = []model.Match{{Path: path}}
	}
	t.addRule(r, i, parts)
}

// httpFilters gives the filters of a GRPCRoute, which are a subset, the type of an HTTPRoute's.
func httpFilters(written []gatewayv1.GRPCRouteFilter) []gatewayv1.HTTPRouteFilter {
	var out []gatewayv1.HTTPRouteFilter
	for _, f := range written {
		out = append(out, gatewayv1.HTTPRouteFilter{
			Type:                   gatewayv1.HTTPRouteFilterType(f.Type),
			RequestHeaderModifier:  f.RequestHeaderModifier,
			ResponseHeaderModifier: f.ResponseHeaderModifier,
			RequestMirror:          f.RequestMirror,
			ExtensionRef:           f.ExtensionRef,
		})
	}
	return out
}

// anyPart stands for a service or a method in a path.
const anyPart = "[^/]+"

// grpcPath turns a match of service and method into one of the path "/service/method". The order of precedence
// (GRPCRouteRule.matches: characters of the service, then of the method) is that of paths: a path in full goes before
// a service's prefix, that before expressions, and longer ones before shorter. Only a match of everything has to come
// after those of a method in any service, which are expressions: it becomes one too when such matches exist.
func (t *translator) grpcPath(field string, m *gatewayv1.GRPCMethodMatch) (model.PathMatch, []resource.Finding) {
	everything := model.PathMatch{Type: model.Prefix, Value: "/"}
	if t.wildService {
		everything = model.PathMatch{Type: model.Regex, Value: "/.*"}
	}
	if m == nil {
		return everything, nil
	}
	service, method := value(m.Service, ""), value(m.Method, "")
	switch kind := value(m.Type, gatewayv1.GRPCMethodMatchExact); kind {
	case gatewayv1.GRPCMethodMatchExact:
		switch {
		case strings.Contains(service+method, "/"):
			return everything, []resource.Finding{resource.Problem(codeValue, "UnsupportedValue", field, "service or method contains a /", "write the bare names")}
		case service != "" && method != "":
			return model.PathMatch{Type: model.Exact, Value: "/" + service + "/" + method}, nil
		case service != "":
			return model.PathMatch{Type: model.Prefix, Value: "/" + service}, nil
		case method != "":
			return model.PathMatch{Type: model.Regex, Value: "/" + anyPart + "/" + regexp.QuoteMeta(method)}, nil
		}
		return everything, nil
	case gatewayv1.GRPCMethodMatchRegularExpression:
		var problems []resource.Finding
		part := func(name, pattern string) string {
			if pattern == "" {
				return anyPart
			}
			if _, err := model.CheckPattern(pattern); err != nil {
				problems = append(problems, valueProblem(field+"."+name, "", err))
				return ""
			}
			return model.GroupPattern(pattern)
		}
		if service == "" && method == "" {
			return everything, nil
		}
		path := "/" + part("service", service) + "/" + part("method", method)
		return model.PathMatch{Type: model.Regex, Value: path}, problems
	default:
		return everything, []resource.Finding{resource.Problem(codeValue, "UnsupportedValue", field+".type", fmt.Sprintf("type %q is not known", kind),
			"use Exact or RegularExpression")}
	}
}

// wildService reports whether a route has a match that can only be an expression over the path.
func wildService(o *gatewayv1.GRPCRoute) bool {
	for _, rule := range o.Spec.Rules {
		for _, m := range rule.Matches {
			if m.Method != nil && (value(m.Method.Type, "") == gatewayv1.GRPCMethodMatchRegularExpression ||
				value(m.Method.Service, "") == "" && value(m.Method.Method, "") != "") {
				return true
			}
		}
	}
	return false
}
