package process

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// PortHolder names the process that listens on a TCP port, as far as this one may see it: "nginx (process 12)"; empty if it is not known.
func PortHolder(port int32) string {
	sockets := map[string]bool{}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		listening(table, port, sockets)
	}
	if len(sockets) == 0 {
		return ""
	}
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*") // the pattern is valid
	for _, link := range links {
		to, err := os.Readlink(link)
		if err != nil || !sockets[to] {
			continue
		}
		process := strings.Split(link, "/")[2]
		name, err := os.ReadFile("/proc/" + process + "/comm")
		if err != nil {
			continue
		}
		return fmt.Sprintf("%s (process %s)", strings.TrimSpace(strings.ToValidUTF8(string(name), "?")), process)
	}
	return ""
}

// listening adds the sockets of a table of the kernel's that listen on a port, as links of descriptors name them (proc(5)).
func listening(table string, port int32, sockets map[string]bool) {
	f, err := os.Open(table)
	if err != nil {
		return
	}
	defer f.Close()
	const local, state, inode, listen = 1, 3, 9, "0A"
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) <= inode || fields[state] != listen {
			continue
		}
		_, number, _ := strings.Cut(fields[local], ":")
		if n, err := strconv.ParseUint(number, 16, 16); err == nil && int32(n) == port {
			sockets["socket:["+fields[inode]+"]"] = true
		}
	}
}
