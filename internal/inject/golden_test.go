package inject_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/weirmesh/weir/internal/inject"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func settings() *inject.Settings {
	s := inject.NewSettings()
	s.Image, s.Controller, s.Audience, s.Namespace, s.Version = "weir-proxy:v1", "weir-controller.weir-system.svc:18000", "weir.weirmesh.github.io", "weir-system", "v1"
	s.TrustDomain, s.Secret = "corp.example", func() string { return "5ec4e7" }
	return s
}

// tree is a pod as a webhook gets it.
func tree(t *testing.T, text string) map[string]any {
	t.Helper()
	var out map[string]any
	if err := yaml.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

const decisionMark, podMark = "-- decision --\n", "-- pod --\n"

// injected is the decision about a pod, and what it becomes.
func injected(t *testing.T, namespace string, labels map[string]string, pod map[string]any) (inject.Decision, map[string]any) {
	t.Helper()
	typed, err := inject.Typed(pod)
	if err != nil {
		t.Fatal(err)
	}
	d := settings().Pod(namespace, labels, typed)
	out, err := d.Apply(pod)
	if err != nil {
		t.Fatal(err)
	}
	return d, out
}

var outcomes = map[inject.Outcome]string{
	inject.NotAsked: "not asked", inject.OptedOut: "opted out", inject.Excluded: "excluded", inject.Refused: "refused", inject.Injected: "injected",
}

// TestGolden has a pod a file. The namespace has the label unless the file's first line, a comment, says another one.
// What was injected stays the same when it is injected again, and is what the validating webhook wants.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.golden")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			input, _, _ := strings.Cut(string(text), decisionMark)
			namespace, labels := "shop", map[string]string{inject.Label: inject.Enabled}
			if first, ok := strings.CutPrefix(input, "# namespace "); ok {
				first, _, _ = strings.Cut(first, "\n")
				var label string
				namespace, label, _ = strings.Cut(first, " ")
				labels = map[string]string{inject.Label: label}
			}
			pod := tree(t, input)
			d, out := injected(t, namespace, labels, pod)
			var b strings.Builder
			b.WriteString(input + decisionMark + outcomes[d.Outcome] + "\n")
			for _, r := range d.Reasons {
				fmt.Fprintf(&b, "reason: %s\n", r)
			}
			for _, n := range d.Notes {
				fmt.Fprintf(&b, "note: %s\n", n)
			}
			if d.Outcome == inject.Injected {
				written, err := yaml.Marshal(out)
				if err != nil {
					t.Fatal(err)
				}
				b.WriteString(podMark + string(written))
			} else if !reflect.DeepEqual(out, pod) {
				t.Error("a pod that is not injected was changed")
			}
			if *update {
				if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if b.String() != string(text) {
				t.Errorf("got:\n%s", b.String())
			}
			if !reflect.DeepEqual(pod, tree(t, input)) {
				t.Error("the input was changed")
			}
			typed, err := inject.Typed(out)
			if err != nil {
				t.Fatal(err)
			}
			problems := settings().Verify(namespace, labels, typed)
			if refused := d.Outcome == inject.Refused; refused != (len(problems) > 0) {
				t.Errorf("the final pod: %q", problems)
			}
			if d.Outcome != inject.Injected {
				return
			}
			again, same := injected(t, namespace, labels, out)
			if again.Outcome != inject.Injected || !reflect.DeepEqual(same, out) {
				t.Errorf("once more: %v %q", again.Outcome, again.Reasons)
			}
		})
	}
}
