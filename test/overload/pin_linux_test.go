package overload

import (
	"os"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// apart gives the process a processor that the load and the backend, which are this process, do not use: else it is not known what it cannot keep
// up with.
func apart(t *testing.T, pid int) {
	t.Helper()
	if runtime.NumCPU() < 2 {
		t.Skip("it takes two processors")
	}
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	for cpu := range 1024 {
		if all.IsSet(cpu) {
			one.Set(cpu)
			all.Clear(cpu)
			break
		}
	}
	pin(t, pid, &one)
	pin(t, os.Getpid(), &all)
}

// pin keeps the threads of a process, and those that they start, to processors.
func pin(t *testing.T, pid int, to *unix.CPUSet) {
	t.Helper()
	threads, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		id, err := strconv.Atoi(thread.Name())
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.SchedSetaffinity(id, to); err != nil && err != unix.ESRCH {
			t.Fatal(err)
		}
	}
}
