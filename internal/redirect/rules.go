package redirect

import (
	"fmt"
	"net/netip"
	"strings"
)

// Table is the name of the table that has the rules, in family inet.
const Table = "weir"

// Chain is a list of rules. Of a base chain, Type, Hook and Priority say which packets pass it; others are jumped to.
type Chain struct {
	Name       string
	Type, Hook string // "nat" or "filter"; "prerouting", "input" or "output"
	Priority   int32
	Rules      []Rule
}

// Rule is what happens to packets for which its condition is true.
type Rule struct {
	Match *Match // nil is every packet
	Do    Verdict
	// To is the chain that Jump goes to; Ports is where Redirect goes to.
	To    string
	Ports Ports
}

// Verdict is what a rule does.
type Verdict int

const (
	Accept Verdict = iota
	Drop
	Jump
	Redirect
)

// Match is a condition on packets. Of the fields, the one that Field names counts.
type Match struct {
	Field Field
	Not   bool // only of Protocol
	// Ports is for DestinationPort, SourcePort and Refusal, Number for Protocol, User, State and Status (of which any bit
	// counts), Network for Destination, Interface for Interface.
	Ports     Ports
	Number    uint32
	Network   netip.Prefix
	Interface string
}

// Field is what a Match looks at.
type Field int

const (
	Protocol Field = iota
	Interface
	User
	DestinationPort
	SourcePort
	Destination
	State
	Status
	// Refusal is what the kernel answers to a SYN if nothing listens at one of Ports: a reset of the sequence number 0.
	Refusal
)

// Values of Match.Number: the kernel's.
const (
	TCP         = 6
	Invalid     = 1 << 0 // of State
	Established = 1 << 1
	DNAT        = 1 << 5 // of Status
)

// Rules are the chains that carry out a plan. Two chains of NAT redirect. Two guards close what NAT leaves open: it
// passes over packets that conntrack calls invalid, which then reach the application's port, or leave from it, with the
// addresses of the wrong connection, and end a good one by a reset. On the way in, the guard also stops connections
// that came around the redirect, in whatever way. What is left alone is said once for each direction, and counts for both.
//
// Nothing leads connections of the sidecar to the pod's own address through its inbound side: NAT sees only their way
// out. The sidecar serves those itself. On the way in, no address is left alone: another pod may reach this one by its
// link-local address.
//
// While the sidecar is started again, nothing listens at its ports. What the pod dials is not refused then: without an answer, the
// kernel sends its SYN again after 1, 3, 7 s and so on, until the sidecar is there or the application's patience ends. What comes
// to the pod is refused, as its clients may have another endpoint.
func (p *Plan) Rules() []Chain {
	when := func(m Match) *Match { return &m }
	known := Rule{Match: when(Match{Field: State, Number: Established})}
	in := []Rule{{Match: when(Match{Field: Interface, Interface: "lo"})}, {Match: when(Match{Field: Protocol, Not: true, Number: TCP})}}
	for _, s := range p.SkipInbound {
		in = append(in, Rule{Match: when(Match{Field: DestinationPort, Ports: s})})
	}
	out := []Rule{{Match: when(Match{Field: Protocol, Not: true, Number: TCP})}, {Match: when(Match{Field: User, Number: p.User})}}
	for _, u := range p.SkipUsers {
		out = append(out, Rule{Match: when(Match{Field: User, Number: u})})
	}
	for _, n := range p.networks() {
		out = append(out, Rule{Match: when(Match{Field: Destination, Network: n})})
	}
	for _, s := range append([]Ports{{53, 53}}, p.SkipOutbound...) {
		out = append(out, Rule{Match: when(Match{Field: DestinationPort, Ports: s})})
	}
	const leftIn, leftOut = "left_alone_in", "left_alone_out"
	invalid := func(m Match) []Rule { return []Rule{{Match: &m, Do: Jump, To: "invalid"}} }
	guardOut := append(append([]Rule{{Match: when(Match{Field: Refusal, Ports: p.Outbound}), Do: Drop}, known}, invalid(Match{Field: SourcePort, Ports: p.Inbound})...), invalid(Match{Field: SourcePort, Ports: p.Outbound})...)
	return []Chain{
		{Name: leftIn, Rules: in},
		{Name: leftOut, Rules: out},
		{Name: "invalid", Rules: []Rule{{Match: when(Match{Field: State, Number: Invalid}), Do: Drop}}},
		{Name: "inbound", Type: "nat", Hook: "prerouting", Priority: -100, Rules: []Rule{{Do: Jump, To: leftIn}, {Do: Redirect, Ports: p.Inbound}}},
		{Name: "outbound", Type: "nat", Hook: "output", Priority: -100, Rules: []Rule{{Do: Jump, To: leftOut}, {Do: Redirect, Ports: p.Outbound}}},
		{Name: "guard_in", Type: "filter", Hook: "input", Rules: []Rule{
			known, {Do: Jump, To: leftIn}, {Match: when(Match{Field: Status, Number: DNAT})}, {Do: Drop},
		}},
		{Name: "guard_out", Type: "filter", Hook: "output", Rules: append(guardOut, Rule{Do: Jump, To: leftOut}, Rule{Do: Jump, To: "invalid"})},
	}
}

// Text is the chains as nft(8) reads them: a table that replaces whichever is there.
func Text(chains []Chain) string {
	var b strings.Builder
	fmt.Fprintf(&b, "table inet %[1]s\ndelete table inet %[1]s\ntable inet %[1]s {\n", Table)
	for i, c := range chains {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "\tchain %s {\n", c.Name)
		if c.Type != "" {
			fmt.Fprintf(&b, "\t\ttype %s hook %s priority %d; policy accept;\n", c.Type, c.Hook, c.Priority)
		}
		for _, r := range c.Rules {
			fmt.Fprintf(&b, "\t\t%s\n", r)
		}
		b.WriteString("\t}\n")
	}
	return b.String() + "}\n"
}

func (r Rule) String() string {
	do := "accept"
	switch r.Do {
	case Drop:
		do = "drop"
	case Jump:
		do = "jump " + r.To
	case Redirect:
		do = "meta l4proto tcp redirect to :" + r.Ports.String()
	}
	if r.Match == nil {
		return do
	}
	return r.Match.String() + " " + do
}

func (m *Match) String() string {
	switch m.Field {
	case Protocol:
		if m.Not {
			return fmt.Sprintf("meta l4proto != %d", m.Number)
		}
		return fmt.Sprintf("meta l4proto %d", m.Number)
	case Interface:
		return fmt.Sprintf("iifname %q", m.Interface)
	case User:
		return fmt.Sprintf("meta skuid %d", m.Number)
	case DestinationPort:
		return "tcp dport " + m.Ports.String()
	case SourcePort:
		return "tcp sport " + m.Ports.String()
	case Destination:
		if m.Network.Addr().Is4() {
			return "ip daddr " + m.Network.String()
		}
		return "ip6 daddr " + m.Network.String()
	case State:
		return "ct state " + bits(m.Number, []bit{{Invalid, "invalid"}, {Established, "established"}})
	case Status:
		return "ct status " + bits(m.Number, []bit{{DNAT, "dnat"}})
	case Refusal:
		return "tcp sport " + m.Ports.String() + " tcp sequence 0 tcp flags & rst == rst"
	}
	return "?"
}

type bit struct {
	value uint32
	name  string
}

func bits(n uint32, all []bit) string {
	var out []string
	for _, b := range all {
		if n&b.value != 0 {
			n &^= b.value
			out = append(out, b.name)
		}
	}
	if n != 0 {
		out = append(out, fmt.Sprintf("0x%x", n))
	}
	return strings.Join(out, ",")
}
