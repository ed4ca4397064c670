//go:build !unix

package socket

import "syscall"

// CanPoll is false: Read and Write would need the system's own calls.
const CanPoll = false

func Read(fd uintptr, p []byte) (int, error) { return 0, syscall.EINVAL }

func Write(fd uintptr, p []byte) (int, error) { return 0, syscall.EINVAL }
