package roles

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/weirmesh/weir/api/metrics"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// The verbs by which API servers name the requests that are served: get of one object, list of several.
const get, list = "get", "list"

// request is a kind of requests about Traffic Metrics that is served, as an API server names it to a role.
type request struct {
	verb, resource string
	// scoped says that it is about one namespace, so that a Role can permit it.
	scoped bool
}

// groups are the API groups of Traffic Metrics, subs their sub-resources.
var (
	groups = []string{metrics.DraftGroup, metrics.DraftAlias, metrics.Group}
	subs   = []string{metrics.SubResource, "tap"}
	served = requests()
)

// requests lists what is served.
func requests() (all []request) {
	for _, sub := range subs {
		// Of a path /namespaces/NAME/edges an API server thinks that it is a list of objects of the kind "edges".
		all = append(all, request{list, sub, true})
	}
	for _, r := range metrics.Resources() {
		namespace := r.Plural == namespaces // a namespace is in itself
		all = append(all, request{get, r.Plural, r.Namespaced || namespace}, request{list, r.Plural, r.Namespaced})
		for _, sub := range subs {
			if !namespace {
				all = append(all, request{get, r.Plural + "/" + sub, r.Namespaced})
			}
		}
	}
	return all
}

const namespaces = "namespaces"

// matches reports whether an entry of a rule's resources is about a resource, as API servers decide it.
func matches(entry, resource string) bool {
	_, sub, _ := strings.Cut(resource, "/")
	return entry == "*" || entry == resource || sub != "" && entry == "*/"+sub
}

// rule is one of a role, with what is asked of it often.
type rule struct {
	*rbacv1.PolicyRule
	// get and list say that it has the verb.
	get, list bool
	// named says that it permits only what has certain names, cluster that it is in a ClusterRole.
	named, cluster bool
}

func (j *judge) read(of *rbacv1.PolicyRule) rule {
	all := slices.Contains(of.Verbs, "*")
	return rule{of, all || slices.Contains(of.Verbs, get), all || slices.Contains(of.Verbs, list), len(of.ResourceNames) > 0, j.ref.Namespace == ""}
}

// has reports whether it has one of the verbs get and list.
func (r *rule) has(verb string) bool { return verb == get && r.get || verb == list && r.list }

// permits reports whether a request is one of those that a rule permits by one entry of its resources.
func (r *rule) permits(entry string, q request) bool {
	return matches(entry, q.resource) && r.has(q.verb) && (q.scoped || r.cluster) && (q.verb == get || !r.named) // a list has no name
}

type judge struct {
	ref   model.Ref
	found []resource.Finding
	// granted are the sub-resources of namespaces that the role permits, by the group.
	granted map[[2]string]bool
}

// grant notes which sub-resources of namespaces a rule permits.
func (j *judge) grant(of *rbacv1.PolicyRule) {
	r := j.read(of)
	for _, sub := range subs {
		if slices.ContainsFunc(of.Resources, func(entry string) bool { return r.permits(entry, request{list, sub, true}) }) {
			for _, g := range of.APIGroups {
				j.granted[[2]string{g, sub}] = true
			}
		}
	}
}

func (j *judge) report(code, field, message, fix string) {
	f := resource.Problem(code, "", field, message, fix)
	f.Ref.Kind, f.Ref.Namespace, f.Ref.Name, f.Severity = j.ref.Kind, j.ref.Namespace, j.ref.Name, severities[code]
	j.found = append(j.found, f)
}

// rule judges one rule. One with other API groups, too, may say what matters for those alone.
func (j *judge) rule(of *rbacv1.PolicyRule, at string) {
	var ours []string
	for i, g := range of.APIGroups {
		name, _, versioned := strings.Cut(g, "/")
		switch {
		case slices.Contains(groups, g):
			ours = append(ours, g)
		case versioned && slices.Contains(groups, name):
			j.report(codeVersion, fmt.Sprintf("%s.apiGroups[%d]", at, i), quoted(g)+" never matches: a rule names a group without its version", "write "+name)
		}
	}
	if len(ours) == 0 || len(of.Verbs) == 0 {
		return
	}
	r := j.read(of)
	alone := len(ours) == len(of.APIGroups)
	var fine []string
	for i, entry := range of.Resources {
		field := fmt.Sprintf("%s.resources[%d]", at, i)
		sub, ofNamespaces := strings.CutPrefix(entry, namespaces+"/")
		switch {
		case ofNamespaces && slices.Contains(subs, sub):
			if slices.ContainsFunc(ours, func(g string) bool { return !j.granted[[2]string{g, sub}] && !j.granted[[2]string{"*", sub}] }) {
				j.report(codeNamespaces, field, fmt.Sprintf("never matches: to the API server /namespaces/NAME/%s is a list of the resource %s in that namespace", sub, sub),
					fmt.Sprintf("also write resources: [%s], verbs: [list]", sub))
			}
		case !alone || slices.ContainsFunc(served, func(q request) bool { return r.permits(entry, q) }):
			fine = append(fine, entry)
		default:
			j.nothing(&r, entry, field)
		}
	}
	if alone && len(fine) > 0 { // else it was said of the resources
		j.verbs(&r, fine, at)
	}
}

// nothing says why an entry of a rule's resources permits nothing.
func (j *judge) nothing(r *rule, entry, field string) {
	known := false
	var verbs []string // by which it is served here
	for _, q := range served {
		if !matches(entry, q.resource) {
			continue
		}
		known = true
		if (q.scoped || r.cluster) && !slices.Contains(verbs, q.verb) {
			verbs = append(verbs, q.verb)
		}
	}
	slices.Sort(verbs)
	switch {
	case !known:
		fix := "write one of " + names() + ", with /edges behind it for edges"
		if like := suggest(entry); like != "" {
			fix = "write " + like
		}
		j.report(codeResource, field, "Traffic Metrics have no resource "+quoted(entry), fix)
	case len(verbs) == 0:
		j.report(codeNothing, field, entry+" is in no namespace, and a Role permits only what is in one", "write it in a ClusterRole, and bind that by a ClusterRoleBinding")
	case !slices.ContainsFunc(verbs, r.has):
		where := ""
		if !r.cluster {
			where = " in a namespace"
		}
		j.report(codeNothing, field, fmt.Sprintf("permits nothing: %s is served%s with the verb %s, which the rule does not have", entry, where, strings.Join(verbs, " or ")), "add it to verbs")
	default:
		fix := "remove resourceNames"
		if slices.Contains(verbs, get) {
			fix = "add the verb get, or remove resourceNames"
		}
		j.report(codeNothing, field, "permits nothing: a list has no name that could be one of resourceNames", fix)
	}
}

// verbs reports those that have no effect beside others on resources that the rule permits something of.
func (j *judge) verbs(r *rule, entries []string, at string) {
	uses := map[string]bool{"*": true}
	for _, q := range served {
		uses[q.verb] = uses[q.verb] || slices.ContainsFunc(entries, func(entry string) bool { return r.permits(entry, q) })
	}
	for i, verb := range r.Verbs {
		if uses[verb] {
			continue
		}
		field := fmt.Sprintf("%s.verbs[%d]", at, i)
		switch {
		case verb != get && verb != list:
			j.report(codeVerb, field, fmt.Sprintf("Traffic Metrics are read, with get and list; nothing is served with the verb %s", quoted(verb)), "remove it")
		case verb == list && r.named:
			j.report(codeVerb, field, "a list has no name that could be one of resourceNames, so the rule permits none", "write a rule without resourceNames for it")
		default:
			j.report(codeVerb, field, fmt.Sprintf("nothing that the rule permits is served with the verb %s", verb), "remove it")
		}
	}
}

// quoted shows what somebody wrote, or its beginning.
func quoted(s string) string {
	const most = 100
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return strconv.Quote(s)
}

func names() string {
	var all []string
	for _, r := range metrics.Resources() {
		all = append(all, r.Plural)
	}
	return strings.Join(all, ", ")
}

// suggest returns the resource that an unknown one was most likely meant to be, or "": a kind in other words, as in
// "Pod", "deployment/edges" or "pods.traffic.metrics.k8s.io".
func suggest(entry string) string {
	name, sub, _ := strings.Cut(entry, "/")
	name, _, _ = strings.Cut(name, ".")
	if sub != "" && !slices.Contains(subs, sub) {
		return ""
	}
	for _, r := range metrics.Resources() {
		if !strings.EqualFold(name, r.Kind) && !strings.EqualFold(name, r.Plural) {
			continue
		}
		switch {
		case sub == "":
			return r.Plural
		case r.Plural == namespaces:
			return sub
		}
		return r.Plural + "/" + sub
	}
	return ""
}
