// Package control is the loop between the user's objects and the configuration that is served. It takes resource sets
// from a source, lets the dialects translate them, merges and validates the result, publishes it and reports statuses
// and findings.
//
// It reads no files and moves no bytes. The command line runs it with a folder as source and the proxy as publisher.
package control
