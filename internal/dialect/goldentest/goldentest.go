// Package goldentest runs golden files through a dialect. It is for tests.
package goldentest

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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/dialect"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/resource/rules"
)

func init() { resource.CheckRules(rules.Compile) }

var update = flag.Bool("update", false, "rewrite the expected parts of testdata/*.golden")

// Golden is one case: first its input files, then the outputs. Each part begins with a line "-- name --"; parts named
// *.yaml are input. The text before the first part describes the case.
type Golden struct {
	intro string
	parts []Part
}

// Part is a file of a case.
type Part struct{ Name, Text string }

var separator = regexp.MustCompile(`(?m)^-- (\S+) --\n`)

func parse(text string) Golden {
	at := separator.FindAllStringSubmatchIndex(text, -1)
	g := Golden{intro: text}
	for i, m := range at {
		if i == 0 {
			g.intro = text[:m[0]]
		}
		end := len(text)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		g.parts = append(g.parts, Part{text[m[2]:m[3]], text[m[1]:end]})
	}
	return g
}

// Inputs are the files that are read.
func (g Golden) Inputs() []Part {
	return slices.DeleteFunc(slices.Clone(g.parts), func(p Part) bool { return !strings.HasSuffix(p.Name, ".yaml") })
}

func (g Golden) format(outputs []Part) string {
	var b strings.Builder
	b.WriteString(g.intro)
	for _, p := range append(g.Inputs(), outputs...) {
		fmt.Fprintf(&b, "-- %s --\n%s", p.Name, p.Text)
	}
	return b.String()
}

// Load reads the inputs of a case as the command line would.
func Load(t testing.TB, g Golden) *resource.Set {
	t.Helper()
	dir := t.TempDir()
	for _, p := range g.Inputs() {
		if err := os.WriteFile(filepath.Join(dir, p.Name), []byte(p.Text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set, err := resource.Load(dialect.Kinds(), []string{dir}, nil)
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

// Compare compares the outputs of a case with its file, or rewrites the file, and returns the expected content of the
// file.
func (g Golden) Compare(t *testing.T, path string, outputs []Part) string {
	t.Helper()
	text := g.format(outputs)
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want := g.format(g.parts[len(g.Inputs()):]); text != want {
		t.Errorf("%s differs; -update rewrites it:\n%s", path, Diff(want, text))
	}
	return text
}

// Output is the translation of a set.
type Output struct {
	Config model.Config
	// AtServices are routes whose parents are Services.
	AtServices []model.ServiceRoute
	Statuses   []resource.Status
	Events     []resource.Event
	Findings   []resource.Finding
}

func (o Output) parts(t testing.TB) []Part {
	var events, findings strings.Builder
	for _, e := range o.Events {
		fmt.Fprintf(&events, "%s %s %s: %s\n", e.Type, e.Reason, e.Ref, e.Message)
	}
	for _, f := range o.Findings {
		findings.WriteString(f.String() + "\n")
	}
	parts := []Part{{"model.json", abbreviate(Marshal(t, o.Config))}}
	if len(o.AtServices) > 0 {
		parts = append(parts, Part{"services.json", Marshal(t, o.AtServices)})
	}
	parts = append(parts, Part{"statuses", StatusText(o.Statuses)})
	if events.Len() > 0 {
		parts = append(parts, Part{"events", events.String()})
	}
	return append(parts, Part{"findings", findings.String()})
}

// Marshal is the JSON form that goldens have.
func Marshal(t testing.TB, v any) string {
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

// StatusText writes a condition a line.
func StatusText(statuses []resource.Status) string {
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
		if p.Kind != nil && *p.Kind != "Gateway" {
			b.WriteString(" " + string(*p.Kind))
		}
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
		if n := s.AttachedListenerSets; n != nil {
			fmt.Fprintf(&b, "  %d ListenerSets attached\n", *n)
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

// All reads testdata/*.golden. There must be at least least files.
func All(t testing.TB, least int) map[string]Golden {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.golden")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]Golden{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all[path] = parse(string(text))
	}
	if len(all) < least {
		t.Fatalf("%d goldens, want at least %d", len(all), least)
	}
	return all
}

// Run compares every case with its expected output, and checks the promises of the translation, which gets the case's
// name: it does not change its input, the order of objects has no influence, the model is valid and survives JSON.
func Run(t *testing.T, least int, translate func(name string, set *resource.Set) Output) {
	for path, g := range All(t, least) {
		name := strings.TrimSuffix(filepath.Base(path), ".golden")
		t.Run(name, func(t *testing.T) {
			set := Load(t, g)
			before := Marshal(t, objects(set))
			out := translate(name, set)
			text := g.Compare(t, path, out.parts(t))
			if after := Marshal(t, objects(set)); after != before {
				t.Errorf("the input was changed:\n%s", Diff(before, after))
			}
			if err := out.Config.Validate(); err != nil {
				t.Errorf("the model is not valid: %v", err)
			}
			for range 3 {
				again := translate(name, Shuffled(set))
				if other := g.format(again.parts(t)); other != text {
					t.Errorf("the order of the objects has an influence:\n%s", Diff(text, other))
				}
			}
			var back model.Config
			if err := json.Unmarshal([]byte(Marshal(t, out.Config)), &back); err != nil {
				t.Fatal(err)
			}
			if a, b := Marshal(t, out.Config), Marshal(t, back); a != b {
				t.Errorf("the model does not survive JSON:\n%s", Diff(a, b))
			}
		})
	}
}

// objects is everything a translation reads.
func objects(s *resource.Set) []any {
	all := []any{s.Findings}
	for _, o := range s.Objects() {
		all = append(all, o)
	}
	return all
}

// Shuffled is the set in another order.
func Shuffled(s *resource.Set) *resource.Set {
	var all []metav1.Object
	for _, o := range s.Objects() {
		all = append(all, o)
	}
	out := resource.NewSet(s.Kinds(), shuffle(all)...)
	out.Origins, out.Fields, out.Rejected, out.Drafts, out.Expiries, out.Findings = s.Origins, s.Fields, s.Rejected, s.Drafts, s.Expiries, shuffle(s.Findings)
	return out
}

func shuffle[T any](all []T) []T {
	all = slices.Clone(all)
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// Diff shows the first lines that differ.
func Diff(want, got string) string {
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
