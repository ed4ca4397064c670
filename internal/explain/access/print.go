package access

import (
	"fmt"
	"io"
	"strings"

	"github.com/weirmesh/weir/internal/finding"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/screen"
)

// printer writes names on the left and their values in a column on the right.
type printer struct {
	strings.Builder
	screen.Screen
	served *Served
}

const column = 12

func (p *printer) line(name, format string, args ...any) {
	line := p.Fold(strings.Repeat(" ", column)+strings.TrimRight(fmt.Sprintf(format, args...), " "), 2)
	p.WriteString(strings.TrimRight(p.paint(fmt.Sprintf("%-*s", column, name))+line[column:], " ") + "\n")
}

// paint colours verdicts.
func (p *printer) paint(name string) string {
	switch strings.TrimSpace(name) {
	case string(Denied), string(Refused), string(Partly):
		return p.In(screen.Red, name)
	case string(Allowed):
		return p.In(screen.Green, name)
	case string(Audited), string(Unserved), string(Unenforced):
		return p.In(screen.Yellow, name)
	}
	return name
}

// Print writes the answer as text.
func (a *Answer) Print(w io.Writer, on screen.Screen, s *Served) error {
	p := &printer{Screen: on, served: s}
	p.answer(a)
	return on.Print(w, p.String())
}

func (p *printer) answer(a *Answer) {
	if a.Request.Method == "" {
		p.line("connection", "%s", a.Request.URL)
	} else {
		p.line("request", "%s %s", a.Request.Method, a.Request.URL)
	}
	for _, h := range a.Request.Headers {
		p.line("", "%s", h)
	}
	for _, n := range a.Request.Notes {
		p.line("", "note: %s", n)
	}
	p.client(a.Client)
	if a.Service != nil {
		port := ""
		if a.Service.Port != 0 {
			port = fmt.Sprintf("  port %d", a.Service.Port)
		}
		p.line("service", "%s%s%s", finding.Object(a.Service.Ref), port, p.served.where(a.Service.Ref))
	}
	for _, n := range a.Notes {
		p.line("", "note: %s", n)
	}
	if a.Route != nil {
		_ = a.Route.PrintRoute(&p.Builder, p.Screen, p.served.origin)
		p.WriteByte('\n')
	}
	p.line(string(a.Verdict), "%s", a.words())
	for i := range a.Targets {
		p.target(&a.Targets[i], a)
	}
}

func (p *printer) client(c *Client) {
	words := c.String()
	if c.Account != "" && c.Ref.Kind != model.KindServiceAccount {
		words += ", ServiceAccount " + c.Account
	}
	p.line("client", "%s", words)
	if c.ID != "" && c.ID != words {
		p.line("", "%s", c.ID)
	}
	if len(c.Owners) > 0 {
		p.line("", "run by %s", strings.Join(c.Owners, ", "))
	}
	for _, n := range c.Notes {
		p.line("", "note: %s", n)
	}
}

// words say what the verdict means.
func (a *Answer) words() string {
	if a.Reason != "" {
		return a.Reason
	}
	denied := 0
	for _, t := range a.Targets {
		if !t.Verdict.Passes() {
			denied++
		}
	}
	n := screen.Count(len(a.Targets), "workload")
	switch a.Verdict {
	case Allowed:
		return "by " + n
	case Denied:
		if a.Request.Method == "" {
			return "by " + n + ", which reset the connection"
		}
		return "by " + n + ", the answer is 403"
	case Audited:
		return "it would be denied, and passes: the namespace is audited"
	case Unenforced:
		return "it would be denied, and passes: pods have no sidecar, which would enforce it"
	case Partly:
		return fmt.Sprintf("%d of %s do not take it", denied, n)
	}
	return "it reaches no workload"
}

func (p *printer) target(t *Target, a *Answer) {
	p.WriteByte('\n')
	port := "no port: the Service's targetPort names none of its ports"
	if t.Port != 0 {
		port = fmt.Sprintf("port %d", t.Port)
	}
	p.WriteString(p.Fold(fmt.Sprintf("%s  %s  %s%s", finding.Object(t.Workload), port, t.State, p.served.where(t.Workload)), 2) + "\n")
	switch {
	case t.By != nil:
		p.line("  allowed", "by %s", p.rule(t.By))
		p.given(t.By)
		return
	case t.Reason == "ungoverned":
		p.line("  allowed", "no rule names it, and nothing is denied by default")
		return
	case t.Reason != "":
		p.line("  "+string(t.Verdict), "%s", denialWords(t, a))
	}
	for i := range t.Near {
		r := &t.Near[i]
		p.line("  not by", "%s", p.rule(r))
		p.given(r)
		for _, f := range r.Fails {
			p.line("", "  %s", f.Text)
		}
	}
	if t.More > 0 {
		p.line("", "and %s", screen.Count(t.More, "more rule"))
	}
}

func (p *printer) rule(r *Rule) string {
	text := finding.Object(r.Ref) + " " + r.Ref.Field + p.served.where(r.Ref)
	if r.Match != (model.Ref{}) {
		text += fmt.Sprintf(", %s %s%s", finding.Object(r.Match), r.Match.Field, p.served.where(r.Match))
	}
	return text
}

func (p *printer) given(r *Rule) {
	switch {
	case r.Source == nil && r.Binding != (model.Ref{}):
		p.line("", "  bound by %s%s", finding.Object(r.Binding), p.served.where(r.Binding))
	case r.Source != nil && r.Binding != (model.Ref{}):
		p.line("", "  given to %s by %s %s%s", r.Source.Words(), finding.Object(r.Binding), r.Given.Field, p.served.where(r.Given))
	case r.Source != nil:
		p.line("", "  given to %s by its %s%s", r.Source.Words(), r.Given.Field, p.served.where(r.Given))
	}
}

// denialWords say why a workload does not allow the call.
func denialWords(t *Target, a *Answer) string {
	why := map[string]string{
		"unknown_source": "no rule for it has the client among its sources",
		"not_permitted":  "no rule for the client allows this",
		"ambiguous_path": fmt.Sprintf("the path has %s, which servers read in different ways", a.Ambiguous),
		"too_much_work":  "the request is too long for the patterns that it has to be matched with",
		"no_identity":    "the client has no identity",
	}[t.Reason]
	if len(t.Near) == 0 && t.State.Deny == string(model.DenyAll) {
		why = "everything is denied by default, and no rule names it"
	}
	return why + " (" + t.Reason + ")"
}
