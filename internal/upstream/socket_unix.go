//go:build unix && (!linux || race)

package upstream

import "syscall"

const canAsk = true

func readSocket(fd uintptr, p []byte) (int, error) {
	for {
		n, err := syscall.Read(int(fd), p)
		if err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}

func writeSocket(fd uintptr, p []byte) (int, error) {
	for {
		n, err := syscall.Write(int(fd), p)
		if err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}
