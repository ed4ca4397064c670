package gateway

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// target is the target of a BackendTLSPolicy: a Service, or one of its ports by name.
type target struct {
	service key
	section string
}

// policy is a BackendTLSPolicy, judged.
type policy struct {
	obj *gatewayv1.BackendTLSPolicy
	ref model.Ref
	// tls is how connections are secured. It is nil if the policy cannot be honoured; then invalid is the reason.
	tls     *model.ServiceTLS
	invalid *resource.Finding
	// unresolved are CA references that cannot be used.
	unresolved []resource.Finding
	// targets exist; lost are those of them that an older policy has; missing are the others.
	targets       []target
	lost, missing []resource.Finding
	// portless are Services that exist without the port the policy names.
	portless []key
}

// readPolicies reads the BackendTLSPolicies, oldest first, and gives every target to the first that has it.
func (t *translator) readPolicies() {
	for _, obj := range t.set.BackendTLSPolicies {
		t.allPolicies = append(t.allPolicies, &policy{
			obj: obj,
			ref: model.Ref{Kind: "BackendTLSPolicy", Namespace: obj.Namespace, Name: obj.Name},
		})
	}
	slices.SortFunc(t.allPolicies, func(a, b *policy) int { return older(&a.obj.ObjectMeta, &b.obj.ObjectMeta) })
	for _, p := range t.allPolicies {
		t.readValidation(p)
		for i, ref := range p.obj.Spec.TargetRefs {
			t.readTarget(p, fmt.Sprintf("spec.targetRefs[%d]", i), ref)
		}
		if len(p.obj.Spec.Options) > 0 {
			t.report(p.ref, resource.Problem(codeIgnored, "", "spec.options", "TLS options are not supported", "remove the field"))
		}
		for _, all := range [][]resource.Finding{p.unresolved, p.missing} {
			for _, x := range all {
				t.report(p.ref, x)
			}
		}
		if p.invalid != nil && (p.invalid.Code != codePolicyCA || len(p.unresolved) == 0) {
			t.report(p.ref, *p.invalid)
		}
		for _, x := range p.lost {
			if len(p.lost) < len(p.targets) {
				x.Code = codePolicyPartlyClashes
			}
			t.report(p.ref, x)
		}
	}
}

// readTarget claims one target.
func (t *translator) readTarget(p *policy, field string, ref gatewayv1.LocalPolicyTargetReferenceWithSectionName) {
	missing := func(field, message, fix string) {
		p.missing = append(p.missing, resource.Problem(codePolicyTarget, "TargetNotFound", field, message, fix))
	}
	if ref.Group != "" || ref.Kind != "Service" {
		missing(field+".kind", fmt.Sprintf("kind %s is not supported", kindName(string(ref.Group), string(ref.Kind))), "target a Service")
		return
	}
	on := target{service: key{p.obj.Namespace, string(ref.Name)}, section: string(value(ref.SectionName, ""))}
	service := t.set.Service(on.service.namespace, on.service.name)
	if service == nil {
		code, why, fix := t.absent(codePolicyTarget, "", "Service", on.service)
		p.missing = append(p.missing, resource.Problem(code, "TargetNotFound", field+".name", why, fix))
		return
	}
	if others := t.aimedAt[on.service]; !slices.Contains(others, p) {
		t.aimedAt[on.service] = append(others, p)
	}
	named := func(port corev1.ServicePort) bool { return port.Name == on.section }
	if on.section != "" && !slices.ContainsFunc(service.Spec.Ports, named) {
		p.portless = append(p.portless, on.service)
		missing(field+".sectionName", fmt.Sprintf("Service %s has no port named %q", on.service, on.section), "correct the name of the port")
		return
	}
	p.targets = append(p.targets, on)
	if first := t.policies[on]; first != nil && first != p {
		p.lost = append(p.lost, resource.Problem(codePolicyConflict, "Conflicted", field,
			fmt.Sprintf("BackendTLSPolicy %s/%s is older and has the same target", first.obj.Namespace, first.obj.Name),
			"remove one of the two"))
		return
	}
	t.policies[on] = p
}

// readValidation turns spec.validation into the model's TLS.
func (t *translator) readValidation(p *policy) {
	const field = "spec.validation"
	v := p.obj.Spec.Validation
	settings := &model.ServiceTLS{Hostname: string(v.Hostname)}
	invalid := func(code, reason, at, message, fix string) {
		p.invalid = cmp.Or(p.invalid, new(resource.Problem(code, reason, field+at, message, fix)))
	}
	elsewhere := false
	for i, ref := range v.CACertificateRefs {
		at := model.FieldAt(field+".caCertificateRefs", i)
		if ref.Group != "" || ref.Kind != "ConfigMap" {
			p.unresolved = append(p.unresolved, resource.Problem(codePolicyCA, "InvalidKind", at,
				fmt.Sprintf("kind %s is not supported", kindName(string(ref.Group), string(ref.Kind))), "refer to a ConfigMap"))
			continue
		}
		bundle, code, message, fix := t.caBundle(codePolicyCA, p.obj.Namespace, string(ref.Name))
		if message != "" {
			elsewhere = elsewhere || code == resource.CodeElsewhere
			p.unresolved = append(p.unresolved, resource.Problem(code, "InvalidCACertificateRef", at, message, fix))
			continue
		}
		settings.CAs += bundle
	}
	known := value(v.WellKnownCACertificates, "")
	switch {
	case len(v.CACertificateRefs) > 0 && known != "":
		invalid(codePolicyInvalid, "Invalid", ".wellKnownCACertificates", "is set together with caCertificateRefs", "remove one of the two")
	case len(v.CACertificateRefs) > 0 && settings.CAs == "" && !elsewhere:
		invalid(codePolicyCA, "NoValidCACertificate", ".caCertificateRefs", "none of the CAs can be used", "correct the references")
	case len(v.CACertificateRefs) == 0 && known == "":
		invalid(codePolicyInvalid, "Invalid", ".caCertificateRefs", "no CA is given", "add caCertificateRefs, or wellKnownCACertificates System")
	case known != "" && known != gatewayv1.WellKnownCACertificatesSystem:
		invalid(codePolicyInvalid, "Invalid", ".wellKnownCACertificates", fmt.Sprintf("%q is not known", known), "use System")
	}
	if v.Hostname == "" {
		invalid(codePolicyInvalid, "Invalid", ".hostname", "is empty", "write the name that the backend's certificate carries")
	}
	for i, n := range v.SubjectAltNames {
		switch {
		case n.Type == gatewayv1.HostnameSubjectAltNameType && n.Hostname != "":
			settings.SubjectAltNames = append(settings.SubjectAltNames, string(n.Hostname))
		case n.Type == gatewayv1.URISubjectAltNameType && n.URI != "":
			settings.SubjectAltNames = append(settings.SubjectAltNames, string(n.URI))
		default:
			invalid(codePolicyInvalid, "Invalid", fmt.Sprintf(".subjectAltNames[%d]", i),
				fmt.Sprintf("a name of type %s is empty or not known", n.Type), "use type Hostname with hostname, or URI with uri")
		}
	}
	if p.invalid == nil {
		p.tls = settings
	}
}

// aims reports whether the policy is about a port that a route leads to, even if it has no effect there.
func (p *policy) aims(u use) bool {
	return slices.Contains(p.portless, u.service) || slices.ContainsFunc(p.targets, func(on target) bool {
		return on.service == u.service && (on.section == "" || on.section == u.port.Name)
	})
}

// policyFor returns the policy in force for a port of a Service: one that names the port goes before one for the whole. The
// Service of a release has those of the stable one, if none targets it.
func (t *translator) policyFor(service key, port corev1.ServicePort) *policy {
	if len(t.policies) == 0 {
		return nil
	}
	if port.Name != "" {
		if p := t.policies[target{service, port.Name}]; p != nil {
			return p
		}
	}
	if p := t.policies[target{service: service}]; p != nil {
		return p
	}
	if stable := t.set.StableOf(t.set.Service(service.namespace, service.name)); stable != nil {
		return t.policyFor(key{stable.Namespace, stable.Name}, port)
	}
	return nil
}

// policyStatuses reports each policy to every Gateway through which its targets are reached (PolicyStatus.ancestors).
func (t *translator) policyStatuses() {
	group, kind := gatewayv1.Group(gatewayv1.GroupName), gatewayv1.Kind("Gateway")
	for _, p := range t.allPolicies {
		accepted := resource.True("Accepted", "Accepted", "")
		switch {
		case p.invalid != nil:
			accepted = resource.False("Accepted", p.invalid.Reason, p.invalid.Text())
		case len(p.targets) == 0 && len(p.missing) > 0:
			accepted = resource.False("Accepted", "TargetNotFound", resource.Texts(p.missing))
		case len(p.lost) > 0 && len(p.lost) == len(p.targets):
			accepted = resource.False("Accepted", "Conflicted", resource.Texts(p.lost))
		}
		resolved := resource.True("ResolvedRefs", "ResolvedRefs", "")
		if len(p.unresolved) > 0 {
			resolved = resource.False("ResolvedRefs", p.unresolved[0].Reason, resource.Texts(p.unresolved))
		}
		status := resource.Status{Ref: p.ref, Generation: p.obj.Generation}
		for _, g := range t.order {
			// 16 ancestors is the API's limit.
			if !t.reached[reach{p, g}] || len(status.Ancestors) == 16 {
				continue
			}
			namespace := gatewayv1.Namespace(g.namespace)
			status.Ancestors = append(status.Ancestors, resource.AncestorStatus{
				AncestorRef: gatewayv1.ParentReference{Group: &group, Kind: &kind, Namespace: &namespace,
					Name: gatewayv1.ObjectName(g.name)},
				ControllerName: ControllerName,
				Conditions:     []resource.Condition{accepted, resolved},
			})
		}
		if len(status.Ancestors) == 0 && len(p.targets) > 0 {
			t.report(p.ref, resource.Problem(codePolicyUnused, "", "spec.targetRefs", "no attached route leads to its targets", "nothing, if this is intended"))
		}
		t.statuses = append(t.statuses, status)
	}
}
