package routing

import (
	"math/bits"
	"strings"
	"unicode/utf8"

	"github.com/weirmesh/weir/internal/model"
)

// Reading is a way in which some common servers read a path and others do not. docs/paths.md lists the servers.
type Reading uint8

const (
	// OneReading: all read the path alike.
	OneReading Reading = iota

	// DotSegment: "." and "..", also with escaped dots, are resolved, or not, or after the path was looked at.
	DotSegment
	// EmptySegment: "//" is one slash, or encloses an empty segment.
	EmptySegment
	// Backslash: a backslash, also an escaped one, is a slash.
	Backslash
	// EscapedSlash: "%2F" is a slash.
	EscapedSlash
	// DoubleEscape: "%2561" is decoded twice.
	DoubleEscape
	// PathParameter: ";" (also escaped) and the rest of the segment are not part of the path.
	PathParameter
	// OuterSpace: escaped spaces that begin or end a segment are passed over.
	OuterSpace
	// ControlCharacter: an escaped control character ends the path or is ignored.
	ControlCharacter
	// EscapedQuestionMark: "%3F" begins the query.
	EscapedQuestionMark
	// InvalidUTF8: escapes that are not UTF-8, also overlong forms, are read as other characters: "%C0%AF" as a slash.
	InvalidUTF8

	// Whether the following readings matter depends on the rules.

	// LetterCase: the case of letters does not count.
	LetterCase
	// TrailingDot: dots that end a segment are passed over.
	TrailingDot
	// EscapedCharacter: an escape means the character it stands for, where RFC 3986 §2.2 lets the two differ: "%40" is "@".
	EscapedCharacter
	// SeveralReadings: several of them together.
	SeveralReadings

	readings = iota
)

// readingWords are a reading's name in logs and its descriptions for people.
var readingWords = [readings]struct{ name, what, servers string }{
	OneReading:          {"", "", ""},
	DotSegment:          {"dot_segment", "a dot segment", "HAProxy, Express, Python, PHP and Ruby do not resolve it; others do, some only after other steps."},
	EmptySegment:        {"empty_segment", `an empty segment ("//")`, "nginx, Apache httpd, lighttpd, Caddy, Tomcat and Rails merge slashes; others do not."},
	Backslash:           {"backslash", "a backslash", "IIS and programs that take paths for files on Windows read it as a slash."},
	EscapedSlash:        {"escaped_slash", "an escaped slash (%2F)", "nginx, lighttpd, Caddy, Jetty, Python and handlers in Go read it as a slash."},
	DoubleEscape:        {"double_escape", "an escape that is escaped itself (%25)", "It is decoded twice where a proxy decodes before the server does."},
	PathParameter:       {"path_parameter", `a path parameter (";")`, "Tomcat, Jetty and Spring drop it."},
	OuterSpace:          {"outer_space", "an escaped space at the beginning or end of a segment", "Windows drops it, and so do programs that trim."},
	ControlCharacter:    {"control_character", "an escaped control character", "Some servers drop it or end the path there; regular expressions may take it for the end of a line."},
	EscapedQuestionMark: {"escaped_question_mark", "an escaped question mark (%3F)", "Servers that decode before they rewrite take what follows for the query, as Apache httpd did."},
	InvalidUTF8:         {"invalid_utf8", "escapes that are not valid UTF-8", "Servers read them as other characters, drop or replace them."},
	LetterCase:          {"letter_case", "letters whose case differs", "Caddy, Express, IIS and files on Windows and macOS ignore letter case."},
	TrailingDot:         {"trailing_dot", "a dot at the end of a segment", "Files on Windows ignore it."},
	EscapedCharacter:    {"escaped_character", "an escaped character", "Servers decode it before they compare paths."},
	SeveralReadings:     {"several", "characters that servers ignore", "Servers differ in more than one of them."},
}

// String is the reading's name in logs, such as "escaped_slash"; empty for OneReading.
func (r Reading) String() string { return readingWords[r].name }

// Words describes the part of the path that servers read differently, such as "an escaped slash (%2F)".
func (r Reading) Words() string { return readingWords[r].what }

// Servers describes which servers read it and how.
func (r Reading) Servers() string { return readingWords[r].servers }

// Readings returns all readings except OneReading.
func Readings() []Reading {
	all := make([]Reading, 0, readings)
	for r := OneReading + 1; r < readings; r++ {
		all = append(all, r)
	}
	return all
}

// readingSet is a set of readings, or of others by their bits.
type readingSet uint32

func setOf(all ...Reading) (s readingSet) {
	for _, r := range all {
		s |= 1 << r
	}
	return s
}

func (s readingSet) has(r Reading) bool { return s&(1<<r) != 0 }

// first is the reading that is told where there are several.
func (s readingSet) first() Reading {
	if s == 0 {
		return OneReading
	}
	return Reading(bits.TrailingZeros32(uint32(s)))
}

const (
	everyReading = readingSet(1<<readings - 2)
	// ofTheRules are the readings that depend on the rules.
	ofTheRules = readingSet(1<<LetterCase | 1<<TrailingDot | 1<<EscapedCharacter)
)

// Ambiguity returns the first way in which common servers read the path of a request differently, whatever the rules
// are; OneReading if they agree. raw is as for NormalizePath, which refuses some ambiguous paths itself.
func Ambiguity(raw string) Reading { return (differences(raw) &^ ofTheRules).first() }

// mark is the meaning of a byte for the readings of a path; most bytes have none.
type mark uint8

const (
	markDot mark = 1 << iota
	// markPercent are bytes that are also escaped in normal form.
	markPercent
	markLetter
	markSemicolon
	markBackslash
	// markControl are control characters and spaces, which NormalizePath refuses.
	markControl
)

var marks = func() (m [256]mark) {
	for c := range m {
		switch {
		case c <= ' ' || c == 0x7f:
			m[c] = markControl
		case c >= 'A' && c <= 'Z':
			m[c] = markLetter
		case model.EscapedInPaths(byte(c)):
			m[c] = markPercent
		}
	}
	m['.'], m['%'], m[';'], m['\\'] = markDot, markPercent, markSemicolon, markBackslash
	return m
}()

// differences returns all readings that the path may have. Of those that depend on the rules it returns the possible
// ones: only letters that are not in lower case count, since rules seldom have others.
func differences(raw string) (s readingSet) {
	var has mark
	for i := 0; i < len(raw); i++ {
		has |= marks[raw[i]]
	}
	if strings.Contains(raw, "//") {
		s |= 1 << EmptySegment
	}
	if has == 0 {
		return s
	}
	if has&markLetter != 0 {
		s |= 1 << LetterCase
	}
	if has&markSemicolon != 0 {
		s |= 1 << PathParameter
	}
	if has&markBackslash != 0 {
		s |= 1 << Backslash
	}
	if has&markControl != 0 {
		s |= 1 << ControlCharacter
	}
	if has&(markDot|markPercent) != 0 {
		for rest, more := raw, true; more; {
			var segment string
			segment, rest, more = strings.Cut(rest, "/")
			s |= segmentDifferences(segment)
		}
	}
	return s
}

// segmentDifferences returns the readings because of dots and escapes in a segment.
func segmentDifferences(segment string) (s readingSet) {
	if segment == "" {
		return 0
	}
	if model.IsDotSegment(segment) {
		s |= 1 << DotSegment
	}
	for i := 0; i < len(segment); {
		b, n := decodeAt(segment, i)
		if n == 1 && b < utf8.RuneSelf {
			if b == '.' && i == len(segment)-1 {
				s |= 1 << TrailingDot
			}
			if model.EscapedInPaths(b) {
				s |= 1 << EscapedCharacter
			}
			i++
			continue
		}
		switch {
		case b >= 'A' && b <= 'Z':
			s |= 1 << LetterCase
		case b == '/':
			s |= 1 << EscapedSlash
		case b == '\\':
			s |= 1 << Backslash
		case b == ';':
			s |= 1 << PathParameter
		case b == '?':
			s |= 1 << EscapedQuestionMark
		case b == ' ':
			if i == 0 || i+n == len(segment) {
				s |= 1 << OuterSpace
			}
		case b < ' ' || b == 0x7f:
			s |= 1 << ControlCharacter
		case b == '.' && i+n == len(segment):
			s |= 1 << TrailingDot
		case b == '%':
			high, n1 := decodeAt(segment, i+n)
			low, n2 := decodeAt(segment, i+n+n1)
			if _, ok := model.Unhex(high, low); ok && n1 > 0 && n2 > 0 {
				s |= 1 << DoubleEscape
			}
		case b >= utf8.RuneSelf:
			// Characters that are not ASCII have a case, too.
			s |= 1 << LetterCase
			var char [utf8.UTFMax]byte
			length, bytes := 0, 0
			for length < len(char) {
				c, k := decodeAt(segment, i+bytes)
				if k == 0 || length > 0 && c&0xc0 != 0x80 {
					break
				}
				char[length], length, bytes = c, length+1, bytes+k
				if utf8.FullRune(char[:length]) {
					break
				}
			}
			if r, size := utf8.DecodeRune(char[:length]); r == utf8.RuneError && size <= 1 {
				s |= 1 << InvalidUTF8
			} else {
				n = bytes
			}
		}
		if b > ' ' && b < 0x7f && !model.Unreserved(b) {
			s |= 1 << EscapedCharacter
		}
		i += n
	}
	return s
}

// decodeAt returns the byte at a position, decoded if it is a valid escape, and its length in s; 0 bytes at the end.
func decodeAt(s string, i int) (b byte, n int) {
	if i >= len(s) {
		return 0, 0
	}
	if s[i] == '%' && len(s)-i >= 3 {
		if b, ok := model.Unhex(s[i+1], s[i+2]); ok {
			return b, 3
		}
	}
	return s[i], 1
}
