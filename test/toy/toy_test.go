package toy_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/cli"
	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/dialect/goldentest"
	"github.com/weirmesh/weir/internal/kube/access"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/test/toy"
	"github.com/weirmesh/weir/test/weirtest"
)

var program = cli.Program{Dialects: toy.Dialects()}

func TestMain(m *testing.M) { weirtest.MainOf(program, m) }

const services = `
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{port: BACKEND}]
endpoints: [{addresses: [127.0.0.1]}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: below}
data: {path: /toys}
---
`

const train = `
apiVersion: toys.weirmesh.test/v1
kind: Toy
metadata: {name: train}
spec: {host: train.example, port: 8080, service: {name: web}, path: below}
---
`

func manifests(t *testing.T, backend, text string) string {
	t.Helper()
	return strings.ReplaceAll(services, "BACKEND", backend) + text
}

func load(t *testing.T, text string) *resource.Set {
	t.Helper()
	set, err := resource.Load(toy.Dialects().Kinds(), []string{"-"}, strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// weir runs a command line of Weir with toys.
func weir(t *testing.T, stdin string, args ...string) (stdout string, code int) {
	t.Helper()
	var out, err bytes.Buffer
	code = program.Main(args, strings.NewReader(stdin), &out, &err)
	if err.Len() > 0 {
		t.Logf("stderr of weir %s: %s", strings.Join(args, " "), err.String())
	}
	return out.String(), code
}

// TestMistakesInAToyAreTold holds that what an API server would refuse is refused, in the same words as for other kinds.
func TestMistakesInAToyAreTold(t *testing.T) {
	for _, c := range []struct{ what, from, to, want string }{
		{"nothing", "", "", ""},
		{"an older version", "weirmesh.test/v1", "weirmesh.test/v1beta1", ""},
		{"the kind in lower case", "kind: Toy", "kind: toy", `did you mean "Toy"?`},
		{"a letter too many in the kind", "kind: Toy", "kind: Tooy", `toys.weirmesh.test/v1`},
		{"the group", "toys.weirmesh.test", "toy.weirmesh.test", `did you mean "toys.weirmesh.test/v1"?`},
		{"no group", "toys.weirmesh.test/v1", "v1", `did you mean "toys.weirmesh.test/v1"?`},
		{"the version", "toys.weirmesh.test/v1", "toys.weirmesh.test/v2", "write toys.weirmesh.test/v1 or toys.weirmesh.test/v1beta1"},
		{"another kind of the API", "kind: Toy", "kind: Playground", "write it with kinds that Weir reads (Toy)"},
		{"a field", "host:", "hots:", "unknown field, it has no effect: without host the toy takes every host; did you mean \"host\"?"},
		{"a type", "port: 8080", "port: web", "spec.port"},
		{"a bound", "port: 8080", "port: 70000", "spec.port: 70000 is too large"},
		{"a missing field", "port: 8080, ", "", "spec.port: is missing"},
		{"a rule", "train.example", "localhost", "host must not be localhost"},
		{"the name", "name: train", "name: Train", "metadata.name"},
	} {
		set := load(t, manifests(t, "80", strings.Replace(train, c.from, c.to, 1)))
		var told []string
		for _, f := range set.Findings {
			told = append(told, f.String())
			if f.Origin.Line == 0 {
				t.Errorf("%s: no line: %s", c.what, f)
			}
		}
		if text := strings.Join(told, "\n"); c.want == "" && text != "" || !strings.Contains(text, c.want) {
			t.Errorf("%s: %q, want %q", c.what, text, c.want)
		}
		if served := len(slices.Collect(set.Of(toy.Kind))); (c.want == "" || c.what == "a field") != (served == 1) {
			t.Errorf("%s: %d toys", c.what, served)
		}
	}
}

// TestAToyIsTranslated holds that the front end has its place beside others, and that the order of objects has no influence.
func TestAToyIsTranslated(t *testing.T) {
	set := load(t, manifests(t, "80", train+strings.ReplaceAll(train, "train", "ball")))
	o := control.Options{Dialects: toy.Dialects()}
	result, err := o.Translate(set)
	if err != nil {
		t.Fatal(err)
	}
	if c := result.Config; len(c.Listeners) != 1 || len(c.Routes) != 2 || len(c.Services) != 1 || c.Routes[0].Rules[0].Matches[0].Path.Value != "/toys" {
		t.Errorf("%s", goldentest.Marshal(t, c))
	}
	shuffled, err := o.Translate(goldentest.Shuffled(set))
	if err != nil || !shuffled.Config.Equal(result.Config) {
		t.Errorf("%v\n%s", err, goldentest.Marshal(t, shuffled.Config))
	}
	if without, err := (control.Options{}).Translate(set); err != nil || len(without.Config.Routes) > 0 {
		t.Errorf("Weir without toys: %v\n%s", err, goldentest.Marshal(t, without.Config))
	}
}

// TestAToyIsServed sends a request through a process that reads the toy from a folder.
func TestAToyIsServed(t *testing.T) {
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "choo "+r.URL.Path) }))
	defer backend.Close()
	_, port, _ := strings.Cut(strings.TrimPrefix(backend.URL, "http://"), ":")
	dir := t.TempDir()
	var ports weirtest.Ports
	if err := os.WriteFile(filepath.Join(dir, "toys.yaml"), []byte(ports.Replace(t, manifests(t, port, train))), 0o600); err != nil {
		t.Fatal(err)
	}
	p := weirtest.Run(t, dir)
	for path, want := range map[string]string{"/toys/a": "200 choo /toys/a", "/else": "404 "} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:"+strconv.Itoa(ports.Of(t, 8080))+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = "train.example"
		answer, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if got := strconv.Itoa(answer.StatusCode) + " " + string(body); err != nil || !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, %v, want %s", path, got, err, want)
		}
	}
	p.Stop()
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

// TestCommandsKnowToys holds what people see of it.
func TestCommandsKnowToys(t *testing.T) {
	lonely := strings.NewReplacer("train", "lonely", "web", "nobody").Replace(train)
	text := manifests(t, "80", train+lonely)
	out, code := weir(t, text, "check", "-")
	if code != 1 || !strings.Contains(out, "  Toy default/lonely\n") || !strings.Contains(out, "WR990") || strings.Contains(out, "Toy default/train") || !strings.Contains(out, "5 objects: 1 error") {
		t.Errorf("check: %d\n%s", code, out)
	}
	out, code = weir(t, text, "check", "-o", "sarif", "-")
	if code != 1 || !strings.Contains(out, "A Toy names a Service that does not exist.") {
		t.Errorf("check -o sarif: %d\n%s", code, out)
	}
	out, code = weir(t, text, "status", "-")
	if code != 0 || !inOrder(out, "TOY", "TO", "ACCEPTED", "RESOLVED", "default/lonely", "nobody:80", "yes", "no", "WR990", "default/train", "web:80", "yes", "yes", "1 error") {
		t.Errorf("status: %d\n%s", code, out)
	}
	out, _ = weir(t, text, "status", "-o", "json", "-")
	var report struct {
		Objects []struct {
			Kind, Name, Resolved string
			Columns              map[string][]string
		}
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || len(report.Objects) != 2 || report.Objects[0].Resolved != "False" || report.Objects[1].Columns["TO"][0] != "web:80" {
		t.Errorf("status -o json: %v\n%s", err, out)
	}
	out, code = weir(t, text, "explain", "-", "--", "http://train.example:8080/toys/a")
	if code != 0 || !strings.Contains(out, "Toy default/train") {
		t.Errorf("explain: %d\n%s", code, out)
	}
	if out, _ = weir(t, "", "check", "--list-codes"); !strings.Contains(out, "toy without service") {
		t.Errorf("check --list-codes: %s", out)
	}
}

// TestDocsHaveAPlaceForToys holds that a kind cannot be left out of the docs.
func TestDocsHaveAPlaceForToys(t *testing.T) {
	dir := t.TempDir()
	for _, api := range []string{"Gateway API", "SMI", "OpenKruise Rollouts"} {
		page := "# x\n<!-- Generated by \"make generate\": kinds of " + api + " -->\nold\n<!-- End of kinds of " + api + " -->\nend\n"
		if err := os.WriteFile(filepath.Join(dir, api+".md"), []byte(page), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := program.Docs(dir); err == nil || !strings.Contains(err.Error(), "kinds of Toys") {
		t.Errorf("a page without toys: %v", err)
	}
	page := "<!-- Generated by \"make generate\": kinds of Toys -->\n<!-- End of kinds of Toys -->\n"
	if err := os.WriteFile(filepath.Join(dir, "toys.md"), []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	pages, err := program.Docs(dir)
	if err != nil || !strings.Contains(pages["toys.md"], `| Toy | v1, v1beta1 | all of it \| and more |`) || !strings.Contains(pages["codes.md"], "WR990") {
		t.Errorf("%v\n%s", err, pages["toys.md"])
	}
	if p := pages["SMI.md"]; !strings.HasPrefix(p, "# x\n") || !strings.HasSuffix(p, "\nend\n") || strings.Contains(p, "old") || !strings.Contains(p, "TrafficSplit") {
		t.Errorf("%s", p)
	}
}

// TestTheControllerMayReadAndReportToys holds that exactly what toys need is added to its permissions.
func TestTheControllerMayReadAndReportToys(t *testing.T) {
	before, kinds := access.Cluster(control.Options{}.Kinds()), toy.Dialects().Kinds()
	var added []string
	for _, v := range access.Cluster(kinds) {
		if !slices.Contains(before, v) {
			added = append(added, v.String())
			if !slices.Contains(access.Each(kinds), v) || slices.Contains(access.Shared(kinds, []string{"shop"}), v) {
				t.Errorf("%s: toys are in namespaces", v)
			}
		}
	}
	if want := []string{"get toys." + toy.Group, "list toys." + toy.Group, "watch toys." + toy.Group, "update toys/status." + toy.Group}; !slices.Equal(added, want) {
		t.Errorf("added %q, want %q", added, want)
	}
}

func inOrder(text string, parts ...string) bool {
	for _, p := range parts {
		_, rest, ok := strings.Cut(text, p)
		if !ok {
			return false
		}
		text = rest
	}
	return true
}
