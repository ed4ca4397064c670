// Manifests writes the plain form of the chart, for those who do not use Helm: install.yaml, its templates rendered with its
// default values, install-rollouts.yaml, with rollouts.enabled, and install-mesh.yaml, with mesh.enabled beside that.
//
//	go run . [-check] [-chart FOLDER] [-o FOLDER]
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/releaseutil"
)

const (
	release   = "weir"
	namespace = "weir-system"

	header = `# Weir with %s. Made by "make generate" of deploy/chart: change that.
#
# The kinds of Gateway API have to be installed first. Objects are best applied by the server:
#   kubectl apply --server-side -f %s
`
	namespaceObject = `apiVersion: v1
kind: Namespace
metadata:
  name: ` + namespace + `
  labels:
    app.kubernetes.io/name: weir
    pod-security.kubernetes.io/enforce: restricted
`
)

func main() {
	check := flag.Bool("check", false, "write nothing, and fail if the file is not what it is to be")
	folder := flag.String("chart", "../../chart", "`folder` of the chart")
	out := flag.String("o", "../../manifests", "`folder` to write to")
	flag.Parse()
	for _, f := range files {
		if err := run(*folder, filepath.Join(*out, f.name), f.about, f.values, *check); err != nil {
			fmt.Fprintln(os.Stderr, "manifests:", err)
			os.Exit(1)
		}
	}
}

// files are those that are written, and the values that they are rendered with.
var files = []struct {
	name, about string
	values      map[string]any
}{
	{"install.yaml", "the default values of its chart", nil},
	{"install-mesh.yaml", "a controller that carries Rollouts out and puts sidecars into pods that ask for them, and the default values of its chart beside that",
		map[string]any{"rollouts": map[string]any{"enabled": true}, "mesh": map[string]any{"enabled": true}}},
	{"install-rollouts.yaml", "a controller that carries Rollouts out, and the default values of its chart beside that", map[string]any{"rollouts": map[string]any{"enabled": true}}},
}

func run(folder, out, about string, values map[string]any, check bool) error {
	c, err := loader.Load(folder)
	if err != nil {
		return err
	}
	text, err := install(c, fmt.Sprintf(header, about, filepath.Base(out)), values)
	if err != nil {
		return err
	}
	if !check {
		return os.WriteFile(out, text, 0o644)
	}
	old, err := os.ReadFile(out)
	if err != nil {
		return err
	}
	if !bytes.Equal(old, text) {
		return errors.New(out + ` differs from the chart: run "make generate"`)
	}
	return nil
}

// install is everything in one file: the namespace, the definitions of the chart, then its objects in the order in which
// Helm makes them.
func install(c *chart.Chart, header string, values map[string]any) ([]byte, error) {
	objects, err := render(c, values)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.WriteString(header)
	write := func(text string) {
		b.WriteString("---\n" + strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(text), "---")) + "\n")
	}
	write(namespaceObject)
	definitions := c.CRDObjects()
	slices.SortFunc(definitions, func(a, b chart.CRD) int { return strings.Compare(a.Name, b.Name) })
	for _, d := range definitions {
		write(string(d.File.Data))
	}
	for _, o := range objects {
		write(o.Content)
	}
	return b.Bytes(), nil
}

// render returns the objects of a release with values laid over the chart's own.
func render(c *chart.Chart, values map[string]any) ([]releaseutil.Manifest, error) {
	capabilities := chartutil.DefaultCapabilities.Copy()
	capabilities.APIVersions = append(capabilities.APIVersions, "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy") // as a cluster of today says
	all, err := chartutil.ToRenderValues(c, values, chartutil.ReleaseOptions{Name: release, Namespace: namespace, Revision: 1, IsInstall: true}, capabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return nil, err
	}
	for name := range files {
		if path.Ext(name) != ".yaml" {
			delete(files, name) // notes and helpers
		}
	}
	_, objects, err := releaseutil.SortManifests(files, nil, releaseutil.InstallOrder)
	return objects, err
}
