package resource

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// locator finds the lines of fields in the text of a document. It parses the text only when it is asked.
type locator struct {
	text   []byte
	prefix string // of the object inside of the document, such as "items[3]"
	root   *yaml.Node
	parsed bool
}

// line returns the line of the field, counted from 0, or that of the innermost part of its path that is written.
func (l *locator) line(path string) int {
	if l.prefix != "" {
		path = strings.TrimSuffix(l.prefix+"."+path, ".")
	}
	if path == "" {
		return 0
	}
	if !l.parsed {
		l.parsed = true
		var doc yaml.Node
		if err := yaml.Unmarshal(l.text, &doc); err == nil && len(doc.Content) > 0 {
			l.root = doc.Content[0]
		}
	}
	if l.root == nil {
		return 0
	}
	return max(0, walk(l.root, path, l.root.Line)-1)
}

// walk follows a field path as the API server writes it. Keys of maps may hold dots, so at each mapping the longest key
// that fits is taken.
func walk(n *yaml.Node, path string, line int) int {
	for steps := 0; path != "" && steps < 1000; steps++ {
		if n.Kind == yaml.AliasNode {
			n = n.Alias
		}
		path = strings.TrimPrefix(path, ".")
		switch n.Kind {
		case yaml.SequenceNode:
			index, rest, ok := cutIndex(path)
			i, err := strconv.Atoi(index)
			if !ok || err != nil || i < 0 || i >= len(n.Content) {
				return line
			}
			n, path = n.Content[i], rest
			line = n.Line
		case yaml.MappingNode:
			key, value, rest := mapEntry(n, path)
			if value == nil {
				return line
			}
			n, path, line = value, rest, key.Line
		default:
			return line
		}
	}
	return line
}

func mapEntry(n *yaml.Node, path string) (key, value *yaml.Node, rest string) {
	bracketed, after, ok := cutIndex(path)
	longest := -1
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i].Value
		switch {
		case ok && k == bracketed:
			return n.Content[i], n.Content[i+1], after
		case len(k) > longest && strings.HasPrefix(path, k) && (len(path) == len(k) || path[len(k)] == '.' || path[len(k)] == '['):
			longest = len(k)
			key, value, rest = n.Content[i], n.Content[i+1], path[len(k):]
		}
	}
	return key, value, rest
}

// cutIndex cuts "[x].rest" into "x" and ".rest".
func cutIndex(path string) (index, rest string, ok bool) {
	if !strings.HasPrefix(path, "[") {
		return "", path, false
	}
	end := strings.IndexByte(path, ']')
	if end < 0 {
		return "", path, false
	}
	return path[1:end], path[end+1:], true
}
