package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// user is who the process is: nobody that the image's files belong to. By number, so that an orchestrator can tell that it is not root.
const user = "65532:65532"

// proxyName is the program that is the data plane alone.
const proxyName = "weir-proxy"

// image returns an OCI image layout as a tar, with an index of one image for each binary: of the same program, which gives the image
// its name, for each platform.
func image(binaries []string) ([]byte, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	var of *build
	for _, path := range binaries {
		b, err := readBuild(path)
		if err != nil {
			return nil, err
		}
		if of != nil && b.program() != of.program() {
			return nil, fmt.Errorf("%s is %s, %s is %s: an image holds one program", path, b.program(), binaries[0], of.program())
		}
		img, err := platformImage(path, b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: b.os, Architecture: b.arch}},
		})
		of = b
	}
	index = mutate.Annotations(index, labels(of)).(v1.ImageIndex)

	dir, err := os.MkdirTemp("", "weir-image-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	at, err := layout.Write(dir, empty.Index)
	if err != nil {
		return nil, err
	}
	err = at.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": tag(of), "io.containerd.image.name": "localhost/" + of.program() + ":" + tag(of),
	}))
	if err != nil {
		return nil, err
	}
	return tarOf(dir, of.time)
}

// tag is a version in the letters that tags may have.
func tag(b *build) string {
	v := []byte(b.Main.Version)
	if len(v) == 0 || v[0] == '(' {
		return "devel"
	}
	return string(bytes.ReplaceAll(v, []byte("+"), []byte("-")))
}

func labels(b *build) map[string]string {
	description := "Splits, mirrors, matches and measures HTTP traffic."
	if b.program() == proxyName {
		description = "The data plane of Weir: serves a Gateway of a Kubernetes cluster as its controller says."
	}
	l := map[string]string{
		"org.opencontainers.image.title":       b.program(),
		"org.opencontainers.image.description": description,
		"org.opencontainers.image.licenses":    "Apache-2.0",
		"org.opencontainers.image.source":      "https://" + b.Main.Path,
		"org.opencontainers.image.version":     tag(b),
		"org.opencontainers.image.created":     b.time.Format(time.RFC3339),
	}
	if b.revision != "" {
		l["org.opencontainers.image.revision"] = b.revision
	}
	return l
}

// platformImage has the binary, the authorities that backends are trusted by, and a name for the user; no shell, nothing to write to.
func platformImage(path string, b *build) (v1.Image, error) {
	binary, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var files bytes.Buffer
	w := tar.NewWriter(&files)
	add := func(name string, mode int64, data []byte) {
		h := &tar.Header{Name: name, Mode: mode, Size: int64(len(data)), ModTime: b.time, Typeflag: tar.TypeReg, Format: tar.FormatPAX}
		if data == nil {
			h.Typeflag = tar.TypeDir
		}
		if err == nil {
			err = w.WriteHeader(h)
		}
		if err == nil {
			_, err = w.Write(data)
		}
	}
	add("etc/", 0o755, nil)
	add("etc/group", 0o644, []byte("nonroot:x:65532:\n"))
	add("etc/passwd", 0o644, []byte("nonroot:x:65532:65532::/:/sbin/nologin\n"))
	add("etc/ssl/", 0o755, nil)
	add("etc/ssl/certs/", 0o755, nil)
	add("etc/ssl/certs/ca-certificates.crt", 0o644, authorities())
	config := v1.Config{User: user, Entrypoint: []string{"/" + b.program()}, WorkingDir: "/", Labels: labels(b)}
	if b.program() != proxyName { // which is told by a controller what to serve, and has no folder of it
		add("etc/weir/", 0o755, nil)
		config.Cmd = []string{"run", "/etc/weir"}
	}
	add(b.program(), 0o755, binary)
	if err = cmp.Or(err, w.Close()); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(files.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	img, err := mutate.Append(mutate.MediaType(mutate.ConfigMediaType(empty.Image, types.OCIConfigJSON), types.OCIManifestSchema1),
		mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: b.time}, CreatedBy: b.program() + " " + tag(b)}})
	if err != nil {
		return nil, err
	}
	file, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Created, file.Config = b.os, b.arch, v1.Time{Time: b.time}, config
	if img, err = mutate.ConfigFile(img, file); err != nil {
		return nil, err
	}
	return mutate.Annotations(img, labels(b)).(v1.Image), nil
}

// authorities are Mozilla's roots in PEM form, but for those that are trusted under conditions only, which the form cannot express.
func authorities() []byte {
	var out []byte
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})...)
		}
	}
	return out
}

// tarOf packs a folder, in the order of names.
func tarOf(dir string, at time.Time) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		h := &tar.Header{Name: name, Mode: 0o644, ModTime: at, Typeflag: tar.TypeReg, Format: tar.FormatPAX}
		if d.IsDir() {
			h.Name, h.Mode, h.Typeflag = name+"/", 0o755, tar.TypeDir
			return w.WriteHeader(h)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		h.Size = int64(len(data))
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	})
	if err = cmp.Or(err, w.Close()); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
