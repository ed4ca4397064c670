package smi_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/dialect"
	"github.com/weirmesh/weir/internal/dialect/goldentest"
	"github.com/weirmesh/weir/internal/dialect/smi"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

func set(t testing.TB, text string) *resource.Set {
	t.Helper()
	s, err := resource.Load(dialect.Kinds(), []string{"-"}, strings.NewReader(text))
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
	seen := map[string]bool{"WR620": true, "WR621": true, "WR623": true, "WR624": true} // by flags, by Convert and by histories
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
		s, err := resource.Load(dialect.Kinds(), []string{"-"}, strings.NewReader(text))
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

// The last step of the specification's workflow deletes the split. Clients of the root must not notice.
func TestARootIsServedOnWhenItsSplitIsDeleted(t *testing.T) {
	_, rest, _ := strings.Cut(web, "---\n")
	translator := &smi.Translator{}
	step := func(name, text string, wantRoutes, wantCodes []string) {
		t.Helper()
		all := set(t, text)
		translator.Options.Gateways = all.Gateways // whose class is not in the set
		cfg, _, _, findings := translator.Translate(all)
		if got := routes(cfg); !slices.Equal(got, wantRoutes) {
			t.Errorf("%s: routes %q, want %q", name, got, wantRoutes)
		}
		if got := codes(findings); !slices.Equal(got, wantCodes) {
			t.Errorf("%s: codes %q, want %q", name, got, wantCodes)
		}
	}
	served := []string{"web:80 on services/80 for web"}
	step("never split", rest, nil, nil)
	step("split", web, served, nil)
	step("deleted", rest, served, []string{"WR624"})
	step("still deleted", rest, served, []string{"WR624"})
	step("split again", web, served, nil)
	step("with a Gateway", rest+fmt.Sprintf(gatewayOn, 8080, "HTTP", "null"), nil, nil)
	step("the Gateway deleted", rest, nil, nil)
	step("split once more", web, served, nil)
	step("the Service deleted", strings.Replace(rest, "{name: web}", "{name: web-v2}", 1), nil, nil)
	step("the Service back", rest, nil, nil)

	translator.Options.Serve = []string{"none"}
	step("none", web, nil, []string{"WR617"})
	step("none, deleted", rest, nil, nil)
}

func TestMessagesSayWhatIsTheCase(t *testing.T) {
	const root = `
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: other}
spec: {ports: [{port: 81}]}
---
`
	const of = `
apiVersion: split.smi-spec.io/%s
kind: TrafficSplit
metadata: {name: %s%s}
spec: {service: web, backends: [%s], matches: %s}
---
`
	for name, c := range map[string]struct{ text, code, message, fix string }{
		"the root serves a port that no backend has": {
			fmt.Sprintf(of, "v1alpha4", "s", "", "{service: gone, weight: 1}, {service: other, weight: 1}", "[]"),
			"WR604", "does not exist: nothing is split, as no backend that exists has a port of the root", "create it"},
		"a share is answered 500": {
			fmt.Sprintf(of, "v1alpha4", "s", "", "{service: gone, weight: 1}", "[]"),
			"WR604", "Service default/gone does not exist: its share is answered 500", "create it"},
		"the name decides": {
			fmt.Sprintf(of, "v1alpha4", "a", "", "{service: other, weight: 1}", "[]") + fmt.Sprintf(of, "v1alpha4", "b", "", "{service: other, weight: 1}", "[]"),
			"WR603", "TrafficSplit a, whose name comes first,", "keep one"},
		"age decides": {
			fmt.Sprintf(of, "v1alpha4", "a", `, creationTimestamp: "2026-01-02T00:00:00Z"`, "{service: other, weight: 1}", "[]") +
				fmt.Sprintf(of, "v1alpha4", "b", `, creationTimestamp: "2026-01-01T00:00:00Z"`, "{service: other, weight: 1}", "[]"),
			"WR603", "TrafficSplit b, which is older,", "keep one"},
		"a group that does not exist": {
			fmt.Sprintf(of, "v1alpha4", "s", "", "{service: other, weight: 1}", "[{kind: HTTPRouteGroup, name: g}]"),
			"WR611", "does not exist", "create it"},
		"a group that is not valid": {
			fmt.Sprintf(of, "v1alpha4", "s", "", "{service: other, weight: 1}", "[{kind: HTTPRouteGroup, name: g}]") +
				"apiVersion: specs.smi-spec.io/v1alpha4\nkind: HTTPRouteGroup\nmetadata: {name: g}\nspec: {matches: [{name: m, methods: GET}]}\n",
			"WR611", "is left out, because it is not valid (WR204 at -:", "mend WR204 at -:"},
		"matches in v1alpha2": {
			fmt.Sprintf(of, "v1alpha2", "s", "", "{service: other, weight: 1}", "[{kind: HTTPRouteGroup, name: g}]"),
			"WR114", "v1alpha2 has no matches", "v1alpha4"},
	} {
		t.Run(name, func(t *testing.T) {
			s := set(t, root+c.text)
			all := append(translate(s).Findings, s.Findings...)
			i := slices.IndexFunc(all, func(f resource.Finding) bool { return f.Code == c.code })
			if i < 0 {
				t.Fatalf("no %s among %v", c.code, all)
			}
			fix := all[i].Fix
			if fix == "" {
				code, _ := resource.LookupCode(c.code)
				fix = code.Fix
			}
			if f := all[i]; !strings.Contains(f.Message, c.message) || !strings.Contains(fix, c.fix) {
				t.Errorf("%s: %s; %s\nwant %s; %s", f.Code, f.Message, fix, c.message, c.fix)
			}
		})
	}
}

// TestASplitOfWhatIsOnlyMirroredHasAnEffect: splits lead copies, too.
func TestASplitOfWhatIsOnlyMirroredHasAnEffect(t *testing.T) {
	const route = `
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: r}
spec:
  parentRefs: [{name: gw}]
  rules:
  - filters: [{type: RequestMirror, requestMirror: {backendRef: {name: web, port: 80}}}]
    backendRefs: [{name: web-v1, port: 80}]
---
`
	out := translate(set(t, web+route+fmt.Sprintf(gatewayOn, 8080, "HTTP", "null")))
	if got := codes(out.Findings); len(got) != 0 {
		t.Errorf("codes %v", got)
	}
}
