package gateway

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// notPermitted is the problem of a reference that lacks a ReferenceGrant, or whose grants are not known.
func (t *translator) notPermitted(field, fromKind, from, toKind, to, name string) resource.Finding {
	if !t.set.Watches(to) {
		return resource.Problem(codeUnwatched, "RefNotPermitted", field, fmt.Sprintf("%s %s/%s: %s", toKind, to, name, t.unwatched(to)), watchIt)
	}
	if k, ok := t.brokenGrants[to]; ok {
		why, fix := t.set.Missing(k)
		return resource.Problem(codeNotPermitted, "RefNotPermitted", field,
			fmt.Sprintf("%s %s/%s is in another namespace, and %s %s", toKind, to, name, k, why), fix)
	}
	return resource.Problem(codeNotPermitted, "RefNotPermitted", field,
		fmt.Sprintf("%s %s/%s is in another namespace and no ReferenceGrant there allows it", toKind, to, name),
		fmt.Sprintf("add a ReferenceGrant to namespace %s, from %s in namespace %s to %s %s", to, fromKind, from, toKind, name))
}

// unwatched means that a namespace is not read.
func (t *translator) unwatched(namespace string) string {
	return fmt.Sprintf("namespace %s is not watched by this controller, which watches only %s", namespace, strings.Join(t.set.Watched, ", "))
}

const watchIt = "add the namespace to the controller's --namespaces (the chart's namespaces), or refer to an object of a namespace that is watched"

// certificate resolves a reference of a Gateway or ListenerSet to a TLS certificate and takes it into the configuration.
// It returns the certificate's name; or the problem, with the reason given for an invalid reference.
func (t *translator) certificate(from model.Ref, ref gatewayv1.SecretObjectReference, field, code, reason string) (string, *resource.Finding) {
	invalid := func(message, fix string) (string, *resource.Finding) {
		return "", new(resource.Problem(code, reason, field, message, fix))
	}
	to := resource.SecretOf(ref, from.Namespace)
	if to.Group != "" || to.Kind != "Secret" {
		return invalid(fmt.Sprintf("kind %s is not supported", kindName(to.Group, to.Kind)), "refer to a Secret")
	}
	namespace, name := to.Namespace, to.Name
	if !t.set.Permits(from.Kind, from.Namespace, to) {
		p := t.notPermitted(field, from.Kind, from.Namespace, "Secret", namespace, name)
		return "", &p
	}
	full := namespace + "/" + name
	secret := t.set.Secret(namespace, name)
	if secret == nil {
		code, why, fix := t.absent(code, "", "Secret", key{namespace, name})
		if code == resource.CodeElsewhere {
			// The rest is judged as if it were there.
			t.report(from, resource.Problem(code, reason, field, why, fix))
			if !t.certificates[full] {
				t.certificates[full] = true
				t.cfg.Certificates = append(t.cfg.Certificates, model.Certificate{Name: full, Chain: "(not among the files)", Key: "(not among the files)"})
			}
			return full, nil
		}
		return "", new(resource.Problem(code, reason, field, why, fix))
	}
	if secret.Type != corev1.SecretTypeTLS {
		return invalid(fmt.Sprintf("Secret %s has type %q", full, secret.Type), "use a Secret of type kubernetes.io/tls")
	}
	chain, key := secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey]
	for _, part := range []struct {
		name string
		data []byte
	}{{corev1.TLSCertKey, chain}, {corev1.TLSPrivateKeyKey, key}} {
		if len(part.data) == 0 {
			return invalid(fmt.Sprintf("Secret %s has no %s", full, part.name), "add the certificate as tls.crt and its key as tls.key")
		}
	}
	if !t.certificates[full] {
		if _, err := tls.X509KeyPair(chain, key); err != nil {
			return invalid(fmt.Sprintf("Secret %s is not a certificate with its key: %s", full, strings.TrimPrefix(err.Error(), "tls: ")),
				"put the certificate chain in PEM form into tls.crt and the key that fits it into tls.key")
		}
		t.certificates[full] = true
		t.reportExpiry("Secret", namespace, name)
		t.cfg.Certificates = append(t.cfg.Certificates, model.Certificate{Name: full, Chain: string(chain), Key: model.Secret(key)})
	}
	return full, nil
}

// absent returns why a referenced object does not exist, what to do about it, and the code for it, which is usually the
// one given.
func (t *translator) absent(code, group, kind string, at key) (finding, why, fix string) {
	finding, why, fix = t.set.Absent(code, resource.Key{Group: group, Kind: kind, Namespace: at.namespace, Name: at.name}, t.Partial)
	return finding, kind + " " + at.String() + " " + why, fix
}

// caBundle reads the certificates under ca.crt of a ConfigMap. On failure it returns why, what to do, and the code for
// it, which is usually the one given.
func (t *translator) caBundle(code, namespace, name string) (pemText, finding, message, fix string) {
	full := namespace + "/" + name
	cm := t.set.ConfigMap(namespace, name)
	if cm == nil {
		code, why, fix := t.absent(code, "", "ConfigMap", key{namespace, name})
		return "", code, why, fix
	}
	text, ok := cm.Data["ca.crt"]
	if !ok {
		if data, binary := cm.BinaryData["ca.crt"]; binary {
			text, ok = string(data), true
		}
	}
	if !ok {
		return "", code, "ConfigMap " + full + " has no key ca.crt", "put the CA's certificate in PEM form under ca.crt"
	}
	found := 0
	for rest := []byte(text); ; found++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if _, err := x509.ParseCertificate(block.Bytes); block.Type != "CERTIFICATE" || err != nil {
			return "", code, fmt.Sprintf("ca.crt of ConfigMap %s holds data other than certificates", full),
				"put only certificates in PEM form under ca.crt"
		}
	}
	if found == 0 {
		return "", code, fmt.Sprintf("ca.crt of ConfigMap %s holds no certificate", full), "put the CA's certificate in PEM form under ca.crt"
	}
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	t.reportExpiry("ConfigMap", namespace, name)
	return text, "", "", ""
}

// reportExpiry tells, once, that certificates in use are not valid, or not for long.
func (t *translator) reportExpiry(kind, namespace, name string) {
	f, ok := t.set.Expiries[resource.Key{Kind: kind, Namespace: namespace, Name: name}]
	if ok && !slices.Contains(t.findings, f) {
		t.findings = append(t.findings, f)
	}
}

// kindName is "Kind" or "Kind.group".
func kindName(group, kind string) string {
	if group == "" {
		return kind
	}
	return kind + "." + group
}

// value is *p, or the default for nil.
func value[T any](p *T, missing T) T {
	if p == nil {
		return missing
	}
	return *p
}
