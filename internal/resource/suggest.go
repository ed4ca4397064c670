package resource

import (
	"reflect"
	"slices"
	"strings"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
)

// splitPath cuts "a.b[0].c" into "a", "b", "[0]", "c".
func splitPath(path string) []string {
	var parts []string
	for len(path) > 0 {
		if path[0] == '.' {
			path = path[1:]
			continue
		}
		if path[0] == '[' {
			if end := strings.IndexByte(path, ']'); end >= 0 {
				parts, path = append(parts, path[:end+1]), path[end+1:]
				continue
			}
			return append(parts, path)
		}
		end := strings.IndexAny(path, ".[")
		if end < 0 {
			end = len(path)
		}
		parts, path = append(parts, path[:end]), path[end:]
	}
	return parts
}

func lastName(path string) string {
	parts := splitPath(path)
	if len(parts) == 0 {
		return ""
	}
	return parts[len(parts)-1]
}

// schemaFields lists the fields that a schema has at path's level, and those one level below as "parent.child".
func schemaFields(s *structuralschema.Structural, path string) []string {
	parts := splitPath(path)
	for _, part := range parts[:max(0, len(parts)-1)] {
		if part[0] == '[' {
			s = s.Items
		} else if p, ok := s.Properties[part]; ok {
			s = &p
		} else if s.AdditionalProperties != nil {
			s = s.AdditionalProperties.Structural
		} else {
			s = nil
		}
		if s == nil {
			return nil
		}
	}
	var names []string
	for name, p := range s.Properties {
		names = append(names, name)
		for child := range p.Properties {
			names = append(names, name+"."+child)
		}
	}
	return names
}

// typeFields is schemaFields for a Go type with JSON tags.
func typeFields[T any](path string) []string {
	t := reflect.TypeFor[T]()
	parts := splitPath(path)
	for _, part := range parts[:max(0, len(parts)-1)] {
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		switch {
		case t.Kind() == reflect.Struct:
			next, ok := jsonFields(t)[part]
			if !ok {
				return nil
			}
			t = next
		case t.Kind() == reflect.Slice || t.Kind() == reflect.Map:
			t = t.Elem()
		default:
			return nil
		}
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	var names []string
	for name, ft := range jsonFields(t) {
		names = append(names, name)
		for ft.Kind() == reflect.Pointer {
			ft = ft.Elem()
		}
		if ft.Kind() == reflect.Struct {
			for child := range jsonFields(ft) {
				names = append(names, name+"."+child)
			}
		}
	}
	return names
}

func jsonFields(t reflect.Type) map[string]reflect.Type {
	fields := make(map[string]reflect.Type)
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		ft := f.Type
		switch {
		case name == "" && (f.Anonymous || strings.Contains(options, "inline")) && ft.Kind() == reflect.Struct:
			for n, nt := range jsonFields(ft) {
				fields[n] = nt
			}
		case name != "" && name != "-":
			fields[name] = ft
		}
	}
	return fields
}

// nearest returns the candidate that name was most likely meant to be, or "": one that differs by a few letters, or one
// of which name is a part, or the other way round. A candidate "parent.child" counts only if name is exactly the child:
// then the indentation is wrong.
func nearest(name string, candidates []string) string {
	slices.Sort(candidates)
	best, least := "", max(1, min(3, len(name)/3))+1
	for _, c := range candidates {
		if _, child, nested := strings.Cut(c, "."); nested {
			if child == name && best == "" {
				best = c
			}
			continue
		}
		d := distance(strings.ToLower(name), strings.ToLower(c))
		if d >= least && 2*min(len(name), len(c)) > max(len(name), len(c)) && (containsFold(name, c) || containsFold(c, name)) {
			d = least - 1
		}
		if d < least {
			best, least = c, d
		}
	}
	return best
}

func containsFold(s, part string) bool {
	return strings.Contains(strings.ToLower(s), strings.ToLower(part))
}

// distance is the number of letters to add, remove, change or swap with their neighbour (optimal string alignment).
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	previous, row := make([]int, len(b)+1), make([]int, len(b)+1)
	var before []int
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, previous, row = previous, row, make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := previous[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			row[j] = min(change, previous[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(b)]
}
