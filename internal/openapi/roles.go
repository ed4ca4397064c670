package openapi

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weirmesh/weir/api/access"
	"github.com/weirmesh/weir/internal/model"
)

// Ends of names that are not made of tags or scopes.
const (
	all      = "all"
	untagged = "untagged"
	unscoped = "no-scope"
)

// maxSlug bounds what a name has of a tag.
const maxSlug = 48

// maxName is the longest name of an object.
const maxName = 253

// roles makes the roles, sorted by name.
func (m *mapper) roles() (out []Role, err error) {
	m.groups = map[string][]*operation{}
	about := map[string]string{}
	for _, o := range m.ops {
		for _, k := range m.groupsOf(o) {
			m.groups[k] = append(m.groups[k], o)
		}
	}
	groups := slices.Sorted(maps.Keys(m.groups))
	m.names = names(groups)
	for _, g := range groups {
		about[g] = map[bool]string{true: "scope ", false: "tag "}[m.options.By == ByScope] + g
		if g == "" {
			about[g] = map[bool]string{true: "requests without a scope", false: "operations without a tag"}[m.options.By == ByScope]
		}
	}
	rules := 0
	add := func(end, about string, ops []*operation) error {
		if rules += len(ops); rules > maxRules {
			return fmt.Errorf("the roles would have more than %d rules: split the document", maxRules)
		}
		made := m.parts(end, about, ops)
		if len(out)+len(made) > maxRules {
			return errors.New("there would be too many roles")
		}
		out = append(out, made...)
		return nil
	}
	if len(m.ops) > 0 {
		if err := add(all, "all operations", m.ops); err != nil {
			return nil, err
		}
	}
	for _, g := range groups {
		if err := add(m.nameOf(g), about[g], m.groups[g]); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(out, func(a, b Role) int { return cmp.Compare(a.Name, b.Name) })
	for i, r := range out {
		if len(r.Name) > maxName {
			return nil, fmt.Errorf("the name %s of a role would have more than %d characters", r.Name, maxName)
		}
		if i > 0 && r.Name == out[i-1].Name {
			return nil, fmt.Errorf("two roles would have the name %s: rename one of %s and %s", r.Name, out[i-1].About, r.About)
		}
	}
	return out, nil
}

// groupsOf returns what an operation is in the roles of; "" is without a tag, or without a scope.
func (m *mapper) groupsOf(o *operation) []string {
	switch {
	case m.options.By == ByNone:
		return nil
	case m.options.By == ByScope:
		var out []string
		for _, set := range o.scopes {
			// Who has the roles of two scopes need not have both at once, but who has this one has them all.
			out = appendNew(out, strings.Join(set, " and "))
		}
		return out
	case len(o.tags) == 0:
		return []string{""}
	}
	return o.tags
}

// nameOf is the end of the name of a group's role.
func (m *mapper) nameOf(group string) string {
	if group == "" {
		if m.options.By == ByScope {
			return unscoped
		}
		return untagged
	}
	return m.names[group]
}

// names returns a part of an object's name for each text. It does not depend on the other texts, unless two would get
// the same one: those that are not such a name themselves get a part of their hash.
func names(texts []string) map[string]string {
	count := map[string]int{all: 1, untagged: 1, unscoped: 1}
	for _, t := range texts {
		count[slug(t)]++
	}
	out := map[string]string{}
	for _, t := range texts {
		s := slug(t)
		if s == "" || count[s] > 1 && (s != t || s == all || s == untagged || s == unscoped) || len(t) > maxSlug || strings.Contains(s, "part-") {
			sum := sha256.Sum256([]byte(t))
			s = strings.TrimPrefix(s+"-"+hex.EncodeToString(sum[:4]), "-")
		}
		out[t] = s
	}
	return out
}

// slug is a text in the characters that names have.
func slug(text string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(text) {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
		if b.Len() >= maxSlug {
			break
		}
	}
	return strings.Trim(b.String(), "-")
}

// parts makes the role for some operations, or several if they are more than one may have.
func (m *mapper) parts(end, about string, ops []*operation) (out []Role) {
	base := m.options.Resource.Name + "-" + end
	var budget model.PatternBudget
	next := func() *Role {
		budget = model.PatternBudget{}
		r := Role{About: about}
		r.TypeMeta = metav1.TypeMeta{APIVersion: access.Group + "/" + access.Draft, Kind: "TrafficRole"}
		r.Name, r.Namespace, r.whole = base, m.options.Namespace, base
		if len(out) > 0 {
			r.Name += fmt.Sprintf("-part-%d", len(out)+1)
		}
		out = append(out, r)
		return &out[len(out)-1]
	}
	r := next()
	for _, rule := range rulesOf(ops) {
		add := func() bool {
			for _, p := range rule.paths {
				if budget.Add(p) != nil {
					return false
				}
			}
			return true
		}
		if len(r.Rules) == access.MaxRules || !add() {
			r = next()
			add()
		}
		r.Rules = append(r.Rules, access.Rule{Resources: []access.Resource{m.options.Resource}, Methods: rule.methods, Paths: rule.paths})
		r.From = append(r.From, rule.from)
	}
	return out
}

type rule struct {
	methods, paths []string
	from           string
}

// rulesOf makes a rule of the operations of one path, if their parameters are the same.
func rulesOf(ops []*operation) (out []rule) {
	first, template := 0, "" // the rules of the template begin there
	for _, o := range ops {
		if o.template != template {
			first, template = len(out), o.template
		}
		from := o.name()
		if o.id != "" {
			from = o.id + ": " + from
		}
		i := slices.IndexFunc(out[first:], func(r rule) bool { return slices.Equal(r.paths, o.paths) && len(r.methods) < access.MaxMethods })
		if i < 0 {
			out = append(out, rule{methods: []string{o.method}, paths: o.paths, from: from})
			continue
		}
		r := &out[first+i]
		r.methods, r.from = append(r.methods, o.method), r.from+"; "+from
	}
	return out
}

// bindings gives the roles to the subjects.
func (m *mapper) bindings(roles []Role) (out []access.TrafficRoleBinding, err error) {
	subjects := map[string][]access.Subject{}
	for _, b := range m.options.Bind {
		end := all
		if b.To != "" {
			if m.groups[b.To] == nil {
				known := slices.DeleteFunc(slices.Sorted(maps.Keys(m.groups)), func(g string) bool { return g == "" })
				return nil, fmt.Errorf("%s %q is not in the document; there are: %s", m.options.By, b.To, short(strings.Join(known, ", ")))
			}
			end = m.nameOf(b.To)
		}
		name := m.options.Resource.Name + "-" + end
		if !slices.Contains(subjects[name], b.Subject) {
			subjects[name] = append(subjects[name], b.Subject)
		}
	}
	for _, r := range roles {
		to := subjects[r.whole]
		if to == nil {
			continue
		}
		b := access.TrafficRoleBinding{TypeMeta: metav1.TypeMeta{APIVersion: r.APIVersion, Kind: "TrafficRoleBinding"}, Subjects: to}
		b.Name, b.Namespace = r.Name, r.Namespace
		b.RoleRef = access.RoleRef{Kind: "TrafficRole", Name: r.Name}
		out = append(out, b)
	}
	return out, nil
}
