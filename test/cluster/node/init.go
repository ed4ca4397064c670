package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// The commands by which a process starts itself again.
const (
	initCommand     = "node-init"     // the first process of the namespaces
	bootCommand     = "node-boot"     // its child, which starts everything else
	balancerCommand = "node-balancer" // one of those
)

// restartSignal asks the process of bootCommand for another API server.
const restartSignal = syscall.SIGHUP

// awayFile says how long there is to be none in between.
const awayFile = "away"

// Main does not return in a process that Start has started; in others it does nothing.
func Main() {
	if len(os.Args) != 3 {
		return
	}
	dir := os.Args[2]
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	var err error
	switch os.Args[1] {
	case initCommand:
		stop()
		err = reap(dir)
	case bootCommand:
		err = boot(ctx, dir)
	case balancerCommand:
		err = balance(ctx, dir)
	default:
		stop()
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// startThread starts cmd and waits for it on a thread of its own: the kernel sends the signal of Pdeathsig when the thread
// ends that started a process, not when the process does (prctl(2)).
func startThread(cmd *exec.Cmd, started, ended chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := cmd.Start()
	started <- err
	if err == nil {
		if err = cmd.Wait(); err == nil {
			err = errors.New("without error")
		}
		ended <- err
	}
}

// reap is what the first process of a process namespace has to do: it waits for every process that lost its parent. It ends
// with the one that it starts.
func reap(dir string) error {
	if err := mounts(); err != nil {
		return fmt.Errorf("mounts: %w", err)
	}
	child, err := os.StartProcess("/proc/self/exe", []string{os.Args[0], bootCommand, dir}, &os.ProcAttr{
		Env: os.Environ(), Files: []*os.File{nil, os.Stdout, os.Stderr},
	})
	if err != nil {
		return err
	}
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return err
		case pid == child.Pid:
			if status.ExitStatus() != 0 {
				return fmt.Errorf("the node ended with status %d", status.ExitStatus())
			}
			return nil
		}
	}
}

// mounts gives the namespace a /proc of its own and hides the folders in which the programs of a node would meet those of
// the machine or of another node.
func mounts() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return err
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("/proc: %w", err)
	}
	for _, dir := range []string{"/run/netns", "/run/containerd", "/run/lock", "/var/log/pods", "/var/log/containers"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
	}
	// What kubelet mounts has to reach the containers.
	return unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "")
}
