package install

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Manifests of the tree that top is the folder of, for an installation without Helm, but with the image of the tree.
func Manifests(top string) (string, error) {
	files, err := filepath.Glob(filepath.Join(top, "deploy/manifests/*.yaml"))
	if err != nil || len(files) == 0 {
		return "", fmt.Errorf("no manifests in %s: %w", filepath.Join(top, "deploy/manifests"), err)
	}
	var all strings.Builder
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return "", err
		}
		all.WriteString("---\n")
		all.Write(text)
	}
	return all.String(), nil
}
