package resource

import (
	"fmt"
	"slices"
	"strings"
)

// Written returns an object as it is written in the files, of any kind, those that Weir does not read included: maps,
// slices and scalars, of which nothing is left out, completed or converted, but for a namespace that is missing. Each
// call parses the object's text anew, so the caller owns the result. It is nil if no file has such an object. The Fields
// are the positions of its fields. A cluster's Set knows none of it.
func (s *Set) Written(k Key) (u map[string]any, fields Fields) {
	fields, ok := s.Fields[k]
	if !ok {
		fields, ok = s.foreign[k]
	}
	if !ok || fields.at.source == nil {
		return nil, Fields{}
	}
	value, _, ok := part{text: fields.at.text, json: fields.at.json}.parse()
	if !ok {
		return nil, Fields{}
	}
	u = within(value, fields.at.prefix)
	if u == nil {
		return nil, Fields{}
	}
	if meta, ok := u["metadata"].(map[string]any); ok && k.Namespace != "" {
		meta["namespace"] = k.Namespace
	}
	return u, fields
}

// Unused returns findings without those of the Set that call kinds ignored of which all objects are used, though they are
// not read: something is done with what their users wrote.
func (s *Set) Unused(findings []Finding, used []Key) []Finding {
	if len(used) == 0 {
		return findings
	}
	count := make(map[string]int, len(used))
	seen := make(map[Key]bool, len(used))
	for _, k := range used {
		if _, ok := s.foreign[k]; ok && !seen[k] {
			seen[k] = true
			count[k.Group+" "+k.Kind]++
		}
	}
	all := make(map[string]int, len(s.PassedOver)) // whatever the version
	group := func(written string) string {
		apiVersion, kind, _ := strings.Cut(written, " ")
		g, _, found := strings.Cut(apiVersion, "/")
		if !found {
			g = ""
		}
		return g + " " + kind
	}
	for written, n := range s.PassedOver {
		all[group(written)] += n
	}
	quiet := make(map[Origin]bool)
	for written, at := range s.overlooked {
		if g := group(written); count[g] == all[g] {
			quiet[at] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(findings), func(f Finding) bool {
		return (f.Code == CodeUnknownKind || f.Code == CodeNotServed) && quiet[f.Origin]
	})
}

// within returns the object at a prefix such as "items[3].items[0]" of a list, or nil. Items of a typed list may leave
// out what the list says.
func within(value any, prefix string) map[string]any {
	u, _ := value.(map[string]any)
	if prefix == "" || u == nil {
		return u
	}
	var index int
	step, rest, _ := strings.Cut(prefix, ".")
	items, ok := u["items"].([]any)
	if _, err := fmt.Sscanf(step, "items[%d]", &index); err != nil || !ok || index < 0 || index >= len(items) {
		return nil
	}
	list, _ := u["kind"].(string)
	if item, ok := items[index].(map[string]any); ok && list != "List" {
		if item["kind"] == nil {
			item["kind"] = strings.TrimSuffix(list, "List")
		}
		if item["apiVersion"] == nil {
			item["apiVersion"] = u["apiVersion"]
		}
	}
	return within(items[index], rest)
}

// foreignKey is the key of an object of a kind that is not read; ok is false if it has no name.
func foreignKey(apiVersion, kind string, u map[string]any) (k Key, ok bool) {
	group, _, found := strings.Cut(apiVersion, "/")
	if !found {
		group = ""
	}
	meta, _ := u["metadata"].(map[string]any)
	name, _ := meta["name"].(string)
	namespace, _ := meta["namespace"].(string)
	if namespace == "" {
		namespace = "default"
	}
	return Key{Group: group, Kind: kind, Namespace: namespace, Name: name}, name != ""
}
