package image

import (
	"archive/tar"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// pack a layout as releases are: a tar of an index in an index, with an image for each architecture.
func pack(t *testing.T, architectures ...string) string {
	t.Helper()
	var index v1.ImageIndex = empty.Index
	for _, a := range architectures {
		image, err := mutate.Config(empty.Image, v1.Config{Labels: map[string]string{"architecture": a}})
		if err != nil {
			t.Fatal(err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: a}}})
	}
	dir := t.TempDir()
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := path.AppendIndex(index); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "layout.tar")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := tar.NewWriter(f)
	if err := w.AddFS(os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestAReleasedImageGetsOtherNames(t *testing.T) {
	file := filepath.Join(t.TempDir(), "image.tar")
	if err := Rename(file, pack(t, "other", runtime.GOARCH), "weir:dev", "weir:1"); err != nil {
		t.Fatal(err)
	}
	manifest, err := tarball.LoadManifest(func() (io.ReadCloser, error) { return os.Open(file) })
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range manifest {
		names = append(names, d.RepoTags...)
	}
	if slices.Sort(names); !slices.Equal(names, []string{"weir:1", "weir:dev"}) {
		t.Errorf("names %q", names)
	}
	image, err := tarball.ImageFromPath(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	if config, err := image.ConfigFile(); err != nil || config.Config.Labels["architecture"] != runtime.GOARCH {
		t.Errorf("the image is not that of this machine: %+v, %v", config, err)
	}
}

func TestAnImageForAnotherMachineIsRefused(t *testing.T) {
	if err := Rename(filepath.Join(t.TempDir(), "image.tar"), pack(t, "other"), "weir:dev"); err == nil {
		t.Error("no error")
	}
}
