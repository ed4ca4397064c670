package rollout

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode/utf8"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/model"
)

// Mistake is something in a match of a step that no object can carry out, whatever the step is laid over. A Rollout that has
// one is left alone.
type Mistake struct {
	Kind MistakeKind
	// Step counts from 0.
	Step int
	// Field is that of the Rollout, as v1beta1 names it.
	Field, Message, Fix string
}

func (m Mistake) String() string { return m.Field + ": " + m.Message + ": " + m.Fix }

// MistakeKind is a kind of mistakes.
type MistakeKind int

// The kinds.
const (
	InvalidPath MistakeKind = iota
	InvalidExpression
	RepeatedHeader
)

// Mistakes returns those of a valid Rollout's steps, in their order.
func Mistakes(r *rollouts.Rollout) (all []Mistake) {
	plan := r.Spec.Strategy.Plan()
	if plan == nil {
		return nil
	}
	foreign := onlyNginx(&r.Spec.Strategy)
	for i := range plan.Steps {
		for k := range plan.Steps[i].Matches {
			f := finder{step: i, at: fmt.Sprintf("%s.steps[%d].matches[%d]", r.Spec.Strategy.Field(), i, k), foreign: foreign}
			f.match(&plan.Steps[i].Matches[k])
			all = append(all, f.found...)
		}
	}
	return all
}

// LeftAlone says why a valid Rollout is not carried out, as the end of a sentence; empty if it is. What one changed that is
// disabled or deleted is put back all the same: that takes no step.
func LeftAlone(r *rollouts.Rollout) string {
	if r.Spec.Disabled || r.DeletionTimestamp != nil {
		return ""
	}
	all := Mistakes(r)
	if len(all) == 0 {
		return ""
	}
	why := "it is not valid, and is left alone: " + all[0].String()
	if n := len(all) - 1; n > 0 {
		why += fmt.Sprintf(" (and %d more)", n)
	}
	return why
}

// onlyNginx reports whether nothing but Ingresses of nginx route requests. nginx has regular expressions of its own (PCRE).
func onlyNginx(s *rollouts.Strategy) bool {
	targets := Targets(s)
	return len(targets) > 0 && !slices.ContainsFunc(targets, func(t Target) bool { return t.Kind != "Ingress" || t.Class != "" && t.Class != "nginx" })
}

// finder finds the mistakes of one match.
type finder struct {
	step  int
	at    string
	found []Mistake
	// foreign says that expressions may have the syntax of PCRE.
	foreign bool
}

func (f *finder) add(kind MistakeKind, field, message, fix string) {
	f.found = append(f.found, Mistake{kind, f.step, f.at + "." + field, message, fix})
}

func (f *finder) match(m *rollouts.Match) {
	if p := m.Path; p != nil && p.Value != nil {
		if p.Type != nil && *p.Type == gatewayv1.PathMatchRegularExpression {
			f.expression("path.value", *p.Value)
		} else if message, fix := judgePath(*p.Value); message != "" {
			f.add(InvalidPath, "path.value", message, fix)
		}
	}
	first := map[string]int{}
	for i, h := range m.Headers {
		name := strings.ToLower(string(h.Name))
		if n, twice := first[name]; twice {
			f.add(RepeatedHeader, fmt.Sprintf("headers[%d].name", i),
				fmt.Sprintf("is the header of headers[%d] again, as names of headers do not differ by case, and a match can have one condition on a header", n), "remove one of the two, or write two matches")
			continue
		}
		first[name] = i
		if h.Type != nil && *h.Type == gatewayv1.HeaderMatchRegularExpression {
			f.expression(fmt.Sprintf("headers[%d].value", i), h.Value)
		}
	}
	for i, q := range m.QueryParams {
		if q.Type != nil && *q.Type == gatewayv1.QueryParamMatchRegularExpression {
			f.expression(fmt.Sprintf("queryParams[%d].value", i), q.Value)
		}
	}
}

func (f *finder) expression(field, pattern string) {
	var bad *model.PatternError
	if _, err := model.CheckPattern(pattern); !errors.As(err, &bad) || f.foreign && (bad.TooLarge || mayBePCRE(pattern)) {
		return
	}
	f.add(InvalidExpression, field, bad.Reason, bad.Fix)
}

// mayBePCRE reports whether a pattern that does not compile as one of RE2 may be one of PCRE.
func mayBePCRE(pattern string) bool {
	var bad *syntax.Error
	if _, err := syntax.Parse(pattern, syntax.Perl); !errors.As(err, &bad) {
		return true
	}
	switch bad.Code {
	case syntax.ErrInvalidPerlOp, syntax.ErrInvalidEscape, syntax.ErrInvalidRepeatOp, syntax.ErrInvalidRepeatSize, syntax.ErrInvalidNamedCapture, syntax.ErrInvalidCharRange, syntax.ErrNestingDepth, syntax.ErrLarge:
		return true
	}
	return false
}

// Headers are the conditions of a match on headers. Of several on one the first counts (Gateway API,
// HTTPRouteMatch.headers), as one may have them that was stored before that was judged.
func Headers(m *rollouts.Match) (out []gatewayv1.HTTPHeaderMatch) {
	for _, h := range m.Headers {
		if !slices.ContainsFunc(out, func(o gatewayv1.HTTPHeaderMatch) bool { return strings.EqualFold(string(o.Name), string(h.Name)) }) {
			out = append(out, h)
		}
	}
	return out
}

// judgePath returns why no path is, or begins with, a value; empty if one may. The rules are those of the Gateway API's
// HTTPPathMatch for the types Exact and PathPrefix.
func judgePath(value string) (message, fix string) {
	switch lower := strings.ToLower(value); {
	case value == "":
		return "is empty, but must begin with a slash", "write the paths that are meant, such as /api, or remove path"
	case value[0] != '/':
		return fmt.Sprintf("%q does not begin with a slash, so no path matches it", quoted(value)), fmt.Sprintf("write %q", quoted("/"+value))
	case strings.Contains(value, "?"):
		return fmt.Sprintf("%q has a question mark, but a path has no query, so no path matches it", quoted(value)), "write what is before the question mark, and what follows it in queryParams"
	case strings.Contains(value, "#"):
		return fmt.Sprintf("%q has the character #, which no path of a request has", quoted(value)), "remove it and what follows it"
	case strings.Contains(value, "//"):
		return fmt.Sprintf("%q has an empty segment, which the Gateway API does not allow", quoted(value)), "write one slash in place of //"
	case strings.Contains(value, "/./"), strings.Contains(value, "/../"), strings.HasSuffix(value, "/."), strings.HasSuffix(value, "/.."):
		return fmt.Sprintf("%q has a segment . or .., which the Gateway API does not allow", quoted(value)), "write the path without these segments"
	case strings.Contains(lower, "%2f"):
		return fmt.Sprintf("%q has an escaped slash, which the Gateway API does not allow", quoted(value)), "write a path without it"
	}
	for i := 0; i < len(value); i++ {
		switch c := value[i]; {
		case c == '%' && i+2 < len(value) && strings.Trim(value[i+1:i+3], "0123456789abcdefABCDEF") == "":
			i += 2
		case c == '%':
			return fmt.Sprintf("%q has the character %% without two hexadecimal digits behind it", quoted(value)), "write %25 for the character itself"
		case c != '/' && model.EscapedInPaths(c), c <= ' ', c == 0x7f:
			return fmt.Sprintf("%q has a character that a path has only escaped", quoted(value)), "write it as " + escaped(value[i:])
		}
	}
	return "", ""
}

// escaped is the first character of a text as paths have it.
func escaped(text string) (out string) {
	_, n := utf8.DecodeRuneInString(text)
	for _, b := range []byte(text[:n]) {
		out += fmt.Sprintf("%%%02X", b)
	}
	return out
}

// maxQuoted bounds how much of a value a message repeats, in bytes.
const maxQuoted = 128

func quoted(value string) string {
	if len(value) <= maxQuoted {
		return value
	}
	return strings.ToValidUTF8(value[:maxQuoted], "") + "..."
}

// Leave has the status of a Rollout say why it is left alone. A release that is under way stays where it is. The event is nil
// if the status says so already.
func Leave(s *rollouts.Status, why string) (rollouts.Status, *Event) {
	out := CopyStatus(*s)
	if out.Phase == "" {
		out.Phase = rollouts.PhaseInitial
	}
	said := Obstruct(&out, "carry out the Rollout", why+".")
	if strings.HasSuffix(s.Message, said) {
		return out, nil
	}
	return out, &Event{Reason: "Invalid", Warning: true, Message: said}
}
