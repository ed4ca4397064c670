//go:build linux

package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// fakeProc writes a proc file system with what is read of it.
func fakeProc(t *testing.T, stat string, processes map[int]string) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(dir, "stat"), stat)
	for pid, text := range processes {
		write(filepath.Join(dir, fmt.Sprint(pid), "stat"), text)
	}
	return dir
}

// processLine is a line of proc_pid_stat(5).
func processLine(pid, parent, utime, stime, cutime, cstime int) string {
	return fmt.Sprintf("%d (a name) with ) in it) S %d 1 1 0 -1 4194560 1 1 1 1 %d %d %d %d 20 0 1 0 1 1 1\n", pid, parent, utime, stime, cutime, cstime)
}

func TestDisturbanceIsWhatTheHypervisorAndOtherProcessesTook(t *testing.T) {
	const self = 50
	read := func(stat string, processes map[int]string) account {
		t.Helper()
		a, err := readAccount(fakeProc(t, stat, processes), self)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	before := read("cpu 1 1 1 1 1 1 1 30 0 0\ncpu0 1 1 1 1 1 1 1 10 0 0\ncpu1 1 1 1 1 1 1 1 20 0 0\nintr 1\n", map[int]string{
		1:    processLine(1, 0, 100, 100, 1000, 1000),
		20:   processLine(20, 1, 5, 5, 0, 0),
		self: processLine(self, 1, 500, 500, 500, 500),
		51:   processLine(51, self, 100, 0, 0, 0),
		52:   processLine(52, 51, 100, 0, 0, 0),
	})
	after := read("cpu 1 1 1 1 1 1 1 91 0 0\ncpu0 1 1 1 1 1 1 1 11 0 0\ncpu1 1 1 1 1 1 1 1 80 0 0\nintr 1\n", map[int]string{
		1:    processLine(1, 0, 100, 101, 1013, 1000), // 20 ended with 3 more, which its parent got
		self: processLine(self, 1, 600, 600, 600, 600),
		51:   processLine(51, self, 900, 0, 0, 0),
		52:   processLine(52, 51, 900, 0, 0, 0),
		53:   processLine(53, 1, 16, 0, 0, 0),
	})
	after.at = before.at.Add(10 * time.Second)
	got := after.since(before)
	if near := func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }; !near(got.Stolen, 0.06) || !near(got.Others, 0.01) {
		t.Errorf("got %+v, want 6 %% of a processor stolen and 0.2 s of 20 s used by others", got)
	}
}

func TestAccountsThatCannotBeReadAreAnError(t *testing.T) {
	for name, dir := range map[string]string{
		"nothing":         t.TempDir(),
		"no processor":    fakeProc(t, "intr 1\n", nil),
		"no number":       fakeProc(t, "cpu0 1 1 1 1 1 1 1 x 0 0\n", nil),
		"a broken line":   fakeProc(t, "cpu0 1 1 1 1 1 1 1 1 0 0\n", map[int]string{1: "1 (x) S 1"}),
		"a broken number": fakeProc(t, "cpu0 1 1 1 1 1 1 1 1 0 0\n", map[int]string{1: processLine(1, 0, 1, 1, 1, 1)[:8] + " ) S x 1 1 0 -1 1 1 1 1 1 1 1 1 1\n"}),
	} {
		if a, err := readAccount(dir, 1); err == nil {
			t.Errorf("%s: no error, but %+v", name, a)
		}
	}
}

func TestAccountsOfThisMachineAreRead(t *testing.T) {
	a, err := readAccount("/proc", os.Getpid())
	if err != nil || len(a.stolen) == 0 || a.others == 0 {
		t.Errorf("got %+v, %v", a, err)
	}
}
