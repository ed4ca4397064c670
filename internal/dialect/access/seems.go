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
	for _, p := range parts {
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
			if plain, _ := model.PlainPath(text, nil); plain != text {
				return fmt.Sprintf("paths are compared with such escapes decoded, as %q", plain)
			}
		}
		first = false
	}
	return ""
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
