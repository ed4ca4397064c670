package explain

import (
	"slices"
	"strings"

	"github.com/weirmesh/weir/internal/exchange"
	"github.com/weirmesh/weir/internal/mirror"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/routing"
)

// outcome fills in what the winning rule does, in the exchange's own order.
func (e *Explanation) outcome(cfg *model.Config, d routing.Decision, match routing.Request) {
	rule := d.Rule.Rule
	if f := rule.Filters; !emptyFilters(f) {
		e.Filters = &f
	}
	e.Timeouts, e.Retry, e.Session = rule.Timeouts, rule.Retry, rule.Session
	r := e.asked
	o := &outcome{
		services: map[string]*model.Service{},
		preview: exchange.Preview{
			Scheme: r.Scheme, Method: r.Method, Authority: r.authority, Path: r.path, Query: r.query, HasQuery: r.hasQuery,
			Match: match, Decision: d,
		},
		preflight: r.preflight(),
	}
	for i := range cfg.Services {
		o.services[cfg.Services[i].Name] = &cfg.Services[i]
	}
	if e.Answer = o.filtered(&rule.Filters); e.Answer != nil {
		return
	}
	if rule.Fault != nil {
		e.Answer = faultAnswer(rule.Fault)
		return
	}
	e.Mirrors = o.mirrors(d.Rule.Mirrors, d.Rule.Backends)
	var sum uint64
	for _, b := range rule.Backends {
		sum += uint64(b.Weight)
	}
	if sum == 0 {
		e.Answer = &Answer{Status: 500, Reason: "the rule has no backend with a weight"}
	}
	for _, b := range d.Rule.Backends {
		e.Backends = append(e.Backends, o.backend(b, sum))
	}
}

// outcome is the input for describing what happens to a request that a rule took.
type outcome struct {
	services  map[string]*model.Service
	preview   exchange.Preview
	preflight bool
}

// filtered returns the answer that filters give by themselves, nil if there is none.
func (o *outcome) filtered(f *model.Filters) *Answer {
	switch {
	case f.CORS != nil && o.preflight:
		return &Answer{Status: 204, Reason: "the CORS filter answers preflight requests"}
	case f.Redirect != nil:
		return &Answer{Status: f.Redirect.Status, Location: o.preview.Location(f.Redirect)}
	}
	return nil
}

func (o *outcome) backend(backend *routing.Backend, sum uint64) Backend {
	b := backend.Backend
	out := Backend{Ref: b.Ref, Service: b.Service, Weight: uint64(b.Weight), WeightSum: sum}
	if sum > 0 {
		out.Probability = float64(b.Weight) / float64(sum)
	}
	out.Splits = backend.ExplainLeaf(&o.preview.Match)
	if n := len(out.Splits); n == 0 || !out.Splits[n-1].Takes {
		return o.target(out, backend, b.Fault)
	}
	for _, l := range out.Splits[len(out.Splits)-1].Leaves {
		leaf := Backend{
			Ref: l.Ref, Service: l.Service, Weight: l.Weight, WeightSum: l.WeightSum, Probability: out.Probability * l.Probability(),
		}
		out.Leaves = append(out.Leaves, o.target(leaf, backend, l.Fault))
	}
	return out
}

// target describes what happens to a request at the service, with the filters of a backend.
func (o *outcome) target(out Backend, backend *routing.Backend, fault *model.Fault) Backend {
	b := backend.Backend
	if !emptyFilters(b.Filters) {
		out.Filters = &b.Filters
	}
	service := o.services[out.Service]
	if fault == nil && service != nil {
		fault = service.Fault
	}
	switch {
	case fault != nil:
		out.Answer = faultAnswer(fault)
		return out
	case service == nil:
		out.Answer = &Answer{Status: 500, Reason: "the service is not in the configuration"}
		return out
	}
	if out.Answer = o.filtered(&b.Filters); out.Answer != nil {
		return out
	}
	out.Mirrors = o.mirrors(backend.Mirrors, []*routing.Backend{backend})
	if out.Endpoints = endpoints(service); len(out.Endpoints) == 0 {
		out.Answer = &Answer{Status: 503, Reason: NoEndpoint}
		return out
	}
	out.ProxyProtocol, out.Places = service.ProxyProtocol, places(service)
	out.Forwarded = &Forwarded{Method: o.preview.Method}
	out.Forwarded.Target, out.Forwarded.Host = o.preview.Forward(b)
	return out
}

func faultAnswer(f *model.Fault) *Answer {
	reason := f.Reason
	if f.Message != "" {
		reason += ": " + f.Message
	}
	return &Answer{Status: f.Status, Reason: reason}
}

// mirrors describes the mirrors of one rule or backend. backends are the backends whose requests they copy.
func (o *outcome) mirrors(mirrors []*routing.Mirror, backends []*routing.Backend) []Mirror {
	var out []Mirror
	copies := o.copies(backends)
	for _, mirror := range mirrors {
		m := mirror.Mirror
		x := Mirror{Ref: m.Ref, Service: m.Service, Numerator: m.Numerator, Denominator: m.Denominator, Copies: copies}
		x.Probability = float64(m.Numerator) / float64(max(m.Denominator, 1))
		x.Splits = mirror.ExplainLeaf(&o.preview.Match)
		if n := len(x.Splits); n == 0 || !x.Splits[n-1].Takes {
			x.Endpoints = o.endpoints(m.Service)
		} else {
			for _, l := range x.Splits[n-1].Leaves {
				x.Leaves = append(x.Leaves, Mirror{
					Ref: l.Ref, Service: l.Service, Probability: x.Probability * l.Probability(), Endpoints: o.endpoints(l.Service),
				})
			}
		}
		out = append(out, x)
	}
	return out
}

// copies returns the copies that mirrors get: the request as each answering backend gets it, without duplicates.
func (o *outcome) copies(backends []*routing.Backend) []Forwarded {
	var out []Forwarded
	add := func(b *model.Backend) {
		f := Forwarded{Method: o.preview.Method, Mark: mirror.DefaultHeader + ": 1"}
		if f.Target, f.Host = o.preview.Forward(b); !slices.Contains(out, f) {
			out = append(out, f)
		}
	}
	for _, b := range backends {
		if b.Backend.Weight > 0 {
			add(b.Backend)
		}
	}
	if out == nil {
		add(nil)
	}
	return out
}

// endpoints returns the endpoints of a service, which may not exist.
func (o *outcome) endpoints(service string) []string {
	if s := o.services[service]; s != nil {
		return endpoints(s)
	}
	return nil
}

func endpoints(s *model.Service) []string {
	var out []string
	for _, e := range s.Endpoints {
		out = append(out, e.Address)
	}
	return out
}

// places says of a service's endpoints by where a proxy uses them.
func places(s *model.Service) Places {
	p := Places{NodeLocal: s.NodeLocal, ClientAffinity: s.ClientAffinity}
	add := func(to *map[string][]string, names, address string) {
		if names == "" {
			return
		}
		if *to == nil {
			*to = map[string][]string{}
		}
		for name := range strings.SplitSeq(names, ",") {
			(*to)[name] = append((*to)[name], address)
		}
	}
	for _, e := range s.Endpoints {
		add(&p.Zones, e.Zones, e.Address)
		add(&p.Nodes, e.Nodes, e.Address)
	}
	return p
}

func emptyFilters(f model.Filters) bool {
	return f.RequestHeaders == nil && f.ResponseHeaders == nil && f.Redirect == nil && f.Rewrite == nil &&
		f.CORS == nil && len(f.Mirrors) == 0
}
