package agreement

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// document is one manifest of the corpus.
type document struct {
	file string
	line int
	text string
	// mistake says that it was written to be wrong.
	mistake bool
}

func (d document) String() string {
	return fmt.Sprintf("%s:%d", strings.TrimPrefix(d.file, root+"/"), d.line)
}

// corpus is every manifest of the examples, of the golden cases of resource and of the Gateway API dialect, and of the
// mistakes kept here.
func corpus(t *testing.T) []document {
	t.Helper()
	var all []document
	for _, source := range []struct{ path, ext string }{
		{"internal/resource/testdata", ".yaml"},
		{"internal/dialect/gateway/testdata", ".golden"},
		{"examples", ".yaml"},
		{"test/cluster/agreement/testdata/mistakes", ".yaml"},
	} {
		before := len(all)
		err := filepath.WalkDir(filepath.Join(root, source.path), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != source.ext {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			documents := split(path, manifests(source.ext, string(text)))
			for i := range documents {
				documents[i].mistake = strings.HasSuffix(source.path, "mistakes")
			}
			all = append(all, documents...)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(all) == before {
			t.Fatalf("no manifests in %s", source.path)
		}
	}
	return all
}

var goldenPart = regexp.MustCompile(`^-- (\S+) --$`)

// manifests blanks what is no manifest, so that lines keep their numbers: all but the parts named *.yaml of a golden
// file of the dialect, and in one of resource what is expected of it.
func manifests(ext, text string) string {
	lines := strings.Split(text, "\n")
	manifest := ext == ".yaml"
	for i, line := range lines {
		if m := goldenPart.FindStringSubmatch(line); m != nil && ext == ".golden" {
			manifest = strings.HasSuffix(m[1], ".yaml")
			lines[i] = "---"
			continue
		}
		if line == "# --- expected ---" {
			manifest = false
		}
		if !manifest {
			lines[i] = ""
		}
	}
	return strings.Join(lines, "\n")
}

// split parts a stream of YAML documents. Those with nothing but comments are left out.
func split(file, text string) []document {
	var all []document
	var current []string
	start := 1
	flush := func(next int) {
		text := strings.TrimRight(strings.Join(current, "\n"), "\n")
		var value any
		if err := yaml.Unmarshal([]byte(text), &value); err != nil || value != nil {
			all = append(all, document{file: file, line: start, text: text + "\n"})
		}
		current, start = nil, next
	}
	for i, line := range strings.Split(text, "\n") {
		if line == "---" || line == "..." || strings.HasPrefix(line, "--- ") {
			flush(i + 2)
			continue
		}
		current = append(current, line)
	}
	flush(0)
	return all
}

// object is what of a document says where it goes.
type object struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name            string `json:"name"`
		Namespace       string `json:"namespace"`
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
}

const (
	endpointSlice  = "discovery.k8s.io/EndpointSlice"
	httpRouteGroup = "specs.smi-spec.io/HTTPRouteGroup"
)

// kinds are those that both sides judge.
var kinds = map[string]struct {
	plural  string
	cluster bool
	// core says that Weir cannot run the API server's own checks of the kind, as it can those of a definition.
	core bool
}{
	"gateway.networking.k8s.io/GatewayClass":     {plural: "gatewayclasses", cluster: true},
	"gateway.networking.k8s.io/Gateway":          {plural: "gateways"},
	"gateway.networking.k8s.io/ListenerSet":      {plural: "listenersets"},
	"gateway.networking.k8s.io/HTTPRoute":        {plural: "httproutes"},
	"gateway.networking.k8s.io/GRPCRoute":        {plural: "grpcroutes"},
	"gateway.networking.k8s.io/ReferenceGrant":   {plural: "referencegrants"},
	"gateway.networking.k8s.io/BackendTLSPolicy": {plural: "backendtlspolicies"},
	"split.smi-spec.io/TrafficSplit":             {plural: "trafficsplits"},
	httpRouteGroup:                               {plural: "httproutegroups"},
	"specs.smi-spec.io/TCPRoute":                 {plural: "tcproutes"},
	"specs.smi-spec.io/UDPRoute":                 {plural: "udproutes"},
	"/Service":                                   {plural: "services", core: true},
	"/Endpoints":                                 {plural: "endpoints", core: true},
	"/Secret":                                    {plural: "secrets", core: true},
	"/ConfigMap":                                 {plural: "configmaps", core: true},
	"/Namespace":                                 {plural: "namespaces", cluster: true, core: true},
	endpointSlice:                                {plural: "endpointslices", core: true},
}

// target is where a document is sent.
type target struct {
	// kind is "group/Kind".
	kind, namespace, path string
	core                  bool
}

// targetOf says why a document cannot be compared when it has none.
func targetOf(d document) (to target, why string) {
	if strings.HasPrefix(d.text, "{") && !json.Valid([]byte(d.text)) {
		return to, "several objects in JSON"
	}
	var o object
	var loose any
	if err := yaml.Unmarshal([]byte(d.text), &loose); err != nil {
		return to, "no YAML"
	}
	if err := yaml.Unmarshal([]byte(d.text), &o); err != nil || o.APIVersion == "" || o.Kind == "" {
		return to, "no object"
	}
	group, version, grouped := strings.Cut(o.APIVersion, "/")
	if !grouped {
		group, version = "", group
	}
	to.kind = group + "/" + o.Kind
	k, ok := kinds[to.kind]
	switch {
	case !ok:
		return to, "kind that Weir does not read"
	case unserved(group, version, o.Kind):
		return to, "version that is defined, but not served"
	case o.Metadata.Name == "":
		return to, "no name, without which Weir does not take it for an object"
	case o.Metadata.ResourceVersion != "":
		return to, "printed by a server, which does not take it back by a create"
	}
	to.core = k.core
	to.path = "/apis/" + group + "/" + version
	if !grouped {
		to.path = "/api/" + version
	}
	if !k.cluster {
		if to.namespace = o.Metadata.Namespace; to.namespace == "" {
			to.namespace = "default"
		}
		to.path += "/namespaces/" + to.namespace
	}
	to.path += "/" + k.plural
	return to, ""
}

func unserved(group, version, kind string) bool {
	for _, crd := range definitions {
		if crd.Spec.Group != group || crd.Spec.Names.Kind != kind {
			continue
		}
		for _, v := range crd.Spec.Versions {
			if v.Name == version {
				return !v.Served
			}
		}
	}
	return false
}
