//go:build linux && race

package memory_test

// raceEnabled: the race detector needs memory of its own, which says nothing of Weir.
const raceEnabled = true
