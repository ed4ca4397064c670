package process

import "runtime/debug"

// Settle gives back memory that only the process's start needed: what the collector can free, and the pages of the program
// that have been read so far. Of these, the ones in use come back from the kernel's cache as they are touched; those that ran
// once, as the initialization of packages, do not. It is for a process whose start is over and that has little to do.
func Settle() error {
	debug.FreeOSMemory()
	return unmapProgram()
}
