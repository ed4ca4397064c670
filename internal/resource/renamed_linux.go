package resource

import (
	"os"
	"syscall"
	"time"
)

// renamed reports whether a file that took the place of another one was written before it got its name: a rename changes its inode after its content. One
// that was made in place has both times the same while it is empty. False also if both happened within a tick of the file system's clock.
func renamed(info os.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && time.Unix(s.Ctim.Unix()).After(info.ModTime())
}
