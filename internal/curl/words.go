package curl

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// split splits a command into words as a shell does: all three kinds of quotes ('...', "...", $'...'), backslashes,
// continued lines. rest is the remaining text from an operator such as | or ; on. Text that only a shell can expand is
// an error.
func split(text string) (words []string, rest string, err error) {
	s := shellScanner{text: text}
	for {
		word, ok, err := s.word()
		if err != nil {
			return nil, "", err
		}
		if !ok {
			return words, strings.TrimSpace(s.text), nil
		}
		words = append(words, word)
	}
}

// shellScanner holds the unread text.
type shellScanner struct {
	text string
	b    strings.Builder
}

const (
	shellSpace     = " \t\r\n"
	shellOperators = "|&;<>()"
)

// blank skips white space, comments and line continuations.
func (s *shellScanner) blank() {
	for s.text != "" {
		switch {
		case strings.HasPrefix(s.text, "\\\n"):
			s.text = s.text[2:]
		case strings.HasPrefix(s.text, "\\\r\n"):
			s.text = s.text[3:]
		case strings.IndexByte(shellSpace, s.text[0]) >= 0:
			s.text = s.text[1:]
		case s.text[0] == '#':
			_, s.text, _ = strings.Cut(s.text, "\n")
		default:
			return
		}
	}
}

// word reads one word. It returns false at the end, or before an operator.
func (s *shellScanner) word() (string, bool, error) {
	s.blank()
	if s.text == "" || strings.IndexByte(shellOperators, s.text[0]) >= 0 {
		return "", false, nil
	}
	s.b.Reset()
	for s.text != "" && strings.IndexByte(shellSpace+shellOperators, s.text[0]) < 0 {
		if err := s.piece(); err != nil {
			return "", false, err
		}
	}
	return s.b.String(), true, nil
}

// piece reads a quoted string, or one character.
func (s *shellScanner) piece() error {
	switch c := s.text[0]; c {
	case '\'':
		inner, after, ended := strings.Cut(s.text[1:], "'")
		if !ended {
			return fmt.Errorf("the quote ' in the command has no end")
		}
		s.b.WriteString(inner)
		s.text = after
	case '"':
		return s.double()
	case '\\':
		s.text = strings.TrimPrefix(s.text[1:], "\r")
		if s.text == "" {
			return nil
		}
		if s.text[0] != '\n' {
			s.b.WriteByte(s.text[0])
		}
		s.text = s.text[1:]
	case '$':
		if strings.HasPrefix(s.text, "$'") {
			return s.escaped()
		}
		return s.dollar()
	case '`':
		return fmt.Errorf("the command holds `...`, which only a shell can fill in: put the value in its place")
	default:
		s.b.WriteByte(c)
		s.text = s.text[1:]
	}
	return nil
}

// double reads "...".
func (s *shellScanner) double() error {
	for s.text = s.text[1:]; s.text != ""; {
		switch c := s.text[0]; c {
		case '"':
			s.text = s.text[1:]
			return nil
		case '\\':
			if len(s.text) > 1 && strings.IndexByte("$`\"\\\n", s.text[1]) >= 0 {
				if s.text[1] != '\n' {
					s.b.WriteByte(s.text[1])
				}
				s.text = s.text[2:]
				continue
			}
			s.b.WriteByte(c)
			s.text = s.text[1:]
		case '$':
			if err := s.dollar(); err != nil {
				return err
			}
		case '`':
			return fmt.Errorf("the command holds `...`, which only a shell can fill in: put the value in its place")
		default:
			s.b.WriteByte(c)
			s.text = s.text[1:]
		}
	}
	return fmt.Errorf(`the quote " in the command has no end`)
}

// dollar reads a dollar sign that stands for itself. A variable is an error.
func (s *shellScanner) dollar() error {
	rest := s.text[1:]
	n := 0
	for n < len(rest) && (rest[n] == '_' || '0' <= rest[n] && rest[n] <= '9' || 'a' <= rest[n]|0x20 && rest[n]|0x20 <= 'z') {
		n++
	}
	if n == 0 && rest != "" && strings.IndexByte("{(", rest[0]) >= 0 {
		n = strings.IndexAny(rest, "})") + 1
	}
	if n > 0 {
		return fmt.Errorf("the command holds $%s, which only a shell can fill in: put the value in its place, or the text in '...' if it stands for itself", rest[:n])
	}
	s.b.WriteByte('$')
	s.text = rest
	return nil
}

// escaped reads $'...', which browsers use in curl commands that they copy.
func (s *shellScanner) escaped() error {
	const one = "abefnrtv\\'\"?"
	const meaning = "\a\b\x1b\f\n\r\t\v\\'\"?"
	for s.text = s.text[2:]; s.text != ""; {
		c := s.text[0]
		s.text = s.text[1:]
		if c == '\'' {
			return nil
		}
		if c != '\\' || s.text == "" {
			s.b.WriteByte(c)
			continue
		}
		c = s.text[0]
		if i := strings.IndexByte(one, c); i >= 0 {
			s.b.WriteByte(meaning[i])
			s.text = s.text[1:]
			continue
		}
		base, most, digits := 16, 0, s.text[1:]
		switch c {
		case 'x':
			most = 2
		case 'u':
			most = 4
		case 'U':
			most = 8
		default:
			base, most, digits = 8, 3, s.text
		}
		n := 0
		for n < most && n < len(digits) {
			if _, err := strconv.ParseUint(digits[n:n+1], base, 8); err != nil {
				break
			}
			n++
		}
		value, err := strconv.ParseUint(digits[:n], base, 32)
		switch {
		case err != nil: // no digit: the backslash stands for itself
			s.b.WriteByte('\\')
			continue
		case c == 'u' || c == 'U':
			s.b.WriteString(string(utf8.AppendRune(nil, rune(value))))
		default:
			s.b.WriteByte(byte(value))
		}
		s.text = digits[n:]
	}
	return fmt.Errorf("the quote $' in the command has no end")
}
