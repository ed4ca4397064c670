package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// parentVariable makes the test program one that starts another and waits to be killed.
const parentVariable = "WEIR_TEST_PARENT_LOG"

func TestMain(m *testing.M) {
	if log := os.Getenv(parentVariable); log != "" {
		p, err := Start(log, "sleep", "600")
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(p.Pid())
		<-p.Done()
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func logFile(t *testing.T) string { return filepath.Join(t.TempDir(), "log") }

func TestAProgramDiesWithTheOneThatStartedIt(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	parent := exec.Command(self)
	parent.Env = append(os.Environ(), parentVariable+"="+logFile(t))
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, readErr := bufio.NewReader(out).ReadString('\n')
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatalf("%q: %v, %v", line, err, readErr)
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := parent.Wait(); err == nil {
		t.Error("the parent ended by itself")
	}
	// A pidfd becomes readable when its process ends (pidfd_open(2)).
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(poll, int(time.Minute.Milliseconds()))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n != 1 || err != nil {
			t.Errorf("the program lives on: %d %v", n, err)
		}
		return
	}
}

func TestStopKillsAProgramThatIgnoresIt(t *testing.T) {
	ready := filepath.Join(t.TempDir(), "ready")
	if err := syscall.Mkfifo(ready, 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := Start(logFile(t), "sh", "-c", `trap "" TERM; echo > "$0"; while :; do sleep 600; done`, ready)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.ReadFile(ready); err != nil { // waits for the program
		t.Fatal(err)
	}
	p.Stop(0)
	select {
	case <-p.Done():
	default:
		t.Error("Stop returned before the program had ended")
	}
	if !strings.Contains(p.Failure().Error(), "killed") {
		t.Errorf("it ended in another way: %v", p.Failure())
	}
	// It was the leader of its group, and may have had a child in it, whose end the machine's first process has to take notice of.
	for end := time.Now().Add(time.Minute); !errors.Is(syscall.Kill(-p.Pid(), 0), syscall.ESRCH); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("something of its group is left")
		}
	}
}

func TestFailureShowsTheEndOfTheLog(t *testing.T) {
	p, err := Start(logFile(t), "sh", "-c", `i=0; while [ $i -lt 1000 ]; do echo line $i; i=$((i+1)); done; exit 7`)
	if err != nil {
		t.Fatal(err)
	}
	got := p.Failure().Error()
	if !strings.Contains(got, "sh: exit status 7") || !strings.HasSuffix(got, "line 998\nline 999\n") || strings.Contains(got, "line 1\n") {
		t.Errorf("got %s", got)
	}
}

func TestAProgramThatIsNotThereIsAnError(t *testing.T) {
	if _, err := Start(logFile(t), filepath.Join(t.TempDir(), "nothing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}

func TestAReservedPortIsOnlyForThoseWhoShareIt(t *testing.T) {
	port, err := ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	defer port.Release()
	if l, err := net.Listen("tcp", port.Address()); err == nil {
		l.Close()
		t.Error("another can listen on it")
	}
	sharing := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		controlErr := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
		return errors.Join(controlErr, err)
	}}
	l, err := sharing.Listen(context.Background(), "tcp", port.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	// Every connection goes to the one that listens.
	for range 10 {
		c, err := net.Dial("tcp", port.Address())
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
}

func TestAProgramHoldsNoDescriptorOfTheCaller(t *testing.T) {
	var pipe [2]int
	if err := unix.Pipe(pipe[:]); err != nil { // without O_CLOEXEC, as what a caller leaves open
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	p, err := Start(logFile(t), "sleep", "600")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop(0)
	if err := unix.Close(pipe[1]); err != nil {
		t.Fatal(err)
	}
	// The other end is closed as soon as the program has replaced this one's image.
	if err := unix.SetNonblock(pipe[0], true); err != nil {
		t.Fatal(err)
	}
	poll := []unix.PollFd{{Fd: int32(pipe[0]), Events: unix.POLLIN}}
	if n, err := unix.Poll(poll, 10_000); n != 1 || err != nil || poll[0].Revents&unix.POLLHUP == 0 {
		t.Errorf("the pipe is still held open: %d %v %#x", n, err, poll[0].Revents)
	}
}
