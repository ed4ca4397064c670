package gateway

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// Annotations of a Gateway about the trusted proxies in front of it. They are for all of its listeners, including those
// of ListenerSets. Only the Gateway has them: authors of ListenerSets cannot change them. No kind of Gateway API has
// these settings yet.
const (
	trustedProxies = annotations + "trusted-proxies"
	clientAddress  = annotations + "client-address"
	proxyProtocol  = annotations + "proxy-protocol"
)

var frontAnnotations = []string{trustedProxies, clientAddress, proxyProtocol}

// front is a Gateway's settings about the proxies in front of it.
type front struct {
	// trusted are the networks. said is true if the Gateway itself sets them, or sets that there are none.
	trusted  []string
	explicit bool
	field    model.ClientAddressField
	// header are the ports whose connections begin with a PROXY header; all: every port.
	header []int32
	all    bool
}

// readFront reads the annotations of a Gateway.
func (t *translator) readFront(g *gateway) *front {
	f := &front{trusted: model.TrustedProxies(t.TrustedProxies)}
	notes := g.obj.Annotations
	if text, ok := notes[trustedProxies]; ok {
		f.trusted, f.explicit = t.readTrusted(g, text), true
	}
	if text, ok := notes[clientAddress]; ok {
		switch field := model.ClientAddressField(strings.ToLower(strings.TrimSpace(text))); field {
		case model.XForwardedFor, model.Forwarded, model.XRealIP:
			f.field = field
		default:
			t.report(g.ref, resource.Problem(codeAnnotation, "", annotationField(clientAddress), fmt.Sprintf("Weir does not read the client's address from %q", text),
				"write X-Forwarded-For, Forwarded or X-Real-IP, or remove the annotation to use the first of them that is present"))
		}
	}
	if text, ok := notes[proxyProtocol]; ok {
		t.readProxyProtocol(g, f, text)
	}
	if (f.all || len(f.header) > 0) && len(f.trusted) == 0 {
		t.report(g.ref, resource.Problem(codeNobodyTrusted, "", annotationField(proxyProtocol), "no address is trusted to send PROXY headers, so every connection is closed",
			"name the addresses of what is in front in "+trustedProxies))
	}
	return f
}

// readTrusted reads a list of addresses and networks, and leaves out invalid ones.
func (t *translator) readTrusted(g *gateway, text string) []string {
	if strings.TrimSpace(text) == "none" {
		return nil
	}
	var all []netip.Prefix
	for _, part := range strings.FieldsFunc(text, func(c rune) bool { return c == ',' || c == ' ' || c == '\n' || c == '\t' }) {
		p, err := model.ParseTrusted(part)
		if err != nil {
			t.report(g.ref, resource.Problem(codeAnnotation, "", annotationField(trustedProxies), err.Error()+"; it is not trusted", "write addresses and networks, separated by commas, or none"))
			continue
		}
		if p.Bits() == 0 {
			t.report(g.ref, resource.Problem(codeAllTrusted, "", annotationField(trustedProxies), fmt.Sprintf("%s trusts everybody, so any client can claim any address", p),
				"name the addresses of what is in front"))
		}
		all = append(all, p)
	}
	if len(all) > model.MaxTrustedProxies {
		t.report(g.ref, resource.Problem(codeAnnotation, "", annotationField(trustedProxies), fmt.Sprintf("it has %d networks; those beyond the first %d are not trusted",
			len(all), model.MaxTrustedProxies), "join networks into larger ones"))
		all = all[:model.MaxTrustedProxies]
	}
	return model.TrustedProxies(all)
}

func (t *translator) readProxyProtocol(g *gateway, f *front, text string) {
	switch strings.TrimSpace(text) {
	case "all":
		f.all = true
		return
	case "none":
		return
	}
	const fix = "write all, none, or the ports of listeners, such as 80,443"
	var ports []int32
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		n, err := strconv.ParseUint(part, 10, 16)
		if err != nil || n == 0 {
			t.report(g.ref, resource.Problem(codeAnnotation, "", annotationField(proxyProtocol), fmt.Sprintf("%q is not a port; it is ignored", part), fix))
			continue
		}
		ports = append(ports, int32(n))
	}
	f.header = ports
}

// unusedPorts reports ports of the PROXY protocol that no listener of the Gateway has, once its ListenerSets are known.
func (t *translator) unusedPorts(g *gateway) {
	for _, port := range g.front.header {
		if !slices.ContainsFunc(g.listeners, func(l *listener) bool { return int32(l.spec.Port) == port }) {
			t.report(g.ref, resource.Problem(codeAnnotation, "", annotationField(proxyProtocol), fmt.Sprintf("no listener has the port %d", port), "name ports of listeners"))
		}
	}
}

// announced means that connections of the listener begin with a PROXY header.
func (l *listener) announced() bool {
	f := l.gateway.front
	return f.all || slices.Contains(f.header, int32(l.spec.Port))
}

// front returns the model's form; nil if the Gateway has no such settings.
func (l *listener) front() *model.Front {
	f := l.gateway.front
	out := &model.Front{TrustedProxies: f.trusted, ClientAddress: f.field, ProxyProtocol: l.announced()}
	if len(f.trusted) == 0 && !f.explicit && f.field == "" && !out.ProxyProtocol {
		return nil
	}
	return out
}

// sameFront reports whether listeners of one port agree on the beginning of connections, and on whom they trust.
// Listeners of one Gateway always do.
func (l *listener) sameFront(other *listener) bool {
	if l.gateway == other.gateway {
		return true
	}
	return l.announced() == other.announced() && (!l.announced() || slices.Equal(l.gateway.front.trusted, other.gateway.front.trusted))
}
