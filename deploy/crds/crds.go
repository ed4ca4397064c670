// Package crds holds the custom resource definitions of the kinds that have no importable module. They are installed in
// a cluster, and their schemas validate files when there is none (see internal/resource).
package crds

import "embed"

// Files are the definitions, one each, named "group_plural.yaml".
//
//go:embed *.yaml
var Files embed.FS
