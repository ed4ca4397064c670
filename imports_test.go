// Package weir_test holds what is true of the whole module: the import table, and that the tutorial works.
package weir_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/weirmesh/weir"

// importTable says which packages of the module a package may import; "*" is any. A package without a row fails the
// test: give it one, here and in docs/architecture.md.
var importTable = map[string][]string{
	"internal/model":              {},
	"internal/spare":              {},
	"internal/visible":            {},
	"internal/resource":           {"internal/finding", "internal/model", "internal/spare", "internal/visible", "api/convert", "api/split", "api/specs"},
	"internal/resource/crds":      {},
	"internal/dialect":            {"internal/dialect/access", "internal/dialect/sidecar", "internal/dialect/core", "internal/dialect/gateway", "internal/dialect/smi", "internal/dialect/roles", "internal/dialect/rollouts", "internal/dialect/tlsconfig", "internal/resource", "internal/workload", "internal/model", "internal/rollout/provider"},
	"internal/dialect/core":       {"internal/resource", "internal/model", "internal/reach"},
	"internal/dialect/gateway":    {"internal/resource", "internal/resource/crds", "internal/model"},
	"internal/dialect/smi":        {"internal/dialect/routegroup", "internal/resource", "internal/model", "api/convert", "api/split", "api/specs", "deploy/crds"},
	"internal/resource/rules":     {},
	"internal/dialect/goldentest": {"internal/dialect", "internal/resource", "internal/resource/rules", "internal/model"},
	"internal/routing":            {"internal/model"},
	"internal/policy":             {"internal/model"},
	"internal/workload":           {"internal/resource"},
	"internal/dialect/routegroup": {"internal/model", "api/specs"},
	"internal/http1":              {},
	"internal/budget":             {},
	"internal/loglimit":           {},
	"internal/pace":               {},
	"internal/clock":              {},
	"internal/reach":              {},
	"internal/http2":              {"internal/http1", "internal/budget", "internal/pace", "internal/socket"},
	"internal/socket":             {},
	"internal/probe":              {"internal/loglimit"},
	"internal/inject":             {"internal/probe", "internal/redirect"},
	"internal/clientaddr":         {},
	"internal/clienthello":        {},
	"internal/upstream":           {"internal/model", "internal/clientaddr", "internal/http1", "internal/http2", "internal/identity/claim", "internal/identity/spiffe", "internal/loglimit", "internal/socket"},
	"internal/telemetry":          {"internal/clock", "internal/model", "internal/http1", "internal/loglimit"},
	"internal/mirror": {
		"internal/upstream", "internal/clientaddr", "internal/http1", "internal/http2", "internal/telemetry", "internal/loglimit", "internal/model", "internal/budget", "internal/clock",
	},
	"internal/tracing":      {},
	"internal/tracing/otlp": {"internal/tracing", "internal/loglimit", "internal/visible"},
	"internal/peertest":     {"internal/model"},
	"internal/exchange": {
		"internal/mirror", "internal/upstream", "internal/clientaddr", "internal/http1", "internal/http2", "internal/socket", "internal/routing",
		"internal/identity/claim", "internal/identity/spiffe", "internal/policy", "internal/telemetry", "internal/model", "internal/budget", "internal/clock", "internal/tracing",
	},
	"internal/proxy": {
		"internal/exchange", "internal/mirror", "internal/upstream", "internal/clientaddr", "internal/clienthello", "internal/http1", "internal/http2", "internal/identity/spiffe", "internal/socket",
		"internal/routing", "internal/telemetry", "internal/loglimit", "internal/model", "internal/budget", "internal/clock", "internal/pace",
	},
	"internal/control": {
		"internal/dialect", "internal/dialect/sidecar", "internal/dialect/tlsconfig", "internal/identity/spiffe", "internal/resource", "internal/finding", "internal/model",
		"internal/routing", "internal/spare", "internal/workload",
	},
	"internal/diff":            {"internal/policy", "internal/routing", "internal/model"},
	"internal/feed":            {"internal/loglimit", "internal/model", "internal/spare", "internal/statefile"},
	"internal/statefile":       {},
	"internal/tapping":         {"internal/loglimit", "internal/model", "internal/telemetry"},
	"internal/identity":        {},
	"internal/identity/claim":  {},
	"internal/identity/spiffe": {},
	"internal/kube":            {"internal/resource", "internal/loglimit", "internal/model"},
	"internal/kube/access":     {"internal/resource", "internal/rollout", "internal/rollout/workload", "api/metrics", "api/rollouts"},
	"internal/kube/edit":       {"internal/kube"},
	"internal/kube/release":    {"internal/kube", "internal/kube/edit", "internal/loglimit", "internal/rollout", "internal/rollout/workload", "api/rollouts"},
	"internal/kube/operate":    {"internal/kube", "internal/kube/edit", "internal/kube/release", "internal/rollout", "internal/rollout/command", "internal/rollout/view", "internal/rollout/workload", "internal/visible", "api/metrics", "api/rollouts"},
	"internal/kube/conversion": {"api/convert"},
	"internal/kube/aggregated": {"internal/visible"},
	"internal/kube/admission":  {"internal/dialect/rollouts", "internal/inject", "internal/kube", "internal/kube/edit", "internal/resource", "internal/rollout", "internal/rollout/workload", "internal/visible", "api/rollouts", "api/tlsconfig"},
	"internal/kube/trust":      {"internal/inject", "internal/kube", "internal/kube/infra"},
	"internal/kube/webhook":    {},
	"internal/kube/infra":      {"internal/resource", "internal/loglimit", "internal/model", "internal/telemetry", "internal/tracing"},
	"internal/kube/replica":    {"internal/feed", "internal/identity", "internal/identity/claim", "internal/identity/workload", "internal/model"},
	"internal/kube/scrape":     {"internal/metrics/embedded", "internal/model", "internal/reach", "internal/resource", "internal/telemetry", "internal/workload"},
	"internal/kube/inspect": {
		"internal/kube", "internal/kube/access", "internal/kube/infra", "internal/kube/release", "internal/kube/replica", "internal/dialect/roles", "internal/dialect/rollouts", "internal/dialect/tlsconfig", "internal/feed", "internal/inject", "internal/resource", "internal/model", "internal/rollout", "internal/rollout/provider", "internal/rollout/workload", "internal/workload",
		"api/convert", "api/metrics", "api/rollouts", "api/split",
	},
	"internal/finding": {"internal/model", "internal/visible"},
	"internal/dataplane": {
		"internal/proxy", "internal/exchange", "internal/mirror", "internal/finding", "internal/flags", "internal/process", "internal/reach", "internal/socket", "internal/telemetry", "internal/http1", "internal/identity/spiffe", "internal/model", "internal/routing", "internal/tracing",
	},
	"internal/fed":                {"internal/tracing/otlp", "internal/dataplane", "internal/feed", "internal/finding", "internal/flags", "internal/identity/spiffe", "internal/identity/workload", "internal/model", "internal/probe", "internal/process", "internal/proxy", "internal/redirect", "internal/socket", "internal/tapping", "internal/telemetry"},
	"internal/redirect":           {},
	"internal/redirect/netfilter": {"internal/flags", "internal/redirect"},
	"cmd/weir-proxy":              {"internal/fed", "internal/flags", "internal/process", "internal/redirect/netfilter", "internal/visible"},
	"internal/flags":              {"internal/identity/spiffe", "internal/model"},
	"internal/process":            {"internal/flags", "internal/loglimit", "internal/socket", "internal/spare", "internal/telemetry", "internal/visible"},
	"internal/controller": {
		"internal/control", "internal/dialect", "internal/dialect/gateway", "internal/dialect/tlsconfig", "internal/feed", "internal/finding", "internal/flags", "internal/identity", "internal/identity/spiffe", "internal/identity/workload", "internal/inject", "internal/loglimit", "internal/kube",
		"internal/kube/access", "internal/kube/admission", "internal/kube/aggregated", "internal/kube/conversion", "internal/kube/infra", "internal/kube/release", "internal/kube/replica", "internal/kube/scrape", "internal/kube/trust", "internal/kube/webhook",
		"internal/rollout", "internal/rollout/provider", "internal/rollout/workload", "internal/metrics", "internal/metrics/embedded", "internal/metrics/prometheus", "internal/metrics/rest", "internal/metrics/schema", "internal/model", "internal/process", "internal/reach", "internal/resource", "internal/tapping",
		"internal/task", "internal/telemetry", "api/metrics", "api/rollouts",
	},
	"internal/curl":               {"internal/model"},
	"internal/openapi":            {"internal/model", "internal/visible", "api/access"},
	"internal/screen":             {"internal/visible"},
	"internal/screen/screentest":  {"internal/screen"},
	"internal/task":               {},
	"internal/topology":           {"internal/visible"},
	"internal/traffic":            {"internal/screen", "internal/telemetry", "internal/topology", "api/metrics"},
	"internal/metrics":            {"internal/telemetry", "internal/workload", "internal/resource", "internal/model", "api/metrics"},
	"internal/metrics/embedded":   {"internal/metrics", "internal/telemetry"},
	"internal/metrics/rest":       {"internal/metrics", "internal/telemetry", "internal/traffic", "internal/visible", "api/metrics"},
	"internal/metrics/prometheus": {"internal/metrics", "internal/telemetry"},
	"internal/metrics/schema":     {"api/metrics"},
	"internal/overview": {
		"internal/finding", "internal/kube/inspect", "internal/model", "internal/resource", "internal/screen", "internal/visible", "api/split",
	},
	"internal/explain": {
		"internal/curl", "internal/dialect/gateway", "internal/finding", "internal/model", "internal/exchange", "internal/mirror", "internal/resource", "internal/routing", "internal/screen", "internal/telemetry",
	},
	"internal/explain/access": {
		"internal/curl", "internal/dialect/access", "internal/exchange", "internal/explain", "internal/finding", "internal/http1", "internal/identity/spiffe", "internal/model", "internal/policy", "internal/resource", "internal/routing", "internal/screen", "internal/visible", "internal/workload",
	},
	"internal/toy": {},
	"internal/standalone": {
		"internal/control", "internal/dataplane", "internal/finding", "internal/flags", "internal/metrics", "internal/metrics/embedded", "internal/metrics/rest",
		"internal/model", "internal/process", "internal/resource", "internal/telemetry", "api/metrics",
	},
	"internal/demo": {
		"internal/dialect", "internal/exchange", "internal/mirror",
		"internal/control", "internal/dataplane", "internal/flags", "internal/model", "internal/process", "internal/proxy", "internal/reach",
		"internal/resource", "internal/screen", "internal/socket", "internal/standalone", "internal/telemetry", "internal/toy", "internal/upstream", "internal/visible", "examples",
		"internal/rollout/local", "internal/rollout/provider", "internal/rollout/view", "internal/demo/mesh", "internal/traffic",
	},
	"internal/demo/mesh": {
		"internal/control", "internal/dataplane", "internal/dialect", "internal/dialect/access", "internal/dialect/sidecar", "internal/exchange", "internal/identity/claim",
		"internal/identity/folder", "internal/identity/spiffe", "internal/model", "internal/policy", "internal/process", "internal/proxy", "internal/reach", "internal/resource",
		"internal/screen", "internal/socket", "internal/standalone", "internal/telemetry", "internal/toy", "internal/traffic", "internal/upstream", "examples",
	},
	"cmd/weir-demo":        {"internal/demo", "internal/flags", "internal/process", "internal/resource", "internal/visible"},
	"internal/cli":         {"*"},
	"internal/cli/gendocs": {"internal/cli"},
	"cmd/weir":             {"internal/cli"},
	"deploy/crds":          {},
	"deploy/grafana":       {},
	"docs/recording":       {},
	"examples":             {},

	"internal/dialect/tlsconfig":        {"internal/resource", "internal/model", "internal/workload", "api/tlsconfig", "deploy/crds"},
	"internal/dialect/access":           {"internal/dialect/routegroup", "internal/identity/spiffe", "internal/rollout", "internal/workload", "internal/resource", "internal/model", "api/access", "api/specs", "deploy/crds"},
	"internal/dialect/sidecar":          {"internal/identity/spiffe", "internal/workload", "internal/resource", "internal/model"},
	"internal/identity/folder":          {"internal/identity", "internal/identity/claim", "internal/identity/spiffe"},
	"internal/identity/workload":        {"internal/identity", "internal/identity/claim", "internal/identity/spiffe", "internal/loglimit", "internal/statefile"},
	"internal/dialect/roles":            {"internal/resource", "internal/model", "api/metrics"},
	"internal/dialect/rollouts":         {"internal/resource", "internal/model", "internal/rollout", "api/convert", "api/rollouts", "deploy/crds"},
	"internal/rollout":                  {"internal/model", "api/rollouts"},
	"internal/rollout/provider":         {"internal/rollout", "internal/rollout/provider/gateway", "internal/rollout/provider/ingress", "internal/rollout/provider/istio", "internal/rollout/provider/smi"},
	"internal/rollout/provider/gateway": {"internal/rollout", "internal/model", "api/rollouts"},
	"internal/rollout/provider/ingress": {"internal/rollout", "api/rollouts"},
	"internal/rollout/provider/istio":   {"internal/rollout", "internal/model", "api/rollouts"},
	"internal/rollout/provider/smi":     {"internal/rollout", "api/rollouts", "api/specs", "api/split"},
	"internal/rollout/local":            {"internal/dialect/rollouts", "internal/model", "internal/process", "internal/resource", "internal/rollout", "internal/rollout/command", "internal/rollout/view", "api/rollouts"},
	"internal/rollout/command":          {"internal/rollout", "api/rollouts"},
	"internal/rollout/workload":         {"internal/rollout", "api/rollouts"},
	"internal/rollout/view":             {"internal/rollout", "internal/screen", "internal/visible", "api/rollouts"},
}

// dataPlane must stay free of Kubernetes, directly and through others.
var dataPlane = []string{
	"internal/model", "internal/routing", "internal/http1", "internal/pace", "internal/clock", "internal/http2", "internal/socket", "internal/upstream", "internal/mirror", "internal/exchange", "internal/proxy",
	"internal/telemetry", "internal/feed", "internal/budget", "internal/identity", "internal/identity/spiffe", "internal/clientaddr",
	"internal/redirect", "internal/redirect/netfilter",
	"internal/finding", "internal/flags", "internal/loglimit", "internal/process", "internal/tracing", "internal/tracing/otlp", "internal/dataplane", "internal/fed", "cmd/weir-proxy",
}

type listedPackage struct {
	ImportPath string
	Imports    []string
	Deps       []string
	GoFiles    []string
}

func listPackages(t *testing.T) []listedPackage {
	t.Helper()
	readAll(t, "api", "cmd", "deploy", "examples", "internal", "test")
	out, err := exec.Command("go", "list", "-e", "-json=ImportPath,Imports,Deps,GoFiles", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []listedPackage
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listedPackage
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		all = append(all, p)
	}
}

// readAll looks at all files in the folders, so that Go, which keeps results of tests, knows that this one depends on what another program reads there.
func readAll(t *testing.T, folders ...string) {
	t.Helper()
	for _, folder := range folders {
		if err := filepath.WalkDir(folder, func(_ string, _ fs.DirEntry, err error) error { return err }); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPackagesImportOnlyWhatTheTableAllows(t *testing.T) {
	for _, p := range listPackages(t) {
		if len(p.GoFiles) == 0 {
			continue
		}
		name := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		if strings.HasPrefix(name, "test/") {
			continue // tools
		}
		allowed, ok := importTable[name]
		if strings.HasPrefix(name, "api/") {
			allowed, ok = []string{"api/convert"}, true // types, of nothing else of ours
		}
		if !ok {
			if !testing.Short() {
				t.Errorf("%s has no row in the import table of imports_test.go: add one, there and in docs/architecture.md", name)
			}
			continue // may be under way
		}
		for _, imported := range p.Imports {
			own, ok := strings.CutPrefix(imported, module+"/")
			if !ok || slices.Contains(allowed, "*") || slices.Contains(allowed, own) {
				continue
			}
			t.Errorf("%s imports %s, which its row does not allow", name, own)
		}
	}
}

func TestDataPlaneIsFreeOfKubernetes(t *testing.T) {
	for _, p := range listPackages(t) {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		if !slices.Contains(dataPlane, name) {
			continue
		}
		for _, dep := range p.Deps {
			if strings.HasPrefix(dep, "k8s.io/") || strings.HasPrefix(dep, "sigs.k8s.io/") {
				t.Errorf("%s depends on %s", name, dep)
			}
		}
	}
}

// TestOnlyKubeSpeaksToAPIServers holds that clients of Kubernetes are used in kube and below it alone.
func TestOnlyKubeSpeaksToAPIServers(t *testing.T) {
	for _, p := range listPackages(t) {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		if strings.HasPrefix(name, "test/") || name == "internal/kube" || strings.HasPrefix(name, "internal/kube/") {
			continue
		}
		for _, imported := range p.Imports {
			if strings.HasPrefix(imported+"/", "k8s.io/client-go/") || strings.HasPrefix(imported+"/", "sigs.k8s.io/controller-runtime/") {
				t.Errorf("%s imports %s", name, imported)
			}
		}
	}
}

// TestDemoIsBuiltInAMinute holds that weir-demo, which is what people see first, is made of little: with nothing in the cache of builds, it takes
// two cores less than a minute (README.md), of which each package is a part.
func TestDemoIsBuiltInAMinute(t *testing.T) {
	madeOf(t, "cmd/weir-demo", 470,
		"k8s.io/client-go/", "sigs.k8s.io/controller-runtime/", "github.com/google/cel-go/", "k8s.io/apiserver/pkg/cel/", "google.golang.org/grpc", "github.com/envoyproxy/",
		"github.com/spf13/cobra")
}

// TestProxyIsMadeOfLittle holds that the program that runs beside each pod links no library that it does not need: what is linked takes memory
// of each pod when it begins.
func TestProxyIsMadeOfLittle(t *testing.T) {
	madeOf(t, "cmd/weir-proxy", 450,
		"k8s.io/", "sigs.k8s.io/", "github.com/google/cel-go/", "cel.dev/", "github.com/spf13/cobra", "go.yaml.in/",
		"github.com/envoyproxy/go-control-plane/envoy/config/route/", "github.com/envoyproxy/go-control-plane/envoy/extensions/")
}

// madeOf holds that a command depends on at most so many packages, and on none that begins with one of the prefixes.
func madeOf(t *testing.T, command string, most int, never ...string) {
	t.Helper()
	found := false
	for _, p := range listPackages(t) {
		if p.ImportPath != module+"/"+command {
			continue
		}
		found = true
		if len(p.Deps) > most {
			t.Errorf("%s is made of %d packages, want at most %d", command, len(p.Deps), most)
		}
		for _, dep := range p.Deps {
			for _, prefix := range never {
				if strings.HasPrefix(dep, prefix) {
					t.Errorf("%s depends on %s", command, dep)
				}
			}
		}
	}
	if !found {
		t.Errorf("there is no %s", command)
	}
}

// TestOpenAPIIsForTheCommandLine holds that documents of OpenAPI are read by the command line alone: their parser is no part of what serves traffic.
func TestOpenAPIIsForTheCommandLine(t *testing.T) {
	const parser, own = "github.com/getkin/kin-openapi/", module + "/internal/openapi"
	found := false
	for _, p := range listPackages(t) {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		for _, dep := range p.Deps {
			if dep != own && !strings.HasPrefix(dep, parser) {
				continue
			}
			switch name {
			case "internal/openapi", "internal/cli", "internal/cli/gendocs", "cmd/weir":
				found = true
			default:
				if !strings.HasPrefix(name, "test/") {
					t.Errorf("%s depends on %s", name, dep)
				}
			}
			break
		}
		for _, imported := range p.Imports {
			if strings.HasPrefix(imported, parser) && name != "internal/openapi" {
				t.Errorf("%s imports %s", name, imported)
			}
		}
	}
	if !found {
		t.Error("nothing reads documents of OpenAPI")
	}
}
