package smi_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/dialect/goldentest"
	"github.com/weirmesh/weir/internal/dialect/smi"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

func set(t testing.TB, text string) *resource.Set {
	t.Helper()
	s, err := resource.Load([]string{"-"}, strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const web = `
apiVersion: split.smi-spec.io/v1alpha4
kind: TrafficSplit
metadata: {name: s}
spec: {service: web, backends: [{service: web-v1, weight: 1}]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: web-v1}
spec: {ports: [{name: http, port: 80}, {name: dns, port: 53, protocol: UDP}, {name: db, port: 5432, appProtocol: tcp}]}
---
apiVersion: v1
kind: Service
metadata: {name: other, namespace: shop}
spec: {ports: [{port: 443}]}
---
`

const gatewayOn = `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: gw}
spec:
  gatewayClassName: weir
  listeners: [{name: l, port: %d, protocol: %s, tls: %s}]
---
`

// routes lists "route on listener for hostnames".
func routes(cfg model.Config) (out []string) {
	for _, r := range cfg.Routes {
		for _, a := range r.Attachments {
			out = append(out, fmt.Sprintf("%s:%s on %s for %s", r.Ref.Name, r.Rules[0].Name, a.Listener, a.Hostnames[0]))
		}
	}
	return out
}

func codes(findings []resource.Finding) (out []string) {
	for _, f := range findings {
		if strings.HasPrefix(f.Code, "WR6") {
			out = append(out, f.Code)
		}
	}
	return out
}

func TestServicesAreServedByHostNameAsAsked(t *testing.T) {
	plain := fmt.Sprintf(gatewayOn, 80, "HTTP", "null")
	other := fmt.Sprintf(gatewayOn, 8080, "HTTP", "null")
	tls := fmt.Sprintf(gatewayOn, 443, "HTTPS", "{certificateRefs: [{name: none}]}")
	for name, c := range map[string]struct {
		text   string
		serve  []string
		routes []string
		codes  []string
	}{
		"by default the roots":              {web, nil, []string{"web:80 on services/80 for web"}, nil},
		"nothing beside a Gateway":          {web + other, nil, nil, []string{"WR617"}},
		"none":                              {web, []string{"none"}, nil, []string{"WR617"}},
		"those named":                       {web, []string{"web-v1", "shop/other", "web-v1"}, []string{"web-v1:80 on services/80 for web-v1", "web-v1:5432 on services/5432 for *", "other:443 on services/443 for other"}, []string{"WR617"}},
		"those named beside a Gateway":      {web + other, []string{"web"}, []string{"web:80 on services/80 for web"}, nil},
		"on the listener of a Gateway":      {web + plain, []string{"web"}, []string{"web:80 on default/gw/l for web"}, nil},
		"not on a port of another protocol": {web + tls, []string{"web", "shop/other"}, []string{"web:80 on services/80 for web"}, []string{"WR621"}},
		"one that does not exist":           {web, []string{"gone"}, nil, []string{"WR620", "WR617"}},
	} {
		t.Run(name, func(t *testing.T) {
			out := translate(set(t, c.text), c.serve...)
			if err := out.Config.Validate(); err != nil {
				t.Error(err)
			}
			if got := routes(out.Config); !slices.Equal(got, c.routes) {
				t.Errorf("routes %q, want %q", got, c.routes)
			}
			if got := codes(out.Findings); !slices.Equal(got, c.codes) {
				t.Errorf("codes %q, want %q", got, c.codes)
			}
		})
	}
}

func TestEveryCodeIsDocumentedOnceAndSeen(t *testing.T) {
	seen := map[string]bool{"WR620": true, "WR621": true, "WR623": true} // by flags and by Convert
	for _, g := range goldentest.All(t, leastGoldens) {
		for _, f := range translate(goldentest.Load(t, g)).Findings {
			seen[f.Code] = true
		}
	}
	documented := map[string]bool{}
	for _, c := range smi.Codes() {
		if documented[c.ID] || c.Title == "" || c.Meaning == "" || c.Fix == "" {
			t.Errorf("%s is documented twice or not in full", c.ID)
		}
		documented[c.ID] = true
		if !seen[c.ID] {
			t.Errorf("no golden shows %s", c.ID)
		}
	}
}

// FuzzTranslate holds whatever a user may write to the promises of the translation: it ends, its model is valid and does
// not depend on the order of objects.
func FuzzTranslate(f *testing.F) {
	for _, g := range goldentest.All(f, leastGoldens) {
		var all []string
		for _, p := range g.Inputs() {
			all = append(all, p.Text)
		}
		f.Add(strings.Join(all, "\n---\n"), "default/web")
	}
	f.Fuzz(func(t *testing.T, text, serve string) {
		s, err := resource.Load([]string{"-"}, strings.NewReader(text))
		if err != nil {
			t.Skip("the text cannot be read: nothing is translated")
		}
		out := translate(s, serve)
		if err := out.Config.Validate(); err != nil {
			t.Errorf("the model is not valid: %v", err)
		}
		if a, b := goldentest.Marshal(t, out.Config), goldentest.Marshal(t, translate(goldentest.Shuffled(s), serve).Config); a != b {
			t.Errorf("the order of the objects has an influence:\n%s", goldentest.Diff(a, b))
		}
	})
}
