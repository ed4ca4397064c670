// Package process runs programs that must not outlive the one that started them, keeps ports for them and waits for what they do.
// Linux only.
package process

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// Process is a program that was started.
type Process struct {
	name string
	log  string
	cmd  *exec.Cmd
	done chan struct{}
	err  error // of the exit; to be read when done is closed
}

// Roomy is an environment for programs written in Go that live no longer than a test, and that would collect garbage for a third of their
// time: they take more memory instead.
var Roomy = []string{"GOGC=400", "GOMEMLIMIT=1GiB"}

// Start starts a program, its output going to the file log. It is killed when this process ends, however that happens,
// and it is in a group of its own, so that an interrupt typed at the terminal does not reach it.
func Start(log, program string, args ...string) (*Process, error) {
	return StartIn(nil, log, program, args...)
}

// StartIn is Start with more in the environment than this process has.
func StartIn(environment []string, log, program string, args ...string) (*Process, error) {
	output, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer output.Close()
	KeepDescriptors()
	p := &Process{name: filepath.Base(program), log: log, cmd: exec.Command(program, args...), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), environment...)
	p.cmd.Stdout, p.cmd.Stderr = output, output
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}

	started := make(chan error, 1)
	go func() {
		defer close(p.done)
		// The kernel sends the signal when the thread ends that started the program (prctl(2), PR_SET_PDEATHSIG): keep it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.err = p.cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	return p, nil
}

// Pid of the program.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed when the program has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Stop asks the program to end, kills it and what is left of its group after the grace period, and returns when it has ended.
func (p *Process) Stop(grace time.Duration) {
	// An error means that it has ended already.
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	patience := time.NewTimer(grace)
	defer patience.Stop()
	select {
	case <-p.done:
		return
	case <-patience.C:
	}
	_ = syscall.Kill(-p.Pid(), syscall.SIGKILL)
	<-p.done
}

// Failure tells how the program ended, with the end of its log. It waits for that end.
func (p *Process) Failure() error {
	<-p.done
	how := "ended without error"
	if p.err != nil {
		how = p.err.Error()
	}
	return fmt.Errorf("%s: %s; its log ends:\n%s", p.name, how, p.Tail())
}

// Tail is the end of the log.
func (p *Process) Tail() []byte {
	const size = 4 << 10
	text, err := os.ReadFile(p.log)
	if err != nil {
		return []byte(err.Error())
	}
	if len(text) > size {
		text = text[len(text)-size:]
		if i := bytes.IndexByte(text, '\n'); i >= 0 {
			text = text[i+1:]
		}
	}
	return text
}
