package redirect

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Ports is a span of TCP ports, both ends included. The zero value is no port.
type Ports struct{ First, Last uint16 }

// String is "80" or "8000-8100".
func (p Ports) String() string {
	if p.First == p.Last {
		return strconv.Itoa(int(p.First))
	}
	return fmt.Sprintf("%d-%d", p.First, p.Last)
}

// Has reports whether the span has the port.
func (p Ports) Has(port uint16) bool { return p.First <= port && port <= p.Last && p.First != 0 }

func (p Ports) meets(o Ports) bool { return p.First <= o.Last && o.First <= p.Last }

// Plan is what of a pod's traffic goes through its sidecar. Parse makes one; Default is one that leaves nothing out.
type Plan struct {
	// User is the user whom the sidecar runs as, and nobody else in the pod: what it dials is not redirected. Groups do
	// not count, as any container may be given one more of them (fsGroup, supplementalGroups).
	User uint32
	// Inbound and Outbound are the ports at which the sidecar accepts what comes to the pod, on all addresses, and what
	// the pod dials, on the loopback addresses. Each is several ports, so that two connections of one client address
	// and port do not clash: the original destination tells them apart, but after the redirect, conntrack finds the
	// answers by addresses and ports alone. The kernel takes the first port at which they differ. With one port it would
	// have to change the client's, which the sidecar then reports wrongly, or drop a SYN. A port chosen by a hash of the
	// original one clashes as often as hashes do. TPROXY does not clash, but needs CAP_NET_ADMIN or CAP_NET_RAW in the
	// sidecar.
	Inbound, Outbound Ports
	// SkipInbound and SkipOutbound are destination ports whose connections are left alone.
	SkipInbound, SkipOutbound []Ports
	// SkipNetworks are destinations of connections from the pod that are left alone.
	SkipNetworks []netip.Prefix
	// SkipUsers are users whose connections from the pod are left alone.
	SkipUsers []uint32
}

// Default is the plan that leaves nothing out by itself.
func Default() Plan {
	return Plan{User: 15000, Inbound: Ports{15011, 15014}, Outbound: Ports{15001, 15004}}
}

// Bounds of a plan.
const (
	// MaxListed is how many elements a list of a plan may have. Each is a rule that each new connection passes.
	MaxListed = 64
	// MaxListeners is how many ports the sidecar may accept at, for each direction.
	MaxListeners = 16
	maxValue     = 4096      // bytes of an annotation or flag
	maxUser      = 1<<31 - 1 // Kubernetes allows no greater one
)

// Own reports whether a connection was meant for a port of the sidecar itself, which refuses it: passed on, it would
// come back, again and again. Original is the connection's destination before the redirect (socket.OriginalDestination),
// ofPod says which addresses are the pod's; those of loopback always are.
func (p *Plan) Own(original netip.AddrPort, ofPod func(netip.Addr) bool) bool {
	if !p.Inbound.Has(original.Port()) && !p.Outbound.Has(original.Port()) {
		return false
	}
	a := original.Addr().Unmap()
	return a.IsLoopback() || a.IsUnspecified() || ofPod(a)
}

// check finds what is wrong between the parts of a plan; a part is wrong under the name by which it was set.
func (p *Plan) check() error {
	for _, l := range []struct {
		name string
		span Ports
	}{{InboundPorts, p.Inbound}, {OutboundPorts, p.Outbound}} {
		if n := int(l.span.Last) - int(l.span.First) + 1; l.span.First < 1024 || n < 1 || n > MaxListeners {
			return &Error{l.name, l.span.String(), fmt.Sprintf("the sidecar needs 1 to %d ports of 1024 or greater", MaxListeners), "write FIRST-LAST, such as " + Default().Inbound.String()}
		}
	}
	if p.Inbound.meets(p.Outbound) {
		return &Error{InboundPorts, p.Inbound.String(), "these ports are also for what the pod dials (" + p.Outbound.String() + ")", "give each direction ports of its own"}
	}
	if p.User == 0 {
		return &Error{SidecarUser, "0", "the sidecar cannot run as root: whoever else does would not be redirected", "write a user that no container of the pod has"}
	}
	for _, s := range p.SkipInbound {
		for _, own := range []Ports{p.Inbound, p.Outbound} {
			if s.meets(own) {
				return &Error{SkipInboundPorts, s.String(), "it has ports at which the sidecar accepts redirected connections (" + own.String() + ")", "leave those out of the list"}
			}
		}
	}
	return nil
}

// Describe says in plain words what the plan does.
func (p *Plan) Describe() string {
	var b strings.Builder
	fmt.Fprintf(&b, "inbound:  TCP to any port of the pod goes to port %v%s\n", p.Inbound, except(SkipInboundPorts, texts(p.SkipInbound)))
	fmt.Fprintf(&b, "outbound: TCP from any user but %d, the sidecar, goes to port %v on loopback%s%s%s\n", p.User, p.Outbound,
		except("user", texts(p.SkipUsers)), except("port", append([]string{"53 (DNS)"}, texts(p.SkipOutbound)...)), except("network", texts(p.networks())))
	b.WriteString("left alone: UDP and all else that is not TCP\n")
	return b.String()
}

func except(what string, list []string) string {
	if len(list) == 0 {
		return ""
	}
	if what == SkipInboundPorts {
		what = "port"
	}
	return fmt.Sprintf(", except %s %s", what, strings.Join(list, ", "))
}

// always are the destinations that are never redirected: loopback, and link-local ones such as a cloud's metadata.
var always = []netip.Prefix{
	netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("::1/128"), netip.MustParsePrefix("fe80::/10"),
}

func (p *Plan) networks() []netip.Prefix { return append(slices.Clone(always), p.SkipNetworks...) }

func texts[T any](list []T) (out []string) {
	for _, e := range list {
		out = append(out, fmt.Sprint(e))
	}
	return out
}

// tidy sorts and removes what is there twice, so that equal plans are equal values.
func (p *Plan) tidy() {
	ports := func(a, b Ports) int { return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(a.Last, b.Last)) }
	slices.SortFunc(p.SkipInbound, ports)
	slices.SortFunc(p.SkipOutbound, ports)
	slices.SortFunc(p.SkipNetworks, netip.Prefix.Compare)
	slices.Sort(p.SkipUsers)
	p.SkipInbound, p.SkipOutbound = slices.Compact(p.SkipInbound), slices.Compact(p.SkipOutbound)
	p.SkipNetworks, p.SkipUsers = slices.Compact(p.SkipNetworks), slices.Compact(p.SkipUsers)
}
