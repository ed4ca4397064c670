//go:build unix

package socket

import (
	"bytes"
	"syscall"
	"testing"
)

// pair returns two connected sockets, non-blocking; the test must close the second.
func pair(t *testing.T) (a, b uintptr) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fds[0]) })
	for _, fd := range fds {
		if err := syscall.SetNonblock(fd, true); err != nil {
			t.Fatal(err)
		}
	}
	return uintptr(fds[0]), uintptr(fds[1])
}

func TestSocketsAreReadAndWrittenWithoutWaiting(t *testing.T) {
	a, b := pair(t)
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
	syscall.Close(int(b))
	for got := 0; ; got += n {
		if n, err = Read(a, buf); n == 0 {
			expect("the end", got, err, sent, nil)
			break
		}
	}
	n, err = Write(a, buf)
	expect("nobody reads", n, err, 0, syscall.EPIPE)
}

func TestAllIsWrittenInAsManyStepsAsItTakes(t *testing.T) {
	a, b := pair(t)
	sent := make([]byte, 4<<20)
	for i := range sent {
		sent[i] = byte(i >> 8)
	}
	rest := sent
	var got []byte
	buf := make([]byte, 64<<10)
	steps := 0
	for done := false; !done; steps++ {
		before := len(rest)
		var err error
		if done, err = WriteAll(a, &rest); err != nil || !done && len(rest) == before {
			t.Fatalf("step %d: %d of %d bytes are left, %v", steps, len(rest), before, err)
		}
		for {
			n, err := Read(b, buf)
			if err == syscall.EAGAIN {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, buf[:n]...)
		}
	}
	if len(rest) > 0 || steps < 2 || !bytes.Equal(got, sent) {
		t.Errorf("after %d steps %d bytes are left; %d came", steps, len(rest), len(got))
	}
	if done, err := WriteAll(a, &rest); !done || err != nil {
		t.Errorf("nothing to write: %v, %v", done, err)
	}
	syscall.Close(int(b))
	rest = sent
	if done, err := WriteAll(a, &rest); !done || err != syscall.EPIPE || len(rest) != len(sent) {
		t.Errorf("nobody reads: %v, %v, %d bytes are left", done, err, len(rest))
	}
}
