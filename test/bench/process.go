//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// process is one that was started here, with its children.
type process struct {
	name string
	cmd  *exec.Cmd
	log  *os.File
	done chan struct{}
}

// start runs a command pinned to a processor, in a process group of its own. Its output goes to a file, except that
// stdout may be given.
func (b *bench) start(name string, cpu int, stdout *os.File, command ...string) (*process, error) {
	log, err := os.CreateTemp(b.dir, name+"-*.log")
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("taskset", append([]string{"-c", b.processorsOf(cpu)}, command...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = b.dir, log, log
	if stdout != nil {
		cmd.Stdout = stdout
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		log.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	p := &process{name: name, cmd: cmd, log: log, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(p.done)
	}()
	b.mu.Lock()
	b.processes = append(b.processes, p)
	b.mu.Unlock()
	return p, nil
}

// processorsOf is where a process may run whose place is cpu.
func (b *bench) processorsOf(cpu int) string {
	if b.shared {
		return fmt.Sprintf("%d,%d", b.loadCPU, b.proxyCPU)
	}
	return strconv.Itoa(cpu)
}

// stop ends the process and its children, and waits for it.
func (p *process) stop() {
	group := -p.cmd.Process.Pid
	_ = syscall.Kill(group, syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(3 * time.Second):
	}
	_ = syscall.Kill(group, syscall.SIGKILL) // also what outlived its parent
	<-p.done
	p.log.Close()
}

// output is the end of what the process wrote.
func (p *process) output() string {
	text, _ := os.ReadFile(p.log.Name())
	if n := len(text); n > 2000 {
		text = text[n-2000:]
	}
	return strings.TrimSpace(string(text))
}

// ended reports whether the process is gone.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// cpu is the processor time, user and system, that the process and its children have used.
func (p *process) cpu() (time.Duration, error) {
	used, _, err := p.times()
	return used, err
}

// times also is how long their threads were ready to run and had no processor, 0 where the system does not tell.
func (p *process) times() (used, waited time.Duration, err error) {
	pids, err := family(p.cmd.Process.Pid)
	if err != nil {
		return 0, 0, err
	}
	for _, pid := range pids {
		u, w, err := cpuOf(pid)
		if err != nil {
			return 0, 0, fmt.Errorf("processor time of %s: %w", p.name, err)
		}
		used, waited = used+u, waited+w
	}
	return used, waited, nil
}

// memory is the proportional set size of the process and its children, in bytes.
func (p *process) memory() (total int, err error) {
	pids, err := family(p.cmd.Process.Pid)
	if err != nil {
		return 0, err
	}
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			return 0, fmt.Errorf("memory of %s: %w", p.name, err)
		}
		_, after, _ := strings.Cut(string(text), "\nPss:")
		number, _, _ := strings.Cut(strings.TrimSpace(after), " ")
		kib, err := strconv.Atoi(number)
		if err != nil {
			return 0, fmt.Errorf("memory of %s: %w", p.name, err)
		}
		total += kib << 10
	}
	return total, nil
}

// family is a process and its children.
func family(pid int) ([]int, error) {
	pids := []int{pid}
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return nil, err
	}
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			continue // a thread that ended
		}
		for _, f := range strings.Fields(string(text)) {
			child, err := strconv.Atoi(f)
			if err != nil {
				return nil, err
			}
			pids = append(pids, child)
		}
	}
	return pids, nil
}

// cpuOf is the processor time of one process, and how long its threads waited for it: the scheduler's account of its threads in nanoseconds
// (schedstat), or the coarser one of proc_pid_stat(5) where that is missing.
func cpuOf(pid int) (used, waited time.Duration, err error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return 0, 0, err
	}
	if len(threads) == 0 {
		used, err = statCPU(pid)
		return used, 0, err
	}
	for _, name := range threads {
		text, err := os.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // the thread has ended
		}
		if err != nil {
			return 0, 0, err
		}
		var u, w time.Duration
		if _, err := fmt.Sscan(string(text), (*int64)(&u), (*int64)(&w)); err != nil {
			return 0, 0, fmt.Errorf("%s: %w", name, err)
		}
		used, waited = used+u, waited+w
	}
	return used, waited, nil
}

func statCPU(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // from field 3, the state
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat: %q", pid, text)
	}
	user, err1 := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond, errors.Join(err1, err2) // USER_HZ is 100
}

// pinSelf keeps the harness to some processors; what it starts inherits that.
func pinSelf(cpus ...int) error {
	var set unix.CPUSet
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	tasks, err := filepath.Glob("/proc/self/task/*")
	if err != nil {
		return err
	}
	for _, task := range tasks {
		tid, err := strconv.Atoi(filepath.Base(task))
		if err != nil {
			return err
		}
		if err := unix.SchedSetaffinity(tid, &set); err != nil && err != unix.ESRCH {
			return fmt.Errorf("sched_setaffinity: %w", err)
		}
	}
	return nil
}
