// Package freeport finds ports for programs that must be told theirs beforehand.
package freeport

import (
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// Take is a port that nobody listens on, at any address of this machine, and that no other caller gets, of this process or another, until this
// process ends. It lies below the range from which systems give out ports, so that no connection gets it by chance.
func Take() (int, error) {
	dir := filepath.Join(os.TempDir(), "weir-ports-"+strconv.Itoa(os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return 0, err
	}
	for range 1000 {
		port := 12000 + rand.IntN(18000)
		number := strconv.Itoa(port)
		if taken, err := take(filepath.Join(dir, number)); err != nil {
			return 0, err
		} else if !taken {
			continue
		}
		if l, err := net.Listen("tcp", net.JoinHostPort("", number)); err == nil {
			return port, l.Close()
		}
	}
	return 0, errors.New("no free port")
}

// take locks a file, for as long as this process lives.
func take(path string) (bool, error) {
	fd, err := syscall.Open(path, syscall.O_CREAT|syscall.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return false, err
	}
	switch err := syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB); err {
	case nil:
		return true, nil
	case syscall.EWOULDBLOCK:
		return false, syscall.Close(fd)
	default:
		return false, errors.Join(err, syscall.Close(fd))
	}
}
