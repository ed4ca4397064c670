//go:build race

package faults_test

// raceEnabled: the race detector keeps several times the memory that the program does.
const raceEnabled = true
