package routing

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/weirmesh/weir/internal/model"
)

// Error says what makes a model invalid. Ref.Field names the part.
type Error struct {
	Ref    model.Ref
	Reason string
}

// Error implements error.
func (e *Error) Error() string {
	name := e.Ref.Name
	if e.Ref.Namespace != "" {
		name = e.Ref.Namespace + "/" + name
	}
	return fmt.Sprintf("%s %s: %s: %s", e.Ref.Kind, name, e.Ref.Field, e.Reason)
}

// Compile builds the table of a configuration. Samplers continue where those of prev (which may be nil) stand when
// their provenance and their fraction or weights are equal. An error is an *Error and means that the model is invalid,
// never that a user made a mistake: dialects leave such parts out. cfg must not change afterwards.
func Compile(cfg *model.Config, prev *Table) (*Table, error) {
	c := &compiler{
		table: &Table{
			expressions: make(map[string]expression), starts: make(map[string]*regexp.Regexp),
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
		if err := c.listener(&cfg.Listeners[i]); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(c.table.ports, func(a, b *Port) int {
		return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.Address, b.Address))
	})
	if err := c.roots(cfg); err != nil {
		return nil, err
	}
	ages := ages(cfg.Routes)
	for i := range cfg.Routes {
		if err := c.route(&cfg.Routes[i], ages[i]); err != nil {
			return nil, err
		}
	}
	for _, l := range c.table.listeners {
		for _, h := range l.all {
			h.paths.finish(nil)
			sortCandidates(h.expressions)
			sortCandidates(h.catchAll)
		}
		c.loosen(l)
	}
	return c.table, nil
}

type compiler struct {
	table, prev *Table
	listeners   map[string]*Listener
	// rootOf has the services with splits; variants the names of services that are variants of others.
	// copiesOf has the same services as mirrors reach them.
	rootOf   map[string]*root
	copiesOf map[string]*root
	variants map[string]bool
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

func (c *compiler) listener(m *model.Listener) error {
	if c.listeners[m.Name] != nil {
		return invalid(m.Ref, "name", "listener %q occurs twice; give each a name of its own", m.Name)
	}
	var tls bool
	switch m.Protocol {
	case model.HTTP:
	case model.HTTPS:
		tls = true
	case model.TCP:
	default:
		return invalid(m.Ref, "protocol", "%q is not a listener's protocol; use %q, %q or %q", m.Protocol, model.HTTP, model.HTTPS, model.TCP)
	}
	tcp := m.Protocol == model.TCP
	port := c.table.Port(m.Address, m.Port)
	if port == nil {
		port = &Port{Address: m.Address, Number: m.Port, TLS: tls, TCP: tcp}
		c.table.ports = append(c.table.ports, port)
	}
	if port.TLS != tls {
		return invalid(m.Ref, "protocol", "port %d has listeners with TLS and without; use one protocol on a port", m.Port)
	}
	if port.TCP != tcp || tcp && len(port.Listeners) > 0 {
		return invalid(m.Ref, "protocol", "port %d has a TCP listener and another; a TCP listener has its port alone", m.Port)
	}
	l := &Listener{ID: len(c.table.listeners), Listener: m}
	c.table.listeners = append(c.table.listeners, l)
	c.listeners[m.Name] = l
	port.Listeners = append(port.Listeners, l)
	hostname := cmp.Or(strings.ToLower(m.Hostname), anyHostname)
	port.hosts.at(hostname, func() *Listener { return l })
	return nil
}

func (c *compiler) route(m *model.Route, age int) error {
	if m.TCP {
		return c.tcpRoute(m, age)
	}
	var candidates []*candidate
	for i := range m.Rules {
		rule, err := c.rule(m, i)
		if err != nil {
			return err
		}
		if len(m.Rules[i].Matches) == 0 {
			return invalid(ruleRef(m, i), "matches", "is empty; a rule for every request has a match of the prefix \"/\"")
		}
		for j := range m.Rules[i].Matches {
			candidate, err := c.candidate(rule, j)
			if err != nil {
				return err
			}
			candidate.age = age
			candidates = append(candidates, candidate)
		}
	}
	for i := range m.Attachments {
		a := &m.Attachments[i]
		field := func() string { return model.FieldAt("attachments", i) }
		l := c.listeners[a.Listener]
		if l == nil {
			return invalid(m.Ref, field()+".listener", "there is no listener %q", a.Listener)
		}
		if l.Listener.Protocol == model.TCP {
			return invalid(m.Ref, field()+".listener", "listener %q is for TCP, the route is not", a.Listener)
		}
		if len(a.Hostnames) == 0 {
			return invalid(m.Ref, field()+".hostnames", "is empty; \"*\" stands for any host")
		}
		for j, hostname := range a.Hostnames {
			if hostname == "" {
				return invalid(m.Ref, model.FieldAt(field()+".hostnames", j), "is empty; \"*\" stands for any host")
			}
			l.attach(strings.ToLower(hostname), age, candidates)
		}
	}
	return nil
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

func (c *compiler) rule(route *model.Route, index int) (*Rule, error) {
	m := &route.Rules[index]
	ref := ruleRef(route, index)
	r := &Rule{ID: len(c.table.rules), Route: route, Rule: m, Index: index}
	c.table.rules = append(c.table.rules, r)
	var err error
	if r.Mirrors, err = c.mirrors(func() model.Ref { return ref }, m.Filters.Mirrors); err != nil {
		return nil, err
	}
	weights := make([]uint64, len(m.Backends))
	r.Backends = make([]*Backend, len(m.Backends))
	for i := range m.Backends {
		b := &Backend{ID: len(c.table.backends), Rule: r, Backend: &m.Backends[i]}
		c.table.backends = append(c.table.backends, b)
		b.way = c.way(b.Backend.Service, c.rootOf, func(l *Leaf) {
			l.ID, l.Backend = len(c.table.leaves), b
			c.table.leaves = append(c.table.leaves, l)
		})
		r.Backends[i] = b
		weights[i] = uint64(b.Backend.Weight)
		at := func() model.Ref { return within(ref, model.FieldAt("backends", i)) }
		if b.Mirrors, err = c.mirrors(at, b.Backend.Filters.Mirrors); err != nil {
			return nil, err
		}
	}
	r.split = c.split(samplerKey{ref: ref}, weights)
	return r, nil
}

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

// mirrors compiles those of a rule or a backend, to which ref refers.
func (c *compiler) mirrors(ref func() model.Ref, list []model.Mirror) ([]*Mirror, error) {
	var mirrors []*Mirror
	for i := range list {
		m := &list[i]
		own := m.Ref
		if own.Field == "" {
			own = within(ref(), model.FieldAt("filters.mirrors", i))
		}
		if m.Denominator == 0 {
			return nil, invalid(own, "fraction.denominator", "is 0; it must be at least 1")
		}
		if m.Numerator > m.Denominator {
			return nil, invalid(own, "fraction.numerator", "is %d, above the denominator %d", m.Numerator, m.Denominator)
		}
		mirror := &Mirror{ID: len(c.table.mirrors), Mirror: m}
		mirror.fraction = fraction{numerator: uint64(m.Numerator), all: m.Numerator == m.Denominator}
		if m.Numerator > 0 && m.Numerator < m.Denominator {
			key := samplerKey{ref: own, what: fmt.Sprintf("%d/%d", m.Numerator, m.Denominator)}
			mirror.fraction.sampler = c.sampler(key, uint64(m.Denominator))
		}
		mirror.way = c.way(m.Service, c.copiesOf, func(l *Leaf) {
			l.ID, l.Mirror = len(c.table.mirrorLeaves), mirror
			c.table.mirrorLeaves = append(c.table.mirrorLeaves, l)
		})
		c.table.mirrors = append(c.table.mirrors, mirror)
		mirrors = append(mirrors, mirror)
	}
	return mirrors, nil
}

// samplerKey is what a sampler survives by: where its fraction or weights were written, and what they are.
type samplerKey struct {
	ref  model.Ref
	what string
	// root is the service that a split divides: one object may split several.
	root string
	// copies: the split divides what mirrors copy.
	copies bool
}

// sampler returns the previous table's sampler for the key, or a new one. Parts that share a key (a model without
// provenance has such) are told apart by their order, so that no two share a sampler.
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

func (c *compiler) candidate(rule *Rule, index int) (*candidate, error) {
	m := &rule.Rule.Matches[index]
	ref := func() model.Ref { return within(ruleRef(rule.Route, rule.Index), model.FieldAt("matches", index)) }
	candidate := &candidate{rule: rule, match: m, index: index}
	var err error
	switch m.Path.Type {
	case model.Regex:
		e, err := c.expression(m.Path.Value)
		if err != nil {
			return nil, invalid(ref(), "path.value", "%v", err)
		}
		candidate.expression, candidate.path = e.Regexp, e.prefix
	case model.Exact, model.Prefix:
		if !strings.HasPrefix(m.Path.Value, "/") {
			return nil, invalid(ref(), "path.value", "%q does not begin with a slash", m.Path.Value)
		}
		if candidate.path, err = NormalizePath(m.Path.Value); err != nil {
			return nil, invalid(ref(), "path.value", "%q: %v", m.Path.Value, err)
		}
		if m.Path.Type == model.Prefix {
			candidate.path = strings.TrimSuffix(candidate.path, "/")
		}
	default:
		return nil, invalid(ref(), "path.type", "%q is none of %q, %q and %q", m.Path.Type, model.Exact, model.Prefix, model.Regex)
	}
	if candidate.headers, err = c.conditions(ref, "headers", m.Headers, strings.ToLower); err != nil {
		return nil, err
	}
	candidate.query, err = c.conditions(ref, "query", m.Query, strings.Clone)
	return candidate, err
}

// conditions compiles the conditions on header fields or query parameters. Of several with one name only the first
// counts (Gateway API, HTTPHeaderMatch.name and HTTPQueryParamMatch.name).
func (c *compiler) conditions(ref func() model.Ref, field string, list []model.ValueMatch, fold func(string) string) ([]condition, error) {
	var conditions []condition
	for i := range list {
		m := &list[i]
		at := func() model.Ref { return within(ref(), model.FieldAt(field, i)) }
		next := condition{name: fold(m.Name), value: m.Value}
		if next.name == "" {
			return nil, invalid(at(), "name", "is empty")
		}
		switch m.Type {
		case model.Exact:
		case model.Regex:
			e, err := c.expression(m.Value)
			if err != nil {
				return nil, invalid(at(), "value", "%v", err)
			}
			next.expression = e.Regexp
		default:
			return nil, invalid(at(), "type", "%q is none of %q and %q", m.Type, model.Exact, model.Regex)
		}
		if !slices.ContainsFunc(conditions, func(c condition) bool { return c.name == next.name }) {
			conditions = append(conditions, next)
		}
	}
	return conditions, nil
}

// expression is a pattern that must match the whole value.
type expression struct {
	*regexp.Regexp
	// prefix is literal text that every match begins with.
	prefix string
}

// expression compiles a pattern. Equal patterns share one expression, also with the previous table.
func (c *compiler) expression(pattern string) (expression, error) {
	e, ok := c.table.expressions[pattern]
	if !ok {
		e, ok = c.prev.expressions[pattern]
	}
	if !ok {
		// By itself first: "a)(b" would be valid between the anchors, and anchors hide the prefix.
		bare, err := regexp.Compile(pattern)
		if err != nil {
			return e, fmt.Errorf("%w; write it in RE2 syntax", err)
		}
		e.prefix, _ = bare.LiteralPrefix()
		if e.Regexp, err = regexp.Compile("^(?:" + pattern + ")$"); err != nil {
			return e, err
		}
	}
	c.table.expressions[pattern] = e
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

func invalid(ref model.Ref, field, format string, args ...any) error {
	return &Error{Ref: within(ref, field), Reason: fmt.Sprintf(format, args...)}
}
