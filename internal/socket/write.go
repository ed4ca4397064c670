package socket

import "syscall"

// WriteAll writes as much of rest as fits, without waiting, and removes it from rest. done is false if the remainder
// must wait until there is room: the poller calls again. With an error done is true.
func WriteAll(fd uintptr, rest *[]byte) (done bool, err error) {
	for len(*rest) > 0 {
		n, err := Write(fd, *rest)
		if err == syscall.EAGAIN {
			return false, nil
		}
		if err != nil {
			return true, err
		}
		*rest = (*rest)[n:]
	}
	return true, nil
}
