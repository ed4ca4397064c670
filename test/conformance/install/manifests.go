package install

import (
	"os"
	"path/filepath"
)

// Manifests of the tree that top is the folder of, for an installation without Helm and kustomize; they name the images of the tree.
func Manifests(top string) (string, error) {
	text, err := os.ReadFile(filepath.Join(top, "deploy/manifests/install-mesh.yaml"))
	return string(text), err
}
