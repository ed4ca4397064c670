package peertest

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"
)

// Memory returns what is resident of a process, in bytes, and what of that is its own. Linux only (proc_pid_status(5)).
func Memory(t testing.TB, pid int) (resident, private int) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	field := func(name string) int {
		m := regexp.MustCompile(`(?m)^` + name + `:\s+(\d+) kB$`).FindSubmatch(status)
		if m == nil {
			t.Fatalf("no %s in\n%s", name, status)
		}
		n, _ := strconv.Atoi(string(m[1]))
		return n << 10
	}
	return field("VmRSS"), field("RssAnon")
}
