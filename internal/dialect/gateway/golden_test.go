package gateway_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/dialect/core"
	"github.com/weirmesh/weir/internal/dialect/gateway"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

var update = flag.Bool("update", false, "rewrite the expected parts of testdata/*.golden")

// A golden is one case: first its input files, then what comes out of them. Each part begins with a line "-- name --";
// parts named *.yaml are input. What stands before the first part says what the case is about.
type golden struct {
	intro string
	parts []part
}

type part struct{ name, text string }

var separator = regexp.MustCompile(`(?m)^-- (\S+) --\n`)

func parseGolden(text string) golden {
	at := separator.FindAllStringSubmatchIndex(text, -1)
	g := golden{intro: text}
	for i, m := range at {
		if i == 0 {
			g.intro = text[:m[0]]
		}
		end := len(text)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		g.parts = append(g.parts, part{text[m[2]:m[3]], text[m[1]:end]})
	}
	return g
}

func (g golden) inputs() []part {
	return slices.DeleteFunc(slices.Clone(g.parts), func(p part) bool { return !strings.HasSuffix(p.name, ".yaml") })
}

func (g golden) format(outputs []part) string {
	var b strings.Builder
	b.WriteString(g.intro)
	for _, p := range append(g.inputs(), outputs...) {
		fmt.Fprintf(&b, "-- %s --\n%s", p.name, p.text)
	}
	return b.String()
}

// load reads the inputs of a case as the command line would.
func load(t testing.TB, g golden) *resource.Set {
	t.Helper()
	dir := t.TempDir()
	for _, p := range g.inputs() {
		if err := os.WriteFile(filepath.Join(dir, p.name), []byte(p.text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set, err := resource.Load([]string{dir}, nil)
	if err != nil {
		t.Fatal(err)
	}
	// Origins name files without the folder, which differs from run to run.
	for k, o := range set.Origins {
		o.File = filepath.Base(o.File)
		set.Origins[k] = o
	}
	for i := range set.Findings {
		if f := &set.Findings[i]; f.Origin.File != "" {
			f.Origin.File = filepath.Base(f.Origin.File)
		}
	}
	return set
}

type output struct {
	cfg      model.Config
	statuses []resource.Status
	findings []resource.Finding
}

func translate(set *resource.Set) output {
	services, _, found := core.Translate(set)
	cfg, statuses, more := gateway.Translate(set)
	findings := slices.Concat(set.Findings, found, more)
	resource.SortFindings(findings)
	return output{model.Merge(services, cfg), statuses, findings}
}

func (o output) parts(t testing.TB) []part {
	var findings strings.Builder
	for _, f := range o.findings {
		findings.WriteString(f.String() + "\n")
	}
	return []part{{"model.json", abbreviate(marshal(t, o.cfg))}, {"statuses", statusText(o.statuses)}, {"findings", findings.String()}}
}

func marshal(t testing.TB, v any) string {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

var pemBlock = regexp.MustCompile(`-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\\n`)

// abbreviate replaces certificates by a part of their hash.
func abbreviate(text string) string {
	return pemBlock.ReplaceAllStringFunc(text, func(block string) string {
		return fmt.Sprintf("[certificate %.3x]", sha256.Sum256([]byte(block)))
	})
}

// statusText writes a condition a line.
func statusText(statuses []resource.Status) string {
	var b strings.Builder
	conditions := func(indent string, all []resource.Condition) {
		for _, c := range all {
			line := fmt.Sprintf("%s%s=%s %s", indent, c.Type, c.Status, c.Reason)
			if c.Message != "" {
				line += ": " + c.Message
			}
			b.WriteString(line + "\n")
		}
	}
	parent := func(word string, p gatewayv1.ParentReference) {
		fmt.Fprintf(&b, "  %s", word)
		if p.Namespace != nil {
			fmt.Fprintf(&b, " %s/", *p.Namespace)
		} else {
			b.WriteByte(' ')
		}
		b.WriteString(string(p.Name))
		if p.SectionName != nil {
			fmt.Fprintf(&b, " section %s", *p.SectionName)
		}
		if p.Port != nil {
			fmt.Fprintf(&b, " port %d", *p.Port)
		}
		b.WriteByte('\n')
	}
	for _, s := range statuses {
		b.WriteString(s.Ref.String())
		if s.Generation != 0 {
			fmt.Fprintf(&b, " generation %d", s.Generation)
		}
		b.WriteByte('\n')
		conditions("  ", s.Conditions)
		for _, a := range s.Addresses {
			fmt.Fprintf(&b, "  address %s\n", a.Value)
		}
		for _, l := range s.Listeners {
			var kinds []string
			for _, k := range l.SupportedKinds {
				kinds = append(kinds, string(k.Kind))
			}
			fmt.Fprintf(&b, "  listener %s, %d attached, kinds [%s]\n", l.Name, l.AttachedRoutes, strings.Join(kinds, " "))
			conditions("    ", l.Conditions)
		}
		for _, p := range s.Parents {
			parent("parent", p.ParentRef)
			conditions("    ", p.Conditions)
		}
		for _, a := range s.Ancestors {
			parent("ancestor", a.AncestorRef)
			conditions("    ", a.Conditions)
		}
	}
	return b.String()
}

func goldens(t testing.TB) map[string]golden {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.golden")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]golden{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all[path] = parseGolden(string(text))
	}
	if len(all) < 60 {
		t.Fatalf("%d goldens, want at least 60", len(all))
	}
	return all
}

// TestTranslateGoldens compares every case with what it says must come out, and holds the translation to its
// promises: it does not touch its input, the order of objects has no influence, the model is valid and survives JSON.
func TestTranslateGoldens(t *testing.T) {
	for path, g := range goldens(t) {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".golden"), func(t *testing.T) {
			set := load(t, g)
			before := marshal(t, objects(set))
			out := translate(set)
			text := g.format(out.parts(t))
			if *update {
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if want := g.format(g.parts[len(g.inputs()):]); text != want {
				t.Errorf("%s differs; -update rewrites it:\n%s", path, diff(want, text))
			}
			if after := marshal(t, objects(set)); after != before {
				t.Errorf("the input was changed:\n%s", diff(before, after))
			}
			if err := out.cfg.Validate(); err != nil {
				t.Errorf("the model is not valid: %v", err)
			}
			for range 3 {
				again := translate(shuffled(set))
				if other := g.format(again.parts(t)); other != text {
					t.Errorf("the order of the objects has an influence:\n%s", diff(text, other))
				}
			}
			var back model.Config
			if err := json.Unmarshal([]byte(marshal(t, out.cfg)), &back); err != nil {
				t.Fatal(err)
			}
			if a, b := marshal(t, out.cfg), marshal(t, back); a != b {
				t.Errorf("the model does not survive JSON:\n%s", diff(a, b))
			}
		})
	}
}

// objects is everything a translation reads.
func objects(s *resource.Set) []any {
	return []any{s.GatewayClasses, s.Gateways, s.HTTPRoutes, s.GRPCRoutes, s.ReferenceGrants, s.BackendTLSPolicies,
		s.Services, s.EndpointSlices, s.Secrets, s.ConfigMaps, s.Namespaces, s.Findings}
}

func shuffled(s *resource.Set) *resource.Set {
	return &resource.Set{
		GatewayClasses:     shuffle(s.GatewayClasses),
		Gateways:           shuffle(s.Gateways),
		HTTPRoutes:         shuffle(s.HTTPRoutes),
		GRPCRoutes:         shuffle(s.GRPCRoutes),
		ReferenceGrants:    shuffle(s.ReferenceGrants),
		BackendTLSPolicies: shuffle(s.BackendTLSPolicies),
		Services:           shuffle(s.Services),
		EndpointSlices:     shuffle(s.EndpointSlices),
		Secrets:            shuffle(s.Secrets),
		ConfigMaps:         shuffle(s.ConfigMaps),
		Namespaces:         shuffle(s.Namespaces),
		Origins:            s.Origins,
		Findings:           shuffle(s.Findings),
	}
}

func shuffle[T any](all []T) []T {
	all = slices.Clone(all)
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// diff shows the first lines that differ.
func diff(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	i := 0
	for i < len(w) && i < len(g) && w[i] == g[i] {
		i++
	}
	cut := func(lines []string) string {
		return strings.Join(lines[min(i, len(lines)):min(i+12, len(lines))], "\n")
	}
	return fmt.Sprintf("from line %d on, want:\n%s\ngot:\n%s", i+1, cut(w), cut(g))
}

// TestGoldensHoldTheExamplesOfTheProposal makes sure that both examples of GEP-3171 are among the cases verbatim.
func TestGoldensHoldTheExamplesOfTheProposal(t *testing.T) {
	const example = `apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata:
  name: http-filter-mirror
  labels:
    gateway: mirror-gateway
spec:
  parentRefs:
  - name: mirror-gateway
  hostnames:
  - mirror.example
  rules:
  - backendRefs:
    - name: foo-v1
      port: 8080
    filters:
    - type: RequestMirror
      requestMirror:
        backendRef:
          name: foo-v2
          port: 8080
`
	for _, share := range []string{
		"        percent: 42\n",
		"        fraction:\n          numerator: 5\n          denominator: 1000\n",
	} {
		found := false
		for _, g := range goldens(t) {
			found = found || slices.ContainsFunc(g.inputs(), func(p part) bool { return p.text == example+share })
		}
		if !found {
			t.Errorf("no golden has the example with\n%s", share)
		}
	}
}
