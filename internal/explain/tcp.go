package explain

import (
	"slices"

	"github.com/weirmesh/weir/internal/finding"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/routing"
)

// connection explains what happens to a connection to a port.
func (e *Explanation) connection(cfg *model.Config, t *routing.Table) {
	ports := servedPorts(t)
	at := slices.IndexFunc(ports, func(p *routing.Port) bool { return p.Protocol == e.Request.Protocol() && p.Number == e.Request.Port })
	if at < 0 {
		e.noPort(t, e.Request.Scheme, e.Request.Port)
		return
	}
	port := ports[at]
	e.Listener = port.Listeners[0].Listener
	rule := port.Rule()
	if rule == nil {
		e.Reason = "no route is attached to the listener, so the connection is reset"
		return
	}
	e.Rule = &rule.Rule.Ref
	if rule.Rule.Fault != nil {
		e.Answer = resetAnswer(rule.Rule.Fault)
		return
	}
	services := map[string]*model.Service{}
	for i := range cfg.Services {
		services[cfg.Services[i].Name] = &cfg.Services[i]
	}
	var sum uint64
	for _, b := range rule.Backends {
		sum += uint64(b.Backend.Weight)
	}
	if sum == 0 {
		e.Answer = &Answer{Reason: "the rule has no backend with a weight"}
	}
	for _, b := range rule.Backends {
		out := Backend{Ref: b.Backend.Ref, Service: b.Backend.Service, Weight: uint64(b.Backend.Weight), WeightSum: sum, Splits: b.ExplainConnectionLeaf()}
		if sum > 0 {
			out.Probability = float64(out.Weight) / float64(sum)
		}
		if n := len(out.Splits); n == 0 || !out.Splits[n-1].Takes {
			out.connect(services, b.Backend.Fault)
		} else {
			for _, l := range out.Splits[n-1].Leaves {
				leaf := Backend{Ref: l.Ref, Service: l.Service, Weight: l.Weight, WeightSum: l.WeightSum, Probability: out.Probability * l.Probability()}
				leaf.connect(services, l.Fault)
				out.Leaves = append(out.Leaves, leaf)
			}
		}
		e.Backends = append(e.Backends, out)
	}
}

// connect describes what happens to a connection at the service.
func (b *Backend) connect(services map[string]*model.Service, fault *model.Fault) {
	service := services[b.Service]
	if fault == nil && service != nil && service.Fault != nil && service.Fault.Reason != model.UnsupportedProtocol {
		fault = service.Fault
	}
	switch {
	case fault != nil:
		b.Answer = resetAnswer(fault)
	case service == nil:
		b.Answer = &Answer{Reason: "the service is not in the configuration"}
	default:
		if b.Endpoints = endpoints(service); len(b.Endpoints) == 0 {
			b.Answer = &Answer{Reason: NoEndpoint}
		}
		b.ProxyProtocol, b.Places = service.ProxyProtocol, places(service)
	}
}

// resetAnswer describes what a fault does to a connection.
func resetAnswer(f *model.Fault) *Answer {
	a := faultAnswer(f)
	a.Status = 0
	return a
}

// connection writes what happens to a connection.
func (p *printer) connection(e *Explanation) {
	if e.Rule == nil {
		p.line("answer", "%s", e.Reason)
		p.leftOut(e)
		return
	}
	p.line("rule", "%s%s", finding.Object(*e.Rule)+" "+e.Rule.Field, p.where(*e.Rule))
	p.leftOut(e)
	p.backends(e)
}
