package workload

import (
	"reflect"
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

// into gives a spec these values.
func (f fields) into(spec map[string]any) {
	for path, v := range f {
		setField(spec, path, v)
	}
}

// user are the values as their user has them now: what is as it was laid was his before, the rest is what he wrote since.
func (f fields) user(spec map[string]any, before fields) fields {
	out := fields{}
	for path, laid := range f {
		now := fieldOf(spec, path)
		if was, known := before[path]; known && reflect.DeepEqual(now, laid) {
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
