//go:build linux && !race

package memory_test

const raceEnabled = false
