package resource

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// heldFolder is a folder that is read by a clock of the test's.
type heldFolder struct {
	t    *testing.T
	dir  string
	r    *reader
	now  time.Time
	last *Set
}

func newHeldFolder(t *testing.T) *heldFolder {
	f := &heldFolder{t: t, dir: t.TempDir(), now: time.Now()}
	f.r = newReader(everything, []string{f.dir})
	f.r.clock = func() time.Time { return f.now }
	return f
}

// after lets time pass, reads, and returns what is served.
func (f *heldFolder) after(d time.Duration) string {
	f.now = f.now.Add(d)
	l := list([]string{f.dir})
	f.r.read(l)
	f.last = f.r.set(l)
	return hosts(f.last)
}

func (f *heldFolder) write(name, content string) {
	f.t.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, name), []byte(content), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

func (f *heldFolder) expect(when string, d time.Duration, want string) {
	f.t.Helper()
	if got := f.after(d); got != want {
		f.t.Errorf("%s: %q is served, want %q", when, got, want)
	}
}

const both = "a=a.example b=b.example"

func twoRoutes() string { return route("a", "a.example") + "---\n" + route("b", "b.example") }

func TestAFileThatIsEmptiedForAMomentLosesNothing(t *testing.T) {
	f := newHeldFolder(t)
	f.write("x.yaml", twoRoutes())
	f.expect("start", 0, both)
	f.write("x.yaml", "")
	f.expect("emptied", 0, both)
	f.expect("a moment later", holdEmpty-1, both)
	if len(f.last.Findings) > 0 {
		t.Errorf("told of: %v", f.last.Findings)
	}
	f.write("x.yaml", route("a", "a.example"))
	f.expect("half is written", 0, both)
	f.expect("still half", holdShorter-1, both)
	f.write("x.yaml", twoRoutes()+"---\n"+route("c", "c.example"))
	f.expect("all is written", 0, both+" c=c.example")
}

func TestWhatIsReallyGoneIsHonoured(t *testing.T) {
	for name, tt := range map[string]struct {
		lose func(f *heldFolder)
		hold time.Duration
		want string
	}{
		"emptied":      {func(f *heldFolder) { f.write("x.yaml", "") }, holdEmpty, ""},
		"only remarks": {func(f *heldFolder) { f.write("x.yaml", "# nothing\n") }, holdEmpty, ""},
		"shortened":    {func(f *heldFolder) { f.write("x.yaml", route("a", "a.example")) }, holdShorter, "a=a.example"},
		"cut":          {func(f *heldFolder) { f.write("x.yaml", twoRoutes()[:len(route("a", "a.example"))]) }, holdShorter, "a=a.example"},
		"removed":      {func(f *heldFolder) { os.Remove(filepath.Join(f.dir, "x.yaml")) }, holdEmpty, ""},
		"made anew and empty": {func(f *heldFolder) {
			os.Remove(filepath.Join(f.dir, "x.yaml"))
			f.write("x.yaml", "")
		}, holdEmpty, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newHeldFolder(t)
			f.write("x.yaml", twoRoutes())
			f.expect("start", 0, both)
			tt.lose(f)
			f.expect("at once", 0, both)
			if f.r.confirmed() == nil {
				t.Error("nobody looks again")
			}
			f.expect("just before", tt.hold-1, both)
			f.expect("then", 1, tt.want)
			if f.r.confirmed() != nil || len(f.r.holds) > 0 {
				t.Error("it is held on")
			}
		})
	}
}

func TestAFileThatKeepsChangingIsBelievedInTheEnd(t *testing.T) {
	f := newHeldFolder(t)
	f.write("x.yaml", twoRoutes())
	f.expect("start", 0, both)
	for passed := time.Duration(0); passed < holdMost; passed += holdShorter / 2 {
		f.write("x.yaml", route("a", "a.example")+strings.Repeat("#", int(passed/(holdShorter/2))))
		f.expect("while it changes", min(passed, holdShorter/2), both)
	}
	f.expect("after the longest time", holdShorter/2, "a=a.example")
}

func TestWhatIsRenamedOverAFileOrGrowsAppliesAtOnce(t *testing.T) {
	f := newHeldFolder(t)
	f.write("x.yaml", twoRoutes())
	f.expect("start", 0, both)
	replace(t, f.dir, "x.yaml", route("a", "a.example"))
	f.expect("a shorter one is renamed over it", 0, "a=a.example")
	f.write("x.yaml", route("a", "a.example")+"---\n"+route("c", "c.example"))
	f.expect("it grows", 0, "a=a.example c=c.example")
	f.write("x.yaml", route("a", "b.example")+"---\n"+route("c", "c.example"))
	f.expect("it is as long as before", 0, "a=b.example c=c.example")
	f.write("x.yaml.tmp", "# nothing\n")
	written := time.Now().Add(-time.Second) // longer ago than the file system's clock is coarse
	if err := os.Chtimes(filepath.Join(f.dir, "x.yaml.tmp"), written, written); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(f.dir, "x.yaml.tmp"), filepath.Join(f.dir, "x.yaml")); err != nil {
		t.Fatal(err)
	}
	f.expect("one with nothing in it is renamed over it", 0, "")
}

// TestAFolderIsSwappedForOneWithLessAtOnce swaps a symbolic link, as a kubelet does for a ConfigMap.
func TestAFolderIsSwappedForOneWithLessAtOnce(t *testing.T) {
	f := newHeldFolder(t)
	swap := func(version, content string) {
		t.Helper()
		if err := os.Mkdir(filepath.Join(f.dir, version), 0o700); err != nil {
			t.Fatal(err)
		}
		f.write(filepath.Join(version, "x.yaml"), content)
		if err := os.Symlink(version, filepath.Join(f.dir, "..next")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(f.dir, "..next"), filepath.Join(f.dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	swap("..1", twoRoutes())
	if err := os.Symlink(filepath.Join("..data", "x.yaml"), filepath.Join(f.dir, "x.yaml")); err != nil {
		t.Fatal(err)
	}
	f.expect("start", 0, both)
	swap("..2", route("b", "b.example"))
	f.expect("swapped for one with less", 0, "b=b.example")
	swap("..3", "")
	f.expect("swapped for an empty one", 0, "")
}

func TestAnObjectThatMovesToAnotherFileIsNotDefinedTwice(t *testing.T) {
	f := newHeldFolder(t)
	f.write("a.yaml", twoRoutes())
	f.expect("start", 0, both)
	f.write("a.yaml", route("a", "a.example"))
	f.write("b.yaml", route("b", "new.example"))
	f.expect("moved", 0, "a=a.example b=new.example")
	if len(f.last.Findings) > 0 {
		t.Errorf("told of: %v", f.last.Findings)
	}
	f.expect("later", holdShorter, "a=a.example b=new.example")
	if err := os.Rename(filepath.Join(f.dir, "b.yaml"), filepath.Join(f.dir, "c.yaml")); err != nil {
		t.Fatal(err)
	}
	f.expect("its file is renamed", 0, "a=a.example b=new.example")
	f.expect("later", holdEmpty, "a=a.example b=new.example")
	if len(f.last.Findings) > 0 {
		t.Errorf("told of: %v", f.last.Findings)
	}
}

func TestAUsersDemandIsBelievedAtOnce(t *testing.T) {
	f := newHeldFolder(t)
	f.write("x.yaml", twoRoutes())
	f.expect("start", 0, both)
	f.write("x.yaml", "")
	f.expect("emptied", 0, both)
	f.r.believe = true
	f.expect("on demand", 0, "")
}

// TestSavingInPiecesNeverLosesAnObject writes files as programs do that do not rename, in pieces of any size with any pause shorter than what
// is waited for, and reads between.
func TestSavingInPiecesNeverLosesAnObject(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	f := newHeldFolder(t)
	f.write("x.yaml", twoRoutes())
	f.expect("start", 0, both)
	for range 300 {
		text := twoRoutes() + strings.Repeat("# remark\n", r.IntN(20))
		file, err := os.OpenFile(filepath.Join(f.dir, "x.yaml"), os.O_WRONLY|os.O_TRUNC, 0)
		if err != nil {
			t.Fatal(err)
		}
		for rest := text; rest != ""; {
			f.expect("while it is saved", time.Duration(r.Int64N(int64(holdShorter))), both)
			n := min(len(text)/8+r.IntN(len(text)), len(rest)) // at most nine pieces, within holdMost
			if _, err := file.WriteString(rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		file.Close()
		f.expect("once it is saved", 0, both)
		f.expect("later", holdShorter, both)
		if len(f.r.holds) > 0 {
			t.Error("it is held on")
		}
		if t.Failed() {
			t.FailNow()
		}
	}
}

// TestDirBelievesAnEmptiedFileInTheEnd lets the Dir itself look again.
func TestDirBelievesAnEmptiedFileInTheEnd(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "x.yaml", twoRoutes())
	next := follow(t, NewDir(everything, []string{dir}, nil))
	next("start", serves(both))
	write(t, dir, "x.yaml", "")
	next("emptied", serves(""))
}
