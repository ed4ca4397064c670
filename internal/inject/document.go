package inject

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// templates says where objects have pods, by group and kind. A Pod is one itself.
var templates = map[[2]string][]string{
	{"", "Pod"}:                       {},
	{"", "ReplicationController"}:     {"spec", "template"},
	{"apps", "Deployment"}:            {"spec", "template"},
	{"apps", "StatefulSet"}:           {"spec", "template"},
	{"apps", "DaemonSet"}:             {"spec", "template"},
	{"apps", "ReplicaSet"}:            {"spec", "template"},
	{"batch", "Job"}:                  {"spec", "template"},
	{"batch", "CronJob"}:              {"spec", "jobTemplate", "spec", "template"},
	{"apps.kruise.io", "CloneSet"}:    {"spec", "template"},
	{"apps.kruise.io", "StatefulSet"}: {"spec", "template"},
	{"apps.kruise.io", "DaemonSet"}:   {"spec", "template"},
}

// Found is an object with pods, and what becomes of these.
type Found struct {
	Kind, Namespace, Name string
	// Labels are those of the pods.
	Labels map[string]string
	Decision
}

// String is "Deployment shop/web".
func (f *Found) String() string {
	name := f.Name
	if f.Namespace != "" {
		name = f.Namespace + "/" + name
	}
	return f.Kind + " " + name
}

// Document injects the pods of an object, or of all objects of a List, as if their namespaces asked for it. It does not
// change tree, and returns it if there is nothing to inject.
func (s *Settings) Document(tree map[string]any) (out map[string]any, found []Found, err error) {
	kind, _ := tree["kind"].(string)
	version, _ := tree["apiVersion"].(string)
	if items, ok := tree["items"].([]any); ok && strings.HasSuffix(kind, "List") {
		return s.list(tree, kind, version, items)
	}
	group, _, grouped := strings.Cut(version, "/")
	if !grouped {
		group = ""
	}
	path, ok := templates[[2]string{group, kind}]
	if !ok {
		return tree, nil, nil
	}
	meta, _ := tree["metadata"].(map[string]any)
	f := Found{Kind: kind}
	f.Namespace, _ = meta["namespace"].(string)
	if f.Name, _ = meta["name"].(string); f.Name == "" {
		prefix, _ := meta["generateName"].(string)
		f.Name = prefix + "..."
	}
	out, err = at(tree, path, func(pod map[string]any) (map[string]any, error) {
		typed, err := Typed(pod)
		if err != nil {
			return nil, err
		}
		f.Labels = typed.Labels
		f.Decision = s.Pod(f.Namespace, map[string]string{Label: Enabled}, typed)
		return f.Apply(pod)
	})
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", &f, err)
	}
	return out, []Found{f}, nil
}

// list injects the items of a List. Those of a list of one kind, such as a PodList, may leave their kind out.
func (s *Settings) list(tree map[string]any, kind, version string, items []any) (out map[string]any, found []Found, err error) {
	items = slices.Clone(items)
	for i, item := range items {
		object, ok := item.(map[string]any)
		if !ok {
			continue
		}
		bare := object["kind"] == nil && kind != "List"
		if bare {
			object = maps.Clone(object)
			object["kind"], object["apiVersion"] = strings.TrimSuffix(kind, "List"), version
		}
		after, more, err := s.Document(object)
		if err != nil {
			return nil, nil, fmt.Errorf("items[%d]: %w", i, err)
		}
		if found = append(found, more...); bare {
			after = maps.Clone(after)
			delete(after, "kind")
			delete(after, "apiVersion")
		}
		items[i] = after
	}
	out = maps.Clone(tree)
	out["items"] = items
	return out, found, nil
}

// at replaces what a tree has at a path by what f makes of it, in a copy.
func at(tree map[string]any, path []string, f func(map[string]any) (map[string]any, error)) (map[string]any, error) {
	if len(path) == 0 {
		return f(tree)
	}
	inner, ok := tree[path[0]].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s: want an object", strings.Join(path, "."))
	}
	changed, err := at(inner, path[1:], f)
	if err != nil {
		return nil, err
	}
	out := maps.Clone(tree)
	out[path[0]] = changed
	return out, nil
}
