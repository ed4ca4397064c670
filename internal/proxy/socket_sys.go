//go:build unix && (!linux || race)

package proxy

import "syscall"

const canPoll = true

// readSocket reads what is there, without waiting; 0 and nil is the other side's end.
func readSocket(fd uintptr, p []byte) (int, error) {
	for {
		n, err := syscall.Read(int(fd), p)
		if err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}

// writeSocket writes what fits, without waiting.
func writeSocket(fd uintptr, p []byte) (int, error) {
	for {
		n, err := syscall.Write(int(fd), p)
		if err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}
