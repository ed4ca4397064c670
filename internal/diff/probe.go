package diff

import (
	"cmp"
	"net/url"
	"slices"
	"strings"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/routing"
)

// Request is a request that was compared.
type Request struct {
	// Gateway of the request, "namespace/name"; empty if there is one at most.
	Gateway string `json:"gateway,omitempty"`
	// Scheme is the protocol of the listeners: http, https or tcp; a connection has nothing else but its address.
	Scheme model.Protocol `json:"scheme"`
	// Address is the one the listener is bound to, empty for all.
	Address string `json:"address,omitempty"`
	Port    int32  `json:"port"`
	Host    string `json:"host,omitempty"`
	Method  string `json:"method,omitempty"`
	Path    string `json:"path,omitempty"`
	Query   string `json:"query,omitempty"`
	// Headers are fields with lower-case names, sorted.
	Headers []model.HeaderValue `json:"headers,omitempty"`
}

// Field implements routing.Fields.
func (r *Request) Field(name string) (string, bool) {
	for _, h := range r.Headers {
		if h.Name == name {
			return h.Value, true
		}
	}
	return "", false
}

func (r *Request) compare(o *Request) int {
	return cmp.Or(cmp.Compare(r.Port, o.Port), cmp.Compare(r.Address, o.Address), cmp.Compare(r.Scheme, o.Scheme), cmp.Compare(r.Host, o.Host),
		cmp.Compare(r.Path, o.Path), cmp.Compare(r.Query, o.Query), cmp.Compare(r.Method, o.Method),
		slices.CompareFunc(r.Headers, o.Headers, func(a, b model.HeaderValue) int {
			return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Value, b.Value))
		}))
}

// condition is what a match requires besides the host and the path.
type condition struct {
	method  string
	headers []model.HeaderValue
	query   string
}

func (c *condition) key() string {
	var b strings.Builder
	b.WriteString(c.method + "\x00" + c.query)
	for _, h := range c.headers {
		b.WriteString("\x00" + h.Name + "\x01" + h.Value)
	}
	return b.String()
}

// asked is the set of requests under one host name of a port.
type asked struct {
	paths      map[string]bool
	conditions map[string]condition
	// matched are the paths with the conditions of their own match.
	matched map[string]map[string]bool
}

// door is a port of either configuration.
type door struct {
	address string
	port    int32
	scheme  model.Protocol
}

const (
	// maxCombinations bounds the paths times conditions that are asked under one host name; beyond it each path is asked with its own
	// conditions and without any.
	maxCombinations = 4096
	// maxRequests bounds all requests.
	maxRequests = 200_000
	// other is a name that no route has.
	other = "other.invalid"
)

// prober gathers the requests.
type prober struct {
	doors       map[door]map[string]*asked // by host name as written
	connections map[door]bool              // to which no requests come
}

// add takes over the matches of a configuration.
func (p *prober) add(cfg *model.Config) {
	doors := make(map[string]door, len(cfg.Listeners))
	for i := range cfg.Listeners {
		l := &cfg.Listeners[i]
		d := door{l.Address, l.Port, l.Protocol}
		doors[l.Name] = d
		if !l.Protocol.Requests() {
			p.connections[d] = true
			continue
		}
		p.at(d, cmp.Or(l.Hostname, "*"))
	}
	splits := make(map[string][]model.SplitMatch)
	for i := range cfg.Splits {
		splits[cfg.Splits[i].Root] = append(splits[cfg.Splits[i].Root], cfg.Splits[i].Matches...)
	}
	for i := range cfg.Routes {
		r := &cfg.Routes[i]
		for _, a := range r.Attachments {
			d, ok := doors[a.Listener]
			if !ok || p.connections[d] {
				continue
			}
			for _, h := range a.Hostnames {
				at := p.at(d, h)
				for j := range r.Rules {
					at.rule(&r.Rules[j], splits)
				}
			}
		}
	}
}

func (p *prober) at(d door, host string) *asked {
	if p.doors[d] == nil {
		p.doors[d] = make(map[string]*asked)
	}
	a := p.doors[d][host]
	if a == nil {
		a = &asked{
			paths: map[string]bool{"/": true}, conditions: map[string]condition{"": {}}, matched: map[string]map[string]bool{},
		}
		p.doors[d][host] = a
	}
	return a
}

// rule adds requests that meet a rule's matches, and those of the splits that it leads to.
func (a *asked) rule(r *model.Rule, splits map[string][]model.SplitMatch) {
	for i := range r.Matches {
		m := &r.Matches[i]
		for _, c := range conditions(m.Method, m.Headers, m.Query) {
			a.meet(paths(m.Path), c)
		}
	}
	for _, b := range r.Backends {
		for _, m := range splits[b.Service] {
			var at []string
			for _, s := range samples(m.Path) {
				at = append(at, clean(s)...)
			}
			methods := m.Methods
			if len(methods) == 0 {
				methods = []string{""}
			}
			for _, method := range methods {
				for _, c := range conditions(method, m.Headers, nil) {
					a.meet(at, c)
				}
			}
		}
	}
}

func (a *asked) meet(paths []string, c condition) {
	k := c.key()
	a.conditions[k] = c
	for _, path := range paths {
		a.paths[path] = true
		if a.matched[path] == nil {
			a.matched[path] = map[string]bool{}
		}
		a.matched[path][k] = true
	}
}

// paths meet a match, and some that are its neighbours.
func paths(m model.PathMatch) (out []string) {
	switch m.Type {
	case model.Exact:
		return append(clean(m.Value), clean(strings.TrimSuffix(m.Value, "/")+"/x")...)
	case model.Prefix:
		value := strings.TrimSuffix(m.Value, "/")
		return append(clean(cmp.Or(value, "/")), clean(value+"/x")...)
	}
	for _, s := range samples(m.Value) {
		out = append(out, clean(s)...)
	}
	return out
}

// clean is the normal form of the path, or nothing if no request can have it.
func clean(path string) []string {
	normal, err := routing.NormalizePath(path)
	if err != nil {
		return nil
	}
	return []string{normal}
}

// conditions meet those of a match: one for each sample of its expressions.
func conditions(method string, headers, query []model.ValueMatch) []condition {
	of := func(i int) condition {
		c := condition{method: method}
		for _, h := range headers {
			if v, ok := valueAt(h, i); ok {
				c.headers = append(c.headers, model.HeaderValue{Name: strings.ToLower(h.Name), Value: v})
			}
		}
		slices.SortFunc(c.headers, func(a, b model.HeaderValue) int { return cmp.Compare(a.Name, b.Name) })
		var parts []string
		for _, q := range query {
			if v, ok := valueAt(q, i); ok {
				parts = append(parts, url.QueryEscape(q.Name)+"="+url.QueryEscape(v))
			}
		}
		slices.Sort(parts)
		c.query = strings.Join(parts, "&")
		return c
	}
	first, second := of(0), of(1)
	if first.key() == second.key() {
		return []condition{first}
	}
	return []condition{first, second}
}

// valueAt is the i-th sample of a value, or the last there is.
func valueAt(m model.ValueMatch, i int) (string, bool) {
	if m.Type != model.Regex {
		return m.Value, true
	}
	all := samples(m.Value)
	if len(all) == 0 {
		return "", false
	}
	return all[min(i, len(all)-1)], true
}

// requests lists them in a fixed order; thinned means that some combinations are missing.
func (p *prober) requests() (all []Request, thinned bool) {
	for d := range p.connections {
		all = append(all, Request{Scheme: d.scheme, Address: d.address, Port: d.port})
	}
	for d, hosts := range p.doors {
		for written, a := range hosts {
			for _, host := range names(written) {
				thinned = p.ask(&all, d, host, covering(hosts, written, a)) || thinned
			}
		}
	}
	slices.SortFunc(all, func(a, b Request) int { return a.compare(&b) })
	all = slices.CompactFunc(all, func(a, b Request) bool { return a.compare(&b) == 0 })
	if len(all) > maxRequests {
		return all[:maxRequests], true
	}
	return all, thinned
}

// covering adds the requests of routes with less specific names: these serve what the more specific ones leave.
func covering(hosts map[string]*asked, name string, own *asked) []*asked {
	all := []*asked{own}
	for other, a := range hosts {
		suffix, wild := strings.CutPrefix(other, "*")
		if wild && other != name && strings.HasSuffix(strings.TrimPrefix(name, "*"), suffix) {
			all = append(all, a)
		}
	}
	return all
}

// mix combines the conditions of several matches: each method, and one that none of them names, with each set of header
// fields, with each two sets that do not contradict each other, and with each query. It returns nil if there are too
// many.
func mix(all map[string]condition) map[string]condition {
	methods, queries, fields := map[string]bool{}, map[string]bool{}, map[string][]model.HeaderValue{}
	for _, c := range all {
		methods[c.method], queries[c.query] = true, true
		fields[(&condition{headers: c.headers}).key()] = c.headers
	}
	if len(methods) > 1 {
		methods[unnamed(methods)] = true
	}
	if len(fields)*len(fields)*len(methods)*len(queries) > 4*maxCombinations {
		return nil
	}
	out := map[string]condition{}
	for _, x := range fields {
		for _, y := range fields {
			headers, ok := union(x, y)
			if !ok {
				continue
			}
			for method := range methods {
				for query := range queries {
					c := condition{method, headers, query}
					out[c.key()] = c
				}
			}
		}
	}
	return out
}

// unnamed is a method that is not in methods.
func unnamed(methods map[string]bool) string {
	for _, m := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"} {
		if !methods[m] && !(m == "GET" && methods[""]) {
			return m
		}
	}
	return "OTHER"
}

// union is both sets of fields, unless they want different values of one.
func union(x, y []model.HeaderValue) (out []model.HeaderValue, ok bool) {
	out = slices.Clone(x)
	for _, h := range y {
		i := slices.IndexFunc(x, func(o model.HeaderValue) bool { return o.Name == h.Name })
		switch {
		case i < 0:
			out = append(out, h)
		case x[i].Value != h.Value:
			return nil, false
		}
	}
	slices.SortFunc(out, func(a, b model.HeaderValue) int { return cmp.Compare(a.Name, b.Name) })
	return out, true
}

// names are hosts that a name covers.
func names(written string) []string {
	switch suffix, wild := strings.CutPrefix(written, "*"); {
	case written == "*":
		return []string{other}
	case wild:
		return []string{"x" + suffix, "x.x" + suffix}
	}
	return []string{written}
}

func (p *prober) ask(to *[]Request, d door, host string, all []*asked) (thinned bool) {
	paths, conditions := map[string]bool{}, map[string]condition{}
	for _, a := range all {
		for path := range a.paths {
			paths[path] = true
		}
		for k, c := range a.conditions {
			conditions[k] = c
		}
	}
	mixed := mix(conditions)
	add := func(path string, c condition) {
		*to = append(*to, Request{
			Scheme: d.scheme, Address: d.address, Port: d.port, Host: host,
			Method: cmp.Or(c.method, "GET"), Path: path, Query: c.query, Headers: c.headers,
		})
	}
	if mixed != nil && len(paths)*len(mixed) <= maxCombinations {
		for path := range paths {
			for _, c := range mixed {
				add(path, c)
			}
		}
		return false
	}
	for path := range paths {
		add(path, condition{})
		for _, a := range all {
			for k := range a.matched[path] {
				add(path, a.conditions[k])
			}
		}
	}
	return true
}
