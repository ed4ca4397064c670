// Package resource holds the objects a user wrote and what Weir says about them: the Set that was read, the findings of
// decoding and validation, and the statuses and events to report. Dir reads and watches YAML and JSON on disk and
// gives the answers an API server would give, without one: the CRDs' schemas and CEL rules (package rules) run offline.
//
// It does not judge what objects mean together (see the dialects) and serves nothing. Its users are the dialects,
// control, the command line and, in a cluster, kube.
package resource

//go:generate go run crds/generate.go
