// Package cli is the command line: it reads flags, wires the other packages together and prints their results. Nothing
// else lives here; cmd/weir calls Main.
package cli

//go:generate go run ./gendocs ../../docs
