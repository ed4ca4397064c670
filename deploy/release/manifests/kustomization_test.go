package main

import (
	"bytes"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// installs are the files that the kustomization may have as its first resource.
var installs = []string{"install.yaml", "install-rollouts.yaml", "install-mesh.yaml"}

// build runs kustomize on the released folder with one of installs, and with other lines of the entries of images if they
// are given.
func build(t *testing.T, install string, images map[string]string) map[string]map[string]any {
	t.Helper()
	const dir = "../../manifests/"
	files := filesys.MakeFsInMemory()
	for _, name := range []string{"kustomization.yaml", install, "proxy-image.yaml"} {
		text, err := os.ReadFile(dir + name)
		if err != nil {
			t.Fatal(err)
		}
		for image, lines := range images {
			text = bytes.Replace(text, []byte("\n- name: "+image+"\n  newTag: dev\n"), []byte("\n- name: "+image+"\n"+lines+"\n"), 1)
		}
		text = bytes.Replace(text, []byte("\n- install.yaml\n"), []byte("\n- "+install+"\n"), 1)
		if err := files.WriteFile("/weir/"+name, text); err != nil {
			t.Fatal(err)
		}
	}
	all, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(files, "/weir")
	if err != nil {
		t.Fatal(err)
	}
	text, err := all.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return objects(t, text)
}

// objects are the documents of a file by kind, namespace and name.
func objects(t *testing.T, text []byte) map[string]map[string]any {
	t.Helper()
	all := map[string]map[string]any{}
	for _, document := range strings.Split("\n"+string(text), "\n---\n") {
		var o map[string]any
		if err := yaml.Unmarshal([]byte(document), &o); err != nil {
			t.Fatal(err)
		}
		if o == nil {
			continue // the comment at the top
		}
		metadata := o["metadata"].(map[string]any)
		key := fmt.Sprint(o["kind"], " ", metadata["namespace"], "/", metadata["name"])
		if all[key] != nil {
			t.Errorf("%s is there twice", key)
		}
		all[key] = o
	}
	return all
}

const (
	controller = "Deployment weir-system/weir-controller"
	policy     = "ValidatingAdmissionPolicy <nil>/weir-controller-pods"
)

// images are the places where an image is named: what the controller runs, what it has proxies run, what they may run.
func images(t *testing.T, all map[string]map[string]any) (runs, proxies string, allowed map[string]any) {
	t.Helper()
	pod := all[controller]["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
	container := pod["containers"].([]any)[0].(map[string]any)
	for _, arg := range container["args"].([]any) {
		if image, ok := strings.CutPrefix(arg.(string), "--proxy-image="); ok {
			proxies = image
		}
	}
	variables := all[policy]["spec"].(map[string]any)["variables"].([]any)
	i := slices.IndexFunc(variables, func(v any) bool { return v.(map[string]any)["name"] == "repositories" })
	return container["image"].(string), proxies, variables[i].(map[string]any)
}

// TestKustomizationIsTheChart builds it with kustomize and compares it with what it installs, object by object.
func TestKustomizationIsTheChart(t *testing.T) {
	for _, install := range installs {
		text, err := os.ReadFile("../../manifests/" + install)
		if err != nil {
			t.Fatal(err)
		}
		want, have := objects(t, text), build(t, install, nil)
		if len(want) < 10 || len(have) != len(want) {
			t.Errorf("%s: %d objects, not %d", install, len(have), len(want))
		}
		_, _, allowed := images(t, want)
		allowed["expression"] = `["weir:dev","weir-proxy:dev"]` // these images alone, where the chart knows their repositories
		for key, o := range want {
			if !reflect.DeepEqual(have[key], o) {
				t.Errorf("%s: %s differs:\n%v\nis to be\n%v", install, key, have[key], o)
			}
		}
	}
}

// TestKustomizationSetsTheImagesEverywhere takes names with a port, a tag, a digest.
func TestKustomizationSetsTheImagesEverywhere(t *testing.T) {
	type image struct{ name, lines string }
	for _, c := range []struct{ controller, proxy image }{
		{image{"registry.example:5000/team/weir:v1", "  newName: registry.example:5000/team/weir\n  newTag: v1"},
			image{"registry.example:5000/team/weir-proxy:v1", "  newName: registry.example:5000/team/weir-proxy\n  newTag: v1"}},
		{image{"localhost/weir@sha256:" + zeros, "  newName: localhost/weir\n  digest: sha256:" + zeros},
			image{"localhost/slim@sha256:" + ones, "  newName: localhost/slim\n  digest: sha256:" + ones}},
		{image{"weir:v0.0.0-20260102030405-0123456789ab", "  newTag: v0.0.0-20260102030405-0123456789ab"}, image{"weir-proxy:v2", "  newTag: v2"}},
		// One image for both, as before there were two.
		{image{"weir:v1", "  newTag: v1"}, image{"weir:v1", "  newName: weir\n  newTag: v1"}},
	} {
		for _, install := range installs {
			runs, proxies, allowed := images(t, build(t, install, map[string]string{"weir": c.controller.lines, "weir-proxy": c.proxy.lines}))
			if runs == c.controller.name && proxies == c.proxy.name && allowed["expression"] == `["`+runs+`","`+proxies+`"]` {
				continue
			}
			t.Errorf("%s, %+v: the controller runs %s, proxies %s, which may run %s", install, c, runs, proxies, allowed["expression"])
		}
	}
}

var zeros, ones = strings.Repeat("0", 64), strings.Repeat("1", 64)
