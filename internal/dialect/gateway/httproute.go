package gateway

import (
	"fmt"
	"slices"
	"strings"
	"time"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// methods are the values of HTTPMethod.
var methods = []string{"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"}

func (t *translator) httpRule(r *route, i int, rule *gatewayv1.HTTPRouteRule) {
	parts := ruleParts{
		field:    model.FieldAt("spec.rules", i),
		name:     rule.Name,
		filters:  rule.Filters,
		backends: rule.BackendRefs,
		sticky:   rule.SessionPersistence,
	}
	for j := range rule.Matches {
		m, problems := t.httpMatch(r, model.FieldAt(parts.field+".matches", j), &rule.Matches[j])
		parts.matches = append(parts.matches, m)
		parts.unmatched = append(parts.unmatched, problems...)
	}
	if rule.Timeouts != nil {
		parts.timeouts.Request = parts.duration(".timeouts.request", rule.Timeouts.Request)
		parts.timeouts.BackendRequest = parts.duration(".timeouts.backendRequest", rule.Timeouts.BackendRequest)
	}
	if rule.Retry != nil {
		parts.retry = &model.Retry{
			Attempts: value(rule.Retry.Attempts, defaultAttempts),
			Backoff:  parts.duration(".retry.backoff", rule.Retry.Backoff),
		}
		if b := parts.retry.Backoff; b > model.MaxBackoff {
			t.report(r.ref, resource.Problem(codeIgnored, "", parts.field+".retry.backoff",
				fmt.Sprintf("%s is longer than %s: all pauses of a request together end after %[2]s", *rule.Retry.Backoff, time.Duration(model.MaxBackoff)),
				fmt.Sprintf("use at most %s", time.Duration(model.MaxBackoff))))
		}
		if parts.retry.Attempts < 0 {
			parts.problems = append(parts.problems, resource.Problem(codeValue, "UnsupportedValue", parts.field+".retry.attempts",
				fmt.Sprintf("%d is negative", parts.retry.Attempts), "use 1 or more"))
		}
		for i, c := range rule.Retry.Codes {
			if c < 400 || c > 599 {
				parts.problems = append(parts.problems, resource.Problem(codeValue, "UnsupportedValue", model.FieldAt(parts.field+".retry.codes", i),
					fmt.Sprintf("%d is not an error's status code", c), "use codes from 400 to 599"))
			}
			parts.retry.Codes = append(parts.retry.Codes, int(c))
		}
	}
	t.addRule(r, i, parts)
}

// defaultAttempts is how often a rule with retry but without attempts retries; the API leaves it open.
const defaultAttempts = 1

// duration reads a Gateway API duration (GEP-2257); 0s, like an absent one, sets no limit.
func (p *ruleParts) duration(field string, written *gatewayv1.Duration) model.Duration {
	if written == nil {
		return 0
	}
	d, err := time.ParseDuration(string(*written))
	if err != nil || d < 0 {
		p.problems = append(p.problems, resource.Problem(codeValue, "UnsupportedValue", p.field+field,
			fmt.Sprintf("%q is not a duration", *written), "write it like 10s or 1m30s"))
		return 0
	}
	return model.Duration(d)
}

func (t *translator) httpMatch(r *route, field string, written *gatewayv1.HTTPRouteMatch) (model.Match, []resource.Finding) {
	out := model.Match{Path: model.PathMatch{Type: model.Prefix, Value: "/"}, Method: string(value(written.Method, ""))}
	var problems []resource.Finding
	fail := func(code, at, message, fix string) {
		problems = append(problems, resource.Problem(code, "UnsupportedValue", field+at, message, fix))
	}
	if p := written.Path; p != nil {
		path := value(p.Value, "/")
		switch kind := value(p.Type, gatewayv1.PathMatchPathPrefix); kind {
		case gatewayv1.PathMatchExact:
			out.Path = model.PathMatch{Type: model.Exact, Value: path}
		case gatewayv1.PathMatchPathPrefix:
			// "When specified, a trailing / is ignored" (PathMatchPathPrefix).
			if len(path) > 1 {
				path = strings.TrimSuffix(path, "/")
			}
			out.Path = model.PathMatch{Type: model.Prefix, Value: path}
		case gatewayv1.PathMatchRegularExpression:
			out.Path = model.PathMatch{Type: model.Regex, Value: path}
		default:
			fail(codeValue, ".path.type", fmt.Sprintf("type %q is not known", kind), "use Exact, PathPrefix or RegularExpression")
		}
		if out.Path.Type == model.Regex {
			if err := r.patterns.Add(path); err != nil {
				problems = append(problems, valueProblem(field+".path.value", "", err))
			}
		} else if err := model.CheckMatchPath(path); err != nil {
			problems = append(problems, valueProblem(field+".path.value", path, err))
		}
	}
	if out.Method != "" && !slices.Contains(methods, out.Method) {
		fail(codeValue, ".method", fmt.Sprintf("method %q is not known", out.Method), "use one of "+strings.Join(methods, ", "))
	}
	var headers, query []valueMatch
	for _, h := range written.Headers {
		headers = append(headers, valueMatch{strings.ToLower(string(h.Name)), string(value(h.Type, gatewayv1.HeaderMatchExact)), h.Value})
	}
	for _, q := range written.QueryParams {
		query = append(query, valueMatch{string(q.Name), string(value(q.Type, gatewayv1.QueryParamMatchExact)), q.Value})
	}
	var more []resource.Finding
	out.Headers, more = t.values(r, field+".headers", headers)
	problems = append(problems, more...)
	out.Query, more = t.values(r, field+".queryParams", query)
	return out, append(problems, more...)
}

// valueMatch is a match of a header or a query parameter, whatever its Go type.
type valueMatch struct{ name, kind, value string }

// values translates matches of header fields or query parameters. Of several with one name only the first counts
// (HTTPHeaderMatch.name, HTTPQueryParamMatch.name, GRPCHeaderMatch.name).
func (t *translator) values(r *route, field string, written []valueMatch) (out []model.ValueMatch, problems []resource.Finding) {
	for i, w := range written {
		at := model.FieldAt(field, i)
		if slices.ContainsFunc(out, func(m model.ValueMatch) bool { return m.Name == w.name }) {
			t.report(r.ref, resource.Problem(codeRepeatedMatch, "", at+".name", fmt.Sprintf("%q is matched already, so this match is ignored", w.name),
				"remove one of the two"))
			continue
		}
		m := model.ValueMatch{Type: model.Exact, Name: w.name, Value: w.value}
		if w.name == "" {
			problems = append(problems, resource.Problem(codeValue, "UnsupportedValue", at+".name", "the name is empty", "write the name of what is to be matched"))
		}
		switch w.kind {
		case "Exact":
		case "RegularExpression":
			m.Type = model.Regex
			if err := r.patterns.Add(w.value); err != nil {
				problems = append(problems, valueProblem(at+".value", "", err))
			}
		default:
			problems = append(problems, resource.Problem(codeValue, "UnsupportedValue", at+".type", fmt.Sprintf("type %q is not known", w.kind),
				"use Exact or RegularExpression"))
		}
		out = append(out, m)
	}
	return out, problems
}
