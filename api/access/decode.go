package access

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

type decoder struct{ errs field.ErrorList }

func (d *decoder) fail(err *field.Error) { d.errs = append(d.errs, err) }

func typeMeta(kind, version string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: Group + "/" + version, Kind: kind}
}

func start(version string, versions []string, u map[string]any, meta *metav1.ObjectMeta) *decoder {
	d := &decoder{}
	if !slices.Contains(versions, version) {
		d.fail(field.NotSupported(field.NewPath("apiVersion"), version, versions))
	}
	if m, ok := u["metadata"].(map[string]any); ok {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(m, meta); err != nil {
			d.fail(field.Invalid(field.NewPath("metadata"), "object", err.Error()))
		}
	}
	return d
}

// result is the object, if nothing is wrong with it.
func result[T any](d *decoder, object *T) (*T, field.ErrorList) {
	if len(d.errs) > 0 {
		return nil, d.errs
	}
	return object, nil
}

// object is a mapping of which only some fields are known.
type object struct {
	d  *decoder
	at *field.Path
	u  map[string]any
}

// object reports unknown fields, and those that are null. It returns an empty one for other values.
func (d *decoder) object(v any, at *field.Path, known ...string) object {
	u, ok := v.(map[string]any)
	if !ok {
		d.fail(field.TypeInvalid(at, v, "must be an object with "+strings.Join(known, ", ")))
	}
	for _, name := range slices.Sorted(maps.Keys(u)) {
		switch {
		case !slices.Contains(known, name):
			d.fail(field.Invalid(child(at, name), short(u[name]), "is no field here; there are "+strings.Join(known, ", ")))
		case u[name] == nil:
			d.fail(field.Invalid(child(at, name), "null", "must not be null: write a value, or leave the field out"))
		}
	}
	return object{d, at, u}
}

// root is the object as a whole.
func (d *decoder) root(u map[string]any, fields ...string) object {
	return d.object(u, nil, append([]string{"apiVersion", "kind", "metadata", "status"}, fields...)...)
}

// child is at.Child for an unknown name, which may hold dots.
func child(at *field.Path, name string) *field.Path {
	if at == nil {
		return field.NewPath(name)
	}
	return at.Child(name)
}

// short is a value for a message.
func short(v any) string {
	const most = 64
	text := strings.ReplaceAll(fmt.Sprint(v), "<nil>", "null")
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}

// status is a copy of the status.
func (o object) status() map[string]any {
	if status, ok := o.u["status"].(map[string]any); ok {
		return runtime.DeepCopyJSON(status)
	}
	return nil
}

// list calls each for the elements of a list. It reports whether the list was written, and was one.
func (o object) list(name string, most int, each func(v any, at *field.Path)) bool {
	v, there := o.u[name]
	at := child(o.at, name)
	if !there {
		return false
	}
	list, ok := v.([]any)
	switch {
	case v == nil: // reported
		return false
	case !ok:
		o.d.fail(field.TypeInvalid(at, short(v), "must be a list"))
		return false
	case len(list) > most:
		o.d.fail(field.TooMany(at, len(list), most))
		return false
	}
	for i, v := range list {
		each(v, at.Index(i))
	}
	return true
}

// required reports a list that was not written.
func (o object) required(name, write string) {
	if _, there := o.u[name]; !there {
		o.d.fail(field.Required(child(o.at, name), write))
	}
}

// texts is a list of texts, nil if it was not written.
func (o object) texts(name string, most int, valid func(string) string) (out []string) {
	if o.list(name, most, func(v any, at *field.Path) { out = append(out, o.d.text(v, at, valid)) }) && out == nil {
		out = []string{}
	}
	return out
}

// text is a field; valid returns what is wrong with it.
func (o object) text(name string, required bool, valid func(string) string) string {
	v, there := o.u[name]
	at := child(o.at, name)
	switch {
	case !there && required:
		o.d.fail(field.Required(at, "write it"))
		return ""
	case v == nil: // reported
		return ""
	}
	return o.d.text(v, at, valid)
}

func (d *decoder) text(v any, at *field.Path, valid func(string) string) string {
	s, ok := v.(string)
	if !ok {
		d.fail(field.TypeInvalid(at, short(v), "must be text; put it in quotes"))
		return ""
	}
	if wrong := valid(s); wrong != "" {
		d.fail(field.Invalid(at, short(s), wrong))
	}
	return s
}

func (o object) oneOf(name string, values []string) string {
	s := o.text(name, true, func(string) string { return "" })
	if _, there := o.u[name].(string); there && !slices.Contains(values, s) {
		o.d.fail(field.NotSupported(child(o.at, name), short(s), values))
	}
	return s
}

func (o object) kind(of map[string]WorkloadKind) WorkloadKind {
	s := o.text("kind", true, func(string) string { return "" })
	k, ok := of[s]
	if _, there := o.u["kind"].(string); there && !ok {
		o.d.fail(field.NotSupported(child(o.at, "kind"), short(s), slices.Sorted(maps.Keys(of))))
	}
	return k
}

// group checks an API group, which may be left out.
func (o object) group(name string, groups ...string) {
	s := o.text(name, false, func(string) string { return "" })
	if _, there := o.u[name].(string); there && !slices.Contains(groups, s) {
		o.d.fail(field.NotSupported(child(o.at, name), short(s), slices.Compact(groups)))
	}
}

// spellings are the ways in which kinds are written: as a Kind, as the resource's name, and as kubectl takes them. The
// draft misspells two of them.
func spellings(kinds []WorkloadKind) map[string]WorkloadKind {
	all := map[string]WorkloadKind{Any: AnyKind}
	for _, k := range kinds {
		lower := strings.ToLower(string(k))
		all[string(k)], all[lower], all[lower+"s"] = k, k, k
		switch k {
		case ReplicationController:
			all["replicationscontrollers"] = k
		case StatefulSet:
			all["statefulets"] = k
		}
	}
	return all
}

var (
	nameForm      = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)
	namespaceForm = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
	methodForm    = regexp.MustCompile(`^[A-Z][A-Z0-9_-]*$`)
)

func isName(s string) string {
	if len(s) > maxName || !nameForm.MatchString(s) {
		return fmt.Sprintf("must be the name of an object, of at most %d characters", maxName)
	}
	return ""
}

func isNameOrAny(s string) string {
	if s != Any && isName(s) != "" {
		return isName(s) + `, or "*" for any; there are no other patterns`
	}
	return ""
}

func isNamespace(s string) string {
	if len(s) > maxNamespace || !namespaceForm.MatchString(s) {
		return fmt.Sprintf("must be the name of a namespace, of at most %d characters", maxNamespace)
	}
	return ""
}

func isNamespaceOrAny(s string) string {
	if s != Any && isNamespace(s) != "" {
		return isNamespace(s) + `, or "*" for any`
	}
	return ""
}

func isMethod(s string) string {
	if s != Any && (len(s) > MaxMethod || !methodForm.MatchString(s)) {
		return fmt.Sprintf(`must be a method in upper case, of at most %d characters, or "*" for any`, MaxMethod)
	}
	return ""
}

func isPath(s string) string {
	if n := utf8.RuneCountInString(s); n == 0 || n > MaxPath {
		return fmt.Sprintf(`must be a regular expression of 1 to %d characters, or "*" for any path`, MaxPath)
	}
	return ""
}
