package socket

import "syscall"

// WriteAll writes rest as far as it fits, without waiting, and takes what was written off its front. done is false if the rest must wait until there is
// room: the poller calls again. An error ends it: done is true then.
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
