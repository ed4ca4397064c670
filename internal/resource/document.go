package resource

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// part is the text of one document of a file.
type part struct {
	text []byte
	// line is that of the text's first byte, from 1.
	line int
	json bool
}

// splitFile cuts the content of a file into documents, and drops those that have only comments. Cutting never fails:
// invalid documents are found when they are decoded.
func splitFile(content []byte, isJSON bool) []part {
	content = bytes.TrimPrefix(content, []byte("\ufeff"))
	if isJSON {
		return splitJSON(content, 1)
	}
	var parts []part
	flush := func(text []byte, line int) {
		text, skipped := trimHead(text)
		if len(text) == 0 {
			return
		}
		if text[0] == '{' && json.Valid(firstValue(text)) {
			parts = append(parts, splitJSON(text, line+skipped)...)
			return
		}
		parts = append(parts, part{text: text, line: line + skipped})
	}
	start, startLine := 0, 1
	for at, line := 0, 1; at < len(content); line++ {
		end := len(content)
		if i := bytes.IndexByte(content[at:], '\n'); i >= 0 {
			end = at + i + 1
		}
		if text := content[at:end]; marks(text, "---") || marks(text, "...") {
			flush(content[start:at], startLine)
			start, startLine = at+3, line // text after the mark on its line belongs to the document
		}
		at = end
	}
	flush(content[start:], startLine)
	return parts
}

// marks reports whether a line is a document marker (YAML 1.2.2 §9.1.2).
func marks(line []byte, mark string) bool {
	return bytes.HasPrefix(line, []byte(mark)) && (len(line) == 3 || strings.IndexByte(" \t\r\n", line[3]) >= 0)
}

// trimHead drops leading blank, comment and directive lines, and counts them. If there are no other lines, nothing is
// left.
func trimHead(text []byte) (rest []byte, skipped int) {
	for len(text) > 0 {
		line, after, more := bytes.Cut(text, []byte("\n"))
		if t := bytes.TrimSpace(line); len(t) > 0 && t[0] != '#' && t[0] != '%' {
			return text, skipped
		}
		if !more {
			return nil, skipped
		}
		text = after
		skipped++
	}
	return nil, skipped
}

// firstValue returns the first JSON value of text, or nil.
func firstValue(text []byte) []byte {
	var v json.RawMessage
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&v); err != nil {
		return nil
	}
	return v
}

// splitJSON cuts concatenated JSON values. The text after an error is one part.
func splitJSON(text []byte, line int) []part {
	var parts []part
	d := json.NewDecoder(bytes.NewReader(text))
	for at := 0; ; {
		rest := bytes.TrimLeft(text[at:], " \t\r\n")
		if len(rest) == 0 {
			return parts
		}
		start := len(text) - len(rest)
		p := part{text: rest, line: line + bytes.Count(text[:start], []byte("\n")), json: true}
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			return append(parts, p)
		}
		end := int(d.InputOffset())
		p.text = text[start:end]
		parts = append(parts, p)
		at = end
	}
}

var (
	yamlLine  = regexp.MustCompile(`line (\d+): ?`)
	yamlTwice = regexp.MustCompile(`line (\d+): (?:key )?(.*) already set in map`)
)

// parse turns the text of a document into maps, slices, strings, int64, float64 and bool. Findings carry lines counted
// from 0; value is nil and ok false when the text is neither YAML nor JSON.
func (p part) parse() (value any, findings []Finding, ok bool) {
	text := p.text
	if !p.json {
		converted, err := yaml.YAMLToJSONStrict(text)
		if err != nil {
			for _, m := range yamlTwice.FindAllStringSubmatch(err.Error(), maxFindings) {
				f := finding(CodeDuplicateField, "", "key "+m[2]+" is written twice in one mapping: the last counts")
				f.Origin.Line = lineFrom(m[1])
				findings = append(findings, f)
			}
			if len(findings) > 0 {
				converted, err = yaml.YAMLToJSON(text)
			}
		}
		if err != nil {
			return nil, []Finding{syntaxFinding(err, p.text)}, false
		}
		text = converted
	}
	strict, err := kjson.UnmarshalStrict(text, &value, kjson.DisallowDuplicateFields)
	if err != nil {
		f := finding(CodeSyntax, "", "not JSON: "+err.Error())
		if isSyntax, offset := kjson.SyntaxErrorOffset(err); isSyntax && p.json {
			f.Origin.Line = bytes.Count(text[:min(int(offset), len(text))], []byte("\n"))
		}
		return nil, []Finding{f}, false
	}
	for i, err := range strict {
		if i == maxFindings {
			break
		}
		path := ""
		if fe, isField := err.(kjson.FieldError); isField {
			path = fe.FieldPath()
		}
		findings = append(findings, finding(CodeDuplicateField, path, fmt.Sprintf("field %q is written twice: the last counts", path)))
	}
	return value, findings, true
}

// starred is a document of which values that are exactly * were read as text, and the text with these in quotes, on the
// same lines.
type starred struct {
	value any
	text  []byte
}

// parseStars is parse for a text that is no YAML, and that is if values that are exactly * are put in quotes.
func (p part) parseStars() (read starred, findings []Finding, ok bool) {
	text, lines := quoteStars(p.text)
	if len(lines) == 0 {
		return starred{}, nil, false
	}
	value, findings, ok := part{text: text, line: p.line}.parse()
	if !ok {
		return starred{}, nil, false
	}
	for i, line := range lines {
		if i == maxFindings {
			break
		}
		f := finding(CodeStar, "", `the value * is read as the text "*"; without quotes it is no YAML, and other programs reject the document`)
		f.Origin.Line = line
		findings = append(findings, f)
	}
	return starred{value, text}, findings, true
}

var (
	template = regexp.MustCompile(`\{\{-?\s*[.$a-zA-Z/"(]`)
	tabbed   = regexp.MustCompile(`(?m)^ *\t`)
)

// syntaxFinding says why a text is not YAML, and names the usual causes: a template that was not rendered, tabs.
func syntaxFinding(err error, text []byte) Finding {
	msg := strings.TrimPrefix(err.Error(), "error converting YAML to JSON: ")
	line := 0
	if m := yamlLine.FindStringSubmatch(msg); m != nil {
		line = lineFrom(m[1])
		msg = strings.Replace(msg, m[0], "", 1) // the line of the file is in the origin
	}
	// The text may be a secret: an unquoted value that begins with "*" is taken for the name of an anchor.
	if strings.Contains(msg, "unknown anchor") {
		msg = `a value begins with "*", which YAML reads as the name of an anchor; put the value in quotes`
	}
	f := finding(CodeSyntax, "", "not YAML: "+strings.TrimPrefix(msg, "yaml: "))
	f.Origin.Line = line
	lineOf := func(m []int) int { return bytes.Count(text[:m[1]], []byte("\n")) }
	if m := template.FindIndex(text); m != nil {
		f.Message = "the document is a template ({{...}}), not YAML"
		f.Fix = `render it first, for instance with "helm template", and check what comes out`
		f.Origin.Line = lineOf(m)
	} else if m := tabbed.FindIndex(text); m != nil {
		f.Message = "a line is indented by a tab, which YAML does not allow"
		f.Fix = "indent by spaces"
		f.Origin.Line = lineOf(m)
	}
	return f
}

func lineFrom(digits string) int {
	n, err := strconv.Atoi(digits)
	if err != nil {
		return 0
	}
	return max(0, n-1)
}
