package exchange

import (
	"net/netip"
	"strings"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/mirror"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/routing"
)

// Preview shows what an exchange would do with a request. It runs the exchange's own code and sends nothing. "weir
// explain" uses it.
type Preview struct {
	// Scheme is "http" or "https"; Authority, Path and Query are as the client sends them.
	Scheme, Method, Authority string
	Path, Query               string
	HasQuery                  bool
	// Match is the request that routing matched, Decision the result.
	Match    routing.Request
	Decision routing.Decision
	// Peer is the other side of the connection, Fields are the request's. Client uses them.
	Peer   netip.Addr
	Fields []http1.Field
}

// Client returns the client's address as the proxy sees it, and the X-Forwarded-For that backends get.
func (p *Preview) Client(f *model.Front) (client, chain string) {
	ex := &Exchange{from: Origin{Peer: &Peer{Address: p.Peer, IP: p.Peer.String(), Scheme: p.Scheme}}, req: Request{Authority: p.Authority, Fields: p.Fields}}
	ex.believe(newFront(f))
	if ex.reported == nil {
		return ex.from.Peer.IP, ex.from.Peer.IP
	}
	return strings.Clone(ex.reported.text), strings.Clone(ex.reported.chain)
}

// previewed is the pipeline of previews, which send nothing.
var previewed = NewPipeline(Options{}, Around{Mark: mirror.DefaultHeader})

func (p *Preview) exchange(backend *model.Backend) *Exchange {
	ex := &Exchange{
		pipe:     previewed,
		from:     Origin{Peer: &Peer{Scheme: p.Scheme}},
		outgoing: outgoing{forwards: -1},
		routed: routed{
			match: p.Match, decision: p.Decision, backend: &Backend{},
			rule: &Rule{filters: compileFilters(&p.Decision.Rule.Rule.Filters)},
		},
		req: Request{
			Method: p.Method, Path: p.Path, Query: p.Query, HasQuery: p.HasQuery, Target: p.Path,
			Authority: p.Authority, host: p.Match.Host, Form: http1.FormOrigin,
		},
	}
	if p.HasQuery {
		ex.req.Target += "?" + p.Query
	}
	if _, unescaped := http1.CheckTarget(ex.req.Target); unescaped {
		ex.escapeTarget()
	}
	if backend != nil {
		ex.backend.filters = compileFilters(&backend.Filters)
	}
	return ex
}

// Forward returns the request target and the host that the backend gets.
func (p *Preview) Forward(backend *model.Backend) (target, authority string) {
	ex := p.exchange(backend)
	ex.compose()
	return strings.Clone(ex.target), strings.Clone(ex.authority)
}

// Location returns where a redirect leads.
func (p *Preview) Location(r *model.Redirect) string {
	return p.exchange(nil).location(compileRedirect(r))
}
