package explain

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	dialect "github.com/weirmesh/weir/internal/dialect/gateway"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/routing"
)

// LeftOut is an object that is not served, and would take the request if it were.
type LeftOut struct {
	// Ref is a route, perhaps with a rule, a Gateway, a ListenerSet or a TrafficSplit. It is zero for an object that
	// could not be read, which may be of any kind.
	Ref model.Ref `json:"ref,omitzero"`
	// Match is the rule's match for the request; nil if unknown.
	Match *model.Match `json:"match,omitempty"`
	// Root is the Service that a TrafficSplit would split, "namespace/name"; empty if unknown.
	Root string `json:"root,omitempty"`
	// Findings are why it is left out, and how to fix it.
	Findings []resource.Finding `json:"findings"`
}

// These constants bound the output.
const (
	maxLeftOut  = 5
	maxLeftWhys = 3
)

// leftOut finds objects that would take the request if they were valid: routes that go before the winner, if there is
// one, and splits of the services that answer. Without a listener, it finds Gateways.
func (s *Served) leftOut(cfg *model.Config, e *Explanation) {
	if s.Set == nil || e.asked.refused != nil {
		return
	}
	whys, unread := s.whys()
	if e.Listener == nil {
		e.leftListeners(s.Set, whys)
	} else if e.Request.Protocol().Requests() {
		e.leftRoutes(s.Set, cfg, whys)
	} else if e.Rule == nil {
		e.leftConnections(s.Set, whys)
	}
	s.leftSplits(e, whys)
	if !e.Matched() {
		for _, f := range unread {
			e.leave(LeftOut{Findings: []resource.Finding{f}})
		}
	}
}

// whys returns the findings by object, and those about what could not be read.
func (s *Served) whys() (whys map[resource.Key][]resource.Finding, unread []resource.Finding) {
	whys = map[resource.Key][]resource.Finding{}
	for _, f := range s.Findings {
		misnamed := f.Ref.Field == "kind" || f.Ref.Field == "apiVersion" // the kind can only be guessed
		switch {
		case f.Ref.Kind != "" && f.Ref.Name != "" && (!misnamed || f.Ref.Kind == splitKind):
			k := resource.Key{Kind: f.Ref.Kind, Namespace: f.Ref.Namespace, Name: f.Ref.Name}
			whys[k] = append(whys[k], f)
		case f.Severity == resource.Error:
			unread = append(unread, f)
		}
	}
	return whys, unread
}

func (e *Explanation) leave(x LeftOut) {
	if len(e.LeftOut) < maxLeftOut {
		x.Findings = x.Findings[:min(len(x.Findings), maxLeftWhys)]
		e.LeftOut = append(e.LeftOut, x)
	}
}

// leftListeners finds Gateways and ListenerSets whose errors may be why no listener takes the request.
func (e *Explanation) leftListeners(set *resource.Set, whys map[resource.Key][]resource.Finding) {
	wanted := e.Request.WantedPort()
	for _, k := range sortedObjects(whys) {
		if k.Kind != "Gateway" && k.Kind != "ListenerSet" {
			continue
		}
		d := draftOf(set, k)
		var found []resource.Finding
		for _, f := range whys[k] {
			if f.Severity != resource.Error {
				continue
			}
			// A listener on another port is irrelevant.
			port := int32(0)
			if i, ok := fieldIndex(f.Ref.Field, "spec.listeners["); ok && !strings.HasSuffix(f.Ref.Field, ".port") {
				port = portAt(d.at("spec").list("listeners"), i)
			}
			if port == 0 || port == wanted || e.Request.Port == 0 {
				found = append(found, f)
			}
		}
		if len(found) > 0 {
			e.leave(LeftOut{Ref: k.Ref(), Findings: found})
		}
	}
}

// leftConnections finds unattached routes for connections.
func (e *Explanation) leftConnections(set *resource.Set, whys map[resource.Key][]resource.Finding) {
	for _, k := range sortedObjects(whys) {
		if !e.Listener.Protocol.Takes(dialect.Carries(k.Kind)) {
			continue
		}
		d := draftOf(set, k)
		if found := concerning(whys[k], -1); len(found) > 0 && d.mayAttach(set, k, e.Listener) {
			e.leave(LeftOut{Ref: k.Ref(), Findings: found})
		}
	}
}

// leftRoutes finds routes and rules that are left out and would take the request.
func (e *Explanation) leftRoutes(set *resource.Set, cfg *model.Config, whys map[resource.Key][]resource.Finding) {
	for _, k := range sortedObjects(whys) {
		carries := dialect.Carries(k.Kind)
		if !e.Listener.Protocol.Takes(carries) || len(e.LeftOut) == maxLeftOut {
			continue
		}
		d := draftOf(set, k)
		if d == nil || !d.mayAttach(set, k, e.Listener) {
			continue
		}
		trial := model.Route{Ref: k.Ref(), Kind: carries, Attachments: []model.Attachment{{Listener: e.Listener.Name, Hostnames: d.hostnames()}}}
		reasons := map[int][]resource.Finding{}
		for i, rule := range d.at("spec").list("rules") {
			found := concerning(whys[k], i)
			if set.Rejected[resource.Key{Group: gatewayv1.GroupName, Kind: k.Kind, Namespace: k.Namespace, Name: k.Name}].Code != "" {
				found = errorsOf(whys[k]) // a rejected object is left out whole, whatever its errors
			}
			if len(found) == 0 {
				continue
			}
			ref := k.Ref()
			ref.Field = model.FieldAt("spec.rules", i)
			reasons[len(trial.Rules)] = found
			trial.Rules = append(trial.Rules, model.Rule{Ref: ref, Matches: rule.matches(k.Kind), Fault: &model.Fault{Status: 500, Reason: "LeftOut"}})
		}
		if len(trial.Rules) == 0 {
			continue
		}
		if c := e.tryRoute(cfg, trial); c != nil && (e.Winner == nil || c.Rule != e.Winner.Rule) {
			match := c.Match
			e.leave(LeftOut{Ref: c.Rule, Match: &match, Findings: reasons[c.RuleIndex]})
		}
	}
}

// tryRoute returns the match with which a route would take the request if it were served; nil if it would not.
func (e *Explanation) tryRoute(cfg *model.Config, trial model.Route) *routing.Candidate {
	with := model.Config{Listeners: []model.Listener{*e.Listener}, Routes: []model.Route{trial}}
	with.Listeners[0].Hostname = ""
	for _, r := range cfg.Routes {
		at := slices.IndexFunc(r.Attachments, func(a model.Attachment) bool { return a.Listener == e.Listener.Name })
		if at < 0 || r.Ref.Kind == trial.Ref.Kind && r.Ref.Namespace == trial.Ref.Namespace && r.Ref.Name == trial.Ref.Name {
			continue
		}
		own := model.Route{Ref: r.Ref, Created: r.Created, Attachments: []model.Attachment{r.Attachments[at]}}
		for _, rule := range r.Rules {
			own.Rules = append(own.Rules, model.Rule{Ref: rule.Ref, Matches: rule.Matches, Fault: &model.Fault{Status: 500, Reason: "Served"}})
		}
		with.Routes = append(with.Routes, own)
	}
	table, _ := routing.Compile(&with, nil)
	if len(table.Listeners()) != 1 {
		return nil
	}
	r := e.asked
	match := routing.Request{Host: r.host, Method: r.Method, Path: e.Path, Query: r.query, Fields: r.fields}
	why := table.Listeners()[0].Explain(&match)
	if w := why.Winner; w != nil && w.Rule.Kind == trial.Ref.Kind && w.Rule.Namespace == trial.Ref.Namespace && w.Rule.Name == trial.Ref.Name {
		return w
	}
	return nil
}

// servedAll are the codes of errors that leave a rule served, with an answer of 500 for a share of its requests.
var servedAll = []string{"WR511", "WR519", "WR530", "WR531", "WR532", "WR533", "WR545", "WR546"}

// concerning keeps the findings that leave out a rule of a route: errors about the rule, and errors that keep the route
// from its parents. A rule below zero stands for none.
func concerning(all []resource.Finding, rule int) (out []resource.Finding) {
	for _, f := range all {
		field := f.Ref.Field
		i, ofRule := fieldIndex(field, "spec.rules[")
		switch {
		case ofRule && (i != rule || f.Severity != resource.Error || slices.Contains(servedAll, f.Code)):
		case ofRule, f.Severity == resource.Error,
			f.Severity == resource.Warning && (strings.HasPrefix(field, "spec.parentRefs") || strings.HasPrefix(field, "spec.hostnames")):
			out = append(out, f)
		}
	}
	return out
}

func errorsOf(all []resource.Finding) []resource.Finding {
	return slices.DeleteFunc(slices.Clone(all), func(f resource.Finding) bool { return f.Severity != resource.Error })
}

// fieldIndex returns the index after a prefix of a field.
func fieldIndex(field, prefix string) (n int, ok bool) {
	rest, ok := strings.CutPrefix(field, prefix)
	if !ok {
		return 0, false
	}
	_, err := fmt.Sscanf(rest, "%d]", &n)
	return n, err == nil
}

func sortedObjects(m map[resource.Key][]resource.Finding) []resource.Key {
	return slices.SortedFunc(maps.Keys(m), func(a, b resource.Key) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

// draft is an object, or a part of one, as the user wrote it. It may be invalid.
type draft map[string]any

// draftOf returns a Gateway, a ListenerSet or a route as the user wrote it; nil if it is unknown.
func draftOf(set *resource.Set, k resource.Key) draft {
	k.Group = gatewayv1.GroupName
	return written(set, k)
}

// written returns an object as the user wrote it; nil if it is unknown.
func written(set *resource.Set, k resource.Key) draft {
	if d, ok := set.Drafts[k]; ok {
		return d
	}
	object := set.Object(k)
	if object == nil {
		return nil
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

// mayAttach reports whether a route refers to a listener, or to a missing object that may mean this listener.
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

// matches returns the usable matches of a rule. It skips unusable parts, so that the matches match more.
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

// values returns matches of header fields or query parameters.
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

// hostnames returns the hostnames that can be compared; any, if there is none.
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
