package cli_test

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/cli"
)

// TestOpenAPIPageShowsWhatIsPrinted runs the example of docs/openapi.md.
func TestOpenAPIPageShowsWhatIsPrinted(t *testing.T) {
	const page = "../../docs/openapi.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	input := regexp.MustCompile("(?s)```yaml\n(openapi: .*?)```").FindSubmatch(text)
	output := regexp.MustCompile("(?s)```\n\\$ weir (access generate openapi.yaml [^\n]*)\n(.*?)```").FindSubmatchIndex(text)
	if input == nil || output == nil {
		t.Fatal("docs/openapi.md has no example")
	}
	t.Chdir(t.TempDir())
	if err := os.WriteFile("openapi.yaml", input[1], 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	if code := cli.Main(strings.Fields(string(text[output[2]:output[3]])), nil, &out, &errs); code != 0 {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	got := out.String() + errs.String()
	if want := string(text[output[4]:output[5]]); got != want {
		t.Errorf("the page has\n%s\nthe command prints\n%s", want, got)
	}
	// What is generated is fine as it is.
	objects := filepath.Join(t.TempDir(), "roles.yaml")
	if err := os.WriteFile(objects, []byte(out.String()+serviceFoo), 0o600); err != nil {
		t.Fatal(err)
	}
	weir("", "check", "--fail-on", "warning", objects).want(t, 0, "no binding gives the role to anybody", "7 objects: 0 errors, 0 warnings, 2 notes")
}

// serviceFoo is the Service of the examples, and a Deployment behind it.
const serviceFoo = `---
apiVersion: v1
kind: Service
metadata: {name: foo}
spec: {selector: {app: foo}, ports: [{port: 80}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: foo}
spec:
  selector: {matchLabels: {app: foo}}
  template: {metadata: {labels: {app: foo}}, spec: {containers: [{name: foo, image: foo}]}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: office}
`

func TestAccessGenerateReadsFilesAndStdin(t *testing.T) {
	const document = `{"swagger": "2.0", "basePath": "/v1", "paths": {"/a": {"get": {"tags": ["x"]}}, "/b?c": {"get": {}}, "/d": {"get": {"security": [{"key": []}]}}}}`
	file := filepath.Join(t.TempDir(), "swagger.json")
	if err := os.WriteFile(file, []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"-", file} {
		weir(document, "access", "generate", path, "--service", "foo", "-n", "shop").want(t, 1,
			"name: foo-all\n", "name: foo-x\n", "name: foo-untagged\n", "namespace: shop\n", "'/v1/a$'", "kind: Service\n", "!Binding",
			"stderr:weir: GET /b?c: ", "stderr:it is left out", "stderr:3 roles from 2 operations, 1 note")
	}
	weir(document, "access", "generate", "-", "--resource", "deploy/foo").want(t, 2, "stderr:--resource")
	weir(document, "access", "generate", "-", "--resource", "Deployment/foo", "--by", "none", "--base-path", "/", "--base-path", "/v2", "--bind", "a", "--bind", "Node/b", "--bind", "pod/c/d").want(t, 1,
		"!foo-x", "kind: Deployment\n", "- '/a$'\n  - '/v2/a$'", "!/v1/a", "- kind: ServiceAccount\n  name: a\n- kind: Node\n  name: b\n- kind: Pod\n  name: d\n  namespace: c\n", "kind: TrafficRoleBinding")
	weir(document, "access", "generate", "-", "--service", "foo", "--by", "scope", "--bind", "key=a").want(t, 1, "name: foo-key", "name: foo-no-scope", "kind: TrafficRoleBinding")
}

func TestAccessGenerateNamesWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		code int
		want string
		args []string
	}{
		{2, "--service NAME", []string{"-"}},
		{2, "which document?", []string{"--service", "foo"}},
		{2, "give one of them", []string{"-", "--service", "foo", "--resource", "Pod/foo"}},
		{2, "is no KIND/NAME", []string{"-", "--resource", "ServiceAccount/foo"}},
		{2, "is no KIND/NAME", []string{"-", "--resource", "*/foo"}},
		{2, "is no name of an object", []string{"-", "--service", "Foo"}},
		{2, "is no name of an object", []string{"-", "--service", "*"}},
		{2, "is no namespace", []string{"-", "--service", "foo", "-n", "a.b"}},
		{2, "does not begin with a slash", []string{"-", "--service", "foo", "--base-path", "v1"}},
		{2, "is no kind of a subject", []string{"-", "--service", "foo", "--bind", "Service/a"}},
		{2, "is no name of an object", []string{"-", "--service", "foo", "--bind", "x=*"}},
		{2, "names no tag or scope", []string{"-", "--service", "foo", "--bind", "=a"}},
		{2, "is no namespace of a Node", []string{"-", "--service", "foo", "--bind", "Node/a/b"}},
		{2, "no such file", []string{"nowhere.yaml", "--service", "foo"}},
		{1, `tag "y" is not in the document; there are: x`, []string{"-", "--service", "foo", "--bind", "y=a"}},
	} {
		r := weir("openapi: 3.0.0\npaths: {/a: {get: {tags: [x]}}}\n", append([]string{"access", "generate"}, c.args...)...)
		r.want(t, c.code, "stderr:"+c.want)
		if r.stdout != "" {
			t.Errorf("%v prints %q", c.args, r.stdout)
		}
	}
	weir("a: b", "access", "generate", "-", "--service", "foo").want(t, 1, `stderr:neither "openapi" nor "swagger"`)
}

// TestDocumentsCannotForgeWhatAccessGeneratePrints has control characters and line breaks wherever a document's text is printed.
func TestDocumentsCannotForgeWhatAccessGeneratePrints(t *testing.T) {
	const document = `{"openapi": "3.0.0", "paths": {
		"/a\u001b[2J\nkind: Evil{b}": {"get": {"operationId": "x\nkind: Evil", "tags": ["\u202e\nkind: Evil", "\u0085kind: Evil", "\u2028kind: Evil", "\r---\rkind: Evil"]}},
		"/m/{v\n'}": {"get": {"parameters": [{"name": "v\n'", "in": "path", "style": "matrix", "schema": {"enum": ["'\nkind: Evil", "\u2028"]}}]}},
		"b\u001b": {"get": {}}}}`
	r := weir(document, "access", "generate", "-", "--service", "foo")
	r.want(t, 1, "kind: TrafficRole", "!\x1b", "!\nkind: Evil", "!\u202e", "!\u0085", "!\u2028", "!\r", "stderr:!\x1b", "stderr:!\nkind: Evil")
	file := filepath.Join(t.TempDir(), "roles.yaml")
	if err := os.WriteFile(file, []byte(r.stdout+serviceFoo), 0o600); err != nil {
		t.Fatal(err)
	}
	// All, the three with tags that are no names, and the one without.
	weir("", "check", file).want(t, 0, "9 objects: 0 errors, 0 warnings")
}

func TestAccessGenerateReadsNothingButTheDocument(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "other.yaml"), []byte("{name: v, in: path, schema: {type: string, enum: [secret]}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for _, ref := range []string{"other.yaml", "./other.yaml#/", "file://" + dir + "/other.yaml", "http://127.0.0.1:1/x"} {
		document := strings.ReplaceAll("openapi: 3.1.0\npaths:\n  /a/{v}: {get: {parameters: [{$ref: 'REF'}]}}\n  /b: {$ref: 'REF'}\n  /c/{v}: {get: {parameters: [{name: v, in: path, schema: {$ref: 'REF'}}]}}\n", "REF", ref)
		weir(document, "access", "generate", "-", "--service", "foo").want(t, 1, "'/a/[^/]+$'", "'/c/[^/]+$'", "!secret", "!/b", "stderr:cannot be followed")
	}
}
