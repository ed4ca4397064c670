package smi

import (
	"fmt"
	"slices"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// Converted is an HTTPRoute, or for a port of TCP connections a TCPRoute, that is equivalent to TrafficSplits.
type Converted struct {
	// Route is the object as it is written, without status.
	Route map[string]any
	// Notes describe what the route cannot express, or expresses differently.
	Notes []string
}

// Limits of a route (HTTPRouteSpec.rules, HTTPRouteRule.matches and .backendRefs, HTTPRouteMatch.headers,
// BackendRef.weight).
const (
	maxRules    = 16
	maxMatches  = 64
	maxBackends = 16
	maxHeaders  = 16
	maxWeight   = 1_000_000
)

// Convert writes the effective splits as HTTPRoutes and TCPRoutes with the root Service as parent (Gateway API,
// GEP-1324), one for each port of each root. The findings are the errors and warnings about splits, and those about
// splits that no route can express.
func Convert(set *resource.Set) ([]Converted, []resource.Finding) {
	t := &translator{set: set, roots: map[key][]*trafficSplit{}}
	cfg, _, _, findings := Translate(set, Options{Serve: []string{"none"}})
	lost := slices.DeleteFunc(findings, func(f resource.Finding) bool { return f.Severity == resource.Info })
	var out []Converted
	for i := 0; i < len(cfg.Splits); {
		n := i + 1
		for n < len(cfg.Splits) && cfg.Splits[n].Root == cfg.Splits[i].Root {
			n++
		}
		c, problem := t.convertRoot(cfg.Splits[i:n])
		if problem != "" {
			ref := cfg.Splits[i].Ref
			t.report(ref, fail(problem))
		} else {
			out = append(out, c)
		}
		i = n
	}
	lost = append(lost, t.findings...)
	resource.SortFindings(lost)
	return out, lost
}

func fail(message string) resource.Finding {
	return resource.Problem(codeNotConverted, "NotConverted", "spec", message, "write the route by hand")
}

// convertRoot writes the splits of one port of a root. problem is why that cannot be done.
func (t *translator) convertRoot(splits []model.Split) (c Converted, problem string) {
	namespace, name, port := serviceParts(splits[0].Root)
	var rules []any
	complete := false
	for _, s := range splits {
		backends, notes, problem := t.convertLeaves(s)
		if problem != "" {
			return c, problem
		}
		c.note(notes...)
		matches, notes, problem := convertMatches(s)
		if problem != "" {
			return c, problem
		}
		c.note(notes...)
		if len(s.Matches) == 0 {
			complete = true
			rules = append(rules, map[string]any{"backendRefs": backends})
			continue
		}
		for chunk := range slices.Chunk(matches, maxMatches) {
			rules = append(rules, map[string]any{"matches": chunk, "backendRefs": backends})
		}
	}
	if !complete {
		c.note("Requests that no match takes go to the root's own endpoints by the last rule: a route alone would answer them 404.")
		rules = append(rules, map[string]any{"backendRefs": []any{backendRef(splits[0].Root, 1)}})
	}
	if len(rules) > maxRules {
		return c, fmt.Sprintf("the splits of %s come to %d rules, and a route has at most %d", splits[0].Root, len(rules), maxRules)
	}
	if len(splits) > 1 || slices.ContainsFunc(splits, func(s model.Split) bool { return len(s.Matches) > 1 }) {
		c.note("Which rule takes a request that several match differs: a split is asked in order of age, a route's rules by how specific their matches are.")
	}
	kind := "HTTPRoute"
	if t.connections(key{namespace, name}, port) {
		kind = "TCPRoute"
	}
	c.Route = map[string]any{
		"apiVersion": gatewayv1.GroupVersion.String(), "kind": kind,
		"metadata": map[string]any{"name": fmt.Sprintf("%s-%d", splits[0].Ref.Name, port), "namespace": namespace},
		"spec": map[string]any{
			"parentRefs": []any{map[string]any{"group": "", "kind": "Service", "name": name, "port": port}},
			"rules":      rules,
		},
	}
	return c, ""
}

// note adds notes, each once.
func (c *Converted) note(notes ...string) {
	for _, n := range notes {
		if !slices.Contains(c.Notes, n) {
			c.Notes = append(c.Notes, n)
		}
	}
}

func (t *translator) convertLeaves(s model.Split) (backends []any, notes []string, problem string) {
	var sum, divisor uint64
	for _, l := range s.Leaves {
		sum += l.Weight
		for a := l.Weight; a != 0; {
			divisor, a = a, divisor%a
		}
	}
	if len(s.Leaves) > maxBackends {
		return nil, nil, fmt.Sprintf("the split has %d backends, and a rule has at most %d", len(s.Leaves), maxBackends)
	}
	if slices.ContainsFunc(s.Leaves, func(l model.Leaf) bool { return l.Weight > maxWeight }) {
		reduced := slices.Clone(s.Leaves)
		for i := range reduced {
			if reduced[i].Weight /= divisor; reduced[i].Weight > maxWeight {
				return nil, nil, fmt.Sprintf("the weights come to %d even when reduced, and a route's are at most %d", reduced[i].Weight, maxWeight)
			}
		}
		s.Leaves = reduced
		notes = append(notes, fmt.Sprintf("The weights are reduced: a route's are at most %d.", maxWeight))
	}
	for _, l := range s.Leaves {
		if l.Fault != nil {
			// A route answers 500 for the share of a Service that does not exist, too.
			name := t.missing(l.Ref)
			if name == "" {
				return nil, nil, l.Ref.Field + ": " + l.Fault.Message
			}
			_, _, port := serviceParts(s.Root)
			l.Service = model.ServiceName(l.Ref.Namespace, name, int32(port))
		}
		if l.Service == s.Root {
			notes = append(notes, "The root is a backend of its own split: a mesh must take it for the root's own endpoints, and not ask the route again.")
		}
		backends = append(backends, backendRef(l.Service, l.Weight))
	}
	return backends, notes, ""
}

// missing is the name of the Service that a leaf would lead to; empty if it is not a Service.
func (t *translator) missing(leaf model.Ref) string {
	for _, s := range t.set.TrafficSplits {
		if s.Namespace != leaf.Namespace || s.Name != leaf.Name {
			continue
		}
		for i, b := range s.Spec.Backends {
			if leaf.Field == fmt.Sprintf("spec.backends[%d]", i) {
				name, _, _ := resource.LocalService(b.Service, s.Namespace)
				return name
			}
		}
	}
	return ""
}

func backendRef(service string, weight uint64) map[string]any {
	_, name, port := serviceParts(service)
	return map[string]any{"name": name, "port": port, "weight": weight}
}

// convertMatches writes a match of a route for each method of each match.
func convertMatches(s model.Split) (matches []any, notes []string, problem string) {
	for _, m := range s.Matches {
		match := map[string]any{}
		if m.Path != "" {
			match["path"] = map[string]any{"type": "RegularExpression", "value": startExpression(m.Path)}
			notes = append(notes, "Path expressions are anchored at the start only, those of a route at both ends in most implementations: .* is appended. Implementations differ in the syntax they take.")
		}
		if len(m.Headers) > maxHeaders {
			return nil, nil, fmt.Sprintf("a match has %d headers, and that of a route has at most %d", len(m.Headers), maxHeaders)
		}
		var headers []any
		names := map[string]bool{}
		for _, h := range m.Headers {
			if names[strings.ToLower(h.Name)] {
				return nil, nil, fmt.Sprintf("a match has two expressions for the header %s, of which a route takes one", h.Name)
			}
			names[strings.ToLower(h.Name)] = true
			headers = append(headers, map[string]any{"type": "RegularExpression", "name": h.Name, "value": h.Value})
			notes = append(notes, "Header expressions match the whole value here; whether they do in a route is up to the implementation.")
		}
		if len(headers) > 0 {
			match["headers"] = headers
		}
		if len(m.Methods) == 0 {
			matches = append(matches, match)
		}
		for _, method := range m.Methods {
			one := map[string]any{"method": method}
			for k, v := range match {
				one[k] = v
			}
			matches = append(matches, one)
		}
	}
	return matches, notes, ""
}

// startExpression is an expression for whole paths that begin with a match of the pattern.
func startExpression(pattern string) string {
	if strings.Contains(pattern, "|") || strings.Contains(pattern, `\Q`) {
		return model.GroupPattern(pattern) + ".*"
	}
	return pattern + ".*"
}

// serviceParts splits the name of a service of the model.
func serviceParts(service string) (namespace, name string, port int64) {
	namespace, rest, _ := strings.Cut(service, "/")
	name, number, _ := strings.Cut(rest, ":")
	for _, c := range number {
		port = port*10 + int64(c-'0')
	}
	return namespace, name, port
}
