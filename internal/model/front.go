package model

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Front describes the trusted proxies between a listener's clients and the listener.
type Front struct {
	// TrustedProxies are the networks of these proxies ("192.0.2.0/24", "2001:db8::1/128"), each in the form that
	// ParseTrusted gives, sorted. Peers with other addresses are not believed about who their client is.
	TrustedProxies []string `json:"trustedProxies,omitempty"`
	// ClientAddress is the one field that the client's address is taken from. If it is empty, the first that is present
	// of X-Forwarded-For, Forwarded and X-Real-IP is used.
	ClientAddress ClientAddressField `json:"clientAddress,omitempty"`
	// ProxyProtocol requires a header of the PROXY protocol, version 1 or 2, at the beginning of each connection.
	// Connections without one, and those from addresses outside TrustedProxies, are closed. It is the same for all
	// listeners of a port.
	ProxyProtocol bool `json:"proxyProtocol,omitempty"`
}

// ClientAddressField is a field in which a proxy names its client.
type ClientAddressField string

const (
	XForwardedFor ClientAddressField = "x-forwarded-for"
	// Forwarded is RFC 7239's.
	Forwarded ClientAddressField = "forwarded"
	XRealIP   ClientAddressField = "x-real-ip"
)

// MaxTrustedProxies bounds the networks of one Front.
const MaxTrustedProxies = 1024

// ParseTrusted reads an IP address or a network in CIDR notation (RFC 4632 §3.1, RFC 4291 §2.3).
func ParseTrusted(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		if a.Zone() != "" {
			return netip.Prefix{}, fmt.Errorf("%q has a zone; write the address without it", text)
		}
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return netip.Prefix{}, fmt.Errorf("%q is neither an IP address nor a network such as 192.0.2.0/24", text)
	case p.Addr().Is4In6():
		return netip.Prefix{}, fmt.Errorf("%q is IPv4 written as IPv6; write it as IPv4, such as 192.0.2.0/24", text)
	case p != p.Masked():
		return netip.Prefix{}, fmt.Errorf("%q has bits beyond the network's; write %s, or the address without a length", text, p.Masked())
	}
	return p, nil
}

// TrustedProxies puts networks in the order and form of Front.TrustedProxies.
func TrustedProxies(all []netip.Prefix) []string {
	var out []string
	for _, p := range all {
		out = append(out, p.String())
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// framing is the part of a listener that must be the same for all listeners of a port, because connections begin with
// it before anything selects a listener.
func (l *Listener) framing() string {
	framing := string(l.Protocol)
	if l.Detect {
		framing += " detected"
	}
	if l.Front == nil || !l.Front.ProxyProtocol {
		return framing
	}
	return framing + " behind " + strings.Join(l.Front.TrustedProxies, ",")
}

func (v *validator) front(where Ref, f *Front) {
	if f == nil {
		return
	}
	if len(f.TrustedProxies) > MaxTrustedProxies {
		v.fail(where, "front.trustedProxies", "has %d networks, more than %d", len(f.TrustedProxies), MaxTrustedProxies)
	}
	for i, text := range f.TrustedProxies {
		if p, err := ParseTrusted(text); err != nil || p.String() != text {
			v.fail(where, v.at("front.trustedProxies", i), "%q is not a network in its usual form", text)
		}
	}
	switch f.ClientAddress {
	case "", XForwardedFor, Forwarded, XRealIP:
	default:
		v.fail(where, "front.clientAddress", "%q is not %q, %q or %q", f.ClientAddress, XForwardedFor, Forwarded, XRealIP)
	}
}
