// Package examples holds manifests to start from, each one run by a test, and gives those of the demo to the command
// line.
package examples

import "embed"

// Demo is the manifests that "weir demo" runs, in the folder "demo".
//
//go:embed demo demo-rollout
var Demo embed.FS
