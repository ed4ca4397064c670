package access

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/weirmesh/weir/internal/finding"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/policy"
)

// Matrix says who may do what to whom. Its JSON form is the output of "weir access -o json".
type Matrix struct {
	// Workloads are those that are told of, and when they deny.
	Workloads []Governed `json:"workloads"`
	// Grants are what is allowed, by target, source and rule.
	Grants []Grant `json:"grants"`
	// Omitted is how many more grants there are than are told.
	Omitted int      `json:"omitted,omitempty"`
	Notes   []string `json:"notes,omitempty"`
}

// Governed is a workload, and when it denies.
type Governed struct {
	Workload model.Ref `json:"workload"`
	Account  string    `json:"account,omitempty"`
	State    State     `json:"state"`
	// Rules is how many rules name it, those that allow nothing among them.
	Rules int `json:"rules"`
}

// Grant is what one rule allows a source to do to a workload.
type Grant struct {
	// Source is the client in the rule; without a kind, a namespace or a name it is any.
	Source model.Source `json:"source"`
	// Clients are the workloads that the source names, if it has a name.
	Clients []model.Ref `json:"clients,omitempty"`
	Target  model.Ref   `json:"target"`
	// Traffic is what is allowed; Methods, Paths, Headers and Ports restrict it, and any is allowed without them.
	Traffic model.Traffic      `json:"traffic"`
	Methods []string           `json:"methods,omitempty"`
	Paths   []string           `json:"paths,omitempty"`
	Headers []model.ValueMatch `json:"headers,omitempty"`
	Ports   []int32            `json:"ports,omitempty"`
	Rule    model.Ref          `json:"rule"`
	Binding model.Ref          `json:"binding,omitzero"`
	Match   model.Ref          `json:"match,omitzero"`
}

// Filter limits a Matrix. The zero value is everything.
type Filter struct {
	// To is a workload or what names one: "kind/namespace/name", or "namespace/name" for any kind.
	To string
	// From is a client, as for Served.Client.
	From string
	// Namespace is that of the target or of the client.
	Namespace string
}

// maxGrants bounds a Matrix.
const maxGrants = 20_000

// Matrix lists what is allowed; the error is a *WhoError.
func (s *Served) Matrix(f Filter) (*Matrix, error) {
	m := &Matrix{Workloads: []Governed{}, Grants: []Grant{}, Notes: s.Notes}
	wanted := func(*model.Workload) bool { return true }
	if f.To != "" {
		var err error
		if wanted, err = s.to(f.To); err != nil {
			return nil, err
		}
	}
	var from *Client
	if f.From != "" {
		var err error
		if from, err = s.Client(f.From); err != nil {
			return nil, err
		}
	}
	clients := map[model.Source][]model.Ref{}
	for _, w := range s.workloads() {
		if !wanted(&w) {
			continue
		}
		table := policy.Compile(&w, s.Config.Policies)
		g := Governed{Workload: w.Ref, Account: w.Account, State: s.stateOf(table)}
		told := f.Namespace == "" || f.Namespace == w.Ref.Namespace
		for i := range s.Config.Policies {
			p := &s.Config.Policies[i]
			ports, named := policy.Ports(p, &w)
			if !named {
				continue
			}
			if g.Rules++; p.Void != "" || ports != nil && len(ports) == 0 {
				continue
			}
			for _, source := range p.Sources {
				if from != nil && !from.peer.Is(&source) {
					continue
				}
				source.Field = ""
				of := s.clients(clients, source)
				if f.Namespace != "" && f.Namespace != w.Ref.Namespace {
					if source.Namespace != f.Namespace && !slices.ContainsFunc(of, func(r model.Ref) bool { return r.Namespace == f.Namespace }) {
						continue
					}
					told = true
				}
				if len(m.Grants) == maxGrants {
					m.Omitted++
					continue
				}
				m.Grants = append(m.Grants, Grant{
					Source: source, Clients: of, Target: w.Ref, Traffic: p.Traffic, Methods: p.Methods, Paths: p.Paths, Headers: p.Headers, Ports: ports,
					Rule: p.Ref, Binding: p.Binding, Match: p.Match,
				})
			}
		}
		if told {
			m.Workloads = append(m.Workloads, g)
		}
	}
	slices.SortStableFunc(m.Grants, func(a, b Grant) int {
		return cmp.Or(a.Target.Compare(b.Target), cmp.Compare(a.Source.Words(), b.Source.Words()), a.Rule.Compare(b.Rule), a.Binding.Compare(b.Binding), a.Match.Compare(b.Match))
	})
	return m, nil
}

// clients are the workloads that a source names; none for one without a name, which may be all of them.
func (s *Served) clients(known map[model.Source][]model.Ref, source model.Source) []model.Ref {
	if source.Name == "" {
		return nil
	}
	out, ok := known[source]
	if !ok {
		for _, w := range s.workloads() {
			if policy.PeerOf(&w, s.trustDomain()).Is(&source) {
				out = append(out, w.Ref)
			}
		}
		for i := range s.Gateways {
			if peer := s.Gateways[i].peer(s); peer.Is(&source) {
				out = append(out, s.Gateways[i].ref())
			}
		}
		known[source] = out
	}
	return out
}

// to returns which workloads a name means.
func (s *Served) to(name string) (func(*model.Workload) bool, error) {
	parts := strings.Split(name, "/")
	kind := ""
	if len(parts) == 3 {
		var ok bool
		if kind, ok = kindOf(parts[0]); !ok && strings.EqualFold(strings.TrimSuffix(parts[0], "s"), "service") || strings.EqualFold(parts[0], "svc") {
			kind, ok = model.KindService, true
		}
		if !ok || kind == model.KindNode {
			return nil, &WhoError{Who: name, Reason: fmt.Sprintf("kind %q is unknown; there is: service, pod, deployment, statefulset, daemonset, replicaset, replicationcontroller, job, serviceaccount", parts[0])}
		}
		parts = parts[1:]
	}
	if len(parts) == 1 {
		parts = []string{defaultNamespace, parts[0]}
	}
	if len(parts) != 2 || parts[0] == "" || parts[1] == "" {
		return nil, &WhoError{Who: name, Reason: "want KIND/NAMESPACE/NAME such as deployment/shop/cart, or NAMESPACE/NAME"}
	}
	is := func(w *model.Workload) bool {
		return w.Ref.Namespace == parts[0] && (w.Ref.Name == parts[1] && (kind == "" || kind == w.Ref.Kind) ||
			slices.ContainsFunc(w.Groups, func(g model.Group) bool { return g.Name == parts[1] && (kind == "" || kind == g.Kind) }))
	}
	var there []string
	for _, w := range s.workloads() {
		if is(&w) {
			return is, nil
		}
		there = append(there, strings.ToLower(w.Ref.Kind)+"/"+w.Ref.Namespace+"/"+w.Ref.Name)
	}
	return nil, &WhoError{name, "names no workload that was read", there}
}

// words are what a grant allows: methods, or the protocol, and paths with what else restricts requests.
func (g *Grant) words() (methods, paths, ports string) {
	methods, paths, ports = "any", "any", "any"
	switch g.Traffic {
	case model.TrafficTCP:
		methods, paths = "TCP", "-"
	case model.TrafficUDP:
		methods, paths = "UDP", "-"
	}
	if len(g.Methods) > 0 {
		methods = strings.Join(g.Methods, ",")
	}
	if len(g.Paths) > 0 {
		paths = strings.Join(g.Paths, " ")
	}
	for _, h := range g.Headers {
		sign := "="
		if h.Type == model.Regex {
			sign = "~"
		}
		paths += fmt.Sprintf(" %s%s%s", h.Name, sign, h.Value)
	}
	if g.Ports != nil {
		var all []string
		for _, p := range g.Ports {
			all = append(all, fmt.Sprint(p))
		}
		ports = strings.Join(all, ",")
	}
	return methods, paths, ports
}

// by names the rule, and what gives it to the source.
func (g *Grant) by() string {
	text := finding.Object(g.Rule) + " " + g.Rule.Field
	if g.Binding != (model.Ref{}) {
		text += " by " + finding.Object(g.Binding)
	}
	if g.Match != (model.Ref{}) {
		text += ", " + finding.Object(g.Match) + " " + g.Match.Field
	}
	return text
}
