//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of the kernel's accounts: USER_HZ is 100 on all of Linux's architectures.
const tick = 10 * time.Millisecond

// disturbance is what took processors away during a measurement, as shares of their time.
type disturbance struct {
	// Stolen is the hypervisor's part, of that processor from which it took most.
	Stolen float64
	// Others is the part of processes that are not of the harness, of all processors together.
	Others float64
}

// account is what had been taken when it was read.
type account struct {
	root   string // of proc
	at     time.Time
	stolen map[string]time.Duration // by processor
	others time.Duration
}

// readAccount reads the accounts of the system. self is the process that counts, with all that it started, as the harness.
func readAccount(proc string, self int) (a account, err error) {
	a = account{root: proc, at: time.Now()}
	if a.stolen, err = stolen(proc); err != nil {
		return a, err
	}
	a.others, err = others(proc, self)
	return a, err
}

// since is the disturbance between two accounts.
func (a account) since(before account) disturbance {
	var d disturbance
	wall := a.at.Sub(before.at).Seconds()
	for cpu, s := range a.stolen {
		d.Stolen = max(d.Stolen, (s-before.stolen[cpu]).Seconds()/wall)
	}
	// Of a process that ended, and whose parent does not count it, the time is lost: no less than nothing.
	d.Others = max(0, (a.others-before.others).Seconds()/wall/float64(len(a.stolen)))
	return d
}

// stolen is the time for which the hypervisor ran something else although a processor had work (field steal of proc_stat(5)).
func stolen(proc string) (map[string]time.Duration, error) {
	name := filepath.Join(proc, "stat")
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	all := map[string]time.Duration{}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 9 || !strings.HasPrefix(f[0], "cpu") || f[0] == "cpu" {
			continue
		}
		n, err := strconv.ParseInt(f[8], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all[f[0]] = time.Duration(n) * tick
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s names no processor", name)
	}
	return all, nil
}

// processTime is one line of proc_pid_stat(5).
type processTime struct {
	parent int
	used   time.Duration // with that of its children that have ended
}

// others is the processor time of all processes, the kernel's too, that are not self nor descend from it. As a process that has ended is in its
// parent's account, two of these sums also tell of those that began and ended between them.
func others(proc string, self int) (time.Duration, error) {
	names, err := filepath.Glob(filepath.Join(proc, "[0-9]*", "stat"))
	if err != nil {
		return 0, err
	}
	all := map[int]processTime{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		p, err := parseProcess(text)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		all[pid] = p
	}
	var total time.Duration
	for pid, p := range all {
		if !descends(all, pid, self) {
			total += p.used
		}
	}
	return total, nil
}

// parseProcess reads the fields behind the name, which may hold anything.
func parseProcess(text []byte) (p processTime, err error) {
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // from field 3, the state
	if len(fields) < 15 {
		return p, fmt.Errorf("%q", text)
	}
	var errs []error
	number := func(field string) int64 {
		n, err := strconv.ParseInt(field, 10, 64)
		errs = append(errs, err)
		return n
	}
	p.parent = int(number(fields[1]))
	for _, f := range fields[11:15] { // utime, stime, cutime, cstime
		p.used += time.Duration(number(f)) * tick
	}
	return p, errors.Join(errs...)
}

func descends(all map[int]processTime, pid, from int) bool {
	for range len(all) { // the processes were not read at one moment: there may be a circle
		if pid == from {
			return true
		}
		p, ok := all[pid]
		if !ok {
			return false
		}
		pid = p.parent
	}
	return false
}
