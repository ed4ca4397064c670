package diff

import (
	"regexp"
	"regexp/syntax"
	"strings"
)

// samples returns a few values that a regular expression in RE2 syntax matches as a whole: the shortest, and one with
// the optional parts. There are none for an expression that is invalid, or that such simple values do not match.
func samples(expression string) (out []string) {
	parsed, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		return nil
	}
	whole, err := regexp.Compile(`^(?:` + expression + `)$`)
	if err != nil {
		return nil
	}
	for _, optional := range []bool{false, true} {
		var b strings.Builder
		sample(&b, parsed, optional)
		if s := b.String(); whole.MatchString(s) && (len(out) == 0 || out[0] != s) {
			out = append(out, s)
		}
	}
	return out
}

// longest bounds a sample: repetitions nest.
const longest = 1 << 10

func sample(b *strings.Builder, re *syntax.Regexp, optional bool) {
	if b.Len() > longest {
		return
	}
	switch re.Op {
	case syntax.OpLiteral:
		for _, r := range re.Rune {
			b.WriteRune(r)
		}
	case syntax.OpCharClass:
		b.WriteRune(plainest(re.Rune))
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		b.WriteByte('x')
	case syntax.OpCapture, syntax.OpPlus:
		sample(b, re.Sub[0], optional)
	case syntax.OpStar, syntax.OpQuest:
		if optional {
			sample(b, re.Sub[0], optional)
		}
	case syntax.OpRepeat:
		n := re.Min
		if optional && n == 0 {
			n = 1
		}
		for range n {
			sample(b, re.Sub[0], optional)
		}
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			sample(b, sub, optional)
		}
	case syntax.OpAlternate:
		if optional {
			sample(b, re.Sub[len(re.Sub)-1], optional)
		} else {
			sample(b, re.Sub[0], optional)
		}
	}
}

// plainest is a letter or a digit of the ranges, if they have one.
func plainest(ranges []rune) rune {
	for _, r := range "x1A" {
		for i := 0; i+1 < len(ranges); i += 2 {
			if ranges[i] <= r && r <= ranges[i+1] {
				return r
			}
		}
	}
	for i := 0; i+1 < len(ranges); i += 2 {
		if ranges[i] > ' ' {
			return ranges[i]
		}
	}
	if len(ranges) == 0 {
		return 'x'
	}
	return ranges[0]
}
