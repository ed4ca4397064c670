package policy

import (
	"slices"
	"strings"

	"github.com/weirmesh/weir/internal/model"
)

// Table is the policies of one workload, ready to judge by. It is immutable and safe for concurrent use.
type Table struct {
	workload *model.Workload
	governed bool
	// all are the policies of the configuration.
	all []model.Policy
	// policies are those that name the workload.
	policies []*model.Policy
	// sources are the clients of all policies, whatever these allow; grants is what they may do, by port.
	sources map[source]bool
	grants  map[key]*grant
	// names are those of the fields that decide, in lower case, by their length.
	names map[int][]string
	// requests are the ports with a policy that allows requests alone; 0 is every port.
	requests map[int32]bool
}

// source is a client or clients; see model.Source.
type source struct{ kind, namespace, name string }

// key is a source on one of the workload's ports; 0 is every port.
type key struct {
	source
	port int32
}

// grant is what a source may do on a port.
type grant struct {
	// tcp, udp and http are the first policies that allow all connections, all datagrams and all requests.
	tcp, udp, http *model.Policy
	paths          node
	// shared are those of policies with many sources or ports.
	shared []*sharedGrant
}

// sharedGrant is a grant of several sources on some ports, sorted; nil is every port.
type sharedGrant struct {
	ports []int32
	grant
}

// maxCopies is to how many grants, of sources and ports, what a policy allows is copied. Policies with more of them
// share one grant, so that memory does not grow with the product. Each of these adds a walk to a decision.
const maxCopies = 64

// Compile makes a workload's table from the policies of a configuration, those of other workloads among them. It leaves
// out policies that are not valid (model.Config.Validate), which then allow nothing; they govern the workload
// nevertheless.
func Compile(w *model.Workload, policies []model.Policy) *Table {
	t := &Table{workload: w, all: policies, governed: w.Deny == model.DenyAll, sources: map[source]bool{}, grants: map[key]*grant{}, names: map[int][]string{}, requests: map[int32]bool{}}
	c := compiler{table: t, patterns: map[string]*model.Pattern{}}
	for _, name := range methodFields {
		t.names[len(name)] = append(t.names[len(name)], name)
	}
	for i := range policies {
		p := &policies[i]
		ports, ok := targetPorts(p, w)
		if !ok {
			continue
		}
		t.governed = true
		t.policies = append(t.policies, p)
		t.noteRequests(p, ports)
		for j := range p.Sources {
			t.sources[sourceOf(&p.Sources[j])] = true
		}
		if p.Void == "" && (ports == nil || len(ports) > 0) {
			c.add(p, ports)
		}
	}
	return t
}

// Ports reports whether a policy names the workload, and on which ports it allows anything there; nil is every port.
func Ports(p *model.Policy, w *model.Workload) (ports []int32, named bool) { return targetPorts(p, w) }

// targetPorts reports whether a policy names the workload, and on which ports it allows anything; nil is every port.
func targetPorts(p *model.Policy, w *model.Workload) (ports []int32, named bool) {
	every := false
	for i := range p.Targets {
		some, ok := p.Targets[i].Names(w)
		named = named || ok
		every = every || ok && some == nil
		ports = append(ports, some...)
	}
	switch {
	case !named:
		return nil, false
	case every:
		return p.Ports, true
	}
	slices.Sort(ports)
	ports = slices.Compact(ports)
	if p.Ports != nil {
		ports = slices.DeleteFunc(ports, func(n int32) bool { return !slices.Contains(p.Ports, n) })
	}
	if ports == nil {
		ports = []int32{}
	}
	return ports, true
}

// Workload is the workload that the table is of.
func (t *Table) Workload() *model.Workload { return t.workload }

// Is reports whether the table is the one of a workload and the policies of a configuration. It compares what the two do
// not share in memory.
func (t *Table) Is(w *model.Workload, policies []model.Policy) bool {
	return t.workload.Equal(w) && model.EqualPolicies(t.all, policies)
}

// Policies are those of the configuration, which the table was made of.
func (t *Table) Policies() []model.Policy { return t.all }

// DecidesBy reports whether a decision depends on a header field whose name is like name and of its length, in the sense
// of like. It does not allocate.
func (t *Table) DecidesBy(name string, like func(decides, name string) bool) bool {
	if !t.governed {
		return false
	}
	for _, n := range t.names[len(name)] {
		if like(n, name) {
			return true
		}
	}
	return false
}

// noteRequests notes the ports of a policy if it allows requests alone.
func (t *Table) noteRequests(p *model.Policy, ports []int32) {
	switch {
	case !p.Traffic.Requests() || p.Traffic.Connections():
	case ports == nil:
		t.requests[0] = true
	default:
		for _, port := range ports {
			t.requests[port] = true
		}
	}
}

// JudgesRequests reports whether some policy is about requests at the port, so that a connection which carries any must not
// pass as one of another kind.
func (t *Table) JudgesRequests(port int32) bool { return t.requests[0] || t.requests[port] }

// Governed reports whether traffic is denied that no policy allows.
func (t *Table) Governed() bool { return t.governed }

type compiler struct {
	table    *Table
	patterns map[string]*model.Pattern // nil for one that does not compile
}

// add adds a policy that allows something on the ports.
func (c *compiler) add(p *model.Policy, ports []int32) {
	entries, keys, ok := c.entries(p)
	if !ok {
		return
	}
	listed := []int32{0}
	if ports != nil {
		listed = ports
	}
	var shared *sharedGrant
	if len(p.Sources)*len(listed) > maxCopies {
		shared = &sharedGrant{ports: slices.Sorted(slices.Values(ports))}
		shared.allow(p, entries, keys)
	}
	for i := range p.Sources {
		s := sourceOf(&p.Sources[i])
		if shared != nil {
			g := c.table.grant(key{s, 0})
			g.shared = append(g.shared, shared)
			continue
		}
		for _, port := range listed {
			c.table.grant(key{s, port}).allow(p, entries, keys)
		}
	}
}

func (t *Table) grant(k key) *grant {
	g := t.grants[k]
	if g == nil {
		g = &grant{}
		t.grants[k] = g
	}
	return g
}

// allow adds what a policy allows, with its conditions on requests.
func (g *grant) allow(p *model.Policy, entries []entry, keys []string) {
	first := func(at **model.Policy, is bool) {
		if is && *at == nil {
			*at = p
		}
	}
	first(&g.tcp, p.Traffic.Connections())
	first(&g.udp, p.Traffic.Datagrams())
	first(&g.http, unconditional(p))
	for i, e := range entries {
		g.paths.add(keys[i], e)
	}
}

// unconditional reports whether a policy allows every request.
func unconditional(p *model.Policy) bool {
	return p.Traffic.Requests() && p.Methods == nil && p.Paths == nil && len(p.Headers) == 0
}

// entries are the conditions of a policy on requests, and the literal text that their paths begin with. A policy that
// allows all requests, or none, has none.
func (c *compiler) entries(p *model.Policy) (entries []entry, keys []string, ok bool) {
	if p.Traffic != model.TrafficHTTP || unconditional(p) {
		return nil, nil, true
	}
	if p.Methods != nil && len(p.Methods) == 0 {
		return nil, nil, false
	}
	e := entry{policy: p, methods: p.Methods}
	for i := range p.Headers {
		h := &p.Headers[i]
		cond := condition{name: strings.ToLower(h.Name), value: h.Value}
		if h.Type == model.Regex {
			if cond.pattern = c.pattern(h.Value, model.CompilePattern); cond.pattern == nil {
				return nil, nil, false
			}
		}
		e.headers = append(e.headers, cond)
		if of := c.table.names[len(cond.name)]; !slices.Contains(of, cond.name) {
			c.table.names[len(cond.name)] = append(of, cond.name)
		}
	}
	if p.Paths == nil {
		e.everyPath = true
		return []entry{e}, []string{""}, true
	}
	for _, path := range p.Paths {
		pattern := c.pattern("^"+path, func(string) (*model.Pattern, error) { return model.CompileStartPattern(path) })
		if pattern == nil {
			continue // the others still allow what they allow
		}
		of := e
		if !pattern.Complete {
			of.path = pattern
		}
		entries, keys = append(entries, of), append(keys, pattern.Prefix)
	}
	return entries, keys, len(entries) > 0
}

// pattern compiles a pattern once; nil if it is not valid.
func (c *compiler) pattern(as string, compile func(string) (*model.Pattern, error)) *model.Pattern {
	if p, ok := c.patterns[as]; ok {
		return p
	}
	p, err := compile(as)
	if err != nil {
		p = nil
	}
	c.patterns[as] = p
	return p
}

func sourceOf(s *model.Source) source {
	switch s.Kind {
	case model.KindSPIFFE:
		return source{kind: s.Kind, name: s.Name}
	case model.KindNode:
		return source{kind: s.Kind, name: s.Name}
	}
	return source{s.Kind, s.Namespace, s.Name}
}
