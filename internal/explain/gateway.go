package explain

import (
	"fmt"
	"slices"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/curl"
	"github.com/weirmesh/weir/internal/model"
)

// GatewayError is why the Gateway of a request is unknown.
type GatewayError struct {
	Problem GatewayProblem
	// Gateway is the one the caller asked for.
	Gateway model.Owner
	// Gateways are all Gateways, or those that may get the request.
	Gateways []Gateway
}

// GatewayProblem is the cause of a GatewayError.
type GatewayProblem int

const (
	// NotSeparate: the caller asked for a Gateway, but one proxy serves all.
	NotSeparate GatewayProblem = iota
	// UnknownGateway: the requested Gateway is not served.
	UnknownGateway
	// NoGateway: no Gateway has a listener.
	NoGateway
	// NoneListens: no Gateway has a listener for the request.
	NoneListens
	// SeveralListen: several Gateways may get the request.
	SeveralListen
)

// Error implements error.
func (e *GatewayError) Error() string {
	switch e.Problem {
	case NotSeparate:
		return "Gateways are served as one, on the listeners' ports"
	case UnknownGateway:
		return fmt.Sprintf("Gateway %s is not served; there is:\n%s", e.Gateway, e.List())
	case NoGateway:
		return "no Gateway has a listener"
	case NoneListens:
		return "no Gateway listens for this; there is:\n" + e.List()
	}
	return "several Gateways may get this:\n" + e.List()
}

// List is Lines in one text.
func (e *GatewayError) List() string { return strings.Join(e.Lines(), "\n") }

// Lines returns a line for each Gateway.
func (e *GatewayError) Lines() []string {
	var lines []string
	for _, g := range e.Gateways {
		line := "  " + string(g.Name)
		if len(g.Addresses) > 0 {
			line += " at " + strings.Join(g.Addresses, ", ")
		}
		lines = append(lines, line+": "+strings.Join(g.Listeners, ", "))
	}
	return lines
}

// Gateway is a Gateway that may get a request.
type Gateway struct {
	Name      model.Owner
	Addresses []string
	// Listeners are "port hostname", or "port" for listeners of any host.
	Listeners []string
}

// gateways describes the named Gateways.
func (s *Served) gateways(names []model.Owner) (out []Gateway) {
	for _, name := range names {
		g := Gateway{Name: name, Addresses: s.addresses(name)}
		for i := range s.Config.Listeners {
			if l := &s.Config.Listeners[i]; l.Owner == name {
				g.Listeners = append(g.Listeners, strings.TrimSpace(fmt.Sprintf("%d %s", l.Port, l.Hostname)))
			}
		}
		slices.Sort(g.Listeners)
		g.Listeners = slices.Compact(g.Listeners)
		out = append(out, g)
	}
	return out
}

// addresses returns the addresses in a Gateway's status.
func (s *Served) addresses(gateway model.Owner) (out []string) {
	var g *gatewayv1.Gateway
	if s.Set != nil {
		g = s.Set.Gateway(gateway.Namespace(), gateway.Name())
	}
	if g == nil {
		return nil
	}
	for _, a := range g.Status.Addresses {
		out = append(out, a.Value)
	}
	return out
}

// find explains a request where each Gateway has addresses and proxies of its own. It first finds the Gateway that the
// request goes to.
func (s *Served) find(r *curl.Request) (*Explanation, error) {
	all := s.Config.Owners()
	if len(all) == 0 {
		return nil, &GatewayError{Problem: NoGateway}
	}
	is := func(address string) bool { return strings.EqualFold(address, r.Address) }
	names := slices.DeleteFunc(slices.Clone(all), func(g model.Owner) bool { return !slices.ContainsFunc(s.addresses(g), is) })
	why := "it has the address " + r.Address
	if len(names) == 0 {
		names, why = all, ""
	}
	if len(names) == 1 {
		return s.by(names[0], why, r), nil
	}
	var listening, matching []*Explanation
	for _, g := range names {
		e := s.by(g, "", r)
		if e.heard() && e.asked.refused != nil {
			return e, nil // all others would refuse it, too
		}
		if e.heard() {
			listening = append(listening, e)
		}
		if e.Matched() {
			matching = append(matching, e)
		}
	}
	switch {
	case len(matching) == 1:
		e := matching[0]
		e.GatewayBy = "of those that listen, it alone has a rule that matches"
		if len(listening) == 1 {
			e.GatewayBy = "it alone listens for this"
		}
		return e, nil
	case len(matching) == 0 && len(listening) == 1:
		e := listening[0]
		e.GatewayBy = "it alone listens for this"
		return e, nil
	case len(listening) == 0:
		return nil, &GatewayError{Problem: NoneListens, Gateways: s.gateways(names)}
	}
	fit := listening
	if len(matching) > 0 {
		fit = matching
	}
	names = nil
	for _, e := range fit {
		names = append(names, e.Gateway)
	}
	return nil, &GatewayError{Problem: SeveralListen, Gateways: s.gateways(names)}
}

// by explains a request at a Gateway; why is how that was found.
func (s *Served) by(gateway model.Owner, why string, r *curl.Request) *Explanation {
	e := s.at(s.Config.Of(gateway), r)
	e.Gateway, e.GatewayBy = gateway, why
	return e
}

// heard reports whether a listener takes the request, if only to refuse it.
func (e *Explanation) heard() bool { return e.Listener != nil || e.Answer != nil }
