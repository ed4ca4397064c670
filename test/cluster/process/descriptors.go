package process

import (
	"math"

	"golang.org/x/sys/unix"
)

// KeepDescriptors keeps the descriptors that this process inherited from its caller, but for standard input, output and error,
// from the programs it starts: one that outlives this process would hold the caller's pipes and locks open. Where the system cannot
// (Linux before 5.11) they are passed on.
func KeepDescriptors() {
	_ = unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
}
