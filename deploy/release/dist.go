package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// dist is a release: what is made, of what.
type dist struct {
	tree        string   // the top of the repository
	completions string   // folder of the shells' completions
	url         string   // where the files are going to be, without the version
	image       string   // the image of the kustomization; empty is the one that "release image" makes
	proxyImage  string   // the image of proxies there; empty follows from the other
	binaries    []string // one of each program for each platform
}

// archive is one platform's.
type archive struct {
	OS, Arch string
	// Name is the file's, Folder what is in it.
	Name, Folder, URL, SHA256 string
}

// published is what the formula and the plugin's manifest are made of.
type published struct {
	Version  string // v1.2.3
	Told     string // what "weir version" calls it
	Archives []archive
}

// write makes all files of the release in a folder, and SHA256SUMS of everything that is in it then.
func (d dist) write(dir string) error {
	first, err := d.check()
	if err != nil {
		return err
	}
	p := published{Version: version(first), Told: told(first)}
	shared, err := companions(d.tree, d.completions)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	put := func(name string, data []byte, err error) error {
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return os.WriteFile(filepath.Join(dir, name), data, 0o644)
	}
	for _, path := range d.binaries {
		b, err := readBuild(path)
		if err != nil {
			return err
		}
		if b.program() == proxyName { // its image alone is released, with a list of what is in it
			list, err := sbom(path)
			if err := put(fmt.Sprintf("%s-%s-%s-%s.cdx.json", proxyName, p.Version, b.os, b.arch), list, err); err != nil {
				return err
			}
			continue
		}
		binary, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		a := archive{OS: b.os, Arch: b.arch, Folder: fmt.Sprintf("weir-%s-%s-%s", p.Version, b.os, b.arch)}
		a.Name = a.Folder + ".tar.gz"
		a.URL = d.url + "/" + p.Version + "/" + a.Name
		data, err := tarGz(a.Folder, append([]file{{"weir", 0o755, binary}}, shared...), b.time)
		a.SHA256 = sum(data)
		if err := put(a.Name, data, err); err != nil {
			return err
		}
		list, err := sbom(path)
		if err := put(a.Folder+".cdx.json", list, err); err != nil {
			return err
		}
		p.Archives = append(p.Archives, a)
	}
	kustomization, err := d.kustomization(first)
	if err != nil {
		return err
	}
	name := "weir-" + p.Version + "-kustomization"
	data, err := tarGz(name, kustomization, first.time)
	if err := put(name+".tar.gz", data, err); err != nil {
		return err
	}
	data, err = formula(p)
	if err := put("weir.rb", data, err); err != nil {
		return err
	}
	data, err = plugin(p)
	if err := put("weir.yaml", data, err); err != nil {
		return err
	}
	data, err = sums(dir)
	return put("SHA256SUMS", data, err)
}

// check says that the binaries belong together, and returns what they have in common.
func (d dist) check() (*build, error) {
	var first *build
	seen := map[string]bool{}
	for _, path := range d.binaries {
		b, err := readBuild(path)
		if err != nil {
			return nil, err
		}
		if err := stripped(path, b.os); err != nil {
			return nil, err
		}
		if first == nil {
			first = b
		}
		if b.Main.Version != first.Main.Version || b.revision != first.revision || b.GoVersion != first.GoVersion {
			return nil, fmt.Errorf("%s is %s, revision %q, of %s; %s is %s, revision %q, of %s: build both from the same commit", path,
				b.Main.Version, b.revision, b.GoVersion, d.binaries[0], first.Main.Version, first.revision, first.GoVersion)
		}
		key := b.program() + " for " + b.os + "/" + b.arch
		if seen[key] {
			return nil, fmt.Errorf("%s: there is another binary of %s", path, key)
		}
		seen[key] = true
	}
	return first, nil
}

// version is the name of the release: the tag of the commit, or what Go makes of a commit without one. It is a semantic version without
// the letters that file names and URLs treat apart.
func version(b *build) string {
	if v := tag(b); v != "devel" {
		return v
	}
	return "v0.0.0-devel"
}

// told is the version that the binary prints.
func told(b *build) string {
	if v := b.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	return "devel"
}

// kustomization returns the files of deploy/manifests, with the images of this release in kustomization.yaml.
func (d dist) kustomization(b *build) ([]file, error) {
	const main = "kustomization.yaml"
	folder := filepath.Join(d.tree, "deploy", "manifests")
	var files []file
	for _, name := range []string{"install-mesh.yaml", "install-rollouts.yaml", "install.yaml", main, "proxy-image.yaml"} {
		data, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			return nil, err
		}
		files = append(files, file{name, 0o644, data})
	}
	own := &files[slices.IndexFunc(files, func(f file) bool { return f.name == main })]
	of := cmp.Or(d.image, "localhost/weir:"+tag(b))
	proxies, err := proxyImage(of)
	if err != nil {
		return nil, err
	}
	for _, image := range []struct{ entry, name string }{{"weir", of}, {proxyName, cmp.Or(d.proxyImage, proxies)}} {
		repository, tag, digest, err := parts(image.name)
		if err != nil {
			return nil, err
		}
		before := []byte("\n- name: " + image.entry + "\n  newTag: dev\n")
		if bytes.Count(own.data, before) != 1 {
			return nil, fmt.Errorf("%s has no lines %q to set the image in", filepath.Join(folder, main), before)
		}
		after := "\n- name: " + image.entry + "\n  newName: " + repository + "\n"
		if digest != "" {
			after += "  digest: " + digest + "\n"
		} else {
			after += fmt.Sprintf("  newTag: %q\n", tag)
		}
		own.data = bytes.Replace(own.data, before, []byte(after), 1)
	}
	return files, nil
}

// proxyImage is the image of proxies where the controller's alone is named, as in the chart: "-proxy" comes before the tag, and no name
// follows from a digest, so it is the same image then, which has the data plane too.
func proxyImage(of string) (string, error) {
	repository, tag, digest, err := parts(of)
	if err != nil || digest != "" {
		return of, err
	}
	return repository + "-proxy:" + tag, nil
}

// parts of an image's name, which has a tag or a digest.
func parts(image string) (repository, tag, digest string, err error) {
	if repository, digest, ok := strings.Cut(image, "@"); ok {
		return repository, "", digest, nil
	}
	if i := strings.LastIndexByte(image, ':'); i > strings.LastIndexByte(image, '/') {
		return image[:i], image[i+1:], "", nil
	}
	return "", "", "", fmt.Errorf("image %q has neither a tag nor a digest", image)
}

func sum(data []byte) string {
	digest := sha256.Sum256(data)
	return hex.EncodeToString(digest[:])
}

// sums lists a folder's files in the form that "sha256sum -c" reads.
func sums(dir string) ([]byte, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, e := range entries {
		if e.Name() == "SHA256SUMS" {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		lines = append(lines, sum(data)+"  "+e.Name()+"\n")
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[64:], b[64:]) })
	return []byte(strings.Join(lines, "")), nil
}
