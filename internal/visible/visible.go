// Package visible makes what others wrote visible where programs print it: names, URLs and options of somebody else must not move a terminal's cursor,
// turn text around, hide in it, begin a line of their own, or be obeyed by what reads the output, such as a CI system that takes commands from a log.
//
// Text is for a piece of text inside of a line, Lines for lines that are written as they are, JSON for a document. All three agree on which characters are
// meant. The package knows nothing of who prints.
package visible

import (
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text escapes, as a string of Go would, what is not seen or is obeyed: control characters of all kinds with line breaks and tabs, spaces other than the
// usual one, characters that turn text around or have no width, and bytes that are not UTF-8. It also breaks the word "##[", by which a command of CI
// systems begins wherever in a line it stands (GitHub's runner, Azure Pipelines; "##vso[" likewise). What it returns has no line break, and Text leaves it
// as it is.
func Text(s string) string {
	return escape(s, quote, `\x23`, nil)
}

// Lines escapes as Text does, but leaves line breaks, and the sequences of own, such as those for colours. A line whose first word begins with "::" would be a
// command of GitHub's runner, and gets its first colon escaped.
func Lines(s string, own ...string) string {
	var b strings.Builder
	for line := range strings.Lines(s) {
		line, broken := strings.CutSuffix(line, "\n")
		line = escape(line, quote, `\x23`, own)
		body := line
		for again := true; again; {
			again = false
			body = strings.TrimLeft(body, " ")
			for _, o := range own {
				if rest, ok := strings.CutPrefix(body, o); ok {
					body, again = rest, true
				}
			}
		}
		if strings.HasPrefix(body, "::") {
			line = line[:len(line)-len(body)] + `\x3a` + body[1:]
		}
		b.WriteString(line)
		if broken {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// JSON writes the same characters inside of a document's strings as \u escapes (RFC 8259, section 7), by which the values stay what they are. Line breaks and
// tabs between values stay. Text must be a document of JSON.
func JSON(text []byte) []byte {
	const between = "\n\r\t" // inside of strings JSON has none of them
	if !hidden(string(text), between) {
		return text
	}
	return []byte(escape(string(text), unicodeEscape, `\u0023`, []string{"\n", "\r", "\t"}))
}

// YAML is JSON for documents of JSON that are read as YAML, which has other escapes for characters beyond 16 bits (YAML 1.2.2, section 5.7).
func YAML(text []byte) []byte {
	if !hidden(string(text), "\n\r\t") {
		return text
	}
	return []byte(escape(string(text), yamlEscape, `\u0023`, []string{"\n", "\r", "\t"}))
}

// Plain means that Lines leaves a text as it is.
func Plain(text []byte) bool { return Lines(string(text)) == string(text) }

func hidden(s, but string) bool {
	for i, r := range s {
		if obeyed(r) && !strings.ContainsRune(but, r) || r == utf8.RuneError && isByte(s[i:]) {
			return true
		}
	}
	return strings.Contains(s, "##[") || strings.Contains(s, "##vso[")
}

// obeyed are the characters that are not seen as themselves.
func obeyed(r rune) bool {
	if r < utf8.RuneSelf {
		return r < ' ' || r == 0x7f
	}
	return !unicode.IsPrint(r) || unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector, unicode.Prepended_Concatenation_Mark)
}

// isByte means that a text begins with a byte that is not UTF-8.
func isByte(s string) bool {
	r, n := utf8.DecodeRuneInString(s)
	return r == utf8.RuneError && n == 1
}

// escape escapes by as, but leaves what begins with one of own. mark is the second # of a command's beginning.
func escape(s string, as func(*strings.Builder, string, rune), mark string, own []string) string {
	if !hidden(s, "") {
		return s
	}
	var b strings.Builder
next:
	for s != "" {
		for _, o := range own {
			if strings.HasPrefix(s, o) {
				b.WriteString(o)
				s = s[len(o):]
				continue next
			}
		}
		if strings.HasPrefix(s, "##[") || strings.HasPrefix(s, "##vso[") {
			b.WriteString("#" + mark)
			s = s[2:]
			continue
		}
		r, n := utf8.DecodeRuneInString(s)
		if obeyed(r) || isByte(s) {
			as(&b, s[:n], r)
		} else {
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}

// quote is the escape of strings in Go.
func quote(b *strings.Builder, s string, r rune) {
	if isByte(s) {
		b.WriteString(`\x` + hex(rune(s[0]), 2))
		return
	}
	b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
}

func unicodeEscape(b *strings.Builder, _ string, r rune) {
	if r > 0xffff {
		r -= 0x10000
		b.WriteString(`\u` + hex(0xd800+r>>10, 4) + `\u` + hex(0xdc00+r&0x3ff, 4))
		return
	}
	b.WriteString(`\u` + hex(r, 4))
}

func yamlEscape(b *strings.Builder, s string, r rune) {
	if r > 0xffff {
		b.WriteString(`\U` + hex(r, 8))
		return
	}
	unicodeEscape(b, s, r)
}

func hex(r rune, digits int) string {
	text := strconv.FormatInt(int64(r), 16)
	return strings.Repeat("0", max(digits-len(text), 0)) + text
}

// Writer passes on what is written to it as As makes it; each Write has whole lines, or a whole document.
type Writer struct {
	W  io.Writer
	As func([]byte) []byte
}

// Write implements io.Writer.
func (w Writer) Write(text []byte) (int, error) {
	if _, err := w.W.Write(w.As(text)); err != nil {
		return 0, err
	}
	return len(text), nil
}

// LogLines is Lines for a Writer.
func LogLines(text []byte) []byte { return []byte(Lines(string(text))) }
