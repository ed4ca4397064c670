//go:build unix

package process

import (
	"math"
	"syscall"
)

// fileLimit is how many descriptors the process may have, 0 if any number. Go has raised the soft limit to the hard one.
func fileLimit() int {
	var r syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r) != nil || uint64(r.Cur) > math.MaxInt32 {
		return 0
	}
	return int(r.Cur)
}
