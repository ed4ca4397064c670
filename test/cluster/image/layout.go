package image

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// Rename writes the image for this machine's architecture, of those that a packed OCI layout holds, to file under other names.
func Rename(file, packed string, tags ...string) error {
	dir, err := os.MkdirTemp("", "weir-layout-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := unpack(dir, packed); err != nil {
		return fmt.Errorf("%s: %w", packed, err)
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return fmt.Errorf("%s: %w", packed, err)
	}
	image, err := find(index)
	if err != nil {
		return fmt.Errorf("%s: %w", packed, err)
	}
	return save(file, image, tags)
}

// find the image of an index, or of one of the indexes in it.
func find(index v1.ImageIndex) (v1.Image, error) {
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	for _, m := range manifest.Manifests {
		switch {
		case m.MediaType.IsIndex():
			inner, err := index.ImageIndex(m.Digest)
			if err != nil {
				return nil, err
			}
			return find(inner)
		case m.MediaType.IsImage() && m.Platform != nil && m.Platform.OS == "linux" && m.Platform.Architecture == runtime.GOARCH:
			return index.Image(m.Digest)
		}
	}
	return nil, errors.New("no image for " + runtime.GOARCH)
}

func unpack(dir, packed string) error {
	f, err := os.Open(packed)
	if err != nil {
		return err
	}
	defer f.Close()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if h.Typeflag == tar.TypeDir {
			continue
		}
		if err := root.MkdirAll(filepath.Dir(h.Name), 0o755); err != nil {
			return err
		}
		out, err := root.Create(h.Name)
		if err != nil {
			return err
		}
		_, err = io.Copy(out, r)
		if err := errors.Join(err, out.Close()); err != nil {
			return err
		}
	}
}
