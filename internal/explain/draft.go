package explain

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// draft is an object, or a part of one, as it was written: nothing of it need be valid.
type draft map[string]any

// draftOf is a Gateway, a ListenerSet or a route as it was written; nil if it is not known.
func draftOf(set *resource.Set, k resource.Key) draft {
	k.Group = gatewayv1.GroupName
	if d, ok := set.Drafts[k]; ok {
		return d
	}
	var object any
	switch k.Kind {
	case "Gateway":
		object = find(set.Gateways, func(o *gatewayv1.Gateway) bool { return o.Namespace == k.Namespace && o.Name == k.Name })
	case "ListenerSet":
		object = find(set.ListenerSets, func(o *gatewayv1.ListenerSet) bool { return o.Namespace == k.Namespace && o.Name == k.Name })
	case "HTTPRoute":
		object = find(set.HTTPRoutes, func(o *gatewayv1.HTTPRoute) bool { return o.Namespace == k.Namespace && o.Name == k.Name })
	case "GRPCRoute":
		object = find(set.GRPCRoutes, func(o *gatewayv1.GRPCRoute) bool { return o.Namespace == k.Namespace && o.Name == k.Name })
	case "TCPRoute":
		object = find(set.TCPRoutes, func(o *gatewayv1.TCPRoute) bool { return o.Namespace == k.Namespace && o.Name == k.Name })
	}
	text, err := json.Marshal(object)
	if err != nil {
		return nil
	}
	var d draft
	if json.Unmarshal(text, &d) != nil {
		return nil
	}
	return d
}

func find[T any](all []*T, is func(*T) bool) *T {
	if i := slices.IndexFunc(all, is); i >= 0 {
		return all[i]
	}
	return nil
}

func (d draft) at(name string) draft {
	m, _ := d[name].(map[string]any)
	return m
}

func (d draft) list(name string) (out []draft) {
	all, _ := d[name].([]any)
	for _, x := range all {
		m, _ := x.(map[string]any)
		out = append(out, m)
	}
	return out
}

func portAt(listeners []draft, i int) int32 {
	if i >= 0 && i < len(listeners) {
		return listeners[i].number("port")
	}
	return 0
}

func (d draft) text(name, otherwise string) string {
	if s, ok := d[name].(string); ok {
		return s
	}
	return otherwise
}

func (d draft) number(name string) int32 {
	switch n := d[name].(type) {
	case int64:
		return int32(n)
	case float64:
		return int32(n)
	}
	return 0
}

// mayAttach says whether a route asks for a listener, or for something that is not there, which may be meant to be it.
func (d draft) mayAttach(set *resource.Set, k resource.Key, l *model.Listener) bool {
	refs := d.at("spec").list("parentRefs")
	section := l.Name[strings.LastIndex(l.Name, "/")+1:]
	for _, ref := range refs {
		owner := resource.Key{Kind: ref.text("kind", "Gateway"), Namespace: ref.text("namespace", k.Namespace), Name: ref.text("name", "")}
		parent := draftOf(set, owner)
		if parent == nil {
			return true
		}
		named := ref.text("sectionName", "")
		isNamed := func(x draft) bool { return x.text("name", "") == named }
		if named != "" && !slices.ContainsFunc(parent.at("spec").list("listeners"), isNamed) {
			return true
		}
		port := ref.number("port")
		if owner.Kind == l.Ref.Kind && owner.Namespace == l.Ref.Namespace && owner.Name == l.Ref.Name &&
			(named == "" || named == section) && (port == 0 || port == l.Port) {
			return true
		}
	}
	return len(refs) == 0
}

// matches are those of a rule as far as they can be used: what cannot be is passed over, so that they match more.
func (d draft) matches(kind string) (out []model.Match) {
	for _, written := range d.list("matches") {
		m := model.Match{Path: model.PathMatch{Type: model.Prefix, Value: "/"}}
		if kind == "GRPCRoute" {
			m.Path = written.at("method").grpcPath()
		} else {
			m.Method = written.text("method", "")
			m.Path = written.at("path").httpPath()
		}
		m.Headers = values(written.list("headers"), strings.ToLower)
		m.Query = values(written.list("queryParams"), func(s string) string { return s })
		out = append(out, m)
	}
	if out == nil {
		out = []model.Match{{Path: model.PathMatch{Type: model.Prefix, Value: "/"}}}
	}
	return out
}

func (d draft) httpPath() model.PathMatch {
	value := d.text("value", "/")
	switch d.text("type", "PathPrefix") {
	case "RegularExpression":
		if _, err := model.CompilePattern(value); err == nil {
			return model.PathMatch{Type: model.Regex, Value: value}
		}
	case "Exact":
		if model.CheckMatchPath(value) == nil {
			return model.PathMatch{Type: model.Exact, Value: value}
		}
	default:
		if len(value) > 1 {
			value = strings.TrimSuffix(value, "/")
		}
		if model.CheckMatchPath(value) == nil {
			return model.PathMatch{Type: model.Prefix, Value: value}
		}
	}
	return model.PathMatch{Type: model.Prefix, Value: "/"}
}

func (d draft) grpcPath() model.PathMatch {
	service, method := d.text("service", ""), d.text("method", "")
	out := model.PathMatch{Type: model.Prefix, Value: "/" + service}
	switch {
	case d.text("type", "Exact") != "Exact":
		out.Value = "/"
	case service != "" && method != "":
		out = model.PathMatch{Type: model.Exact, Value: "/" + service + "/" + method}
	case method != "":
		out = model.PathMatch{Type: model.Regex, Value: "/[^/]+/" + regexp.QuoteMeta(method)}
	}
	if out.Type != model.Regex && model.CheckMatchPath(out.Value) != nil {
		return model.PathMatch{Type: model.Prefix, Value: "/"}
	}
	return out
}

// values are matches of header fields or query parameters.
func values(written []draft, fold func(string) string) (out []model.ValueMatch) {
	for _, w := range written {
		m := model.ValueMatch{Type: model.Exact, Name: fold(w.text("name", "")), Value: w.text("value", "")}
		if w.text("type", "Exact") == "RegularExpression" {
			m.Type = model.Regex
			if _, err := model.CompilePattern(m.Value); err != nil {
				continue
			}
		}
		if m.Name != "" {
			out = append(out, m)
		}
	}
	return out
}

// hostnames are those that can be compared; any, if there is none.
func (d draft) hostnames() (out []string) {
	all, _ := d.at("spec")["hostnames"].([]any)
	for _, h := range all {
		if s, ok := h.(string); ok && model.ValidHostname(strings.ToLower(s)) {
			out = append(out, strings.ToLower(s))
		}
	}
	if out == nil {
		return []string{"*"}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
