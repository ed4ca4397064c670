package socket

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestPollerReportsASocketOnce(t *testing.T) {
	p, err := NewPoller()
	if err != nil {
		t.Fatal(err)
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer Close(fds[0])
	watch := func() {
		t.Helper()
		if err := p.Watch(int32(fds[0])); err != nil {
			t.Fatal(err)
		}
	}
	reported := make(chan int32, 10)
	ended := make(chan error)
	wait := func() { ended <- p.Wait(func(fd int32) { reported <- fd }) }
	expect := func(what string) {
		t.Helper()
		if fd := <-reported; fd != int32(fds[0]) || len(reported) > 0 {
			t.Errorf("%s: %d was reported, want %d once", what, fd, fds[0])
		}
	}

	go wait()
	watch()
	Write(uintptr(fds[1]), []byte("a"))
	expect("bytes came")
	Write(uintptr(fds[1]), []byte("b")) // not reported: nobody watches
	watch()
	expect("bytes were there before")

	p.WakeAt(LongAgo)
	if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("woken: %v", err)
	}
	watch()
	p.Look(func(fd int32) { reported <- fd })
	expect("a look")
	Read(uintptr(fds[0]), make([]byte, 10))
	watch()
	p.Look(func(fd int32) { t.Error("reported, though it has nothing to read") })

	p.WakeAt(time.Time{})
	go wait()
	Close(fds[1])
	expect("the other side has ended")
	p.Close()
	if err := <-ended; err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("closed: %v", err)
	}
}
