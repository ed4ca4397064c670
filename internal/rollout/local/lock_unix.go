//go:build unix

package local

import (
	"errors"
	"os"
	"syscall"
)

// lockFile locks a file as long as it is open; false if another process has it.
func lockFile(f *os.File) (bool, error) {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
