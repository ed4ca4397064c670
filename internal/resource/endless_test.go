package resource

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/weirmesh/weir/test/size"
)

// Whoever can write into a folder can put anything there that has a name. It must not keep others' changes back.
func TestEndlessEntriesOfAFolderHoldUpNoChange(t *testing.T) {
	for name, put := range map[string]func(t *testing.T, dir string){
		"a process":   func(t *testing.T, dir string) { symlink(t, "/proc/self", filepath.Join(dir, "x")) },
		"all of proc": func(t *testing.T, dir string) { symlink(t, "/proc", filepath.Join(dir, "x")) },
		"the disk":    func(t *testing.T, dir string) { symlink(t, "/", filepath.Join(dir, "x")) },
		"a process behind links": func(t *testing.T, dir string) {
			symlink(t, "/proc/self/root/proc/self", filepath.Join(dir, "y"))
			symlink(t, "y", filepath.Join(dir, "x"))
		},
		"a fifo": func(t *testing.T, dir string) {
			if err := syscall.Mkfifo(filepath.Join(dir, "x.yaml"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"a device":         func(t *testing.T, dir string) { symlink(t, "/dev/zero", filepath.Join(dir, "x.yaml")) },
		"a file of proc":   func(t *testing.T, dir string) { symlink(t, "/proc/self/status", filepath.Join(dir, "x.yaml")) },
		"a link to itself": func(t *testing.T, dir string) { symlink(t, "x.yaml", filepath.Join(dir, "x.yaml")) },
		"a socket": func(t *testing.T, dir string) {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "x.yaml")})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
		},
		"a deep folder": func(t *testing.T, dir string) {
			if err := os.MkdirAll(filepath.Join(dir, "x", strings.Repeat("d/", maxDepth+1)), 0o700); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "e") // a socket's path has to be short
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(dir) })
			write(t, dir, "a.yaml", route("a", "one.example"))
			write(t, dir, "z/z.yaml", route("z", "z.example"))
			next := follow(t, NewDir(everything, []string{dir}, nil))
			next("start", serves("a=one.example z=z.example"))
			put(t, dir)
			replace(t, dir, "a.yaml", route("a", "two.example"))
			set := next("changed beside it", func(s *Set) bool {
				return hosts(s) == "a=two.example z=z.example" && strings.Contains(found(s), CodeUnreadable)
			})
			if found(set) != CodeUnreadable || !strings.HasPrefix(set.Findings[0].Origin.File, filepath.Join(dir, "x")) {
				t.Errorf("findings %v", set.Findings)
			}
			replace(t, dir, "z/z.yaml", route("z", "three.example"))
			next("changed beside it again", serves("a=two.example z=three.example"))
		})
	}
}

func TestLinksInACircleAreFollowedOnce(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a/a.yaml", route("a", "a.example"))
	symlink(t, dir, filepath.Join(dir, "a/up"))
	symlink(t, filepath.Join(dir, "a"), filepath.Join(dir, "again"))
	if set := mustLoad(t, dir); hosts(set) != "a=a.example" || len(set.Findings) > 0 {
		t.Errorf("%s with %v", hosts(set), set.Findings)
	}
}

// The near files count if there are too many, and so do files behind other links.
func TestALinkToTooManyFilesIsLeftOutAsAWhole(t *testing.T) {
	dir, large := t.TempDir(), t.TempDir()
	write(t, dir, "z.yaml", route("z", "z.example"))
	write(t, large, "a.yaml", route("a", "a.example"))
	write(t, dir, "elsewhere/b.yaml", route("b", "b.example"))
	for i := range maxLinked {
		write(t, large, fmt.Sprintf("%d.txt", i), "")
	}
	symlink(t, large, filepath.Join(dir, "large"))
	symlink(t, filepath.Join(large, "a.yaml"), filepath.Join(dir, "other.yaml"))
	set := mustLoad(t, dir)
	if hosts(set) != "a=a.example b=b.example z=z.example" || found(set) != CodeUnreadable || !strings.Contains(set.Findings[0].Message, "10000") {
		t.Errorf("%s with %v", hosts(set), set.Findings)
	}
}

func TestManyLinksToLargeFoldersAreBoundedTogether(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", route("a", "a.example"))
	for i := range size.Of(200, 1000) {
		symlink(t, "/", filepath.Join(dir, fmt.Sprint("x", i)))
	}
	l := list([]string{dir})
	if l.linked > maxLinkedAll {
		t.Errorf("%d names looked at", l.linked)
	}
	set := mustLoad(t, dir)
	if hosts(set) != "a=a.example" || len(set.Findings) != maxFindings {
		t.Errorf("%s with %d findings", hosts(set), len(set.Findings))
	}
}

func TestWhatIsNoFileIsRefusedAsAPath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{path, "/dev/zero", "/proc"} {
		if _, err := Load(everything, []string{path}, nil); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func symlink(t *testing.T, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}
