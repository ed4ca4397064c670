package resource

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
)

// source is the text of a document. It is parsed when the position of a field is first requested.
type source struct {
	text []byte
	json bool

	once sync.Once
	root *written
}

// written is a value of a document with its children: the entries of a mapping have a key, those of a list have none.
type written struct {
	key      string
	line     int32 // from 1, of the key, or of the entry of a list
	list     bool
	children []*written
}

// locator finds the lines of the fields of an object.
type locator struct {
	*source
	prefix string // of the object inside of the document, such as "items[3]"
}

// line returns the line of the field, counted from 0, or that of the innermost part of its path that is written.
func (l *locator) line(path string) int {
	if l.prefix != "" {
		path = strings.TrimSuffix(l.prefix+"."+path, ".")
	}
	if path == "" || l.source == nil {
		return 0
	}
	l.once.Do(l.parse)
	if l.root == nil {
		return 0
	}
	return max(0, int(l.root.find(path))-1)
}

func (s *source) parse() {
	if s.json {
		d := json.NewDecoder(bytes.NewReader(s.text))
		d.UseNumber()
		t := tokens{d: d, text: s.text, line: 1}
		root := &written{line: 1}
		if t.value(root) == nil {
			s.root = root
		}
		return
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(s.text, &doc); err == nil && len(doc.Content) > 0 {
		s.root = &written{line: int32(doc.Content[0].Line)}
		f := filler{seen: map[*yaml.Node]*written{}, merges: maxMerges}
		f.fill(s.root, doc.Content[0])
	}
}

// filler makes a tree of a parsed document.
type filler struct {
	seen map[*yaml.Node]*written // by anchored node
	// merges is how many more entries may be taken from other mappings.
	merges int
}

// maxMerges bounds the cost of merge keys: they can name mappings that name others, and so on.
const maxMerges = 10_000

// fill gives w the children that n has. The target of an alias is shared; an alias inside its own target is empty.
func (f *filler) fill(w *written, n *yaml.Node) {
	if n.Kind == yaml.AliasNode {
		if of, ok := f.seen[n.Alias]; ok {
			w.list, w.children = of.list, of.children
		}
		return
	}
	switch n.Kind {
	case yaml.SequenceNode:
		w.list = true
		for _, c := range n.Content {
			item := &written{line: int32(c.Line)}
			f.fill(item, c)
			w.children = append(w.children, item)
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			entry := &written{key: n.Content[i].Value, line: int32(n.Content[i].Line)}
			f.fill(entry, n.Content[i+1])
			w.children = append(w.children, entry)
		}
		for _, c := range w.children[:len(w.children):len(w.children)] {
			if c.key != "<<" { // a merge key brings the entries of other mappings (YAML 1.1)
				continue
			}
			if c.list {
				for _, of := range c.children {
					f.merge(w, of)
				}
			} else {
				f.merge(w, c)
			}
		}
	}
	if n.Anchor != "" {
		f.seen[n] = w
	}
}

func (f *filler) merge(w, of *written) {
	n := min(len(of.children), f.merges)
	f.merges -= n
	w.children = append(w.children, of.children[:n]...)
}

// tokens reads JSON and counts lines.
type tokens struct {
	d    *json.Decoder
	text []byte
	at   int
	line int32
}

// next returns the next token, and the line on which it ends, which is where it begins: no string of JSON holds a line break.
func (t *tokens) next() (json.Token, int32, error) {
	token, err := t.d.Token()
	end := int(t.d.InputOffset())
	t.line += int32(bytes.Count(t.text[t.at:end], []byte("\n")))
	t.at = end
	return token, t.line, err
}

func (t *tokens) value(w *written) error {
	token, line, err := t.next()
	if err != nil {
		return err
	}
	if w.list || w.key == "" {
		w.line = line
	}
	w.list = token == json.Delim('[')
	if !w.list && token != json.Delim('{') {
		return nil
	}
	for t.d.More() {
		child := &written{}
		if !w.list {
			key, line, err := t.next()
			if err != nil {
				return err
			}
			child.key, child.line = fmt.Sprint(key), line
		}
		if err := t.value(child); err != nil {
			return err
		}
		w.children = append(w.children, child)
	}
	_, _, err = t.next()
	return err
}

// find follows a field path as the API server writes it. Keys of maps may hold dots, so at each mapping the longest key
// that fits is taken.
func (w *written) find(path string) int32 {
	line := w.line
	for root := w; path != ""; {
		path = strings.TrimPrefix(path, ".")
		var next *written
		var rest string
		if w.list {
			index, after, ok := cutIndex(path)
			if i, err := strconv.Atoi(index); ok && err == nil && i >= 0 && i < len(w.children) {
				next, rest = w.children[i], after
			}
		} else if next, rest = w.entry(path); next == nil && w == root {
			// The early versions of some kinds have no spec.
			if after, ok := strings.CutPrefix(path, "spec."); ok {
				next, rest = w.entry(after)
			}
		}
		if next == nil {
			return line
		}
		w, path, line = next, rest, next.line
	}
	return line
}

func (w *written) entry(path string) (entry *written, rest string) {
	bracketed, after, ok := cutIndex(path)
	longest := -1
	for _, c := range w.children {
		k := c.key
		switch {
		case ok && k == bracketed:
			return c, after
		case len(k) > longest && strings.HasPrefix(path, k) && (len(path) == len(k) || path[len(k)] == '.' || path[len(k)] == '['):
			longest = len(k)
			entry, rest = c, path[len(k):]
		}
	}
	return entry, rest
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

// Fields knows the positions of an object's fields. The zero value knows none.
type Fields struct {
	at   locator
	line int // of the document in its file, from 1
}

// Line returns the line of a field in the object's file, from 1. If the field is not written, it returns the line of
// the innermost part of its path that is; 0 if that is unknown. It may be called by several goroutines.
func (f Fields) Line(path string) int {
	if f.at.source == nil || path == "" {
		return 0
	}
	return f.line + f.at.line(path)
}
