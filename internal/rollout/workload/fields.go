package workload

import (
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// fields are values of a spec by their paths, such as "strategy.type"; nil where there is none.
type fields map[string]any

// fieldOf is the value at a path; nil if there is none.
func fieldOf(spec map[string]any, path string) any {
	var v any = spec
	for name := range strings.SplitSeq(path, ".") {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	return v
}

// setField sets the value at a path, or removes it.
func setField(spec map[string]any, path string, v any) {
	for {
		name, rest, nested := strings.Cut(path, ".")
		if !nested {
			if v == nil {
				delete(spec, name)
			} else {
				spec[name] = runtime.DeepCopyJSONValue(v)
			}
			return
		}
		m, ok := spec[name].(map[string]any)
		if !ok {
			if v == nil {
				return
			}
			m = map[string]any{}
			spec[name] = m
		}
		spec, path = m, rest
	}
}

// in reports whether a spec has these values.
func (f fields) in(spec map[string]any) bool {
	for path, v := range f {
		if !reflect.DeepEqual(fieldOf(spec, path), v) {
			return false
		}
	}
	return true
}

// into gives a spec these values. Of those around others nothing is set: they go if nothing is left in them.
func (f fields) into(spec map[string]any) {
	var around []string
	for path, v := range f {
		if f.isAround(path) {
			around = append(around, path)
			continue
		}
		setField(spec, path, v)
	}
	slices.Sort(around)
	for _, path := range slices.Backward(around) { // the innermost ones first
		if m, ok := fieldOf(spec, path).(map[string]any); ok && len(m) == 0 {
			setField(spec, path, nil)
		}
	}
}

// isAround reports whether a field has others of f in it.
func (f fields) isAround(path string) bool {
	for other := range f {
		if strings.HasPrefix(other, path+".") {
			return true
		}
	}
	return false
}

// around are the fields around those of f that the user does not have, by what is known of his: nil if nothing is yet.
func (f fields) around(spec map[string]any, before fields) fields {
	out := fields{}
	for path := range f {
		for i := range path {
			if path[i] != '.' {
				continue
			}
			of := path[:i]
			was, known := before[of]
			if known && was == nil || before == nil && fieldOf(spec, of) == nil {
				out[of] = nil
			}
		}
	}
	return out
}

// user are the values as their user has them now: what is as it was laid was his before, the rest is what he wrote since,
// but not in fields of the names in fixed, which are nobody else's meanwhile.
func (f fields) user(spec map[string]any, before fields, fixed []string) fields {
	out := fields{}
	for path, laid := range f {
		now := fieldOf(spec, path)
		if was, known := before[path]; known && (slices.Contains(fixed, path) || reflect.DeepEqual(now, laid)) {
			now = was
		}
		out[path] = now
	}
	return out
}

func specOf(object map[string]any) map[string]any {
	s, _ := object["spec"].(map[string]any)
	return s
}

func metaOf(object map[string]any) map[string]any {
	m, _ := object["metadata"].(map[string]any)
	return m
}

func uidOf(object map[string]any) string {
	s, _ := metaOf(object)["uid"].(string)
	return s
}

// labelOf is the value of HeldLabel.
func labelOf(object map[string]any) (value string, there bool) {
	labels, _ := metaOf(object)["labels"].(map[string]any)
	v, there := labels[HeldLabel]
	value, _ = v.(string)
	return value, there
}

// setLabel sets HeldLabel, or removes it, with the labels if none are left.
func setLabel(object map[string]any, value string, there bool) {
	meta := metaOf(object)
	labels, _ := meta["labels"].(map[string]any)
	switch {
	case there:
		if labels == nil {
			labels = map[string]any{}
			meta["labels"] = labels
		}
		labels[HeldLabel] = value
	case labels != nil:
		if delete(labels, HeldLabel); len(labels) == 0 {
			delete(meta, "labels")
		}
	}
}
