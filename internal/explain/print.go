package explain

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirmesh/weir/internal/finding"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/routing"
	"github.com/weirmesh/weir/internal/screen"
)

// printer writes an explanation as text, with names on the left and their values in columns on the right.
type printer struct {
	strings.Builder
	screen.Screen
	origin func(model.Ref) finding.Origin
}

// Print writes the explanation as text; origin returns where an object was written.
func (e *Explanation) Print(w io.Writer, on screen.Screen, origin func(model.Ref) finding.Origin) error {
	p := &printer{Screen: on, origin: origin}
	p.explanation(e)
	return on.Print(w, p.String())
}

const column = 12

// line writes a line under a name; an empty name continues the previous one.
func (p *printer) line(name, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	line := p.Fold(strings.Repeat(" ", column)+strings.TrimRight(text, " "), 2)
	p.WriteString(strings.TrimRight(fmt.Sprintf("%-*s", column, name)+p.paint(line[column:]), " ") + "\n")
}

// paint colours winners, and answers that are errors.
func (p *printer) paint(text string) string {
	if !p.Colour {
		return text
	}
	word, rest, _ := screen.CutWord(text)
	switch {
	case word == "won":
		return p.In(screen.Green, word) + rest
	case len(word) == 4 && word[3] == ',' && (word[0] == '4' || word[0] == '5'):
		return p.In(screen.Red, text)
	case strings.Contains(text, "the answer is 4") || strings.HasPrefix(text, "nothing listens"):
		return p.In(screen.Red, text)
	case word == "note:":
		return p.In(screen.Yellow, word) + rest
	}
	return text
}

// list writes lines under one name, after an empty line.
func (p *printer) list(name string, lines []string) {
	if len(lines) == 0 {
		return
	}
	p.WriteByte('\n')
	for _, l := range lines {
		p.line(name, "%s", l)
		name = ""
	}
}

func (p *printer) where(ref model.Ref) string {
	if o := p.origin(ref).String(); o != "" {
		return "  (" + o + ")"
	}
	return ""
}

func (p *printer) explanation(e *Explanation) {
	if !e.Request.Protocol().Requests() {
		p.line("connection", "%s", e.Request.URL)
	} else {
		p.line("request", "%s %s", e.Request.Method, e.Request.URL)
	}
	for _, h := range e.Request.Headers {
		p.line("", "%s", h)
	}
	for _, n := range e.Request.Notes {
		p.line("", "note: %s", n)
	}
	if e.Gateway != "" {
		why := ""
		if e.GatewayBy != "" {
			why = "  (" + e.GatewayBy + ")"
		}
		p.line("gateway", "%s%s", e.Gateway, why)
	}
	if e.Listener == nil {
		if e.Note != "" {
			p.line("", "note: %s", e.Note)
		}
		p.line("answer", "%s", e.Reason)
		p.leftOut(e)
		return
	}
	l := e.Listener
	p.line("listener", "%s  port %d, %s, %s%s", l.Name, l.Port, l.Protocol, hostWords(l.Hostname), p.where(l.Ref))
	if e.Note != "" {
		p.line("", "note: %s", e.Note)
	}
	for _, line := range frontLines(l.Front) {
		p.line("", "%s", line)
	}
	if e.Client != "" {
		p.line("client", "%s  (backends get X-Forwarded-For: %s)", e.Client, e.ForwardedFor)
	}
	p.route(e)
}

// route describes what the listener's routes do.
func (p *printer) route(e *Explanation) {
	if e.Listener == nil {
		p.line("answer", "%s", e.Reason)
		return
	}
	if !e.Listener.Protocol.Requests() {
		p.connection(e)
		return
	}
	if e.Winner == nil {
		p.line("answer", "%s", e.Reason)
	} else {
		p.line("rule", "%s%s", ruleWords(e.Winner), p.where(e.Winner.Rule))
		p.line("matched by", "%s", matchWords(e.Winner))
	}
	p.leftOut(e)
	p.candidates(e)
	if e.Winner == nil {
		return
	}
	p.list("path policy", pathPolicyLines(e.PathPolicy))
	p.list("filters", filterLines(e.Filters))
	p.list("limits", limitLines(e))
	p.list("session", sessionLines(e.Session))
	p.backends(e)
	p.list("mirrored to", append(mirrorLines(e.Mirrors), p.offLines(e.MirrorsOff)...))
}

// candidates lists the compared matches, unless the winner was the only one.
func (p *printer) candidates(e *Explanation) {
	var lines []string
	if e.OmittedBefore > 0 {
		lines = append(lines, fmt.Sprintf("... %d more that lost", e.OmittedBefore))
	}
	for i := range e.Candidates {
		c := &e.Candidates[i]
		if c.Wins {
			lines = append(lines, "won   "+ruleWords(c)+": "+matchWords(c))
			continue
		}
		lines = append(lines, "lost  "+ruleWords(c)+": "+matchWords(c), "      "+c.Lost)
	}
	if e.OmittedAfter > 0 {
		lines = append(lines, fmt.Sprintf("... %d more behind the winner", e.OmittedAfter))
	}
	if len(e.Candidates) > 1 || e.Winner == nil {
		p.list("compared", lines)
	}
	var near []string
	for i := range e.Near {
		c := &e.Near[i]
		near = append(near, ruleWords(c)+": "+matchWords(c), "      "+c.Lost)
	}
	p.list("near", near)
}

// leftOut lists the objects that would take the request if they were valid.
func (p *printer) leftOut(e *Explanation) {
	var lines []string
	for i := range e.LeftOut {
		x := &e.LeftOut[i]
		switch {
		case x.Ref.Kind == "":
			lines = append(lines, "what could not be read, and so may be meant for this")
		case x.Match != nil:
			lines = append(lines, fmt.Sprintf("%s %s, which would take the request: %s%s", finding.Object(x.Ref), strings.TrimPrefix(x.Ref.Field, "spec."),
				matchWords(&routing.Candidate{Hostname: "*", Match: *x.Match}), p.where(x.Ref)))
		case x.Root != "":
			lines = append(lines, fmt.Sprintf("%s, which would split %s%s", finding.Object(x.Ref), x.Root, p.where(x.Ref)))
		default:
			lines = append(lines, finding.Object(x.Ref)+", which may be meant for this"+p.where(x.Ref))
		}
		for _, f := range x.Findings {
			at := ""
			if o := f.Origin.String(); o != "" {
				at = "  (" + o + ")"
			}
			lines = append(lines, strings.TrimRight(fmt.Sprintf("      %s %s%s", f.Code, f.Ref.Field, at), " "), "      "+f.Message)
			if f.Fix != "" {
				lines = append(lines, "      fix: "+f.Fix)
			}
		}
	}
	p.list("left out", lines)
}

func (p *printer) backends(e *Explanation) {
	var lines []string
	if e.Answer != nil {
		lines = append(lines, answerWords(e.Answer))
	}
	for _, b := range e.Backends {
		lines = append(lines, p.splits(&b)...)
		if len(b.Leaves) == 0 {
			lines = append(lines, backendLines(&b)...)
		}
		for _, leaf := range b.Leaves {
			for _, l := range backendLines(&leaf) {
				lines = append(lines, "  "+l)
			}
		}
	}
	p.list("answered by", lines)
}

// frontLines describes which addresses a listener trusts, and for what.
func frontLines(f *model.Front) (lines []string) {
	if f == nil {
		return nil
	}
	if f.ProxyProtocol {
		lines = append(lines, "connections begin with a PROXY header, from trusted proxies only")
	}
	const most = 8
	switch n := len(f.TrustedProxies); {
	case n == 0:
		lines = append(lines, "trusts no proxy")
	case n > most:
		lines = append(lines, fmt.Sprintf("trusts %s and %d more", strings.Join(f.TrustedProxies[:most], ", "), n-most))
	default:
		lines = append(lines, "trusts "+strings.Join(f.TrustedProxies, ", "))
	}
	if f.ClientAddress != "" {
		lines = append(lines, "takes the client's address from "+string(f.ClientAddress)+" alone")
	}
	return lines
}

func backendLines(b *Backend) []string {
	share := fmt.Sprintf("%-7s", screen.Percent(b.Probability))
	line := fmt.Sprintf("%s %s  at %s", share, b.Service, strings.Join(b.Endpoints, ", "))
	if b.Answer != nil {
		line = share + " " + cmp.Or(b.Service, "(no service)") + ": " + answerWords(b.Answer)
	}
	lines := []string{line}
	for _, l := range b.lines() {
		lines = append(lines, "        "+l)
	}
	if b.ProxyProtocol != 0 {
		lines = append(lines, fmt.Sprintf("        each connection begins with a PROXY header, version %d, and is one client's", b.ProxyProtocol))
	}
	if b.Forwarded != nil {
		lines = append(lines, fmt.Sprintf("        gets %s %s, host %s", b.Forwarded.Method, b.Forwarded.Target, b.Forwarded.Host))
	}
	for _, l := range filterLines(b.Filters) {
		lines = append(lines, "        "+l)
	}
	for _, l := range mirrorLines(b.Mirrors) {
		lines = append(lines, "        mirrored to "+l)
	}
	return lines
}

// lines describe which endpoints a proxy uses, and a client gets.
func (p *Places) lines() (lines []string) {
	each := func(what string, of map[string][]string) string {
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(of)) {
			parts = append(parts, fmt.Sprintf("%s %s has %d", what, name, len(of[name])))
		}
		const most = 8
		if n := len(parts); n > most {
			parts = append(parts[:most], fmt.Sprintf("%d more", n-most))
		}
		return strings.Join(parts, ", ")
	}
	switch {
	case p.NodeLocal:
		lines = append(lines, "a proxy that knows its node uses the endpoints there alone: "+cmp.Or(each("node", p.Nodes), "there are none"))
	case len(p.Nodes) > 0:
		lines = append(lines, "a proxy prefers the endpoints that are meant for its node: "+each("node", p.Nodes))
	}
	if len(p.Zones) > 0 {
		lines = append(lines, "a proxy prefers the endpoints that are meant for its zone: "+each("zone", p.Zones))
	}
	if p.ClientAffinity {
		lines = append(lines, "what comes from one client address goes to one endpoint")
	}
	return lines
}

// splits describes the splits of the backend's service that were tried, and for the one that takes the request why.
func (p *printer) splits(b *Backend) []string {
	var lines []string
	for i := range b.Splits {
		s := &b.Splits[i]
		if !s.Takes {
			lines = append(lines, fmt.Sprintf("not split by %s%s", finding.Object(s.Split), p.where(s.Split)))
			for _, lost := range s.Lost {
				lines = append(lines, "      "+lost)
			}
			continue
		}
		lines = append(lines, fmt.Sprintf("%-7s %s, split by %s%s", screen.Percent(b.Probability), b.Service, finding.Object(s.Split), p.where(s.Split)))
		if s.Match != nil {
			lines = append(lines, fmt.Sprintf("        as %s %s matches: %s", finding.Object(s.Match.Ref), s.Match.Ref.Field, splitMatchWords(s.Match)))
		}
	}
	return lines
}

func splitMatchWords(m *model.SplitMatch) string {
	var parts []string
	if len(m.Methods) > 0 {
		parts = append(parts, "method "+strings.Join(m.Methods, " or "))
	}
	if m.Path != "" {
		parts = append(parts, "path from its start ~ "+m.Path)
	}
	for _, h := range m.Headers {
		parts = append(parts, "header "+valueWords(h))
	}
	return cmp.Or(strings.Join(parts, ", "), "any request")
}

func hostWords(hostname string) string {
	if hostname == "" {
		return "any host"
	}
	return "host " + hostname
}

func ruleWords(c *routing.Candidate) string {
	s := finding.Object(c.Rule)
	if c.RuleName != "" {
		return s + " rule " + strconv.Quote(c.RuleName)
	}
	return s + fmt.Sprintf(" rules[%d]", c.RuleIndex)
}

// matchWords describes a match in words.
func matchWords(c *routing.Candidate) string {
	m := c.Match
	var parts []string
	if c.Hostname != "*" {
		parts = append(parts, "host "+c.Hostname)
	}
	parts = append(parts, fmt.Sprintf("path %s %s", m.Path.Type, m.Path.Value))
	if m.Method != "" {
		parts = append(parts, "method "+m.Method)
	}
	for _, h := range m.Headers {
		parts = append(parts, "header "+valueWords(h))
	}
	for _, q := range m.Query {
		parts = append(parts, "query parameter "+valueWords(q))
	}
	return strings.Join(parts, ", ")
}

func valueWords(v model.ValueMatch) string {
	if v.Type == model.Regex {
		return v.Name + " ~ " + v.Value
	}
	return v.Name + " = " + v.Value
}

func filterLines(f *model.Filters) []string {
	if f == nil {
		return nil
	}
	var lines []string
	lines = append(lines, editLines("request header", f.RequestHeaders)...)
	if r := f.Rewrite; r != nil {
		if r.Hostname != "" {
			lines = append(lines, "rewrite host to "+r.Hostname)
		}
		if r.Path != nil {
			lines = append(lines, "rewrite "+patchWords(r.Path))
		}
	}
	if f.Redirect != nil {
		lines = append(lines, fmt.Sprintf("redirect with %d", f.Redirect.Status))
	}
	if c := f.CORS; c != nil {
		lines = append(lines, fmt.Sprintf("CORS for %s", strings.Join(c.AllowOrigins, ", ")))
	}
	return append(lines, editLines("response header", f.ResponseHeaders)...)
}

func patchWords(p *model.PathPatch) string {
	if p.Prefix {
		return "the matched prefix to " + p.Value
	}
	return "the path to " + p.Value
}

func editLines(what string, e *model.HeaderEdit) []string {
	if e == nil {
		return nil
	}
	var lines []string
	for _, name := range e.Remove {
		lines = append(lines, what+" remove "+name)
	}
	for _, h := range e.Set {
		lines = append(lines, what+" set "+h.Name+": "+h.Value)
	}
	for _, h := range e.Add {
		lines = append(lines, what+" add "+h.Name+": "+h.Value)
	}
	return lines
}

func limitLines(e *Explanation) []string {
	var lines []string
	if d := time.Duration(e.Timeouts.Request); d > 0 {
		lines = append(lines, "the whole request may take "+d.String())
	}
	if d := time.Duration(e.Timeouts.BackendRequest); d > 0 {
		lines = append(lines, "one attempt may take "+d.String())
	}
	if r := e.Retry; r != nil {
		line := "retried up to " + screen.Count(r.Attempts, "time")
		if len(r.Codes) > 0 {
			line += fmt.Sprintf(", also on %v", r.Codes)
		}
		if d := time.Duration(r.Backoff); d > 0 {
			line += ", at least " + d.String() + " apart"
		}
		lines = append(lines, line)
	}
	return lines
}

func pathPolicyLines(e *routing.PathExplanation) []string {
	if e == nil {
		return nil
	}
	line := string(e.Policy)
	switch {
	case e.Refused != "" && e.Policy == model.PathAsWritten:
		line += ", but a rule that is strict has it refused"
	case e.Refused != "":
		line += ": refused"
	case len(e.Readings) > 0:
		line += "; strict would refuse it"
	}
	lines := []string{line}
	for _, r := range e.Readings {
		to := "leads to no rule"
		if r.Rule != nil {
			to = "leads to " + finding.Object(*r.Rule) + " " + r.Rule.Field
		}
		lines = append(lines, "the path has "+r.What, "      "+r.Servers, fmt.Sprintf("      read so it is %s, which %s", r.Path, to))
	}
	return lines
}

func sessionLines(s *model.Session) []string {
	if s == nil {
		return nil
	}
	line := fmt.Sprintf("%s %s keeps a client at the endpoint that served it first", s.Type, s.Name)
	if d := time.Duration(s.AbsoluteTimeout); d > 0 {
		line += ", for " + d.String()
	}
	if s.Permanent {
		line += ", also after the browser was closed"
	}
	return []string{line}
}

func mirrorLines(mirrors []Mirror) []string {
	var lines []string
	for _, m := range mirrors {
		if m.Numerator == 0 && m.Denominator > 0 {
			lines = append(lines, fmt.Sprintf("%-7s %s  its share is 0: nothing is copied", "off", m.Service))
			continue
		}
		line := fmt.Sprintf("%-7s %s", screen.Percent(m.Probability), cmp.Or(m.Service, "(no service)"))
		if m.Numerator > 0 && m.Numerator < m.Denominator {
			line += fmt.Sprintf("  exactly %d of every %d", m.Numerator, m.Denominator)
		}
		if n := len(m.Splits); len(m.Leaves) > 0 {
			line += ", split by " + finding.Object(m.Splits[n-1].Split)
		} else if len(m.Endpoints) == 0 {
			line += "; it has no endpoint: copies are dropped"
		}
		lines = append(lines, line)
		for i, c := range m.Copies {
			or := ""
			if i > 0 {
				or = "or "
			}
			lines = append(lines, fmt.Sprintf("        %sgets %s %s, host %s, marked %s", or, c.Method, c.Target, c.Host, c.Mark))
		}
		for _, l := range mirrorLines(m.Leaves) {
			lines = append(lines, "  "+l)
		}
	}
	return lines
}

func answerWords(a *Answer) string {
	if a.Status == 0 {
		return "reset, " + a.Reason
	}
	s := strconv.Itoa(a.Status)
	if a.Location != "" {
		s += " to " + a.Location
	}
	if a.Reason != "" {
		s += ", " + a.Reason
	}
	return s
}
