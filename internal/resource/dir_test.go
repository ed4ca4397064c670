package resource

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// follow runs a Dir and returns a function that waits for the next Set that meets a condition.
func follow(t *testing.T, d *Dir) (next func(what string, meets func(*Set) bool) *Set) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	sets := make(chan *Set, 1000)
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx, func(s *Set) { sets <- s }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return func(what string, meets func(*Set) bool) *Set {
		t.Helper()
		limit := time.After(30 * time.Second)
		var last *Set
		for {
			select {
			case s := <-sets:
				if meets(s) {
					return s
				}
				last = s
			case err := <-done:
				done <- nil
				t.Fatalf("%s: Run ended: %v", what, err)
			case <-limit:
				if last != nil {
					t.Fatalf("%s: still %s with %v", what, hosts(last), last.Findings)
				}
				t.Fatalf("%s: nothing was emitted", what)
			}
		}
	}
}

func serves(want string) func(*Set) bool {
	return func(s *Set) bool { return hosts(s) == want }
}

func TestDirFollowsChangesOfFiles(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", route("a", "one.example"))
	next := follow(t, NewDir(everything, []string{dir}, nil))
	next("start", serves("a=one.example"))
	write(t, dir, "a.yaml", route("a", "two.example"))
	next("written in place", serves("a=two.example"))
	replace(t, dir, "a.yaml", route("a", "three.example"))
	next("renamed over", serves("a=three.example"))
	write(t, dir, "b.yaml", route("b", "b.example"))
	next("new file", serves("a=three.example b=b.example"))
	if err := os.Rename(filepath.Join(dir, "b.yaml"), filepath.Join(dir, "b.off")); err != nil {
		t.Fatal(err)
	}
	next("renamed away", serves("a=three.example"))
	if err := os.Remove(filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	next("removed", serves(""))
}

func TestDirFollowsNewFolders(t *testing.T) {
	dir := t.TempDir()
	next := follow(t, NewDir(everything, []string{dir}, nil))
	next("start", serves(""))
	write(t, dir, "new/deep/a.yaml", route("a", "one.example"))
	next("new folders", serves("a=one.example"))
	replace(t, filepath.Join(dir, "new/deep"), "a.yaml", route("a", "two.example"))
	next("a file in a new folder", serves("a=two.example"))
	if err := os.RemoveAll(filepath.Join(dir, "new")); err != nil {
		t.Fatal(err)
	}
	next("removed", serves(""))
	write(t, dir, "new/deep/a.yaml", route("a", "three.example"))
	next("the folder is back", serves("a=three.example"))
}

func TestDirFollowsASingleFile(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", route("a", "one.example"))
	next := follow(t, NewDir(everything, []string{filepath.Join(dir, "a.yaml")}, nil))
	next("start", serves("a=one.example"))
	replace(t, dir, "a.yaml", route("a", "two.example"))
	next("renamed over", serves("a=two.example"))
	if err := os.Remove(filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	set := next("removed", func(s *Set) bool { return strings.Contains(found(s), CodeUnreadable) })
	if hosts(set) != "a=two.example" {
		t.Errorf("of a path that is gone %q is served", hosts(set))
	}
	write(t, dir, "a.yaml", route("a", "three.example"))
	next("back", serves("a=three.example"))
}

// TestDirFollowsConfigMapVolumes does what the kubelet does: a data folder is swapped by renaming a symbolic link.
func TestDirFollowsConfigMapVolumes(t *testing.T) {
	for name, path := range map[string]func(volume string) string{
		"folder": func(volume string) string { return volume },
		"file":   func(volume string) string { return filepath.Join(volume, "a.yaml") },
	} {
		t.Run(name, func(t *testing.T) {
			volume := t.TempDir()
			symlink := func(target, name string) {
				t.Helper()
				if err := os.Symlink(target, filepath.Join(volume, name)); err != nil {
					t.Fatal(err)
				}
			}
			write(t, volume, "..2026_1/a.yaml", route("a", "one.example"))
			symlink("..2026_1", "..data")
			symlink("..data/a.yaml", "a.yaml")
			next := follow(t, NewDir(everything, []string{path(volume)}, nil))
			next("start", serves("a=one.example"))
			for _, version := range []string{"two", "three"} {
				write(t, volume, "..2026_"+version+"/a.yaml", route("a", version+".example"))
				symlink("..2026_"+version, "..data_tmp")
				if err := os.Rename(filepath.Join(volume, "..data_tmp"), filepath.Join(volume, "..data")); err != nil {
					t.Fatal(err)
				}
				set := next("swapped", serves("a="+version+".example"))
				if len(set.Findings) > 0 {
					t.Errorf("got %v", set.Findings)
				}
			}
		})
	}
}

func TestDirFollowsALinkThatIsSwapped(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "releases/1/a.yaml", route("a", "one.example"))
	write(t, dir, "releases/2/a.yaml", route("a", "two.example"))
	link := func(target, name string) {
		t.Helper()
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	link("releases/1", "current")
	next := follow(t, NewDir(everything, []string{filepath.Join(dir, "current")}, nil))
	next("start", serves("a=one.example"))
	link("releases/2", "next")
	if err := os.Rename(filepath.Join(dir, "next"), filepath.Join(dir, "current")); err != nil {
		t.Fatal(err)
	}
	next("swapped", serves("a=two.example"))
	replace(t, filepath.Join(dir, "releases/2"), "a.yaml", route("a", "three.example"))
	next("changed behind the link", serves("a=three.example"))
}

func TestDirKeepsTheLastGoodVersionOfAFileThatIsBroken(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", route("a", "a.example")+"---\n"+route("b", "b.example"))
	write(t, dir, "c.yaml", route("c", "c.example"))
	next := follow(t, NewDir(everything, []string{dir}, nil))
	next("start", serves("a=a.example b=b.example c=c.example"))

	replace(t, dir, "a.yaml", "a: [\n---\n"+route("b", "new.example"))
	set := next("one document is no YAML", serves("a=a.example b=new.example c=c.example"))
	if found(set) != "WR110 WR102" {
		t.Errorf("got %v", set.Findings)
	}
	write(t, dir, "c.yaml", route("c", "c2.example"))
	next("another file", serves("a=a.example b=new.example c=c2.example"))
	replace(t, dir, "a.yaml", route("a", "mended.example")+"---\n"+route("b", "b.example"))
	set = next("mended", serves("a=mended.example b=b.example c=c2.example"))
	if len(set.Findings) > 0 {
		t.Errorf("got %v", set.Findings)
	}
}

// A misspelt field, or one of another version, makes a split of some requests one of all.
func TestDirKeepsTheLastGoodVersionOfASplitWithAnUnknownField(t *testing.T) {
	split := func(version, matches string) string {
		return "apiVersion: split.smi-spec.io/" + version + "\nkind: TrafficSplit\nmetadata: {name: s}\nspec: {service: root, backends: [{service: a, weight: 1}]" + matches + "}\n"
	}
	group := func(version, field string) string {
		return "apiVersion: specs.smi-spec.io/" + version + "\nkind: HTTPRouteGroup\nmetadata: {name: g}\nspec: {matches: [{name: m, " + field + "}]}\n"
	}
	good, ref := group("v1alpha4", "headers: [{x: z}]"), ", matches: [{kind: HTTPRouteGroup, name: g}]"
	for _, test := range [][2]string{
		{"WR110 WR116", split("v1alpha4", strings.Replace(ref, "matches", "match", 1)) + "---\n" + good},
		{"WR110 WR119", split("v1alpha1", ref) + "---\n" + good},
		{"WR110 WR116", split("v1alpha4", ref) + "---\n" + group("v1alpha4", "header: [{x: z}]")},
		{"WR110 WR119", split("v1alpha4", ref) + "---\n" + "apiVersion: specs.smi-spec.io/v1alpha1\nkind: HTTPRouteGroup\nmetadata: {name: g}\nmatches: [{name: m, headers: [{x: z}]}]\n"},
	} {
		dir := t.TempDir()
		write(t, dir, "a.yaml", split("v1alpha4", ref)+"---\n"+good)
		next := follow(t, NewDir(everything, []string{dir}, nil))
		is := func(s *Set) bool {
			return len(s.TrafficSplits) == 1 && len(s.TrafficSplits[0].Spec.Matches) == 1 && len(s.HTTPRouteGroups) == 1 && len(s.HTTPRouteGroups[0].Spec.Matches[0].Headers) == 1
		}
		next("start", is)
		want, text := test[0], test[1]
		replace(t, dir, "a.yaml", text)
		set := next("with an unknown field", func(s *Set) bool { return len(s.Findings) > 0 })
		got := strings.Fields(found(set))
		if slices.Sort(got); !is(set) || strings.Join(got, " ") != want {
			t.Errorf("%s: splits %v, groups %v, %v", text, set.TrafficSplits, set.HTTPRouteGroups, set.Findings)
		}
	}
}

func TestDirKeepsTheLastGoodVersionOfAnObjectThatIsInvalid(t *testing.T) {
	dir := t.TempDir()
	invalid := strings.Replace(route("a", "two.example"), "port: 8080", "port: 0", 1)
	write(t, dir, "a.yaml", route("a", "one.example"))
	next := follow(t, NewDir(everything, []string{dir}, nil))
	next("start", serves("a=one.example"))
	replace(t, dir, "a.yaml", invalid)
	set := next("invalid", func(s *Set) bool { return len(s.Findings) > 0 })
	if hosts(set) != "a=one.example" || found(set) != "WR110 WR201" {
		t.Errorf("%s is served with %v", hosts(set), set.Findings)
	}
	if f := set.Findings[0]; f.Severity != Warning || f.Ref.Name != "a" || !strings.Contains(f.Message, filepath.Join(dir, "a.yaml")+":1") {
		t.Errorf("got %v", f)
	}
	if err := os.Remove(filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	next("removed", serves(""))
	write(t, dir, "a.yaml", invalid)
	set = next("invalid without a good version", func(s *Set) bool { return len(s.Findings) > 0 && found(s) != "WR109" })
	if hosts(set) != "" || found(set) != "WR201" {
		t.Errorf("%q is served with %v", hosts(set), set.Findings)
	}
}

func TestDirEmitsAfterTheLimitWhenChangesDoNotSettle(t *testing.T) {
	dir := t.TempDir()
	d := NewDir(everything, []string{dir}, nil)
	d.timing.holdoff, d.timing.limit, d.timing.poll = time.Hour, 5*time.Millisecond, time.Hour
	next := follow(t, d)
	next("start", serves(""))
	write(t, dir, "a.yaml", route("a", "a.example"))
	next("changed", serves("a=a.example"))
}

func TestDirPollsWhereTheSystemDoesNotTellOfChanges(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", route("a", "one.example"))
	d := NewDir(everything, []string{dir, "-"}, nil)
	d.Stdin = strings.NewReader(route("b", "b.example"))
	d.blind = true
	d.timing.blind = 5 * time.Millisecond
	next := follow(t, d)
	next("start", serves("a=one.example b=b.example"))
	write(t, dir, "a.yaml", route("a", "two.example"))
	next("written in place", serves("a=two.example b=b.example"))
}

func TestDirFailsForAPathThatIsNotThereAtTheStart(t *testing.T) {
	err := NewDir(everything, []string{filepath.Join(t.TempDir(), "none")}, nil).Run(t.Context(), func(*Set) { t.Error("a set was emitted") })
	if err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("got %v", err)
	}
}

func TestOnlyChangedDocumentsAreDecodedAgain(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", route("a", "a.example")+"---\n"+route("b", "b.example"))
	r := newReader(everything, []string{dir})
	read := func() *Set {
		l := list(r.paths)
		r.read(l)
		return r.set(l)
	}
	first := read()
	replace(t, dir, "a.yaml", "# one line more\n"+route("b", "b.example")+"---\n"+route("a", "changed.example"))
	second := read()
	if first.HTTPRoutes[1] != second.HTTPRoutes[1] {
		t.Error("the unchanged route was decoded again")
	}
	if hosts(second) != "a=changed.example b=b.example" || len(r.documents) != 2 {
		t.Errorf("got %s of %d documents", hosts(second), len(r.documents))
	}
	if o := second.Origins[Key{gatewayGroup, "HTTPRoute", "default", "b"}]; o.Line != 2 {
		t.Errorf("the moved route is at %v", o)
	}
}

func TestTrafficKeepsAProcessorWhileChangesAreRead(t *testing.T) {
	t.Setenv("GOMAXPROCS", "1") // what is put back afterwards
	before := runtime.GOMAXPROCS(1)
	defer runtime.GOMAXPROCS(before)
	dir := t.TempDir()
	write(t, dir, "a.yaml", route("a", "one.example"))
	ctx, cancel := context.WithCancel(t.Context())
	var during []int
	err := NewDir(everything, []string{dir}, nil).Run(ctx, func(s *Set) {
		during = append(during, runtime.GOMAXPROCS(0))
		if serves("a=two.example")(s) {
			cancel()
			return
		}
		write(t, dir, "a.yaml", route("a", "two.example"))
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range during {
		if i == 0 && n != 1 || i > 0 && n != 2 {
			t.Errorf("%v processors while sets were made, want 1 for the first, which nobody is served beside, and 2 then", during)
		}
	}
	if n := runtime.GOMAXPROCS(0); n != 1 {
		t.Errorf("%d processors afterwards, want 1", n)
	}
}
