package gateway

import (
	"fmt"
	"slices"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// frontend is how a Gateway's clients are checked (Gateway.spec.tls.frontend): by default, or by port instead.
type frontend struct {
	byDefault *clientValidation
	ports     map[gatewayv1.PortNumber]*clientValidation
}

// clientValidation is a FrontendTLSValidation with its references resolved.
type clientValidation struct {
	field    string
	cas      string
	optional bool
	problems []resource.Finding
	// elsewhere says that some of the authorities may be in the cluster.
	elsewhere bool
}

// of returns the validation for a port; nil means none. The setting of a port overrides the default, even if it is
// none.
func (f *frontend) of(port gatewayv1.PortNumber) *clientValidation {
	if v, ok := f.ports[port]; ok {
		return v
	}
	return f.byDefault
}

// has says whether the problem is one of the frontend's, which many listeners may show but which is one finding.
func (f *frontend) has(p resource.Finding) bool {
	in := func(v *clientValidation) bool { return v != nil && slices.Contains(v.problems, p) }
	for _, v := range f.ports {
		if in(v) {
			return true
		}
	}
	return in(f.byDefault)
}

func (t *translator) readFrontend(g *gateway) *frontend {
	f := &frontend{ports: map[gatewayv1.PortNumber]*clientValidation{}}
	if g.obj.Spec.TLS == nil || g.obj.Spec.TLS.Frontend == nil {
		return f
	}
	written := g.obj.Spec.TLS.Frontend
	f.byDefault = t.readClientValidation(g, written.Default.Validation, "spec.tls.frontend.default.validation")
	for i, p := range written.PerPort {
		f.ports[p.Port] = t.readClientValidation(g, p.TLS.Validation, fmt.Sprintf("spec.tls.frontend.perPort[%d].tls.validation", i))
	}
	return f
}

func (t *translator) readClientValidation(g *gateway, written *gatewayv1.FrontendTLSValidation, field string) *clientValidation {
	if written == nil {
		return nil
	}
	v := &clientValidation{field: field, optional: written.Mode == gatewayv1.AllowInsecureFallback}
	if v.optional {
		g.insecure = append(g.insecure, field+".mode")
		t.report(g.ref, resource.Problem(codeInsecureClient, "", field+".mode",
			"clients without a valid certificate are let in", "use AllowValidOnly unless the backends check clients themselves"))
	}
	for i, ref := range written.CACertificateRefs {
		at := model.FieldAt(field+".caCertificateRefs", i)
		to := resource.ObjectOf(ref, g.namespace)
		var p resource.Finding
		if to.Group != "" || to.Kind != "ConfigMap" {
			p = resource.Problem(codeClientCA, "InvalidCACertificateKind", at,
				fmt.Sprintf("kind %s is not supported", kindName(to.Group, to.Kind)), "refer to a ConfigMap")
		} else if !t.set.Permits("Gateway", g.namespace, to) {
			p = t.notPermitted(at, "Gateway", g.namespace, "ConfigMap", to.Namespace, to.Name)
		} else if bundle, code, message, fix := t.caBundle(codeClientCA, to.Namespace, to.Name); message != "" {
			v.elsewhere = v.elsewhere || code == resource.CodeElsewhere
			p = resource.Problem(code, "InvalidCACertificateRef", at, message, fix)
		} else {
			v.cas += bundle
			continue
		}
		v.problems = append(v.problems, p)
		t.report(g.ref, p)
	}
	return v
}
