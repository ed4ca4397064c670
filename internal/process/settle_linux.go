package process

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// span is a range of addresses.
type span struct{ first, end uintptr }

// unmapProgram has the kernel take the program's constant pages out of the process, and leave them in its cache.
func unmapProgram() error {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return err // a kernel may be without
	}
	defer f.Close()
	all, err := constant(f, program)
	if err != nil {
		return fmt.Errorf("/proc/self/smaps: %w", err)
	}
	for _, s := range all {
		if _, _, e := syscall.Syscall(syscall.SYS_MADVISE, s.first, s.end-s.first, syscall.MADV_DONTNEED); e != 0 {
			return fmt.Errorf("madvise: %w", e)
		}
	}
	return nil
}

// constant reads from a file like /proc/self/smaps (proc_pid_smaps(5)) where a program's file is mapped so that nobody may
// write, and nobody has: pages that a loader or a debugger changed are the process's own, and in no file to come back from.
func constant(smaps io.Reader, program string) (out []span, err error) {
	var at span
	constant, clean := false, 0
	for lines := bufio.NewScanner(smaps); ; {
		if !lines.Scan() {
			return out, lines.Err()
		}
		f := strings.Fields(lines.Text())
		switch {
		case len(f) < 3:
		case strings.HasSuffix(f[0], ":"):
			if constant && (f[0] == "Anonymous:" || f[0] == "Swap:") && f[1] == "0" {
				if clean++; clean == 2 {
					out = append(out, at)
				}
			}
		default:
			first, end, _ := strings.Cut(f[0], "-")
			var low, high uint64
			if low, err = strconv.ParseUint(first, 16, 64); err == nil {
				high, err = strconv.ParseUint(end, 16, 64)
			}
			if err != nil {
				return nil, err
			}
			at, clean = span{uintptr(low), uintptr(high)}, 0
			constant = len(f) == 6 && f[5] == program && len(f[1]) == 4 && f[1][0] == 'r' && f[1][1] == '-' && f[1][3] == 'p'
		}
	}
}
