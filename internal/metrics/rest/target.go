package rest

import (
	"net/url"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	api "github.com/weirmesh/weir/api/metrics"
	"github.com/weirmesh/weir/internal/metrics"
	"github.com/weirmesh/weir/internal/visible"
)

// Bounds of the parameter window.
const (
	DefaultWindow = 30 * time.Second
	MinWindow     = time.Second
	MaxWindow     = time.Hour // as the message about others says
)

// group is an API group that is served, in its one version.
type group struct {
	name, version string
	// released is the form of its objects.
	released bool
}

var groups = []group{{api.DraftGroup, api.Draft, false}, {api.DraftAlias, api.Draft, false}, {api.Group, api.Version, true}}

func (g *group) String() string { return g.name + "/" + g.version }

// target is what a path names.
type target struct {
	// group is nil for the list of groups, and its version is not asked for if whole is set.
	group *group
	whole bool
	// of is nil for the list of kinds. Without a name, all objects of the kind are meant, of the namespace if there is one.
	of              *api.Resource
	namespace, name string
	edges, tap      bool
}

// pathParts takes a path as it was sent apart, without "/apis". Each of its parts is unescaped once; no name has a slash.
func pathParts(escaped string) (parts []string, ok bool) {
	rest, ok := strings.CutPrefix(escaped, "/apis")
	if !ok || rest != "" && rest[0] != '/' {
		return nil, false
	}
	rest = strings.TrimSuffix(strings.TrimPrefix(rest, "/"), "/")
	if rest == "" {
		return nil, true
	}
	parts = strings.Split(rest, "/")
	for i, part := range parts {
		name, err := url.PathUnescape(part)
		if err != nil || name == "" || len(name) > 253 || strings.Contains(name, "/") {
			return nil, false
		}
		parts[i] = name
	}
	return parts, true
}

// parsePath reads a path as it was sent.
func parsePath(escaped string) (t target, ok bool) {
	parts, ok := pathParts(escaped)
	if !ok || len(parts) == 0 {
		return t, ok
	}
	i := slices.IndexFunc(groups, func(g group) bool { return g.name == parts[0] })
	if i < 0 {
		return t, false
	}
	t.group = &groups[i]
	switch parts = parts[1:]; {
	case len(parts) == 0:
		t.whole = true
		return t, true
	case parts[0] != t.group.version:
		return t, false
	}
	return t, t.object(parts[1:])
}

// object reads what follows the version:
//
//	KIND, namespaces/NS/KIND, namespaces/NS/KIND/NAME, namespaces/NS/KIND/NAME/edges or /tap
//
// and, of kinds without namespaces, KIND/NAME and KIND/NAME/edges. "watch" before the path of a tap is what makes an API
// server let it last.
func (t *target) object(parts []string) bool {
	if len(parts) == 0 {
		return true
	}
	if parts[0] == watchPrefix {
		parts = parts[1:]
		return len(parts) > 0 && parts[0] != watchPrefix && t.object(parts) && t.tap
	}
	if len(parts) >= 3 && parts[0] == "namespaces" && parts[2] != api.SubResource && parts[2] != tapResource {
		t.namespace, parts = parts[1], parts[2:]
	}
	t.of = plural(parts[0])
	if t.of == nil || t.namespace != "" && !t.of.Namespaced {
		return false
	}
	if parts = parts[1:]; len(parts) == 0 {
		return true
	}
	t.name, parts = parts[0], parts[1:]
	t.edges = len(parts) == 1 && parts[0] == api.SubResource
	t.tap = len(parts) == 1 && parts[0] == tapResource
	return len(parts) == 0 || t.edges || t.tap
}

func plural(name string) *api.Resource {
	for _, r := range api.Resources() {
		if r.Plural == name {
			return &r
		}
	}
	return nil
}

// fault is what is wrong with a parameter.
type fault struct{ parameter, text string }

func (f *fault) Error() string { return f.parameter + ": " + f.text }

// query is what the parameters say.
type query struct {
	metrics.Selection
	include metav1.IncludeObjectPolicy
}

// parseQuery reads the parameters. It ignores those that only say how much of a list is wanted at a time; those that
// restrict it in a way that is not served are faults.
func parseQuery(t target, raw string) (s query, err *fault) {
	s.Window = DefaultWindow
	values, e := url.ParseQuery(raw)
	if e != nil {
		return s, &fault{"query", "is not a valid query: " + e.Error()}
	}
	get := func(parameter string) string {
		if len(values[parameter]) > 1 {
			err = &fault{parameter, "is given more than once"}
		}
		return values.Get(parameter)
	}
	selector, window, kind, include := get("labelSelector"), get("window"), get("kind"), get("includeObject")
	if get("fieldSelector") != "" {
		return s, &fault{"fieldSelector", "is not supported; select by labels, or ask for one object by its name"}
	}
	if watch := strings.ToLower(get("watch")); values["watch"] != nil && watch != "false" && watch != "0" { // empty is yes, to an API server
		return s, &fault{"watch", "is not supported; ask again instead"}
	}
	if err != nil {
		return s, err
	}
	if s.include, err = parseInclude(include); err != nil {
		return s, err
	}
	if selector != "" && t.name != "" && !t.edges {
		return s, &fault{"labelSelector", "selects from lists, and this is one object"}
	}
	if s.Selector, e = metrics.ParseSelector(selector); e != nil {
		return s, &fault{"labelSelector", e.Error()}
	}
	if window != "" {
		if s.Window, e = time.ParseDuration(window); e != nil || s.Window < MinWindow || s.Window > MaxWindow {
			return s, &fault{"window", quoted(window) + " is not a duration from 1s to 1h, such as 30s"}
		}
	}
	if kind != "" {
		if !t.edges {
			return s, &fault{"kind", "is for edges"}
		}
		if s.Kind = named(kind); s.Kind == nil {
			return s, &fault{"kind", quoted(kind) + " is none of " + kindNames()}
		}
	}
	return s, nil
}

// named is the kind that is written as in a path, or as in an object.
func named(text string) *api.Resource {
	for _, r := range api.Resources() {
		if text == r.Plural || strings.EqualFold(text, r.Kind) {
			return &r
		}
	}
	return nil
}

func kindNames() string {
	var names []string
	for _, r := range api.Resources() {
		names = append(names, r.Plural)
	}
	return strings.Join(names, ", ")
}

// quoted shows what somebody sent.
func quoted(s string) string {
	const most = 100
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return `"` + visible.Text(s) + `"`
}
