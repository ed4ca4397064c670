package openapi

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/weirmesh/weir/internal/model"
)

// Expressions match paths in their plain form (model.PlainPath). There, a character stands by itself if it may, and is
// escaped otherwise, byte by byte, with upper-case digits. A semicolon is as the client wrote it.

// Expressions for the text of a value.
const (
	// continued is a byte of a UTF-8 sequence after the first.
	continued = `%[89AB][0-9A-F]`
	beyond    = `%[CD][0-9A-F]` + continued + `|%E[0-9A-F](?:` + continued + `){2}|%F[0-7](?:` + continued + `){3}`
	// oneChar is one character but the slash, escaped or not.
	oneChar = `(?:[^/%]|%(?:[013-7][0-9A-F]|2[0-9A-E])|` + beyond + `)`
	// anyText is any text without a slash, but none.
	anyText = `[^/]+`
)

// bare reports whether a byte stands in the plain form of a path by itself.
func bare(b byte) bool {
	if b >= utf8.RuneSelf || b == '/' || b == '%' {
		return false
	}
	return model.Unreserved(b) || b == ';' || !model.EscapedInPaths(b) && b > ' ' && b != 0x7f && b != '?' && b != '#'
}

// literalPath returns the plain form of text that stands in a path as it is, where % begins an escape; or what is wrong with it.
func literalPath(text string) (plain, wrong string) {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '?' || c == '#':
			return "", fmt.Sprintf("a path has no %q, which begins what follows it", string(c))
		case c == '%' && i+2 < len(text):
			if v, ok := model.Unhex(text[i+1], text[i+2]); ok {
				if v == 0 {
					return "", "a path has no %00"
				}
				if bare(v) && v != ';' {
					b.WriteByte(v)
				} else {
					fmt.Fprintf(&b, "%%%02X", v)
				}
				i += 2
				continue
			}
			b.WriteString("%25")
		case c == '/' || bare(c):
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String(), ""
}

// quoteValue returns an expression for a value's text; false if no segment of a path can have it.
func quoteValue(text string) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '/' || c == 0:
			return "", false
		case c == ';':
			b.WriteString("(?:;|%3B)")
		case bare(c):
			b.WriteString(regexp.QuoteMeta(string(c)))
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String(), text != "" && text != "." && text != ".."
}

// charSet returns an expression for one character of a class, which is pairs of its first and last ones. The slash and
// NUL are none of them. It is empty if there is none; false if the class is too large.
func charSet(class []rune) (string, bool) {
	var raw, escaped [256]bool
	var alternatives []string
	ranges := 0
	for i := 0; i+1 < len(class); i += 2 {
		lo, hi := class[i], class[i+1]
		for c := max(lo, 1); c <= min(hi, utf8.RuneSelf-1); c++ {
			switch {
			case c == '/':
			case c == ';':
				raw[c], escaped[c] = true, true
			case bare(byte(c)):
				raw[c] = true
			default:
				escaped[c] = true
			}
		}
		if lo = max(lo, utf8.RuneSelf); lo > hi {
			continue
		}
		if ranges++; ranges > 16 {
			return "", false
		}
		if lo == utf8.RuneSelf && hi == utf8.MaxRune {
			alternatives = append(alternatives, beyond)
			continue
		}
		alternatives = append(alternatives, sequences(lo, hi)...)
	}
	if s := byteSet(escaped); s != "" {
		alternatives = slices.Insert(alternatives, 0, s)
	}
	if s := rawSet(raw); s != "" {
		alternatives = slices.Insert(alternatives, 0, s)
	}
	switch {
	case len(alternatives) == 0:
		return "", true
	case len(alternatives) == 1 && !strings.Contains(alternatives[0], "|") && strings.HasPrefix(alternatives[0], "["):
		return alternatives[0], true
	}
	return "(?:" + strings.Join(alternatives, "|") + ")", true
}

// rawSet is a character class of ASCII characters.
func rawSet(set [256]bool) string {
	var b strings.Builder
	write := func(c int) {
		if c < utf8.RuneSelf && strings.ContainsRune(`\]^-[`, rune(c)) {
			b.WriteByte('\\')
		}
		b.WriteByte(byte(c))
	}
	for lo := 0; lo < 256; lo++ {
		if !set[lo] {
			continue
		}
		hi := lo
		for hi+1 < 256 && set[hi+1] {
			hi++
		}
		write(lo)
		if hi > lo+1 {
			b.WriteByte('-')
		}
		if hi > lo {
			write(hi)
		}
		lo = hi
	}
	if b.Len() == 0 {
		return ""
	}
	return "[" + b.String() + "]"
}

// byteSet is an expression for one escaped byte, without alternatives at the top.
func byteSet(set [256]bool) string {
	var lows [16]uint16
	for b, in := range set {
		if in {
			lows[b>>4] |= 1 << (b & 15)
		}
	}
	var parts []string
	done := uint16(0)
	for h := range 16 {
		if lows[h] == 0 || done&(1<<h) != 0 {
			continue
		}
		highs := uint16(0)
		for i := h; i < 16; i++ {
			if lows[i] == lows[h] {
				highs |= 1 << i
			}
		}
		done |= highs
		parts = append(parts, digits(highs)+digits(lows[h]))
	}
	switch len(parts) {
	case 0:
		return ""
	case 1:
		return "%" + parts[0]
	}
	return "%(?:" + strings.Join(parts, "|") + ")"
}

// digits is an expression for one hexadecimal digit of a set.
func digits(set uint16) string {
	const all = "0123456789ABCDEF"
	var chars [256]bool
	n, last := 0, byte(0)
	for i := range 16 {
		if set&(1<<i) != 0 {
			chars[all[i]] = true
			n, last = n+1, all[i]
		}
	}
	if n == 1 {
		return string(last)
	}
	return rawSet(chars)
}

// sequences are expressions for the characters between two beyond ASCII, as escaped UTF-8.
func sequences(lo, hi rune) (out []string) {
	switch {
	case lo > hi:
		return nil
	case lo <= 0xdfff && hi >= 0xd800: // surrogates are no characters
		return append(sequences(lo, min(hi, 0xd7ff)), sequences(max(lo, 0xe000), hi)...)
	}
	for _, most := range []rune{0x7ff, 0xffff} {
		if lo <= most && hi > most {
			return append(sequences(lo, most), sequences(most+1, hi)...)
		}
	}
	for shift := 6; shift <= 18; shift += 6 {
		mask := rune(1)<<shift - 1
		if lo&^mask == hi&^mask {
			continue
		}
		if lo&mask != 0 {
			return append(sequences(lo, lo|mask), sequences(lo|mask+1, hi)...)
		}
		if hi&mask != mask {
			return append(sequences(lo, hi&^mask-1), sequences(hi&^mask, hi)...)
		}
	}
	first, last := utf8.AppendRune(nil, lo), utf8.AppendRune(nil, hi)
	var b strings.Builder
	for i := range first {
		var set [256]bool
		for c := int(first[i]); c <= int(last[i]); c++ {
			set[c] = true
		}
		b.WriteString(byteSet(set))
	}
	return []string{b.String()}
}
