package openapi

import (
	"fmt"
	"strings"

	"github.com/weirmesh/weir/api/access"
	"github.com/weirmesh/weir/internal/visible"
)

// maxComment is the longest comment, in bytes.
const maxComment = 300

// YAML writes the objects, with comments that say what they are for and which operations each rule is of.
func (r *Result) YAML() []byte {
	var w writer
	for i := range r.Roles {
		w.role(&r.Roles[i])
	}
	for i := range r.Bindings {
		w.binding(&r.Bindings[i])
	}
	return []byte(w.String())
}

type writer struct{ strings.Builder }

func (w *writer) line(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }

func (w *writer) comment(text string) {
	text = visible.Text(strings.Join(strings.Fields(text), " "))
	if len(text) > maxComment {
		text = strings.ToValidUTF8(text[:maxComment], "") + "..."
	}
	w.line("# %s", text)
}

func (w *writer) head(about, apiVersion, kind, name, namespace string) {
	if w.Len() > 0 {
		w.line("---")
	}
	if about != "" {
		w.comment(about)
	}
	w.line("apiVersion: %s", apiVersion)
	w.line("kind: %s", kind)
	w.line("metadata:")
	w.line("  name: %s", quote(name))
	if namespace != "" {
		w.line("  namespace: %s", quote(namespace))
	}
}

func (w *writer) role(r *Role) {
	w.head(r.About, r.APIVersion, r.Kind, r.Name, r.Namespace)
	w.line("rules:")
	for i, rule := range r.Rules {
		w.comment(r.From[i])
		w.line("- resources:")
		for _, res := range rule.Resources {
			w.line("  - kind: %s", res.Kind)
			w.line("    name: %s", quote(res.Name))
		}
		w.list("methods", rule.Methods)
		w.list("paths", rule.Paths)
	}
}

func (w *writer) list(name string, values []string) {
	w.line("  %s:", name)
	for _, v := range values {
		w.line("  - %s", quote(v))
	}
}

func (w *writer) binding(b *access.TrafficRoleBinding) {
	w.head("", b.APIVersion, b.Kind, b.Name, b.Namespace)
	w.line("subjects:")
	for _, s := range b.Subjects {
		w.line("- kind: %s", s.Kind)
		w.line("  name: %s", quote(s.Name))
		if s.Namespace != "" {
			w.line("  namespace: %s", quote(s.Namespace))
		}
	}
	w.line("roleRef:")
	w.line("  kind: %s", b.RoleRef.Kind)
	w.line("  name: %s", quote(b.RoleRef.Name))
}

// quote is text in YAML. Names and methods stand by themselves, unless they could be something else.
func quote(text string) string {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	plain := text != "" && strings.Trim(text, letters+"0123456789-") == "" && strings.ContainsAny(text[:1], letters)
	switch strings.ToLower(text) {
	case "true", "false", "null", "yes", "no", "on", "off", "y", "n":
		plain = false
	}
	if plain {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", "''") + "'"
}
