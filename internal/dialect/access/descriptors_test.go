package access_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weirmesh/weir/internal/dialect/access"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/resource/rules"
)

func init() { resource.CheckRules(rules.Compile) }

// load reads a text as a file, with the kinds of access control.
func load(t *testing.T, text string) *resource.Set {
	t.Helper()
	return loadKinds(t, access.Kinds(), text)
}

// loadKinds reads a text as a file.
func loadKinds(t *testing.T, kinds resource.Kinds, text string) *resource.Set {
	t.Helper()
	file := filepath.Join(t.TempDir(), "in.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	set, err := resource.Load(kinds, []string{file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// row is an object's cells of its kind's own columns.
func row(k *resource.Kind, o metav1.Object) string {
	var out []string
	for _, c := range k.Columns {
		if c.Cell != nil {
			out = append(out, strings.Join(c.Cell(o), ","))
		}
	}
	return strings.Join(out, " | ")
}

// TestTheDraftsExamplesAreRead reads each example of the first draft alone, as some have one name.
func TestTheDraftsExamplesAreRead(t *testing.T) {
	text, err := os.ReadFile("../../resource/testdata/findings/access-seed.yaml")
	if err != nil {
		t.Fatal(err)
	}
	examples, _, _ := strings.Cut(string(text), "# --- expected ---")
	want := []string{
		"Deployment/foo | GET | /authors/\\d+", "Service/foo | * | *", "Pod/* | * | *", "Deployment/default/bar | TrafficRole/path-specific",
		"ServiceAccount/default/foo-account | TrafficRole/path-specific", "Pod/foobar | ClusterTrafficRole/health-check", "Pod/* | GET | /health", "Pod/* | * | *",
		"Node/* | ClusterTrafficRole/health-check", "Pod/root | ClusterTrafficRole/default-allow",
	}
	var got []string
	for _, example := range strings.Split(examples, "\n---\n") {
		set := load(t, example)
		for k, o := range set.Objects() {
			got = append(got, row(k, o))
		}
		for _, f := range set.Findings {
			if f.Severity == resource.Error || f.Code != resource.CodeNoGroup && f.Code != resource.CodeStar {
				t.Errorf("%v\n%s", f, example)
			}
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestEveryVersionIsReadFromFiles has a target in every version, with and without apiVersion, and a binding.
func TestEveryVersionIsReadFromFiles(t *testing.T) {
	const rest = "sources: [{kind: ServiceAccount, name: b}], "
	for text, want := range map[string]string{
		"{apiVersion: access.smi-spec.io/v1alpha1, destination: {kind: ServiceAccount, name: a, port: 80}, " + rest + "specs: [{kind: TCPRoute, name: r}]":                  "ServiceAccount/a:80 | ServiceAccount/b | TCPRoute/r",
		"{destination: {kind: ServiceAccount, name: a, port: 80}, " + rest + "specs: [{kind: TCPRoute, name: r}]":                                                           "ServiceAccount/a:80 | ServiceAccount/b | TCPRoute/r",
		"{spec: {destination: {kind: ServiceAccount, name: a, namespace: ns, port: 80}, " + rest + "rules: [{kind: TCPRoute, name: r}]}":                                    "ServiceAccount/ns/a:80 | ServiceAccount/b | TCPRoute/r",
		"{apiVersion: access.smi-spec.io/v1alpha3, spec: {destination: {kind: IdentityBinding, name: 'IdentityBinding:a'}, " + rest + "rules: [{kind: UDPRoute, name: r}]}": "IdentityBinding/a | ServiceAccount/b | UDPRoute/r",
		"{spec: {destination: {kind: IdentityBinding, name: a}, " + rest + "rules: [{kind: HTTPRouteGroup, name: r, matches: []}]}":                                         "IdentityBinding/a | ServiceAccount/b | HTTPRouteGroup/r",
	} {
		set := load(t, text+", kind: TrafficTarget, metadata: {name: t}}")
		if all := access.Targets.In(set); len(all) != 1 || row(set.Kinds().Find("access.smi-spec.io", "TrafficTarget"), all[0]) != want {
			t.Errorf("%s: %+v, %v", text, all, set.Findings)
		}
	}
	set := load(t, "{kind: IdentityBinding, metadata: {name: i}, spec: {schemes: {serviceAccount: a, spiffeIdentities: [spiffe://x/y]}}}\n---\n"+
		"{kind: IdentityBinding, metadata: {name: p}, spec: {schemes: {podLabelSelector: {matchLabels: {}}}}}\n---\n"+
		"{kind: ClusterTrafficRole, metadata: {name: c}, rules: [{resources: [{kind: pods, name: a, namespace: b}]}, {methods: []}]}")
	var got []string
	for k, o := range set.Objects() {
		got = append(got, row(k, o))
	}
	if want := "[Pod/b/a,* | * | *,* spiffe://x/y,ServiceAccount/a pods]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s: %v", got, want, set.Findings)
	}
}
