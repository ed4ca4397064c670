package resource

import (
	"bytes"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// maxStars bounds how many values of a document are read as "*".
const maxStars = 10_000

// quoteStars puts values that are exactly *, which is no YAML, in quotes. It returns the text, and the line of each value,
// from 0. Nothing else of the text changes. There are none if the text would be no YAML with the quotes either.
func quoteStars(text []byte) (quoted []byte, lines []int) {
	var candidates []int
	for at := 0; len(candidates) <= maxStars; at++ {
		i := bytes.IndexByte(text[at:], '*')
		if i < 0 {
			break
		}
		if at += i; starAlone(text, at) {
			candidates = append(candidates, at)
		}
	}
	if len(candidates) == 0 || len(candidates) > maxStars {
		return nil, nil
	}
	// What looks like a value can be a part of a text or a comment. The parser says which are values: it reads a character in
	// place of each that means nothing to it, and that the text does not have.
	const mark = "\ue000"
	var doc yaml.Node
	if bytes.Contains(text, []byte(mark)) || yaml.Unmarshal(putFor(text, candidates, mark), &doc) != nil {
		return nil, nil
	}
	values := map[position]bool{}
	findValues(&doc, mark, values)
	var stars []int
	at := position{1, 1}
	for i, next := 0, 0; next < len(candidates); {
		if i == candidates[next] {
			if values[at] {
				stars, lines = append(stars, i), append(lines, at.line-1)
			}
			next++
		}
		r, size := utf8.DecodeRune(text[i:])
		i += size
		if at.column++; r == '\n' {
			at = position{at.line + 1, 1}
		}
	}
	return putFor(text, stars, `"*"`), lines
}

// position is a line and a column, in characters, from 1.
type position struct{ line, column int }

// findValues finds values without quotes.
func findValues(n *yaml.Node, value string, at map[position]bool) {
	if n.Kind == yaml.ScalarNode && n.Style == 0 && n.Value == value {
		at[position{n.Line, n.Column}] = true
	}
	for _, c := range n.Content {
		findValues(c, value, at)
	}
}

// starAlone reports whether the * at a place can be a whole value.
func starAlone(text []byte, at int) bool {
	before := bytes.TrimRight(text[:at], " \t")
	spaced := len(before) < at
	if len(before) > 0 {
		switch c := before[len(before)-1]; {
		case c == '\n' || c == '[' || c == '{' || c == ',':
		case (c == ':' || c == '-') && spaced:
		default:
			return false
		}
	}
	after := bytes.TrimLeft(text[at+1:], " \t\r")
	if len(after) == 0 {
		return true
	}
	switch after[0] {
	case '\n', ',', ']', '}':
		return true
	case '#':
		return len(after) < len(text)-at-1
	}
	return false
}

// putFor puts others in place of the bytes at some places.
func putFor(text []byte, at []int, by string) []byte {
	out := make([]byte, 0, len(text)+len(by)*len(at))
	from := 0
	for _, i := range at {
		out = append(append(out, text[from:i]...), by...)
		from = i + 1
	}
	return append(out, text[from:]...)
}
