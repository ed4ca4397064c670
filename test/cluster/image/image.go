// Package image makes container images of static programs, without a registry and without a daemon. For package node, which
// imports them, as nothing can be pulled there.
package image

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/google/go-containerregistry/pkg/compression"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Program is a Go program to be made an image of.
type Program struct {
	// Dir is a folder of the module that the program is in.
	Dir string
	// Package is its main package, as the go command takes it.
	Package string
	// Tags are the image's names.
	Tags []string
	// Also are main packages of which the image has the programs too, and Files what else it has, by path. The image's program is the first.
	Also  []string
	Files map[string][]byte
}

// Build the programs and write an image of each to dir; the files' names are returned.
func Build(ctx context.Context, dir string, programs ...Program) ([]string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	var written []string
	for _, p := range programs {
		file, err := p.build(ctx, dir)
		if err != nil {
			return nil, fmt.Errorf("image %s: %w", p.Tags[0], err)
		}
		written = append(written, file)
	}
	return written, nil
}

func (p Program) build(ctx context.Context, dir string) (string, error) {
	base := filepath.Base(p.Package)
	if base == "." {
		base = filepath.Base(p.Dir)
	}
	file := filepath.Join(dir, base+".tar")
	content := []entry{
		{tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777}, nil},
		{tar.Header{Name: "etc/", Typeflag: tar.TypeDir, Mode: 0o755}, nil},
		{tar.Header{Name: "etc/passwd", Typeflag: tar.TypeReg, Mode: 0o644}, []byte("root:x:0:0::/:/\nnonroot:x:65532:65532::/:/\n")},
	}
	for _, path := range slices.Sorted(maps.Keys(p.Files)) {
		content = append(content, entry{tar.Header{Name: path, Typeflag: tar.TypeReg, Mode: 0o644}, p.Files[path]})
	}
	for _, of := range append([]string{p.Package}, p.Also...) {
		name := base
		if of != p.Package {
			name = filepath.Base(of)
		}
		binary := filepath.Join(dir, name)
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", binary, of)
		cmd.Dir = p.Dir
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOOS=linux", "GOARCH="+runtime.GOARCH)
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("go build %s: %w: %s", of, err, bytes.TrimSpace(out))
		}
		program, err := os.ReadFile(binary)
		if err != nil {
			return "", err
		}
		content = append(content, entry{tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o755}, program})
	}
	return file, write(file, base, content, p.Tags)
}

// entry is a file of an image.
type entry struct {
	header tar.Header
	data   []byte
}

// write an image that holds the files and starts the one named base.
func write(file, base string, files []entry, tags []string) error {
	var content bytes.Buffer
	w := tar.NewWriter(&content)
	for _, f := range files {
		f.header.Size = int64(len(f.data))
		err := w.WriteHeader(&f.header)
		if _, writeErr := w.Write(f.data); err != nil || writeErr != nil {
			return errors.Join(err, writeErr)
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	// Who imports it would only undo a compression.
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content.Bytes())), nil },
		tarball.WithCompression(compression.None), tarball.WithMediaType(types.DockerUncompressedLayer))
	if err != nil {
		return err
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config = v1.Config{Entrypoint: []string{"/" + base}, Env: []string{"PATH=/"}}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return err
	}
	return save(file, image, tags)
}

// save an image under these names, whole or not at all.
func save(file string, image v1.Image, tags []string) error {
	named := map[name.Tag]v1.Image{}
	for _, t := range tags {
		tag, err := name.NewTag(t)
		if err != nil {
			return err
		}
		named[tag] = image
	}
	partial := file + ".partial"
	if err := tarball.MultiWriteToFile(partial, named); err != nil {
		return err
	}
	return os.Rename(partial, file)
}
