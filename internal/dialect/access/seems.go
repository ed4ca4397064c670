package access

import (
	"fmt"
	"regexp/syntax"
	"strings"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// seems reports a path that is valid and does not mean what it most likely was to mean: it matches no path at all, it
// matches every character where a dot was meant, or it does not end where it seems to. Paths are anchored at the start
// alone (Traffic Policy, "TrafficRole").
func seems(field, path string) (out []resource.Finding) {
	tree, err := syntax.Parse(path, syntax.Perl)
	if err != nil {
		return nil
	}
	tree = tree.Simplify()
	if why := never(tree); why != "" {
		return []resource.Finding{resource.Problem(codePatternNever, "MatchesNothing", field, quoted(path)+" matches no path: "+why, "write the path from its slash on, in its plain form")}
	}
	if bareDot(tree) {
		out = append(out, resource.Problem(codePatternDot, "UnescapedDot", field, "a dot in "+quoted(path)+" is any character", `write \. for a dot`))
	}
	if open(tree) {
		out = append(out, resource.Problem(codePatternOpen, "NotAnchored", field,
			quoted(path)+" also allows every path that goes on after it, such as "+quoted(example(tree)+"..."), "end it with $, unless that is meant"))
	}
	return out
}

// quoted is the expression in quotes, with its backslashes as they are written.
func quoted(path string) string { return `"` + path + `"` }

// never says why no path matches; empty if one may. It only finds what is plain.
func never(re *syntax.Regexp) string {
	parts := []*syntax.Regexp{re}
	if re.Op == syntax.OpConcat {
		parts = re.Sub
	}
	first := true
	for i, p := range parts {
		switch p.Op {
		case syntax.OpBeginText, syntax.OpBeginLine, syntax.OpEmptyMatch:
			continue
		case syntax.OpLiteral:
			text := string(p.Rune)
			switch {
			case first && !strings.HasPrefix(text, "/"):
				return "a path begins with a slash"
			case strings.ContainsAny(text, "?#"):
				return "a path has neither ? nor #, which begin what follows it"
			case strings.Contains(text, " "):
				return "a space in a path is %20"
			}
			if same := respelt(text); same != text {
				return fmt.Sprintf("paths are compared in their normal form, as %q", same)
			}
			if first {
				ends := i+1 < len(parts) && (parts[i+1].Op == syntax.OpEndText || parts[i+1].Op == syntax.OpEndLine)
				if why := notNormal(text, ends); why != "" {
					return why
				}
			}
			if plain, _ := model.PlainPath(text, nil); plain != text {
				return fmt.Sprintf("paths are compared with such escapes decoded, as %q", plain)
			}
		}
		first = false
	}
	return ""
}

// notNormal says why no path begins with a text, or is it, in the one form in which paths are compared; empty if one may.
func notNormal(text string, whole bool) string {
	if !whole { // what follows the last slash may be a part of a segment
		text = text[:strings.LastIndexByte(text, '/')+1]
	}
	normal, err := model.MatchPath(text)
	switch {
	case err != nil:
		return err.Error()
	case normal != text:
		return fmt.Sprintf("paths are compared in their normal form, as %q", normal)
	}
	return ""
}

// respelt is a part of a path with its escapes as the normal form has them.
func respelt(text string) string {
	var out []byte
	for i := 0; i < len(text); i++ {
		b := text[i]
		if b == '%' && i+2 < len(text) {
			if escaped, ok := model.Unhex(text[i+1], text[i+2]); ok {
				if i += 2; model.Unreserved(escaped) {
					out = append(out, escaped)
				} else {
					out = fmt.Appendf(out, "%%%02X", escaped)
				}
				continue
			}
		}
		if b != '%' && b != '/' && model.EscapedInPaths(b) {
			out = fmt.Appendf(out, "%%%02X", b)
		} else {
			out = append(out, b)
		}
	}
	return string(out)
}

// bareDot reports whether a single dot stands for any character right behind a literal: "/v1.2", "/a.txt". One that is
// repeated (".*") is meant.
func bareDot(re *syntax.Regexp) bool {
	for i, p := range re.Sub {
		if re.Op == syntax.OpConcat && i > 0 && (p.Op == syntax.OpAnyCharNotNL || p.Op == syntax.OpAnyChar) && re.Sub[i-1].Op == syntax.OpLiteral {
			return true
		}
		if bareDot(p) {
			return true
		}
	}
	return false
}

// open reports whether the expression seems to end with something definite, and is not anchored there.
func open(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpConcat:
		return open(re.Sub[len(re.Sub)-1])
	case syntax.OpCapture:
		return open(re.Sub[0])
	case syntax.OpAlternate:
		for _, p := range re.Sub {
			if open(p) {
				return true
			}
		}
		return false
	case syntax.OpLiteral:
		return re.Rune[len(re.Rune)-1] != '/'
	case syntax.OpCharClass:
		return true
	case syntax.OpPlus, syntax.OpRepeat, syntax.OpQuest:
		return re.Sub[0].Op == syntax.OpCharClass || re.Sub[0].Op == syntax.OpLiteral
	}
	return false
}

// example is the literal text that the expression begins with.
func example(re *syntax.Regexp) string {
	var b strings.Builder
	parts := []*syntax.Regexp{re}
	if re.Op == syntax.OpConcat {
		parts = re.Sub
	}
	for _, p := range parts {
		if p.Op == syntax.OpBeginText || p.Op == syntax.OpBeginLine {
			continue
		}
		if p.Op != syntax.OpLiteral {
			break
		}
		b.WriteString(string(p.Rune))
	}
	return b.String()
}
