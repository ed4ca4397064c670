package resource

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// strictFields reports the unknown fields of an object of a strict kind, and those that are null (Kind.Strict). Metadata is
// judged elsewhere.
func strictFields(k *Kind, s *structuralschema.Structural, u map[string]any) []Finding {
	w := strictWalk{kind: k, root: s}
	w.value(u, s, "")
	return w.findings
}

type strictWalk struct {
	kind     *Kind
	root     *structuralschema.Structural
	findings []Finding
}

func (w *strictWalk) value(v any, s *structuralschema.Structural, path string) {
	if len(w.findings) > maxFindings || s == nil {
		return
	}
	switch v := v.(type) {
	case map[string]any:
		if len(s.Properties) == 0 {
			return // a map, or a value without a schema
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			at := strings.TrimPrefix(path+"."+name, ".")
			p, known := s.Properties[name]
			switch {
			case path == "" && (name == "metadata" || name == "status"):
			case !known:
				w.unknown(at)
			case v[name] == nil:
				f := finding(CodeStrict, at, "must not be null: that would be as if it were not written"+w.kind.effect(at, name))
				f.Fix = "write a value, or leave the field out if that is meant"
				w.findings = append(w.findings, f)
			default:
				w.value(v[name], &p, at)
			}
		}
	case []any:
		for i, item := range v {
			w.value(item, s.Items, fmt.Sprintf("%s[%d]", path, i))
		}
	}
}

func (w *strictWalk) unknown(at string) {
	f := finding(CodeStrict, at, "unknown field; the object could allow more than is meant without it")
	if near := nearest(lastName(at), schemaFields(w.root, at)); near != "" {
		f.Message = "unknown field" + w.kind.effect(at, near)
		f.Fix, f.Meant = fmt.Sprintf("did you mean %q?", near), near
	}
	w.findings = append(w.findings, f)
}

// exact puts the errors of a decoder in place of findings about alternatives, and about how many fields there are, which say
// less. The schema of a strict kind has such to refuse fields.
func exact(findings []Finding, errs field.ErrorList, u map[string]any) []Finding {
	var better []Finding
	clear := func(f Finding) bool {
		if _, fields := valueAt(u, f.Ref.Field).(map[string]any); !f.General && (f.Code != CodeTooMany || !fields) {
			return false
		}
		some := false
		for _, err := range errs {
			rest, ok := strings.CutPrefix(err.Field, f.Ref.Field)
			if ok = ok && (rest == "" || rest[0] == '.' || rest[0] == '['); ok && !slices.ContainsFunc(slices.Concat(findings, better), func(f Finding) bool { return f.Ref.Field == err.Field }) {
				better = append(better, schemaFinding(err, u))
			}
			some = some || ok
		}
		return some
	}
	rest := slices.DeleteFunc(slices.Clone(findings), clear)
	return append(rest, better...)
}
