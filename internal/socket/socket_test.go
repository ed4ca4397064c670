//go:build unix

package socket

import (
	"syscall"
	"testing"
)

func TestSocketsAreReadAndWrittenWithoutWaiting(t *testing.T) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	a, b := uintptr(fds[0]), uintptr(fds[1])
	defer syscall.Close(fds[0])
	for _, fd := range fds {
		if err := syscall.SetNonblock(fd, true); err != nil {
			t.Fatal(err)
		}
	}
	buf := make([]byte, 64<<10)
	expect := func(what string, n int, err error, wantN int, want error) {
		t.Helper()
		if n != wantN || err != want {
			t.Errorf("%s: %d, %v, want %d, %v", what, n, err, wantN, want)
		}
	}
	n, err := Read(a, buf)
	expect("nothing to read", n, err, 0, syscall.EAGAIN)
	n, err = Write(b, []byte("hello"))
	expect("room to write", n, err, 5, nil)
	n, err = Read(a, buf)
	expect("something to read", n, err, 5, nil)
	if string(buf[:n]) != "hello" {
		t.Errorf("read %q", buf[:n])
	}
	sent := 0
	for err = nil; err == nil; {
		if n, err = Write(b, buf); err == nil && n == 0 || n < 0 {
			t.Fatal("a write of nothing")
		}
		sent += n
	}
	expect("no room", 0, err, 0, syscall.EAGAIN)
	syscall.Close(fds[1])
	for got := 0; ; got += n {
		if n, err = Read(a, buf); n == 0 {
			expect("the end", got, err, sent, nil)
			break
		}
	}
	n, err = Write(a, buf)
	expect("nobody reads", n, err, 0, syscall.EPIPE)
}
