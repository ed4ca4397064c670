package explain

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/weirmesh/weir/internal/exchange"
	"github.com/weirmesh/weir/internal/finding"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/routing"
	"github.com/weirmesh/weir/internal/telemetry"
)

// Matched reports whether a rule takes the request or the connection.
func (e *Explanation) Matched() bool { return e.Rule != nil || e.Explanation != nil && e.Winner != nil }

// explain queries the routing table compiled from the configuration.
func explain(cfg *model.Config, r *question) *Explanation {
	e := &Explanation{Request: r.Request, asked: r}
	table, _ := routing.Compile(cfg, nil)
	if !r.Protocol().Requests() {
		e.connection(cfg, table)
		return e
	}
	port := e.findPort(table)
	if port == nil {
		return e
	}
	if r.refused != nil {
		e.refuse("the proxy refuses the request", *r.refused)
		return e
	}
	if a := r.parsed.AnswersItself(); a != nil {
		e.refuse("the proxy answers this itself", *a)
		return e
	}
	path, err := routing.NormalizePath(r.path)
	if err != nil {
		e.refuse("the path is not valid", exchange.Refusal{Status: http.StatusBadRequest, Reason: telemetry.BadRequest, Detail: err.Error()})
		return e
	}
	listener := e.listener(port)
	if listener == nil {
		return e
	}
	e.Listener = listener.Listener
	e.client()
	match := routing.Request{Host: r.host, Method: r.Method, Path: path, Query: r.query, Fields: r.fields}
	why := listener.Explain(&match)
	e.Explanation = &why
	if why.Winner == nil {
		e.Reason = "no rule of the listener matches, the answer is 404"
		e.Answer = &Answer{Status: http.StatusNotFound, Reason: string(telemetry.NoRoute)}
		switch match.Excess() {
		case routing.NoExcess:
		case routing.ExcessField:
			e.Reason = "the request's fields are too long for the patterns they have to be matched with, the answer is 431"
			e.Answer = &Answer{Status: http.StatusRequestHeaderFieldsTooLarge, Reason: string(telemetry.HeadTooLarge)}
		default:
			e.Reason = "the request's target is too long for the patterns it has to be matched with, the answer is 414"
			e.Answer = &Answer{Status: http.StatusRequestURITooLong, Reason: string(telemetry.HeadTooLarge)}
		}
		return e
	}
	if e.PathPolicy = listener.ExplainPath(r.path, &match, &why.Decision); e.PathPolicy != nil && e.PathPolicy.Refused != "" {
		e.Answer = &Answer{Status: http.StatusBadRequest, Reason: string(telemetry.AmbiguousPath)}
		return e
	}
	if a := r.parsed.Judge(); a != nil {
		e.Answer = &Answer{Status: a.Status, Reason: cmp.Or(string(a.Reason), a.Detail)}
		if a.Reason != "" {
			e.Answer.Reason += ": " + a.Detail
		}
		return e
	}
	e.outcome(cfg, why.Decision, match)
	if e.Answer != nil && e.Answer.Location != "" && r.Follow {
		r.Notes = append(r.Notes, "-L asks next for "+e.Answer.Location+", which is another request to explain")
	}
	return e
}

// refuse records that the proxy answers by itself, before it finds a rule.
func (e *Explanation) refuse(why string, a exchange.Refusal) {
	e.Reason = fmt.Sprintf("%s, the answer is %d: %s", why, a.Status, a.Detail)
	e.Answer = &Answer{Status: a.Status, Reason: string(a.Reason)}
}

// client fills in the request's client.
func (e *Explanation) client() {
	r := e.asked
	if !r.Peer.IsValid() {
		return
	}
	p := exchange.Preview{Scheme: r.Scheme, Authority: r.authority, Peer: r.Peer, Fields: r.parsed.Fields}
	e.Client, e.ForwardedFor = p.Client(e.Listener.Front)
}

// servedPorts are the ports of all listeners, those that a redirect's socket serves among them.
func servedPorts(t *routing.Table) (all []*routing.Port) {
	for _, p := range t.Ports() {
		all = append(all, p.All()...)
	}
	return all
}

// findPort finds the port for the request's scheme and port, or sets Reason.
func (e *Explanation) findPort(t *routing.Table) *routing.Port {
	r := e.asked
	var fit []*routing.Port
	for _, p := range servedPorts(t) {
		if p.Protocol == r.Protocol() {
			fit = append(fit, p)
		}
	}
	wanted := r.WantedPort()
	at := slices.IndexFunc(fit, func(p *routing.Port) bool { return p.Number == wanted })
	switch {
	case at >= 0:
		return fit[at]
	case r.Port == 0 && len(fit) == 1:
		e.Note = fmt.Sprintf("nothing listens on port %d; taken is the only port for %s, %d", wanted, r.Scheme, fit[0].Number)
		return fit[0]
	}
	e.noPort(t, r.Scheme, wanted)
	return nil
}

// noPort records that no listener is on the port, and which ports have one.
func (e *Explanation) noPort(t *routing.Table, scheme string, wanted int32) {
	var have []string
	for _, p := range servedPorts(t) {
		have = append(have, portName(p))
	}
	e.Reason = fmt.Sprintf("nothing listens for %s on port %d; there is: %s", scheme, wanted, cmp.Or(strings.Join(finding.First(have, maxListed), ", "), "no listener at all"))
}

// listener finds the listener of a port that takes the request's host, or sets Reason.
func (e *Explanation) listener(p *routing.Port) *routing.Listener {
	l := p.Listener(e.asked.host)
	if l == nil {
		var have []string
		for _, l := range p.Listeners {
			have = append(have, l.Listener.Name+" for "+cmp.Or(l.Listener.Hostname, "any host"))
		}
		e.Reason = fmt.Sprintf("no listener on port %d takes the host %q, the answer is 404; there is: %s", p.Number, e.asked.host, strings.Join(finding.First(have, maxListed), ", "))
		e.Answer = &Answer{Status: http.StatusNotFound, Reason: string(telemetry.NoListener)}
	}
	return l
}

// maxListed is how many listeners a message lists.
const maxListed = 20

func portName(p *routing.Port) string {
	return fmt.Sprintf("%s on %s:%d", p.Protocol, cmp.Or(p.Address, "*"), p.Number)
}
