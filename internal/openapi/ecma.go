package openapi

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"strconv"
	"strings"
)

// maxPattern is the longest pattern of a schema that is read, and the longest expression that is made of one, in bytes.
const maxPattern = 2048

var errLong = errors.New("it is too long")

// ecmaPattern turns a pattern of a schema, a regular expression of ECMA-262 that matches anywhere in a value (JSON
// Schema Validation §6.3.3), into an expression for the whole of a value's text in a path. An error says what cannot
// be expressed.
func ecmaPattern(pattern string) (string, error) {
	if len(pattern) > maxPattern {
		return "", errLong
	}
	translated, err := toRE2(pattern)
	if err != nil {
		return "", err
	}
	re, err := syntax.Parse(translated, syntax.Perl)
	if err != nil {
		var e *syntax.Error
		if errors.As(err, &e) {
			return "", fmt.Errorf("%s", e.Code)
		}
		return "", err
	}
	whole, err := embed(re, true, true)
	if err != nil {
		return "", err
	}
	p := printer{left: 1 << 14}
	return p.print(nonEmpty(whole))
}

// toRE2 writes in RE2's syntax what ECMA-262 writes in another way. An error is for what RE2 does not have.
func toRE2(pattern string) (string, error) {
	const spaces = `\t\n\v\f\r \x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff}`
	var b strings.Builder
	class := false
	for i := 0; i < len(pattern); i++ {
		c := pattern[i]
		rest := pattern[i+1:]
		switch {
		case c == '\\' && rest == "":
			return "", errors.New("it ends with a backslash")
		case c == '\\':
			i++
			switch e := rest[0]; e {
			case 'd', 'D', 'w', 'W', 'n', 'r', 't', 'v', 'f':
				b.WriteString(`\` + string(e))
			case 's':
				if class {
					b.WriteString(spaces)
				} else {
					b.WriteString("[" + spaces + "]")
				}
			case 'S':
				if class {
					return "", errors.New(`it has \S in a character class`)
				}
				b.WriteString("[^" + spaces + "]")
			case '0':
				if len(rest) > 1 && rest[1] >= '0' && rest[1] <= '9' {
					return "", errors.New("it has an octal escape")
				}
				b.WriteString(`\x00`)
			case 'p', 'P':
				if !strings.HasPrefix(rest[1:], "{") {
					return "", fmt.Errorf(`it has \%c without {}`, e)
				}
				b.WriteString(`\` + string(e))
			case 'x', 'u':
				digits, skip := rest[1:], map[byte]int{'x': 2, 'u': 4}[e]
				if e == 'u' && strings.HasPrefix(digits, "{") {
					end := strings.IndexByte(digits, '}')
					if end < 2 {
						return "", errors.New("it has an invalid escape")
					}
					digits, skip = digits[1:end], end+1
				} else if len(digits) >= skip {
					digits = digits[:skip]
				}
				v, err := strconv.ParseUint(digits, 16, 21)
				if err != nil || len(rest)-1 < skip {
					return "", errors.New("it has an invalid escape")
				}
				if v >= 0xd800 && v <= 0xdfff {
					return "", errors.New("it has a half of a surrogate pair")
				}
				fmt.Fprintf(&b, `\x{%x}`, v)
				i += skip
			case 'b', 'B':
				if class && e == 'b' {
					b.WriteString(`\x08`)
					break
				}
				return "", errors.New("it has a word boundary")
			default:
				switch {
				case e >= '1' && e <= '9' || e == 'k':
					return "", errors.New("it has a back-reference")
				case e >= 'a' && e <= 'z' || e >= 'A' && e <= 'Z':
					return "", fmt.Errorf(`it has \%c`, e)
				case e >= 0x80:
					b.WriteByte(e)
				default:
					b.WriteString(`\` + string(e))
				}
			}
		case class && c == '[':
			b.WriteString(`\[`)
		case class && c == ']':
			class = false
			b.WriteByte(c)
		case class:
			b.WriteByte(c)
		case c == '[':
			if strings.HasPrefix(rest, "]") || strings.HasPrefix(rest, "^]") {
				return "", errors.New("it has an empty character class")
			}
			class = true
			b.WriteByte(c)
			if strings.HasPrefix(rest, "^") {
				b.WriteByte('^')
				i++
			}
		case c == '(' && strings.HasPrefix(rest, "?"):
			switch {
			case strings.HasPrefix(rest, "?:"):
			case strings.HasPrefix(rest, "?=") || strings.HasPrefix(rest, "?!") || strings.HasPrefix(rest, "?<=") || strings.HasPrefix(rest, "?<!"):
				return "", errors.New("it looks around")
			case strings.HasPrefix(rest, "?<"): // a name
			default:
				return "", errors.New("it has a group with a modifier")
			}
			b.WriteByte(c)
		case c == '.':
			b.WriteString(`[^\n\r]`) // and U+2028 and U+2029, for which the expression would be long
		default:
			b.WriteByte(c)
		}
	}
	if class {
		return "", errors.New("it has a character class without end")
	}
	return b.String(), nil
}

// everything is any text of any length.
var everything = &syntax.Regexp{Op: syntax.OpStar, Sub: []*syntax.Regexp{{Op: syntax.OpAnyChar}}}

func concat(sub ...*syntax.Regexp) *syntax.Regexp {
	return &syntax.Regexp{Op: syntax.OpConcat, Sub: sub}
}

// embed returns an expression for whole values of which a part matches, and which has no anchors. Left and right say
// whether text may be before and after the match.
func embed(re *syntax.Regexp, left, right bool) (*syntax.Regexp, error) {
	sub := []*syntax.Regexp{re}
	switch re.Op {
	case syntax.OpCapture:
		return embed(re.Sub[0], left, right)
	case syntax.OpAlternate:
		out := &syntax.Regexp{Op: syntax.OpAlternate}
		for _, s := range re.Sub {
			e, err := embed(s, left, right)
			if err != nil {
				return nil, err
			}
			out.Sub = append(out.Sub, e)
		}
		return out, nil
	case syntax.OpConcat:
		sub = re.Sub
	}
	for len(sub) > 0 && sub[0].Op == syntax.OpBeginText {
		left, sub = false, sub[1:]
	}
	for len(sub) > 0 && sub[len(sub)-1].Op == syntax.OpEndText {
		right, sub = false, sub[:len(sub)-1]
	}
	if len(sub) == 1 && (sub[0].Op == syntax.OpAlternate || sub[0].Op == syntax.OpCapture) {
		return embed(sub[0], left, right)
	}
	var out []*syntax.Regexp
	if left {
		out = append(out, everything)
	}
	out = append(out, sub...)
	if right && (len(sub) > 0 || !left) {
		out = append(out, everything)
	}
	return concat(out...), nil
}

// nullable reports whether an expression matches the empty text.
func nullable(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpEmptyMatch, syntax.OpStar, syntax.OpQuest:
		return true
	case syntax.OpRepeat:
		return re.Min == 0 || nullable(re.Sub[0])
	case syntax.OpPlus, syntax.OpCapture:
		return nullable(re.Sub[0])
	case syntax.OpConcat:
		for _, s := range re.Sub {
			if !nullable(s) {
				return false
			}
		}
		return true
	case syntax.OpAlternate:
		for _, s := range re.Sub {
			if nullable(s) {
				return true
			}
		}
	}
	return false
}

// nonEmpty is the expression without the empty text: a parameter without text would make another path.
func nonEmpty(re *syntax.Regexp) *syntax.Regexp {
	none := &syntax.Regexp{Op: syntax.OpNoMatch}
	if !nullable(re) {
		return re
	}
	switch re.Op {
	case syntax.OpCapture, syntax.OpQuest:
		return nonEmpty(re.Sub[0])
	case syntax.OpStar, syntax.OpPlus:
		if !nullable(re.Sub[0]) {
			return &syntax.Regexp{Op: syntax.OpPlus, Sub: re.Sub}
		}
		return &syntax.Regexp{Op: syntax.OpPlus, Sub: []*syntax.Regexp{nonEmpty(re.Sub[0])}}
	case syntax.OpRepeat:
		if re.Max == 0 {
			return none
		}
		return &syntax.Regexp{Op: syntax.OpRepeat, Sub: []*syntax.Regexp{nonEmpty(re.Sub[0])}, Min: 1, Max: re.Max}
	case syntax.OpConcat:
		out := &syntax.Regexp{Op: syntax.OpAlternate}
		for i, s := range re.Sub {
			out.Sub = append(out.Sub, concat(append([]*syntax.Regexp{nonEmpty(s)}, re.Sub[i+1:]...)...))
		}
		return out
	case syntax.OpAlternate:
		out := &syntax.Regexp{Op: syntax.OpAlternate}
		for _, s := range re.Sub {
			out.Sub = append(out.Sub, nonEmpty(s))
		}
		return out
	}
	return none
}

// printer writes expressions for values, in the form that values have in paths. It gives up beyond a number of bytes.
type printer struct{ left int }

// errNothing is for expressions that match nothing.
var errNothing = errors.New("no value matches it that a path can have")

func (p *printer) print(re *syntax.Regexp) (string, error) {
	text, err := p.write(re)
	if err == nil && len(text) > maxPattern {
		err = errLong
	}
	return text, err
}

func (p *printer) write(re *syntax.Regexp) (string, error) {
	if p.left -= 8; p.left < 0 {
		return "", errLong
	}
	switch re.Op {
	case syntax.OpEmptyMatch:
		return "", nil
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase != 0 {
			return "", errors.New("it ignores case")
		}
		var b strings.Builder
		for _, r := range re.Rune {
			text := string(r)
			if text == "." || text == ".." {
				b.WriteString(`\.`)
				continue
			}
			quoted, ok := quoteValue(text)
			if !ok {
				return "", errNothing
			}
			b.WriteString(quoted)
		}
		p.left -= b.Len()
		return b.String(), nil
	case syntax.OpCharClass:
		text, ok := charSet(re.Rune)
		if p.left -= len(text); !ok {
			return "", errors.New("it has a character class with too many ranges")
		}
		if text == "" {
			return "", errNothing
		}
		return text, nil
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		p.left -= len(oneChar)
		return oneChar, nil
	case syntax.OpCapture:
		return p.write(re.Sub[0])
	case syntax.OpStar, syntax.OpPlus, syntax.OpQuest, syntax.OpRepeat:
		return p.repeat(re)
	case syntax.OpConcat:
		var b strings.Builder
		for _, s := range re.Sub {
			text, err := p.write(s)
			if err != nil {
				return "", err
			}
			if s = through(s); s.Op == syntax.OpAlternate {
				text = group(text)
			}
			b.WriteString(text)
		}
		return b.String(), nil
	case syntax.OpAlternate:
		var parts []string
		for _, s := range re.Sub {
			text, err := p.write(s)
			if errors.Is(err, errNothing) {
				continue
			}
			if err != nil {
				return "", err
			}
			parts = append(parts, text)
		}
		if len(parts) == 0 {
			return "", errNothing
		}
		return group(strings.Join(parts, "|")), nil
	case syntax.OpNoMatch:
		return "", errNothing
	case syntax.OpBeginText, syntax.OpEndText, syntax.OpBeginLine, syntax.OpEndLine:
		return "", errors.New("it has an anchor inside")
	}
	return "", errors.New("RE2 cannot say it")
}

func through(re *syntax.Regexp) *syntax.Regexp {
	for re.Op == syntax.OpCapture {
		re = re.Sub[0]
	}
	return re
}

func group(text string) string { return "(?:" + text + ")" }

func (p *printer) repeat(re *syntax.Regexp) (string, error) {
	text, err := p.write(re.Sub[0])
	if errors.Is(err, errNothing) && (re.Op == syntax.OpStar || re.Op == syntax.OpQuest || re.Op == syntax.OpRepeat && re.Min == 0) {
		return "", nil
	}
	if err != nil || text == "" {
		return text, err
	}
	text = group(text)
	if inner := text[3 : len(text)-1]; isAtom(inner) {
		text = inner
	}
	switch re.Op {
	case syntax.OpStar:
		return text + "*", nil
	case syntax.OpPlus:
		return text + "+", nil
	case syntax.OpQuest:
		return text + "?", nil
	}
	switch {
	case re.Max < 0:
		return fmt.Sprintf("%s{%d,}", text, re.Min), nil
	case re.Min == re.Max:
		return fmt.Sprintf("%s{%d}", text, re.Min), nil
	}
	return fmt.Sprintf("%s{%d,%d}", text, re.Min, re.Max), nil
}

// isAtom reports whether a repetition after the text is one of all of it.
func isAtom(text string) bool {
	end, depth, class := 0, 0, false // end is where the first element ends
	for ; end < len(text); end++ {
		switch c := text[end]; {
		case c == '\\':
			end++
		case class:
			class = c != ']'
		case c == '[':
			class = true
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == '|' && depth == 0:
			return false
		}
		if depth == 0 && !class {
			break
		}
	}
	return end == len(text)-1
}
