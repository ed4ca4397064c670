package control_test

import (
	"slices"
	"testing"

	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/model"
)

const tlsConfigs = mesh + `
---
apiVersion: tls.smi-spec.io/v1beta1
kind: TLSConfig
metadata: {namespace: shop, name: a, annotations: {weirmesh.github.io/permissive: "true"}}
spec: {subjectNames: [pay.shop.svc, cart.blog], selector: {matchLabels: {app: pay}}}
---
apiVersion: tls.smi-spec.io/v1beta1
kind: TLSConfig
metadata: {namespace: shop, name: b, annotations: {weirmesh.github.io/permissive: "true"}}
spec: {subjectNames: [pay], selector: {matchExpressions: [{key: app, operator: Exists}]}}
`

const strictConfig = `
---
apiVersion: tls.smi-spec.io/v1beta1
kind: TLSConfig
metadata: {namespace: shop, name: c}
spec: {selector: {matchLabels: {app: cart}}}
`

// TestTLSConfigsAddUp gives pods the names of all that select them, and plain text ends with the first that is not permissive.
func TestTLSConfigsAddUp(t *testing.T) {
	permissive := sidecarsOf(t, tlsConfigs, nil).Sidecars
	if got := permissive.Names("shop", map[string]string{"app": "pay"}); !slices.Equal(got, []string{"pay", "pay.shop.svc"}) {
		t.Errorf("pay has %q", got)
	}
	if got := permissive.Names("shop", nil); len(got) > 0 {
		t.Errorf("a pod without labels has %q", got)
	}
	if got := permissive.Names("blog", map[string]string{"app": "pay"}); len(got) > 0 {
		t.Errorf("a pod of another namespace has %q", got)
	}
	if !servesPlainText(t, permissive, "shop", "cart-1") {
		t.Error("permissive TLSConfigs end plain text")
	}
	strict := sidecarsOf(t, tlsConfigs+strictConfig, nil).Sidecars
	if servesPlainText(t, strict, "shop", "cart-1") {
		t.Error("plain text is served at a pod that a strict TLSConfig selects beside a permissive one")
	}
}

func servesPlainText(t *testing.T, s *control.Sidecars, namespace, pod string) bool {
	t.Helper()
	c, _ := s.Inbound(namespace, pod)
	if c == nil {
		t.Fatalf("%s/%s has no configuration", namespace, pod)
	}
	found, plain := false, false
	for i := range c.Listeners {
		if l := &c.Listeners[i]; l.Redirect == model.RedirectInbound && l.TLS != nil {
			found, plain = true, plain || l.TLS.Plain
		}
	}
	if !found {
		t.Fatalf("%s/%s accepts nothing", namespace, pod)
	}
	return plain
}

// TestASidecarOfFilesObeysTLSConfigs, also those that are left out because they are not valid.
func TestASidecarOfFilesObeysTLSConfigs(t *testing.T) {
	const permissive = `, annotations: {weirmesh.github.io/permissive: "true"}`
	config := func(namespace, more, spec string) string {
		return "\n---\n{apiVersion: tls.smi-spec.io/v1beta1, kind: TLSConfig, metadata: {name: x, namespace: " + namespace + more + "}, spec: " + spec + "}\n"
	}
	for what, c := range map[string]struct {
		text  string
		plain bool
	}{
		"none":                  {"", true},
		"strict":                {config("shop", "", "{selector: {matchLabels: {app: cart}}}"), false},
		"permissive":            {config("shop", permissive, "{selector: {matchLabels: {app: cart}}}"), true},
		"of another app":        {config("shop", "", "{selector: {matchLabels: {app: pay}}}"), true},
		"of another namespace":  {config("blog", "", "{selector: {matchLabels: {}}}"), true},
		"with a wrong name":     {config("shop", "", "{subjectNames: [UP], selector: {matchLabels: {app: cart}}}"), false},
		"wrong, of another app": {config("shop", "", "{subjectNames: [UP], selector: {matchLabels: {app: pay}}}"), true},
		"wrong and permissive":  {config("shop", permissive, "{subjectNames: [UP], selector: {matchLabels: {app: cart}}}"), true},
		"a misspelt selector":   {config("shop", "", "{selector: {matchLabel: {app: pay}}}"), false},
	} {
		r := sidecarsOf(t, mesh+c.text, func(o *control.Options) {
			o.Mesh = false
			o.Sidecar.Namespace, o.Sidecar.Name, o.Sidecar.Plain = "shop", "cart-1", true
		})
		found := false
		for i := range r.Config.Listeners {
			if l := &r.Config.Listeners[i]; l.TLS != nil && l.WorkloadPort == 8080 {
				found = true
				if l.TLS.Plain != c.plain {
					t.Errorf("%s: plain text is served: %t", what, l.TLS.Plain)
				}
			}
		}
		if !found {
			t.Errorf("%s: there is no listener", what)
		}
	}
}
