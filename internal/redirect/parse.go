package redirect

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Prefix begins the annotations of pods that a plan is read from; the rest of each is its flag's name, too.
const Prefix = "weirmesh.github.io/"

// The settings of a plan, by name.
const (
	SidecarUser      = "sidecar-user"
	InboundPorts     = "sidecar-inbound-ports"
	OutboundPorts    = "sidecar-outbound-ports"
	SkipInboundPorts = "skip-inbound-ports"
	SkipOutbound     = "skip-outbound-ports"
	SkipNetworks     = "skip-outbound-networks"
	SkipUsers        = "skip-users"
)

// Setting is one setting of a plan.
type Setting struct {
	Name, About string
	set         func(*Plan, string) error
	get         func(*Plan) string
}

// Settings are all settings of a plan, in the order of their documentation.
var Settings = []Setting{
	{SkipInboundPorts, "`ports` of the pod whose connections are left alone, such as 22,8000-8100",
		func(p *Plan, v string) error { return list(&p.SkipInbound, v, parsePorts) }, func(p *Plan) string { return join(p.SkipInbound) }},
	{SkipOutbound, "destination `ports` of connections from the pod that are left alone",
		func(p *Plan, v string) error { return list(&p.SkipOutbound, v, parsePorts) }, func(p *Plan) string { return join(p.SkipOutbound) }},
	{SkipNetworks, "destination `networks` of connections from the pod that are left alone, such as 10.0.0.0/8,fd00::/8",
		func(p *Plan, v string) error { return list(&p.SkipNetworks, v, parseNetwork) }, func(p *Plan) string { return join(p.SkipNetworks) }},
	{SkipUsers, "`users`, by number, whose connections from the pod are left alone",
		func(p *Plan, v string) error { return list(&p.SkipUsers, v, parseUser) }, func(p *Plan) string { return join(p.SkipUsers) }},
	{SidecarUser, "`user` whom the sidecar runs as, and nobody else in the pod",
		func(p *Plan, v string) error { return one(&p.User, v, parseUser) }, func(p *Plan) string { return fmt.Sprint(p.User) }},
	{InboundPorts, "`ports` at which the sidecar accepts connections to the pod",
		func(p *Plan, v string) error { return one(&p.Inbound, v, parsePorts) }, func(p *Plan) string { return p.Inbound.String() }},
	{OutboundPorts, "`ports` at which the sidecar accepts connections from the pod, on loopback",
		func(p *Plan, v string) error { return one(&p.Outbound, v, parsePorts) }, func(p *Plan) string { return p.Outbound.String() }},
}

// Error is a setting that cannot be used: its name, its value, why, and what to do.
type Error struct{ Name, Value, Reason, Fix string }

func (e *Error) Error() string {
	value := e.Value
	if len(value) > 64 {
		value = value[:64] + "..."
	}
	return fmt.Sprintf("%s %q: %s; %s", e.Name, value, e.Reason, e.Fix)
}

// Parse reads a plan from annotations of a pod; what they do not set is as in defaults. An *Error names the annotation.
func Parse(annotations map[string]string, defaults Plan) (Plan, error) {
	settings := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		name, ours := strings.CutPrefix(key, Prefix)
		if !ours {
			continue
		}
		if slices.ContainsFunc(Settings, func(s Setting) bool { return s.Name == name }) {
			settings[name] = annotations[key]
		} else if strings.HasPrefix(name, "skip-") || strings.HasPrefix(name, "sidecar-") {
			return Plan{}, &Error{key, annotations[key], "there is no such annotation", "correct its name to one of " + names() + ", or remove it"}
		}
	}
	p, err := ParseSettings(settings, defaults)
	if e, ok := err.(*Error); ok {
		e.Name = "annotation " + Prefix + e.Name
	}
	return p, err
}

func names() string {
	var out []string
	for _, s := range Settings {
		out = append(out, s.Name)
	}
	return strings.Join(out, ", ")
}

// ParseSettings reads a plan from settings by their names, as flags have them. Others are ignored.
func ParseSettings(settings map[string]string, defaults Plan) (Plan, error) {
	p := defaults
	p.SkipInbound, p.SkipOutbound = slices.Clone(p.SkipInbound), slices.Clone(p.SkipOutbound)
	p.SkipNetworks, p.SkipUsers = slices.Clone(p.SkipNetworks), slices.Clone(p.SkipUsers)
	for _, s := range Settings {
		value, ok := settings[s.Name]
		if !ok {
			continue
		}
		if len(value) > maxValue {
			return Plan{}, &Error{s.Name, value, fmt.Sprintf("it has more than %d bytes", maxValue), "shorten it"}
		}
		if err := s.set(&p, value); err != nil {
			e := err.(*Error)
			e.Name = s.Name
			return Plan{}, e
		}
	}
	p.tidy()
	if err := p.check(); err != nil {
		return Plan{}, err
	}
	return p, nil
}

// Args are the flags that give the plan to the command that sets it.
func (p *Plan) Args() (out []string) {
	for _, s := range Settings {
		if v := s.get(p); v != "" {
			out = append(out, "--"+s.Name+"="+v)
		}
	}
	return out
}

// Value is the setting as text.
func (s *Setting) Value(p *Plan) string { return s.get(p) }

func join[T any](list []T) string { return strings.Join(texts(list), ",") }

// list reads elements with commas between them; the list replaces what was there, and may be empty.
func list[T any](into *[]T, value string, parse func(string) (T, error)) error {
	*into = nil
	if strings.TrimSpace(value) == "" {
		return nil
	}
	for part := range strings.SplitSeq(value, ",") {
		if len(*into) == MaxListed {
			return &Error{Value: value, Reason: fmt.Sprintf("the list has more than %d elements", MaxListed), Fix: "join them to ranges or networks"}
		}
		e, err := parse(strings.TrimSpace(part))
		if err != nil {
			return err
		}
		*into = append(*into, e)
	}
	return nil
}

func one[T any](into *T, value string, parse func(string) (T, error)) (err error) {
	*into, err = parse(strings.TrimSpace(value))
	return err
}

func number(s string, most uint64) (uint64, bool) {
	n, err := strconv.ParseUint(s, 10, 64)
	return n, err == nil && n <= most && strconv.FormatUint(n, 10) == s
}

func parsePorts(s string) (Ports, error) {
	first, last, isRange := strings.Cut(s, "-")
	if !isRange {
		last = first
	}
	a, ok := number(first, 65535)
	b, also := number(last, 65535)
	switch {
	case !ok || !also || a == 0:
		return Ports{}, &Error{Value: s, Reason: "this is no port and no range of ports", Fix: "write numbers of 1 to 65535, such as 22 or 8000-8100"}
	case a > b:
		return Ports{}, &Error{Value: s, Reason: "the range ends before it begins", Fix: "write " + last + "-" + first}
	}
	return Ports{uint16(a), uint16(b)}, nil
}

func parseUser(s string) (uint32, error) {
	n, ok := number(s, maxUser)
	if !ok {
		return 0, &Error{Value: s, Reason: "this is no user", Fix: fmt.Sprintf("write the user's number, 0 to %d, such as 1000", maxUser)}
	}
	return uint32(n), nil
}

func parseNetwork(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if a, e := netip.ParseAddr(s); e == nil && a.Zone() == "" {
		p, err = netip.PrefixFrom(a, a.BitLen()), nil
	}
	switch {
	case err != nil:
		return p, &Error{Value: s, Reason: "this is no network", Fix: "write ADDRESS/BITS, such as 10.0.0.0/8 or fd00::/8"}
	case p.Addr().Is4In6():
		return p, &Error{Value: s, Reason: "connections to such addresses are IPv4", Fix: "write it as a network of IPv4, " + p.Addr().Unmap().String() + "/BITS"}
	case p != p.Masked():
		return p, &Error{Value: s, Reason: "the address has bits beyond the network's", Fix: "write " + p.Masked().String()}
	}
	return p, nil
}
