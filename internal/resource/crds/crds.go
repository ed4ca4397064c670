// Package crds holds the custom resource definitions of Gateway API, experimental channel, without descriptions: their schemas validate
// files, and generate.go copies them.
package crds

import "embed"

// Files are the definitions, one each, named "plural.yaml".
//
//go:embed *.yaml
var Files embed.FS
