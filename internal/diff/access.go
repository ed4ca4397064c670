package diff

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/policy"
	"github.com/weirmesh/weir/internal/routing"
)

// AccessChange is a difference in who may do what, and the calls that meet it.
type AccessChange struct {
	Before AccessAnswer `json:"before"`
	After  AccessAnswer `json:"after"`
	// Workloads are the first of those that answer so, and Clients the first of those that call; MoreWorkloads and
	// MoreClients are how many others there are.
	Workloads     []string `json:"workloads"`
	MoreWorkloads int      `json:"moreWorkloads,omitempty"`
	Clients       []string `json:"clients"`
	MoreClients   int      `json:"moreClients,omitempty"`
	// Calls counts the compared ones, Examples are the first of them.
	Calls    int    `json:"calls"`
	Examples []Call `json:"examples"`
}

// AccessAnswer is what a workload makes of a call.
type AccessAnswer struct {
	// Verdict is "allowed", "denied" or "audited": it would be denied, and passes.
	Verdict string `json:"verdict"`
	// Rule, Binding and Match are those of the policy that allows it; zero if none does.
	Rule    model.Ref `json:"rule,omitzero"`
	Binding model.Ref `json:"binding,omitzero"`
	Match   model.Ref `json:"match,omitzero"`
}

// Call is a call that was compared.
type Call struct {
	Client   string    `json:"client"`
	Workload model.Ref `json:"workload"`
	// Port is the pods'.
	Port int32 `json:"port"`
	// Protocol is "http", "tcp" or "udp"; what follows is an HTTP request's.
	Protocol string              `json:"protocol"`
	Method   string              `json:"method,omitempty"`
	Path     string              `json:"path,omitempty"`
	Headers  []model.HeaderValue `json:"headers,omitempty"`
}

// Field implements policy.Fields.
func (c *Call) Field(name string) (string, bool) { return (&Request{Headers: c.Headers}).Field(name) }

const (
	// maxCalls bounds all calls, maxNamed the clients and workloads that are named of one change.
	maxCalls = 500_000
	maxNamed = 5
	// maxChanges bounds the changes of access that are told.
	maxChanges = 200
	// maxClasses and maxSources bound what clients are told apart by.
	maxClasses = 1000
	maxSources = 2000
)

// access compares what the policies of two configurations allow. Clients are the workloads of both, one of each kind
// that a policy names and no workload is, one that nobody names, and one without an identity.
func (r *Report) access(before, after *model.Config, trustDomain string) {
	if len(before.Policies)+len(after.Policies)+len(before.Workloads)+len(after.Workloads) == 0 {
		return
	}
	x := &accessDiff{report: r, at: map[[2]AccessAnswer]int{}, named: map[int]map[string]bool{}}
	x.classes(before, after, trustDomain)
	for _, pair := range pairs(before, after) {
		x.workload(pair[0], pair[1], before, after)
	}
	slices.SortStableFunc(r.Access, func(a, b AccessChange) int {
		return cmp.Or(a.Examples[0].Workload.Compare(b.Examples[0].Workload), cmp.Compare(a.Examples[0].Client, b.Examples[0].Client))
	})
}

// pairs are the workloads of both configurations. One that only one of them has is not compared, unless the other one
// has no workloads at all: there nothing judges anybody, and it is open.
func pairs(before, after *model.Config) (out [][2]*model.Workload) {
	old := map[model.Ref]*model.Workload{}
	for i := range before.Workloads {
		w := &before.Workloads[i]
		if old[w.Ref] = w; len(after.Workloads) == 0 {
			out = append(out, [2]*model.Workload{w, nil})
		}
	}
	for i := range after.Workloads {
		w := &after.Workloads[i]
		if was := old[w.Ref]; was != nil || len(before.Workloads) == 0 {
			out = append(out, [2]*model.Workload{was, w})
		}
	}
	return out
}

type accessDiff struct {
	report *Report
	// clients are of different classes: each meets other sources than the others.
	clients []class
	at      map[[2]AccessAnswer]int
	// named are the workloads and clients of each change.
	named map[int]map[string]bool
}

// class is clients that no policy tells apart.
type class struct {
	peer  *policy.Peer
	names []string
}

// classes finds the clients.
func (x *accessDiff) classes(before, after *model.Config, trustDomain string) {
	var sources []model.Source
	seen := map[model.Source]bool{}
	for _, cfg := range []*model.Config{before, after} {
		for i := range cfg.Policies {
			for _, s := range cfg.Policies[i].Sources {
				if s.Field = ""; !seen[s] {
					seen[s] = true
					sources = append(sources, s)
				}
			}
		}
	}
	if len(sources) > maxSources {
		sources, x.report.Thinned = sources[:maxSources], true
	}
	at, met := map[string]int{}, make([]bool, len(sources))
	add := func(name string, p *policy.Peer) {
		key := make([]byte, len(sources))
		for i := range sources {
			if key[i] = '0'; p.Is(&sources[i]) {
				key[i], met[i] = '1', true
			}
		}
		i, ok := at[string(key)]
		switch {
		case ok:
			if !slices.Contains(x.clients[i].names, name) {
				x.clients[i].names = append(x.clients[i].names, name)
			}
		case len(x.clients) == maxClasses:
			x.report.Thinned = true
		default:
			at[string(key)] = len(x.clients)
			x.clients = append(x.clients, class{p, []string{name}})
		}
	}
	for _, cfg := range []*model.Config{before, after} {
		for i := range cfg.Workloads {
			w := &cfg.Workloads[i]
			add(w.Ref.String(), policy.PeerOf(w, trustDomain))
		}
	}
	for i := range sources {
		if s := &sources[i]; s.Name == "" || !met[i] {
			add(s.Words(), peerOf(s, trustDomain))
		}
	}
	add("any other client", &policy.Peer{ID: policy.UnknownName})
	add("a client without an identity", &policy.Peer{})
}

// peerOf is a client that a source names.
func peerOf(s *model.Source, trustDomain string) *policy.Peer {
	name, namespace := cmp.Or(s.Name, policy.UnknownName), cmp.Or(s.Namespace, policy.UnknownName)
	p := &policy.Peer{ID: policy.UnknownName, Namespace: namespace}
	switch s.Kind {
	case model.KindSPIFFE:
		path, own := strings.CutPrefix(s.Name, "spiffe://"+trustDomain+"/")
		p = &policy.Peer{ID: s.Name, Foreign: !own}
		if parts := strings.Split(path, "/"); own && len(parts) == 4 && parts[0] == "ns" && parts[2] == "sa" {
			p.Namespace, p.Account = parts[1], parts[3]
		} else if own && len(parts) == 2 && parts[0] == "node" {
			p.Node = parts[1]
		}
	case model.KindNode:
		p = &policy.Peer{ID: policy.UnknownName, Node: name}
	case model.KindServiceAccount:
		p.Account, p.ID = name, policy.AccountID(trustDomain, namespace, name)
	case "":
		if s.Namespace == "" {
			p.Namespace = ""
		}
	case model.KindPod:
		p.Pod = name
	default:
		p.Pod, p.Owners = policy.UnknownName, []policy.Owner{{Kind: s.Kind, Name: name}}
	}
	return p
}

// workload compares a workload, of which one may be nil.
func (x *accessDiff) workload(was, is *model.Workload, before, after *model.Config) {
	w := is
	var a, b *policy.Table
	if was != nil {
		a, w = policy.Compile(was, before.Policies), cmp.Or(w, was)
	}
	if is != nil {
		b = policy.Compile(is, after.Policies)
	}
	calls := x.calls(w, [2]*model.Workload{was, is}, [2]*model.Config{before, after})
	for i := range x.clients {
		subjects := [2]map[int32]*policy.Subject{{}, {}}
		for j := range calls {
			if x.report.AccessAsked == maxCalls {
				x.report.Thinned = true
				return
			}
			x.report.AccessAsked++
			c := &calls[j]
			before, after := answerOf(a, subjects[0], x.clients[i].peer, c), answerOf(b, subjects[1], x.clients[i].peer, c)
			if before.Verdict != after.Verdict {
				x.tell(before, after, &x.clients[i], c)
			}
		}
	}
}

// answerOf is what a table makes of a call; no table allows everything.
func answerOf(t *policy.Table, subjects map[int32]*policy.Subject, p *policy.Peer, c *Call) AccessAnswer {
	out := AccessAnswer{Verdict: "allowed"}
	if t == nil {
		return out
	}
	s := subjects[c.Port]
	if s == nil {
		s = t.Subject(p, c.Port)
		subjects[c.Port] = s
	}
	r := policy.Request{Method: c.Method, Path: c.Path, Fields: c, Ambiguous: routing.Ambiguity(c.Path) != routing.OneReading}
	switch c.Protocol {
	case "tcp":
		r = policy.Request{Protocol: policy.TCP}
	case "udp":
		r = policy.Request{Protocol: policy.UDP}
	}
	v := s.Judge(&r)
	switch {
	case v.Policy != nil:
		out.Rule, out.Binding, out.Match = v.Policy.Ref, v.Policy.Binding, v.Policy.Match
	case v.Reason.Passes():
	case t.Workload().Audit:
		out.Verdict = "audited"
	default:
		out.Verdict = "denied"
	}
	return out
}

// tell notes a call that is answered differently.
func (x *accessDiff) tell(before, after AccessAnswer, of *class, c *Call) {
	key := [2]AccessAnswer{before, after}
	n, ok := x.at[key]
	if !ok {
		if n = len(x.report.Access); n == maxChanges {
			x.report.AccessOmitted++
			return
		}
		x.at[key], x.named[n] = n, map[string]bool{}
		x.report.Access = append(x.report.Access, AccessChange{Before: before, After: after})
	}
	change := &x.report.Access[n]
	if change.Calls++; len(change.Examples) < maxExamples {
		example := *c
		example.Client = of.names[0]
		change.Examples = append(change.Examples, example)
	}
	name := func(names *[]string, more *int, kind, name string) {
		if x.named[n][kind+name] {
			return
		}
		x.named[n][kind+name] = true
		if len(*names) == maxNamed {
			*more++
		} else {
			*names = append(*names, name)
		}
	}
	name(&change.Workloads, &change.MoreWorkloads, "to ", c.Workload.String())
	for _, client := range of.names {
		name(&change.Clients, &change.MoreClients, "by ", client)
	}
}

// calls are those that are compared at a workload: what the policies of both sides allow there, samples of their paths
// with what goes on after them, and a method, a path and a port that none of them names.
func (x *accessDiff) calls(w *model.Workload, sides [2]*model.Workload, of [2]*model.Config) (out []Call) {
	methods, paths, ports := map[string]bool{}, map[string]bool{"/": true, "/" + other: true}, map[int32]bool{}
	sets := map[string]condition{"": {}}
	type own struct {
		methods, paths []string
		sets           []condition
	}
	var each []own
	note := func(all []int32) {
		for _, p := range all {
			ports[p] = true
		}
	}
	for i, side := range sides {
		if side == nil {
			continue
		}
		for _, g := range side.Groups {
			note(g.Ports)
		}
		for j := range of[i].Policies {
			p := &of[i].Policies[j]
			allowed, named := policy.Ports(p, side)
			if !named {
				continue
			}
			note(allowed)
			note(p.Ports)
			o := own{methods: p.Methods, sets: conditions("", p.Headers, nil)}
			for _, pattern := range p.Paths {
				for _, s := range samples(pattern) {
					for _, variant := range []string{s, strings.TrimSuffix(s, "/") + "/x", s + "x", s + ";x"} {
						for _, normal := range clean(variant) {
							plain, _ := policy.Path(normal, nil)
							o.paths = append(o.paths, plain)
							paths[plain] = true
						}
					}
				}
			}
			for _, m := range p.Methods {
				methods[m] = true
			}
			for _, c := range o.sets {
				sets[c.key()] = c
			}
			each = append(each, o)
		}
	}
	methods[unnamed(methods)] = true
	free := int32(8080)
	for ports[free] {
		free++
	}
	ports[free] = true
	add := func(method, path string, c condition, port int32) {
		out = append(out, Call{Workload: w.Ref, Port: port, Protocol: "http", Method: method, Path: path, Headers: c.headers})
	}
	all := len(methods)*len(paths)*len(sets)*len(ports) <= maxCombinations
	x.report.Thinned = x.report.Thinned || !all
	for port := range ports {
		out = append(out, Call{Workload: w.Ref, Port: port, Protocol: "tcp"}, Call{Workload: w.Ref, Port: port, Protocol: "udp"})
		if all {
			for method := range methods {
				for path := range paths {
					for _, c := range sets {
						add(method, path, c, port)
					}
				}
			}
			continue
		}
		add(unnamed(methods), "/"+other, condition{}, port)
		for _, o := range each {
			if o.methods == nil {
				o.methods = []string{unnamed(methods)}
			}
			if o.paths == nil {
				o.paths = []string{"/" + other}
			}
			for _, method := range o.methods {
				for _, path := range o.paths {
					for _, c := range o.sets {
						add(method, path, c, port)
					}
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b Call) int {
		return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Method, b.Method), cmp.Compare(headerText(a.Headers), headerText(b.Headers)))
	})
	return slices.CompactFunc(out, func(a, b Call) bool {
		return a.Port == b.Port && a.Protocol == b.Protocol && a.Path == b.Path && a.Method == b.Method && slices.Equal(a.Headers, b.Headers)
	})
}

func headerText(all []model.HeaderValue) string {
	var b strings.Builder
	for _, h := range all {
		b.WriteString(strconv.Quote(h.Name) + strconv.Quote(h.Value))
	}
	return b.String()
}
