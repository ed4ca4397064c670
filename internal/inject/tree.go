package inject

import (
	"encoding/json"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
)

// Typed reads a pod from its decoded JSON. An error names the field.
func Typed(tree map[string]any) (*corev1.Pod, error) {
	text, err := json.Marshal(tree)
	if err != nil {
		return nil, err
	}
	pod := &corev1.Pod{}
	if err := json.Unmarshal(text, pod); err != nil {
		return nil, fmt.Errorf("not a pod: %w", err)
	}
	return pod, nil
}

// Apply returns what the pod of tree becomes by a decision about it. It does not change tree, may share parts of it, and
// keeps fields that this release does not know.
func (d *Decision) Apply(tree map[string]any) (map[string]any, error) {
	if d.Outcome != Injected {
		return tree, nil
	}
	was, err := Typed(tree)
	if err != nil {
		return nil, err
	}
	before, err := untyped(was)
	if err != nil {
		return nil, err
	}
	after, err := untyped(d.pod)
	if err != nil {
		return nil, err
	}
	return overlay(tree, before, after).(map[string]any), nil
}

func untyped(pod *corev1.Pod) (out map[string]any, err error) {
	text, err := json.Marshal(pod)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	return out, err
}

// overlay makes the change from before to after in tree, which has all of before, and perhaps more. Elements of lists that
// have names are told apart by them.
func overlay(tree, before, after any) any {
	if reflect.DeepEqual(before, after) {
		return tree
	}
	switch after := after.(type) {
	case map[string]any:
		t, okTree := tree.(map[string]any)
		b, okBefore := before.(map[string]any)
		if !okTree || !okBefore {
			return after
		}
		out := map[string]any{}
		for k, v := range t {
			_, was := b[k]
			if _, is := after[k]; is || !was {
				out[k] = v
			}
		}
		for k, v := range after {
			is, written := t[k]
			switch was, known := b[k]; {
			case !known:
				out[k] = v
			case written:
				out[k] = overlay(is, was, v)
			case !reflect.DeepEqual(was, v): // one that is nothing in the tree, and something where types are
				out[k] = v
			}
		}
		return out
	case []any:
		t, okTree := tree.([]any)
		b, okBefore := before.([]any)
		if !okTree || !okBefore || len(t) != len(b) {
			return after
		}
		at := map[string]int{}
		for i, e := range b {
			if n, ok := name(e); ok {
				at[n] = i
			}
		}
		out := make([]any, len(after))
		for j, e := range after {
			n, ok := name(e)
			i, was := at[n]
			if out[j] = e; ok && was {
				out[j] = overlay(t[i], b[i], e)
			}
		}
		return out
	}
	return after
}

func name(element any) (string, bool) {
	m, _ := element.(map[string]any)
	n, ok := m["name"].(string)
	return n, ok && n != ""
}
