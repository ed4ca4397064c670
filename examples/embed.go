// Package examples holds manifests to start from, each one run by a test, and gives those of the demo to the command
// line.
package examples

import "embed"

// Demo is the manifests that "weir demo" runs, in a folder for each of its forms.
//
//go:embed demo demo-rollout mesh
var Demo embed.FS
