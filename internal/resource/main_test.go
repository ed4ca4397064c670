package resource

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// everything is the kinds that Weir reads. Those of dialects import this package, so that a test outside of it hands them in.
var everything Kinds

func ReadAll(kinds Kinds) { everything = kinds }

const gatewayGroup = "gateway.networking.k8s.io"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// write puts content into a file of dir, in place as a careless editor does, with the folders it needs.
func write(t testing.TB, dir, name, content string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// replace puts content into a file by renaming another over it, as careful editors do.
func replace(t testing.TB, dir, name, content string) {
	t.Helper()
	write(t, dir, name+".tmp", content)
	if err := os.Rename(filepath.Join(dir, name+".tmp"), filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

func mustLoad(t testing.TB, paths ...string) *Set {
	t.Helper()
	set, err := Load(everything, paths, nil)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// route is the manifest of a valid HTTPRoute for one hostname.
func route(name, hostname string) string {
	return strings.NewReplacer("NAME", name, "HOST", hostname).Replace(`apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: NAME}
spec:
  parentRefs: [{name: gw}]
  hostnames: [HOST]
  rules:
  - matches: [{path: {type: PathPrefix, value: /NAME}, headers: [{name: x-canary, value: always}]}]
    backendRefs: [{name: v1, port: 8080, weight: 90}, {name: v2, port: 8080, weight: 10}]
    filters:
    - type: RequestMirror
      requestMirror: {backendRef: {name: v3, port: 8080}, percent: 42}
`)
}

// hosts is "name=hostname ..." of the routes of a set.
func hosts(set *Set) string {
	var b strings.Builder
	for _, r := range set.HTTPRoutes {
		b.WriteString(" " + r.Name + "=" + string(r.Spec.Hostnames[0]))
	}
	return strings.TrimSpace(b.String())
}

// found is the codes of a set's findings.
func found(set *Set) string {
	var list []string
	for _, f := range set.Findings {
		list = append(list, f.Code)
	}
	return strings.Join(list, " ")
}
