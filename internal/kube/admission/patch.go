package admission

import (
	"maps"
	"reflect"
	"slices"
	"strings"
)

// operation is one of a JSON Patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"` // none for "remove"
}

// escaped is the name of a field as a JSON Pointer has it (RFC 6901).
var escaped = strings.NewReplacer("~", "~0", "/", "~1")

// patchOf appends the operations that make one object of another, at a path. Lists are replaced as a whole.
func patchOf(all []operation, path string, from, to map[string]any) []operation {
	for _, name := range slices.Sorted(maps.Keys(from)) {
		if _, stays := to[name]; !stays {
			all = append(all, operation{Op: "remove", Path: path + "/" + escaped.Replace(name)})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(to)) {
		at := path + "/" + escaped.Replace(name)
		was, there := from[name]
		before, beforeOK := was.(map[string]any)
		after, afterOK := to[name].(map[string]any)
		switch {
		case there && reflect.DeepEqual(was, to[name]):
		case beforeOK && afterOK:
			all = patchOf(all, at, before, after)
		case there:
			all = append(all, operation{"replace", at, value(to[name])})
		default:
			all = append(all, operation{"add", at, value(to[name])})
		}
	}
	return all
}

// value of an operation: null has to be written.
func value(v any) any {
	if v == nil {
		return null{}
	}
	return v
}

type null struct{}

// MarshalJSON implements json.Marshaler.
func (null) MarshalJSON() ([]byte, error) { return []byte("null"), nil }
