// Manifests writes install.yaml, the plain form of the chart: its templates rendered with its default values, for those
// who do not use Helm.
//
//	go run . [-check] [-chart FOLDER] [-o FILE]
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path"
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

	header = `# Weir with the default values of its chart. Made by "make generate" of deploy/chart: change that.
#
# The kinds of Gateway API have to be installed first. Objects are best applied by the server:
#   kubectl apply --server-side -f install.yaml
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
	out := flag.String("o", "../../manifests/install.yaml", "`file` to write")
	flag.Parse()
	if err := run(*folder, *out, *check); err != nil {
		fmt.Fprintln(os.Stderr, "manifests:", err)
		os.Exit(1)
	}
}

func run(folder, out string, check bool) error {
	c, err := loader.Load(folder)
	if err != nil {
		return err
	}
	text, err := install(c)
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
func install(c *chart.Chart) ([]byte, error) {
	objects, err := render(c, nil)
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
