package resource

import (
	"os"
	"syscall"
)

// The numbers of file systems whose content the kernel makes up, from statfs(2).
var kernels = map[uint32]bool{
	0x9fa0:     true, // proc
	0x62656572: true, // sysfs
	0x27e0eb:   true, // cgroup
	0x63677270: true, // cgroup2
	0x64626720: true, // debugfs
	0x74726163: true, // tracefs
	0x73636673: true, // securityfs
	0x1cd1:     true, // devpts
	0xcafe4a11: true, // bpf
}

// virtual reports whether an open file or folder is in a file system whose content the kernel makes up: its folders may
// have no end, and reading its files may wait or have effects.
func virtual(f *os.File) bool {
	conn, err := f.SyscallConn()
	if err != nil {
		return false
	}
	var s syscall.Statfs_t
	var failed error
	if err := conn.Control(func(fd uintptr) { failed = syscall.Fstatfs(int(fd), &s) }); err != nil || failed != nil {
		return false
	}
	return kernels[uint32(s.Type)]
}
