package openapi_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apiaccess "github.com/weirmesh/weir/api/access"
	"github.com/weirmesh/weir/internal/dialect"
	"github.com/weirmesh/weir/internal/dialect/access"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/openapi"
	"github.com/weirmesh/weir/internal/policy"
	"github.com/weirmesh/weir/internal/resource"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var foo = apiaccess.Resource{Kind: apiaccess.Service, Name: "foo"}

// workload is the Service that the roles are for, and a Deployment behind it.
const workload = `---
apiVersion: v1
kind: Service
metadata: {name: foo, namespace: shop}
spec: {selector: {app: foo}, ports: [{port: 80}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: foo, namespace: shop}
spec:
  selector: {matchLabels: {app: foo}}
  template: {metadata: {labels: {app: foo}}, spec: {containers: [{name: foo, image: foo}]}}
`

// client is who roles are bound to.
var client = openapi.Bind{Subject: apiaccess.Subject{Kind: apiaccess.ServiceAccount, Name: "client"}}

func load(t testing.TB, yaml []byte) *resource.Set {
	t.Helper()
	set, err := resource.Load(dialect.All().Kinds(), []string{"-"}, strings.NewReader(string(yaml)+workload))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// judge returns who is asked whether the client may send a request, by generated objects.
func judge(t testing.TB, yaml []byte) func(method, path string) bool {
	t.Helper()
	set := load(t, yaml)
	config, _, _, findings := access.Translate(set, access.Options{})
	for _, f := range append(set.Findings, findings...) {
		if f.Severity != resource.Info {
			t.Errorf("%v", f)
		}
	}
	if len(config.Workloads) != 1 {
		t.Fatalf("there are %d workloads, want that of the Deployment", len(config.Workloads))
	}
	s := policy.Compile(&config.Workloads[0], config.Policies).Subject(&policy.Peer{ID: "spiffe://cluster.local/ns/shop/sa/client", Namespace: "shop", Account: "client"}, 80)
	return func(method, path string) bool {
		path, _ = policy.Path(path, nil)
		return s.Judge(&policy.Request{Method: method, Path: path}).Reason.Passes()
	}
}

// allows is judge for requests as clients send them.
func allows(t testing.TB, may func(method, path string) bool, method, raw string) bool {
	t.Helper()
	path, err := model.NormalizePath(raw)
	return err == nil && may(method, path)
}

func TestGoldens(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) < 6 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			document, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			o := openapi.Options{Resource: foo, Namespace: "shop"}
			switch name {
			case "petstore":
				o.Bind = []openapi.Bind{client, {To: "admin", Subject: apiaccess.Subject{Kind: apiaccess.Deployment, Name: "office", Namespace: "back"}}}
			case "scopes":
				o.By = openapi.ByScope
			default:
				o.By = openapi.ByNone
			}
			r, err := openapi.Generate(document, o)
			var got bytes.Buffer
			if err != nil {
				got.WriteString("# error: " + err.Error() + "\n")
			} else {
				got.Write(r.YAML())
				for _, n := range r.Notes {
					got.WriteString("# note: " + n.String() + "\n")
				}
				onlyUnbound(t, r.YAML())
			}
			golden := strings.TrimSuffix(file, ".yaml") + ".golden"
			if *update {
				if err := os.WriteFile(golden, got.Bytes(), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(want, got.Bytes()) {
				t.Errorf("want:\n%s\ngot:\n%s", want, got.Bytes())
			}
			for range 5 {
				again, err := openapi.Generate(document, o)
				if err == nil && !bytes.Equal(again.YAML(), r.YAML()) {
					t.Fatal("the same document makes other objects the next time")
				}
			}
		})
	}
}

// onlyUnbound holds that nothing is found in generated objects but that roles are not bound.
func onlyUnbound(t *testing.T, yaml []byte) {
	t.Helper()
	set := load(t, yaml)
	_, _, _, findings := access.Translate(set, access.Options{})
	for _, f := range append(set.Findings, findings...) {
		if f.Severity != resource.Info || f.Reason != "NotBound" && f.Reason != "SubjectNotFound" {
			t.Errorf("%s: %v", f.Reason, f)
		}
	}
}

func TestDocumentsThatCannotBeReadAreErrors(t *testing.T) {
	for document, want := range map[string]string{
		"":                                      "is empty",
		"- 1":                                   "must be an object",
		"a: [":                                  "neither YAML nor JSON",
		"a: b":                                  "neither \"openapi\" nor \"swagger\"",
		"openapi: 4.0.0":                        "version \"4.0.0\" is not known",
		"swagger: '1.2'":                        "version \"1.2\" is not known",
		"openapi: 3.0.0\npaths: []":             "paths must be an object",
		"openapi: 3.0.0\nopenapi: 3.1.0":        "twice",
		"openapi: 3.0.0\npaths: &p {/a: *p}":    "",
		"\xff\xfe":                              "not UTF-8",
		strings.Repeat("#", openapi.MaxBytes+1): "larger than",
	} {
		_, err := openapi.Generate([]byte(document), openapi.Options{Resource: foo})
		if want == "" && err == nil {
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", document, err, want)
		}
	}
}

// TestAliasesAreBounded has a document of a few lines that is large once its aliases are written out.
func TestAliasesAreBounded(t *testing.T) {
	document := "openapi: 3.0.0\nx0: &x0 {type: string}\n"
	for i := range 30 {
		document += strings.ReplaceAll(strings.ReplaceAll("xN: &xN {oneOf: [*xM, *xM, *xM, *xM, *xM, *xM, *xM, *xM]}\n", "N", string(rune('A'+i))), "*xM", map[bool]string{true: "*x0", false: "*x" + string(rune('A'+i-1))}[i == 0])
	}
	document += "paths: {'/a/{b}': {get: {parameters: [{name: b, in: path, schema: *x" + string(rune('A'+29)) + "}]}}}\n"
	if _, err := openapi.Generate([]byte(document), openapi.Options{Resource: foo}); err == nil {
		t.Error("it is read")
	}
}
