//go:build unix && (!linux || race)

package socket

import "syscall"

// CanPoll is true where Read and Write work.
const CanPoll = true

// Read reads what is there, without waiting. syscall.EAGAIN means that there is nothing; 0 and nil is the other side's
// end.
func Read(fd uintptr, p []byte) (int, error) {
	for {
		n, err := syscall.Read(int(fd), p)
		if err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}

// Write writes what fits, without waiting. syscall.EAGAIN means that nothing fits.
func Write(fd uintptr, p []byte) (int, error) {
	for {
		n, err := syscall.Write(int(fd), p)
		if err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}

func receive(fd uintptr, p []byte, flags int) (int, error) {
	for {
		n, _, err := syscall.Recvfrom(int(fd), p, flags)
		if err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}
