// Package size says how much of a test is run.
package size

import "testing"

// Of is short in runs of "go test -short" and full in all others.
func Of(short, full int) int {
	if testing.Short() {
		return short
	}
	return full
}
