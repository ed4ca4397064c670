package gateway

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// gateway is a Gateway that is ours.
type gateway struct {
	key
	obj *gatewayv1.Gateway
	ref model.Ref
	// pending: the class is not accepted, so the Gateway is not served.
	pending bool
	// rejected keeps the whole Gateway from being served.
	rejected *resource.Finding
	// addresses to bind; "" is all. assigned says which of them spec.addresses asked for.
	addresses []string
	assigned  []gatewayv1.GatewayStatusAddress
	unusable  []resource.Finding
	// ownListeners are the listeners of the Gateway itself; listeners are these and then those of its sets.
	ownListeners, listeners []*listener
	// sets are the ListenerSets that name the Gateway, allowed or not, oldest first.
	sets     []*listenerSet
	frontend *frontend
	front    *front
	// clientCertificate is presented to backends with TLS; clientProblem is why there is none.
	clientCertificate string
	clientProblem     *resource.Finding
	// pathPolicy is that of its listeners, if the annotation is there.
	pathPolicy model.PathPolicy
	// insecure are the fields that let clients without a valid certificate in.
	insecure []string
}

// listener is one of spec.listeners of a Gateway or of a ListenerSet.
type listener struct {
	gateway *gateway
	// set is nil for a listener of the Gateway itself.
	set      *listenerSet
	spec     *gatewayv1.Listener
	field    string         // "spec.listeners[0]"
	protocol model.Protocol // empty if it is not supported
	hostname string         // lower case; "" is any
	kinds    []gatewayv1.RouteGroupKind
	from     namespaces
	tls      *model.ListenerTLS
	// notAccepted, conflict and unresolved are what is wrong with it, each for its condition.
	notAccepted *resource.Finding
	conflict    *resource.Finding
	unresolved  []resource.Finding
	// unusable: it has no certificate, so it cannot be served although it is accepted.
	unusable bool
	overlaps []string
}

// holder is the object that the listener is written in.
func (l *listener) holder() model.Ref {
	if l.set != nil {
		return l.set.ref
	}
	return l.gateway.ref
}

// String is for messages about other objects.
func (l *listener) String() string { return fmt.Sprintf("%s of %s", l.spec.Name, l.holder()) }

// pathPolicy is that of the object it is written in, else the Gateway's.
func (l *listener) pathPolicy() model.PathPolicy {
	switch {
	case !l.protocol.Requests():
		return ""
	case l.set != nil && l.set.pathPolicy != "":
		return l.set.pathPolicy
	}
	return l.gateway.pathPolicy
}

func (l *listener) accepted() bool {
	return l.notAccepted == nil && l.conflict == nil && l.gateway.served()
}

// programmed reports whether the listener is in the model.
func (l *listener) programmed() bool { return l.accepted() && !l.unusable }

func (g *gateway) served() bool { return !g.pending && g.rejected == nil && len(g.addresses) > 0 }

// name is the model's name of a listener on one of the Gateway's addresses.
func (l *listener) name(address string) string {
	n := l.gateway.String()
	if l.set != nil {
		n += "/" + l.set.String()
	}
	n += "/" + string(l.spec.Name)
	if len(l.gateway.addresses) > 1 {
		n += "@" + cmp.Or(address, "*")
	}
	return n
}

// readGateways reads the Gateways that are ours with their listeners, and finds the conflicts among them.
func (t *translator) readGateways() {
	for _, obj := range t.set.Gateways {
		ref := model.Ref{Kind: "Gateway", Namespace: obj.Namespace, Name: obj.Name}
		class := string(obj.Spec.GatewayClassName)
		switch t.set.OwnerOf(ControllerName, obj) {
		case resource.NoClass:
			if t.ProxyPerGateway && !t.Partial {
				continue // in a cluster it may be anybody's
			}
		case resource.Others:
			t.report(ref, resource.Problem(codeForeignClass, "", "spec.gatewayClassName",
				fmt.Sprintf("GatewayClass %s belongs to the controller %s, so the Gateway is ignored", class, t.set.GatewayClass(class).Spec.ControllerName),
				"name a class of "+ControllerName+" if Weir should serve it"))
			continue
		}
		g := &gateway{key: key{obj.Namespace, obj.Name}, obj: obj, ref: ref, pending: t.rejected[class]}
		t.gateways[g.key] = g
		t.order, t.ours = append(t.order, g), append(t.ours, obj)
	}
	slices.SortFunc(t.order, func(a, b *gateway) int { return older(&a.obj.ObjectMeta, &b.obj.ObjectMeta) })
	for _, g := range t.order {
		t.readGateway(g)
	}
	t.readListenerSets()
	for _, g := range t.order {
		t.unusedPorts(g)
	}
	t.findConflicts()
	t.findOverlaps()
	for _, g := range t.order {
		for _, l := range g.listeners {
			for _, p := range []*resource.Finding{l.notAccepted, l.conflict} {
				if p != nil && (p.Code != codeClientCA || len(l.unresolved) == 0) { // else each authority is reported
					t.report(l.holder(), *p)
				}
			}
		}
	}
}

func (t *translator) readGateway(g *gateway) {
	spec := &g.obj.Spec
	if p := spec.Infrastructure; p != nil && p.ParametersRef != nil && !t.ProxyPerGateway {
		g.rejected = new(resource.Problem(codeParameters, "InvalidParameters", "spec.infrastructure.parametersRef",
			"parameters are not supported", "remove the field"))
	}
	g.pathPolicy = t.annotated(g.ref, &g.obj.ObjectMeta)
	t.readAddresses(g)
	if g.rejected != nil {
		t.report(g.ref, *g.rejected)
	}
	if b := spec.TLS; b != nil && b.Backend != nil && b.Backend.ClientCertificateRef != nil {
		const field = "spec.tls.backend.clientCertificateRef"
		g.clientCertificate, g.clientProblem = t.certificate(g.ref, *b.Backend.ClientCertificateRef, field,
			codeClientCert, "InvalidClientCertificateRef")
		if g.clientProblem != nil {
			t.report(g.ref, *g.clientProblem)
		}
	}
	g.frontend, g.front = t.readFrontend(g), t.readFront(g)
	for i := range spec.Listeners {
		g.ownListeners = append(g.ownListeners, t.newListener(g, nil, i, &spec.Listeners[i]))
	}
	g.listeners = slices.Clone(g.ownListeners)
}

// newListener reads the listener at a place in spec.listeners.
func (t *translator) newListener(g *gateway, set *listenerSet, i int, spec *gatewayv1.Listener) *listener {
	l := &listener{gateway: g, set: set, spec: spec, field: model.FieldAt("spec.listeners", i), protocol: protocolOf(spec.Protocol)}
	l.hostname = strings.ToLower(string(value(spec.Hostname, "")))
	t.readListener(l)
	for _, p := range l.unresolved {
		if !g.frontend.has(p) {
			t.report(l.holder(), p)
		}
	}
	return l
}

// readAddresses reads spec.addresses: an IP address is bound, an empty address leaves the choice to Weir.
func (t *translator) readAddresses(g *gateway) {
	if len(g.obj.Spec.Addresses) == 0 {
		g.addresses = []string{""}
		return
	}
	ip := gatewayv1.IPAddressType
	for i, a := range g.obj.Spec.Addresses {
		field := model.FieldAt("spec.addresses", i)
		if kind := value(a.Type, ip); kind != ip {
			g.rejected = cmp.Or(g.rejected, new(resource.Problem(codeAddressType, "UnsupportedAddress", field+".type",
				fmt.Sprintf("an address of type %s cannot be bound", kind), "use type IPAddress, or remove the address")))
			continue
		}
		if a.Value == "" {
			g.addresses = append(g.addresses, "")
			continue
		}
		addr, err := netip.ParseAddr(a.Value)
		if err != nil {
			p := resource.Problem(codeAddressUnusable, "AddressNotUsable", field+".value",
				fmt.Sprintf("%q is not an IP address", a.Value), "write an IPv4 or IPv6 address")
			g.unusable = append(g.unusable, p)
			t.report(g.ref, p)
			continue
		}
		g.addresses = append(g.addresses, addr.Unmap().String())
		g.assigned = append(g.assigned, gatewayv1.GatewayStatusAddress{Type: &ip, Value: a.Value})
	}
	if t.ProxyPerGateway {
		g.addresses, g.assigned = []string{""}, nil
	}
	slices.Sort(g.addresses)
	g.addresses = slices.Compact(g.addresses)
	everywhere := slices.ContainsFunc(g.addresses, everywhere)
	if len(g.addresses) > 1 && everywhere {
		g.addresses = []string{""}
	}
}

func (t *translator) readListener(l *listener) {
	spec := l.spec
	mode := gatewayv1.TLSModeTerminate
	if spec.TLS != nil {
		mode = value(spec.TLS.Mode, mode)
	}
	switch {
	case l.protocol == "":
		l.notAccepted = new(resource.Problem(codeListenerProtocol, "UnsupportedProtocol", l.field+".protocol",
			fmt.Sprintf("protocol %s is not supported", spec.Protocol), "use "+oneOf(protocolNames())))
		l.kinds = []gatewayv1.RouteGroupKind{}
		return
	case l.protocol.TLS() && mode != gatewayv1.TLSModeTerminate:
		l.notAccepted = new(resource.Problem(codeListenerProtocol, "UnsupportedProtocol", l.field+".tls.mode",
			fmt.Sprintf("mode %s is not supported", mode), "use Terminate"))
		l.kinds = []gatewayv1.RouteGroupKind{}
		return
	case !l.protocol.Hosts():
		l.hostname = "" // ignored (Listener.hostname)
	}
	if t.ProxyPerGateway && spec.Port == AdminPort {
		l.notAccepted = new(resource.Problem(codePortUnavailable, "PortUnavailable", l.field+".port",
			fmt.Sprintf("port %d is reserved for the proxies' health and metrics", AdminPort), "use another port"))
	}
	t.readAllowedRoutes(l)
	if !l.protocol.TLS() {
		return
	}
	l.tls = &model.ListenerTLS{}
	if spec.TLS != nil {
		for i, ref := range spec.TLS.CertificateRefs {
			name, p := t.certificate(l.holder(), ref, fmt.Sprintf("%s.tls.certificateRefs[%d]", l.field, i),
				codeCertificate, "InvalidCertificateRef")
			if p != nil {
				l.unresolved = append(l.unresolved, *p)
			} else if !slices.Contains(l.tls.Certificates, name) {
				l.tls.Certificates = append(l.tls.Certificates, name)
			}
		}
		if len(spec.TLS.Options) > 0 {
			t.report(l.holder(), resource.Problem(codeIgnored, "", l.field+".tls.options", "TLS options are not supported", "remove the field"))
		}
	}
	if spec.TLS == nil || len(spec.TLS.CertificateRefs) == 0 {
		l.unresolved = append(l.unresolved, resource.Problem(codeCertificate, "InvalidCertificateRef", l.field+".tls.certificateRefs",
			"an HTTPS listener needs a certificate", "refer to a Secret of type kubernetes.io/tls"))
	}
	l.unusable = len(l.tls.Certificates) == 0
	if v := l.gateway.frontend.of(spec.Port); v != nil {
		l.tls.ClientCAs, l.tls.ClientOptional = v.cas, v.optional
		l.unresolved = append(l.unresolved, v.problems...)
		if v.cas == "" && !v.elsewhere {
			l.notAccepted = new(resource.Problem(codeClientCA, "NoValidCACertificate", v.field+".caCertificateRefs",
				fmt.Sprintf("listener %s has no usable CA to check client certificates against", spec.Name),
				"correct the references"))
		}
	}
}

// readAllowedRoutes reads which kinds and namespaces may attach (Listener.allowedRoutes).
func (t *translator) readAllowedRoutes(l *listener) {
	group := gatewayv1.Group(gatewayv1.GroupName)
	possible, names := kindsFor(l.protocol)
	l.kinds = possible
	l.from = namespaces{same: l.holder().Namespace}
	allowed := l.spec.AllowedRoutes
	if allowed == nil {
		return
	}
	if len(allowed.Kinds) > 0 {
		l.kinds = []gatewayv1.RouteGroupKind{}
		for i, k := range allowed.Kinds {
			if value(k.Group, group) == group && slices.ContainsFunc(possible, func(p gatewayv1.RouteGroupKind) bool { return p.Kind == k.Kind }) {
				l.kinds = append(l.kinds, gatewayv1.RouteGroupKind{Group: &group, Kind: k.Kind})
				continue
			}
			l.unresolved = append(l.unresolved, resource.Problem(codeRouteKinds, "InvalidRouteKinds",
				fmt.Sprintf("%s.allowedRoutes.kinds[%d]", l.field, i),
				fmt.Sprintf("routes of kind %s cannot attach to a listener of protocol %s",
					kindName(string(value(k.Group, group)), string(k.Kind)), l.spec.Protocol),
				"name "+oneOf(names)))
		}
	}
	var err error
	if l.from, err = readRouteNamespaces(allowed.Namespaces, l.holder().Namespace); err != nil {
		l.notAccepted = new(resource.Problem(codeValue, "UnsupportedValue", l.field+".allowedRoutes.namespaces", err.Error(),
			"use from All, Same or Selector, the last with a valid selector"))
	}
}

func (l *listener) allows(t *translator, kind, namespace string) bool {
	return l.from.contain(t, namespace) &&
		slices.ContainsFunc(l.kinds, func(k gatewayv1.RouteGroupKind) bool { return string(k.Kind) == kind })
}
