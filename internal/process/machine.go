package process

import (
	"bytes"
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
)

// Machine is the process's limits.
type Machine struct {
	Memory int64 // bytes
	Files  int   // descriptors; 0 if there is no bound, or if it is not known
}

// ThisMachine returns the process's limits. The memory is the smallest of the machine's, its control group's and
// GOMEMLIMIT.
func ThisMachine() Machine {
	m := Machine{Memory: debug.SetMemoryLimit(-1), Files: fileLimit()}
	if total, ok := memoryTotal("/proc/meminfo"); ok {
		m.Memory = min(m.Memory, total)
	}
	m.Memory = min(m.Memory, GroupMemory())
	return m
}

// GroupMemory is how much memory the control group may use, in bytes; math.MaxInt64 if there is no bound.
func GroupMemory() int64 {
	least := int64(math.MaxInt64)
	for _, file := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		if data, err := os.ReadFile(file); err == nil {
			if n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64); err == nil && n > 0 {
				least = min(least, n)
			}
		}
	}
	return least
}

// CollectWithin has the collector work harder before the control group's memory is used up, as the process would be killed
// then. A GOMEMLIMIT goes first.
func CollectWithin(group int64) {
	if debug.SetMemoryLimit(-1) == math.MaxInt64 && group < math.MaxInt64 {
		debug.SetMemoryLimit(group / 10 * 9) // the rest is for memory outside the heap
	}
}

// memoryTotal reads MemTotal, in kB, of a file like /proc/meminfo.
func memoryTotal(file string) (int64, bool) {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	for line := range bytes.Lines(data) {
		if f := strings.Fields(string(line)); len(f) == 3 && f[0] == "MemTotal:" {
			n, err := strconv.ParseInt(f[1], 10, 64)
			return n << 10, err == nil
		}
	}
	return 0, false
}
