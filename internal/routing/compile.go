package routing

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/weirmesh/weir/internal/model"
)

// Compile builds the table of a configuration. Samplers continue from their state in prev (which may be nil) if their
// provenance and their fraction or weights are equal. cfg must not change afterwards.
//
// Parts that cannot be served are left out and returned; the rest is in the table, so that one user's mistake holds up
// no other. Nothing is left out of a configuration that model.Config.Validate accepts.
func Compile(cfg *model.Config, prev *Table) (*Table, []model.Omission) {
	c := &compiler{
		table: &Table{
			expressions: make(map[string]*model.Pattern), starts: make(map[string]*model.Pattern),
		},
		prev:      prev,
		listeners: make(map[string]*Listener, len(cfg.Listeners)),
	}
	if prev == nil {
		c.prev = &Table{}
	}
	// Mostly there is as much as before.
	c.table.samplers = make(map[samplerKey][]*sampler, len(c.prev.samplers))
	c.table.rules, c.table.backends = make([]*Rule, 0, len(c.prev.rules)), make([]*Backend, 0, len(c.prev.backends))
	for i := range cfg.Listeners {
		c.listener(&cfg.Listeners[i])
	}
	slices.SortFunc(c.table.ports, func(a, b *Port) int {
		return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.Address, b.Address), cmp.Compare(a.Redirect, b.Redirect), cmp.Compare(a.Protocol.Network(), b.Protocol.Network()))
	})
	c.roots(cfg)
	ages := ages(cfg.Routes)
	for i := range cfg.Routes {
		c.route(&cfg.Routes[i], ages[i])
	}
	for _, l := range c.table.listeners {
		for _, h := range l.all {
			h.own = ownAge(h.all)
			h.paths.finish(nil)
			sortCandidates(h.expressions)
			sortCandidates(h.catchAll)
			h.note()
		}
		c.loosen(l)
	}
	return c.table, c.left
}

type compiler struct {
	table, prev *Table
	listeners   map[string]*Listener
	// rootOf has the services with splits.
	// copiesOf has the same services as mirrors reach them.
	rootOf   map[string]*root
	copiesOf map[string]*root
	// left is what is left out, lost the listeners among that.
	left []model.Omission
	lost map[string]bool
	// patterns bounds the patterns of the current route.
	patterns model.PatternBudget
}

// omit notes that a part is left out.
func (c *compiler) omit(ref model.Ref, field, format string, args ...any) {
	c.left = append(c.left, model.Omission{Ref: within(ref, field), Reason: fmt.Sprintf(format, args...)})
}

// omitListener notes that a listener is left out.
func (c *compiler) omitListener(m *model.Listener, field, format string, args ...any) {
	if c.lost == nil {
		c.lost = map[string]bool{}
	}
	c.lost[m.Name] = true
	c.omit(m.Ref, field, format, args...)
}

// ages returns the place of each route by creation, namespace and name, and at last its place in the model.
func ages(routes []model.Route) []int {
	order := make([]int, len(routes))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		a, b := &routes[i], &routes[j]
		return cmp.Or(
			a.Created.Compare(b.Created),
			model.CompareNames(a.Ref.Namespace, a.Ref.Name, b.Ref.Namespace, b.Ref.Name),
			cmp.Compare(i, j),
		)
	})
	ages := make([]int, len(routes))
	for age, i := range order {
		ages[i] = age
	}
	return ages
}

func (c *compiler) listener(m *model.Listener) {
	if c.listeners[m.Name] != nil {
		c.omit(m.Ref, "name", "listener %q occurs twice; give each a name of its own", m.Name)
		return
	}
	if !m.Protocol.OnListeners() {
		c.omitListener(m, "protocol", "%q is unknown to this version; use one of %q", m.Protocol, model.ListenerProtocols())
		return
	}
	port, err := c.port(m)
	if err != nil {
		c.omitListener(m, "address", "%v", err)
		return
	}
	if port.Protocol != m.Protocol {
		c.omitListener(m, "protocol", "port %d has a listener of the protocol %q; use one protocol on a port", m.Port, port.Protocol)
		return
	}
	if len(port.Listeners) > 0 && (!m.Protocol.Hosts() || m.Detect || port.Detect) {
		c.omitListener(m, "port", "port %d has another listener; one of the protocol %q, or one that detects what connections carry, has its port alone", m.Port, m.Protocol)
		return
	}
	port.Plain, port.Detect = port.Plain || m.ServesPlain(), m.Detect
	l := &Listener{ID: len(c.table.listeners), Listener: m}
	c.table.listeners = append(c.table.listeners, l)
	c.listeners[m.Name] = l
	port.Listeners = append(port.Listeners, l)
	hostname := cmp.Or(strings.ToLower(m.Hostname), anyHostname)
	port.hosts.at(hostname, func() *Listener { return l })
}

// port is the port of a listener, which is made if there is none.
func (c *compiler) port(m *model.Listener) (*Port, error) {
	made := &Port{Address: m.Address, Number: m.Port, Protocol: m.Protocol}
	if m.Redirect == "" {
		if p := c.table.Port(m.Protocol.Network(), m.Address, m.Port); p != nil {
			return p, nil
		}
		c.table.ports = append(c.table.ports, made)
		return made, nil
	}
	var to netip.Addr
	if m.Address != "" {
		var err error
		if to, err = netip.ParseAddr(m.Address); err != nil {
			return nil, err
		}
	}
	at := netip.AddrPortFrom(to.Unmap(), uint16(m.Port))
	i := slices.IndexFunc(c.table.ports, func(p *Port) bool { return p.Redirect == m.Redirect })
	if i < 0 {
		i = len(c.table.ports)
		c.table.ports = append(c.table.ports, &Port{Protocol: model.TCP, Redirect: m.Redirect, meant: map[netip.AddrPort]*Port{}})
	}
	of := c.table.ports[i].meant
	if of[at] == nil {
		of[at] = made
	}
	return of[at], nil
}

// route compiles a route by its kind.
func (c *compiler) route(m *model.Route, age int) {
	c.patterns = model.PatternBudget{}
	switch m.Kind {
	case model.RouteHTTP, model.RouteGRPC:
		c.requestRoute(m, age)
	case model.RouteTCP:
		c.connectionRoute(m, age)
	default:
		withheld, left := m.Withheld(func(listener string) model.Protocol {
			if l := c.listeners[listener]; l != nil {
				return l.Listener.Protocol
			}
			return ""
		})
		if c.left = append(c.left, left); withheld != nil {
			c.requestRoute(withheld, age)
		}
	}
}

// requestRoute compiles a route for requests.
func (c *compiler) requestRoute(m *model.Route, age int) {
	var candidates []*candidate
	for i := range m.Rules {
		candidates = c.rule(m, i, age, candidates)
	}
	for i := range m.Attachments {
		l := c.attached(m, i)
		if l == nil {
			continue
		}
		a := &m.Attachments[i]
		field := func() string { return model.FieldAt("attachments", i) + ".hostnames" }
		if len(a.Hostnames) == 0 {
			c.omit(m.Ref, field(), "is empty; \"*\" stands for any host")
		}
		for j, hostname := range a.Hostnames {
			if hostname == "" {
				c.omit(m.Ref, model.FieldAt(field(), j), "is empty; \"*\" stands for any host")
				continue
			}
			l.attach(strings.ToLower(hostname), age, candidates)
		}
	}
}

// ownAge is hostRules.own of candidates.
func ownAge(all []*candidate) int {
	first, namespace := math.MaxInt, ""
	for _, c := range all {
		if c.age < first {
			first, namespace = c.age, c.rule.Route.Ref.Namespace
		}
	}
	other := math.MaxInt
	for _, c := range all {
		if c.age < other && c.rule.Route.Ref.Namespace != namespace {
			other = c.age
		}
	}
	return other - 1
}

// attached is the listener of a route's attachment; nil if that is left out.
func (c *compiler) attached(m *model.Route, i int) *Listener {
	name := m.Attachments[i].Listener
	l := c.listeners[name]
	switch {
	case l == nil && c.lost[name]: // told of already
	case l == nil:
		c.omit(m.Ref, model.FieldAt("attachments", i)+".listener", "listener %q does not exist", name)
	case !l.Listener.Takes(m.Kind):
		c.omit(m.Ref, model.FieldAt("attachments", i)+".listener", "listener %q has the protocol %q, which takes no %s route", name, l.Listener.Protocol, m.Kind)
		return nil
	}
	return l
}

// attach adds a route's candidates under a hostname, once however often the route names it.
func (l *Listener) attach(hostname string, age int, candidates []*candidate) {
	h, isNew := l.hosts.at(hostname, func() *hostRules { return &hostRules{hostname: hostname} })
	if isNew {
		l.all = append(l.all, h)
	} else if h.age == age {
		return
	}
	h.age = age
	h.all = append(h.all, candidates...)
	for _, c := range candidates {
		switch {
		case c.expression != nil:
			h.expressions = append(h.expressions, c)
		case c.match.Path.Type == model.Exact:
			n := h.paths.at(c.path)
			n.exact = append(n.exact, c)
		case c.path == "":
			h.catchAll = append(h.catchAll, c)
		default:
			n := h.paths.at(c.path)
			n.prefix = append(n.prefix, c)
		}
	}
}

// rule compiles a rule for requests and returns candidates with its own appended. A rule without a valid match is left
// out. A rule with invalid filters answers 500, since without them it would let requests pass that they block.
func (c *compiler) rule(route *model.Route, index, age int, candidates []*candidate) []*candidate {
	m := &route.Rules[index]
	r := &Rule{Route: route, Rule: m, Index: index}
	before := len(candidates)
	if len(m.Matches) == 0 {
		c.omit(ruleRef(route, index), "matches", "is empty; a rule for every request has a match of the prefix \"/\"")
	}
	for j := range m.Matches {
		if candidate := c.candidate(r, j); candidate != nil {
			candidate.age = age
			candidates = append(candidates, candidate)
		}
	}
	if len(candidates) > before {
		c.serve(r)
	}
	return candidates
}

// serve adds a rule with its backends and mirrors to the table.
func (c *compiler) serve(r *Rule) {
	ref := ruleRef(r.Route, r.Index)
	if field, err := r.Rule.Filters.Check(); err != nil {
		c.omit(ref, "filters"+field, "%v; the rule answers 500", err)
		closed := *r.Rule
		closed.Filters, closed.Backends, closed.Fault = model.Filters{}, nil, closedFault
		r.Rule = &closed
	}
	m := r.Rule
	r.ID = len(c.table.rules)
	c.table.rules = append(c.table.rules, r)
	r.Mirrors = c.mirrors(func() model.Ref { return ref }, m.Filters.Mirrors)
	weights := make([]uint64, len(m.Backends))
	r.Backends = make([]*Backend, len(m.Backends))
	for i := range m.Backends {
		at := func() model.Ref { return within(ref, model.FieldAt("backends", i)) }
		b := &Backend{ID: len(c.table.backends), Rule: r, Backend: &m.Backends[i]}
		if field, err := b.Backend.Filters.Check(); err != nil {
			c.omit(at(), "filters"+field, "%v; the backend answers 500 for its share", err)
			b.Backend = &model.Backend{Ref: b.Backend.Ref, Weight: b.Backend.Weight, Fault: closedFault}
		}
		c.table.backends = append(c.table.backends, b)
		b.way = c.way(b.Backend.Service, c.rootOf, func(l *Leaf) {
			l.ID, l.Backend = len(c.table.leaves), b
			c.table.leaves = append(c.table.leaves, l)
		})
		r.Backends[i] = b
		weights[i] = uint64(b.Backend.Weight)
		b.Mirrors = c.mirrors(at, b.Backend.Filters.Mirrors)
	}
	r.split = c.split(samplerKey{ref: ref}, weights)
}

// closedFault answers where filters cannot be applied.
var closedFault = &model.Fault{Status: 500, Reason: "InvalidConfiguration", Message: "filters of the route are not valid"}

// split prepares to draw by weight; the key is without the weights.
func (c *compiler) split(key samplerKey, weights []uint64) split {
	reduced, sum, sole := reduce(weights)
	s := split{sole: sole}
	if sum > 0 {
		key.what = weightsText(reduced)
		s.sampler = c.sampler(key, sum)
		s.ends = reduced
		for i := 1; i < len(reduced); i++ {
			reduced[i] += reduced[i-1]
		}
	}
	return s
}

func weightsText(weights []uint64) string {
	var text []byte
	for _, w := range weights {
		text = append(strconv.AppendUint(text, w, 10), ' ')
	}
	return string(text)
}

// mirrors compiles the mirrors of a rule or a backend, to which ref refers.
func (c *compiler) mirrors(ref func() model.Ref, list []model.Mirror) []*Mirror {
	var mirrors []*Mirror
	for i := range list {
		m := &list[i]
		mirrorRef := m.Ref
		if mirrorRef.Field == "" {
			mirrorRef = within(ref(), model.FieldAt("filters.mirrors", i))
		}
		if err := m.Check(); err != nil {
			c.omit(mirrorRef, "fraction", "%v; the mirror is left out", err)
			continue
		}
		mirror := &Mirror{ID: len(c.table.mirrors), Mirror: m}
		mirror.fraction = fraction{numerator: uint64(m.Numerator), all: m.Numerator == m.Denominator}
		if m.Numerator > 0 && m.Numerator < m.Denominator {
			key := samplerKey{ref: mirrorRef, what: fmt.Sprintf("%d/%d", m.Numerator, m.Denominator)}
			mirror.fraction.sampler = c.sampler(key, uint64(m.Denominator))
		}
		mirror.way = c.way(m.Service, c.copiesOf, func(l *Leaf) {
			l.ID, l.Mirror = len(c.table.mirrorLeaves), mirror
			c.table.mirrorLeaves = append(c.table.mirrorLeaves, l)
		})
		c.table.mirrors = append(c.table.mirrors, mirror)
		mirrors = append(mirrors, mirror)
	}
	return mirrors
}

// samplerKey is the identity by which a sampler survives: where its fraction or weights were written, and their values.
type samplerKey struct {
	ref  model.Ref
	what string
	// root is the service that a split divides: one object may split several.
	root string
	// copies: the split shares out copies of mirrors.
	copies bool
}

// sampler returns the previous table's sampler for the key, or a new one. If several parts share a key (as in a model
// without provenance), their order distinguishes them, so that no two share a sampler.
func (c *compiler) sampler(key samplerKey, size uint64) *sampler {
	before, now := c.prev.samplers[key], c.table.samplers[key]
	if n := len(now); n < len(before) {
		c.table.samplers[key] = before[: n+1 : n+1]
		return before[n]
	}
	s := newSampler(size)
	c.table.samplers[key] = append(now, s)
	return s
}

// candidate compiles a match; nil if it is left out.
func (c *compiler) candidate(rule *Rule, index int) *candidate {
	m := &rule.Rule.Matches[index]
	ref := func() model.Ref { return within(ruleRef(rule.Route, rule.Index), model.FieldAt("matches", index)) }
	candidate := &candidate{rule: rule, match: m, index: index}
	switch m.Path.Type {
	case model.Regex:
		e, err := c.expression(m.Path.Value)
		if err != nil {
			c.omit(ref(), "path.value", "%v; the match is left out", err)
			return nil
		}
		candidate.expression, candidate.path = e, e.Prefix
	case model.Exact, model.Prefix:
		var err error
		if candidate.path, err = model.MatchPath(m.Path.Value); err != nil {
			c.omit(ref(), "path.value", "%q: %v; the match is left out", m.Path.Value, err)
			return nil
		}
		if m.Path.Type == model.Prefix {
			candidate.path = strings.TrimSuffix(candidate.path, "/")
		}
	default:
		c.omit(ref(), "path.type", "%q is not %q, %q or %q; the match is left out", m.Path.Type, model.Exact, model.Prefix, model.Regex)
		return nil
	}
	var headers, query bool
	candidate.headers, headers = c.conditions(ref, "headers", m.Headers, strings.ToLower)
	candidate.query, query = c.conditions(ref, "query", m.Query, strings.Clone)
	if !headers || !query {
		return nil
	}
	return candidate
}

// conditions compiles the conditions on header fields or query parameters; ok is false if one of them cannot be, and the match is left out.
// Of several with one name only the first counts (Gateway API, HTTPHeaderMatch.name and HTTPQueryParamMatch.name).
func (c *compiler) conditions(ref func() model.Ref, field string, list []model.ValueMatch, fold func(string) string) (conditions []condition, ok bool) {
	for i := range list {
		m := &list[i]
		at := func() model.Ref { return within(ref(), model.FieldAt(field, i)) }
		next := condition{name: fold(m.Name), value: m.Value}
		if next.name == "" {
			c.omit(at(), "name", "is empty; the match is left out")
			return nil, false
		}
		switch m.Type {
		case model.Exact:
		case model.Regex:
			e, err := c.expression(m.Value)
			if err != nil {
				c.omit(at(), "value", "%v; the match is left out", err)
				return nil, false
			}
			next.expression = e
		default:
			c.omit(at(), "type", "%q is not %q or %q; the match is left out", m.Type, model.Exact, model.Regex)
			return nil, false
		}
		if !slices.ContainsFunc(conditions, func(c condition) bool { return c.name == next.name }) {
			conditions = append(conditions, next)
		}
	}
	return conditions, true
}

// expression compiles a pattern that must match the whole value, within the bounds of the route or split at hand. Equal patterns share one
// expression, also with the previous table.
func (c *compiler) expression(pattern string) (*model.Pattern, error) {
	return c.shared(pattern, c.table.expressions, c.prev.expressions, model.CompilePattern)
}

// start compiles a pattern that must match from the start of a value.
func (c *compiler) start(pattern string) (*model.Pattern, error) {
	return c.shared(pattern, c.table.starts, c.prev.starts, model.CompileStartPattern)
}

func (c *compiler) shared(pattern string, now, before map[string]*model.Pattern, compile func(string) (*model.Pattern, error)) (*model.Pattern, error) {
	if err := c.patterns.Add(pattern); err != nil {
		return nil, err
	}
	e := now[pattern]
	if e == nil {
		e = before[pattern]
	}
	if e == nil {
		var err error
		if e, err = compile(pattern); err != nil {
			return nil, err
		}
	}
	now[pattern] = e
	return e, nil
}

func ruleRef(route *model.Route, index int) model.Ref {
	if ref := route.Rules[index].Ref; ref.Field != "" {
		return ref
	}
	return within(route.Ref, model.FieldAt("rules", index))
}

// within returns the reference to a field inside ref.
func within(ref model.Ref, field string) model.Ref {
	if ref.Field != "" {
		field = ref.Field + "." + field
	}
	ref.Field = field
	return ref
}
