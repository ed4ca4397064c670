package resource

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weirmesh/weir/internal/model"

	"github.com/weirmesh/weir/internal/visible"
	"github.com/weirmesh/weir/test/size"
)

func TestLoadReadsFoldersRecursivelyAndPassesOverHiddenFiles(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", route("a", "a.example"))
	write(t, dir, "sub/deep/b.yml", route("b", "b.example"))
	write(t, dir, "sub/c.JSON", `{"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": "c"}, "spec": {"hostnames": ["c.example"]}}`)
	write(t, dir, ".hidden.yaml", route("d", "d.example"))
	write(t, dir, ".git/e.yaml", route("e", "e.example"))
	write(t, dir, "README.md", "# no manifest")
	set := mustLoad(t, dir)
	if got, want := hosts(set), "a=a.example b=b.example c=c.example"; got != want || len(set.Findings) > 0 {
		t.Errorf("got %s with %v, want %s", got, set.Findings, want)
	}
}

func TestLoadReadsOneFileOnceHoweverManyWaysLeadToIt(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "sub/a.yaml", route("a", "a.example"))
	if err := os.Symlink("..", filepath.Join(dir, "sub", "circle")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("a.yaml", filepath.Join(dir, "sub", "b.yaml")); err != nil {
		t.Fatal(err)
	}
	set := mustLoad(t, dir, dir, filepath.Join(dir, "sub", "a.yaml"))
	if hosts(set) != "a=a.example" || len(set.Findings) > 0 {
		t.Errorf("got %s with %v", hosts(set), set.Findings)
	}
}

func TestLoadReadsAnyExtensionAndTheStandardInputWhenNamed(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "manifest.txt", route("a", "a.example"))
	set, err := Load(everything, []string{filepath.Join(dir, "manifest.txt"), "-"}, strings.NewReader("---\n"+route("b", "b.example")))
	if err != nil {
		t.Fatal(err)
	}
	if hosts(set) != "a=a.example b=b.example" {
		t.Errorf("got %s with %v", hosts(set), set.Findings)
	}
	if got := set.Origin(model.Ref{Kind: "HTTPRoute", Namespace: "default", Name: "b", Field: "spec"}); got != (Origin{File: "-", Line: 5}) {
		t.Errorf("origin is %v", got)
	}
}

func TestLoadFailsForAPathThatIsNotThere(t *testing.T) {
	dir := t.TempDir()
	_, err := Load(everything, []string{filepath.Join(dir, "none"), dir}, nil)
	if err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "none")+" cannot be read: no such file") {
		t.Errorf("got %v", err)
	}
	if _, err := Load(everything, []string{"-"}, nil); err == nil {
		t.Error("a missing standard input is no error")
	}
}

func TestEmptyPathIsAWarning(t *testing.T) {
	dir := t.TempDir()
	set := mustLoad(t, dir)
	if len(set.Findings) != 1 || set.Findings[0].Code != CodeEmptyPath || set.Findings[0].Origin.File != dir {
		t.Errorf("got %v", set.Findings)
	}
}

func TestDuplicateNamesBothPlacesAndKeepsTheFirst(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "b.yaml", "# first line\n"+route("a", "second.example"))
	write(t, dir, "a.yaml", route("a", "first.example"))
	set := mustLoad(t, filepath.Join(dir, "b.yaml"), filepath.Join(dir, "a.yaml"))
	if hosts(set) != "a=first.example" || len(set.Findings) != 1 {
		t.Fatalf("got %s with %v", hosts(set), set.Findings)
	}
	f := set.Findings[0]
	if f.Code != CodeDuplicate || f.Origin != (Origin{File: filepath.Join(dir, "b.yaml"), Line: 2}) || !strings.Contains(f.Message, filepath.Join(dir, "a.yaml")+":1") {
		t.Errorf("got %v", f)
	}
}

func TestObjectsMayBeSplitOverFilesInAnyOrder(t *testing.T) {
	docs := []string{route("a", "a.example"), route("b", "b.example"), "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {team: a}}\n"}
	one, many := t.TempDir(), t.TempDir()
	write(t, one, "all.yaml", strings.Join(docs, "---\n"))
	for i, doc := range docs {
		write(t, many, string(rune('z'-i))+".yaml", doc)
	}
	a, b := mustLoad(t, one), mustLoad(t, many)
	if hosts(a) != hosts(b) || len(a.Namespaces) != 1 || len(b.Namespaces) != 1 {
		t.Errorf("%s differs from %s", hosts(a), hosts(b))
	}
}

func TestLookups(t *testing.T) {
	set := mustLoad(t, "testdata/findings/core-good.yaml")
	switch {
	case set.Service("shop", "web") == nil || set.Service("default", "web") != nil:
		t.Error("Service")
	case set.Service("shop", "web").Spec.Ports[0].TargetPort.IntVal != 80:
		t.Error("target port has no default")
	case len(set.EndpointSlicesOf("shop", "web")) != 1 || len(set.EndpointSlicesOf("default", "outside")) != 2:
		t.Error("EndpointSlicesOf")
	case string(set.Secret("default", "cert").Data["tls.crt"]) != "x" || string(set.Secret("default", "cert").Data["tls.key"]) != "y":
		t.Error("Secret")
	case set.ConfigMap("default", "ca").Data["ca.crt"] != "x":
		t.Error("ConfigMap")
	case set.NamespaceLabels("shop")["team"] != "a" || set.NamespaceLabels("shop")["kubernetes.io/metadata.name"] != "shop":
		t.Error("labels of a namespace")
	case set.NamespaceLabels("other")["kubernetes.io/metadata.name"] != "other":
		t.Error("labels of an unwritten namespace")
	}
}

func TestSharesOfMirrorsAreKeptAsWritten(t *testing.T) {
	set := mustLoad(t, "testdata/findings/mirror-shares.yaml")
	filters := set.HTTPRoutes[0].Spec.Rules[0].Filters
	if p := filters[0].RequestMirror.Percent; p == nil || *p != 101 {
		t.Errorf("percent is %v", p)
	}
	if m := filters[2].RequestMirror; m.Percent == nil || m.Fraction == nil || *m.Fraction.Denominator != 3 {
		t.Errorf("of both %+v is left", m)
	}
	if f := filters[6].RequestMirror.Fraction; f.Numerator != 100 || *f.Denominator != 1000 {
		t.Errorf("a missing numerator is %+v", f)
	}
	if f := filters[8].RequestMirror.Fraction; f.Numerator != 100 || *f.Denominator != 100 {
		t.Errorf("an empty fraction is %+v", f)
	}
}

func TestDefaultsOfTheAPIAreFilledIn(t *testing.T) {
	set := mustLoad(t, "testdata/findings/seed-fraction.yaml")
	rule := set.HTTPRoutes[0].Spec.Rules[0]
	if len(rule.Matches) != 1 || *rule.Matches[0].Path.Value != "/" || *rule.BackendRefs[0].Weight != 1 {
		t.Errorf("got %+v", rule)
	}
	if kind := set.HTTPRoutes[0].TypeMeta; kind != (metav1.TypeMeta{Kind: "HTTPRoute", APIVersion: "gateway.networking.k8s.io/v1"}) {
		t.Errorf("type is %v", kind)
	}
}

func TestAllDefinitionsCompile(t *testing.T) {
	for _, k := range everything {
		if !k.Custom() {
			continue
		}
		for _, v := range k.Versions {
			if s := schemaOf(k, v); s == nil || s.structural == nil || s.openapi == nil {
				t.Errorf("%s %s has no schema", k.Name, v)
			}
		}
	}
	if schemaOf(everything.Find(gatewayGroup, "HTTPRoute"), "v1").rules == nil {
		t.Error("HTTPRoute has no rules")
	}
}

func TestCodesAreDocumentedOnceAndInOrder(t *testing.T) {
	last := ""
	for _, c := range Codes() {
		if c.ID <= last || c.Title == "" || c.Meaning == "" || c.Fix == "" {
			t.Errorf("%q after %q: %+v", c.ID, last, c)
		}
		last = c.ID
	}
	if _, ok := LookupCode("WR999"); ok {
		t.Error("WR999 is documented")
	}
}

// Text of others must not control the readers of Weir's output: terminals, and runners that look for commands in lines.
func TestWhatIsReportedHasNoControlCharacters(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "f\x1b[31m\n::error::x\u202e.yaml")
	text := "apiVersion: v1\nkind: Service\nmetadata: {name: \"a\\e]0;pwn\\a\\n::stop-commands::x\\u202e\"}\nspec: {ports: [{port: 80}], \"x\\n::error file=a::forged\\u009b\": 1}\n" +
		"---\napiVersion: v1\nkind: \"K\\n::error::y\"\nmetadata: {name: b}\n"
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	set, err := Load(everything, []string{dir}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(set.Findings) < 3 {
		t.Errorf("%d findings", len(set.Findings))
	}
	for _, f := range set.Findings {
		if text := f.String(); visible.Text(text) != text {
			t.Errorf("%q", text)
		}
	}
}

func TestFindingsOfOneObjectAreBounded(t *testing.T) {
	var b strings.Builder
	b.WriteString("apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: a}\nspec:\n  hostnames: [a.example]\n")
	for i := range size.Of(4_000, 20_000) {
		fmt.Fprintf(&b, "  u%d: a\n", i)
	}
	for i := range size.Of(1_000, 5_000) {
		fmt.Fprintf(&b, "---\nkind: Service\nkind: Service\nx: %d\n", i)
		if i == 0 {
			b.WriteString(strings.Repeat("y: 1\n", 1000))
		}
	}
	set, err := Load(everything, []string{"-"}, strings.NewReader(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	of := 0
	for _, f := range set.Findings {
		if f.Ref.Kind == "HTTPRoute" {
			of++
		}
	}
	if of != maxFindings || len(set.HTTPRoutes) != 1 {
		t.Errorf("%d findings of the route, %d routes", of, len(set.HTTPRoutes))
	}
}

func TestAnEntryOfAFolderThatCannotBeReadHoldsUpNoOther(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("x.yaml", filepath.Join(dir, "x.yaml")); err != nil {
		t.Fatal(err)
	}
	large := filepath.Join(dir, "large.yaml")
	if err := os.WriteFile(large, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(large, maxFile+1); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "good.yaml"), []byte("apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {ports: [{port: 80}]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	set, err := Load(everything, []string{dir}, nil)
	if err != nil {
		t.Fatal(err)
	}
	unreadable := 0
	for _, f := range set.Findings {
		if f.Code == CodeUnreadable {
			unreadable++
		}
	}
	if len(set.Services) != 1 || unreadable != 2 {
		t.Errorf("%d Services, findings %v", len(set.Services), set.Findings)
	}
}

func TestASecretIsNotRepeatedInAnErrorOfSyntax(t *testing.T) {
	set, err := Load(everything, []string{"-"}, strings.NewReader("apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData:\n  password: *hunter2s3cret\n"))
	if err != nil {
		t.Fatal(err)
	}
	if len(set.Findings) != 1 || strings.Contains(set.Findings[0].String(), "hunter2") {
		t.Errorf("%v", set.Findings)
	}
}
