package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/macho"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// released are the files of a release of this tree. This machine's binary is real; in the place of others is a small program, since
// building weir for four platforms takes minutes.
var released = sync.OnceValues(func() (files map[string][]byte, err error) {
	dir, err := os.MkdirTemp("", "weir-release-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	d := dist{tree: "../..", completions: filepath.Join(dir, "completions"), url: "https://example.com/download"}
	small := filepath.Join(dir, "small")
	if err := os.CopyFS(small, os.DirFS("testdata/small")); err != nil {
		return nil, err
	}
	if err := os.Rename(filepath.Join(small, "go.mod.txt"), filepath.Join(small, "go.mod")); err != nil {
		return nil, err
	}
	for _, p := range []string{"darwin-arm64", "darwin-amd64", "linux-arm64", "linux-amd64"} {
		from := small
		if p == runtime.GOOS+"-"+runtime.GOARCH {
			from = "../.."
		}
		goos, arch, _ := strings.Cut(p, "-")
		binary := filepath.Join(dir, p, "weir")
		if err := strippedBuild(from, "weir", binary, goos, arch); err != nil {
			return nil, err
		}
		d.binaries = append(d.binaries, binary)
	}
	proxy := filepath.Join(dir, "proxy")
	if err := strippedBuild("../..", proxyName, proxy, "linux", "amd64"); err != nil {
		return nil, err
	}
	d.binaries = append(d.binaries, proxy)
	if err := os.Mkdir(d.completions, 0o755); err != nil {
		return nil, err
	}
	for i, shell := range []string{"zsh", "bash", "fish", "powershell"} {
		out, err := exec.Command(filepath.Join(dir, runtime.GOOS+"-"+runtime.GOARCH, "weir"), "completion", shell).Output()
		if err != nil {
			return nil, fmt.Errorf("completion %s: %w", shell, err)
		}
		if err := os.WriteFile(filepath.Join(d.completions, shells[i]), out, 0o600); err != nil {
			return nil, err
		}
	}
	files, err = filesOf(d, filepath.Join(dir, "one"))
	if err != nil {
		return nil, err
	}
	// Once more, from binaries of another date.
	for _, b := range d.binaries {
		if err := os.Chtimes(b, time.Now(), time.Unix(1, 0)); err != nil {
			return nil, err
		}
	}
	again, err := filesOf(d, filepath.Join(dir, "two"))
	if err == nil && !maps.EqualFunc(files, again, bytes.Equal) {
		err = fmt.Errorf("the second time the files differ")
	}
	return files, err
})

func strippedBuild(from, program, to, goos, arch string) error {
	cmd := exec.Command("go", "build", "-C", from, "-trimpath", "-buildvcs=false", "-tags", "grpcnotrace", "-ldflags=-s -w", "-o", to, "./cmd/"+program)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+arch)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s/%s: %w\n%s", goos, arch, err, out)
	}
	return nil
}

func filesOf(d dist, dir string) (map[string][]byte, error) {
	if err := d.write(dir); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for _, e := range entries {
		if files[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// onDisk writes the release to a folder.
func onDisk(t *testing.T) string {
	t.Helper()
	files, err := released()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const base = "weir-v0.0.0-devel-"

// TestReleaseIsComplete has sha256sum check everything, and finds one file for each platform.
func TestReleaseIsComplete(t *testing.T) {
	dir := onDisk(t)
	cmd := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	want := []string{base + "kustomization.tar.gz", "weir.rb", "weir.yaml", "weir-proxy-v0.0.0-devel-linux-amd64.cdx.json"}
	for _, p := range []string{"darwin-amd64", "darwin-arm64", "linux-amd64", "linux-arm64"} {
		want = append(want, base+p+".tar.gz", base+p+".cdx.json")
	}
	slices.Sort(want)
	var have []string
	for line := range strings.Lines(string(out)) {
		name, _ := strings.CutSuffix(line, ": OK\n")
		have = append(have, name)
	}
	slices.Sort(have)
	if !slices.Equal(have, want) {
		t.Errorf("there are %q, not %q", have, want)
	}
}

// TestArchivesHoldWhatRuns unpacks each with tar, and runs this machine's binary.
func TestArchivesHoldWhatRuns(t *testing.T) {
	dir := onDisk(t)
	for _, p := range []string{"darwin-amd64", "darwin-arm64", "linux-amd64", "linux-arm64"} {
		if out, err := exec.Command("tar", "-C", dir, "-xzf", filepath.Join(dir, base+p+".tar.gz")).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, name := range append([]string{"weir", "LICENSE", "README.md"}, prefixed("completions/", shells)...) {
			info, err := os.Stat(filepath.Join(dir, base+p, name))
			if err != nil || info.Size() == 0 || name == "weir" != (info.Mode()&0o111 != 0) {
				t.Errorf("%s: %s: %v, %v", p, name, info, err)
			}
		}
		data, err := os.ReadFile(filepath.Join(dir, base+p+".tar.gz"))
		if err != nil {
			t.Fatal(err)
		}
		z, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil || !z.ModTime.IsZero() {
			t.Fatalf("%s: packed at %v, %v", p, z.ModTime, err)
		}
		each(t, z, func(h *tar.Header, _ []byte) {
			if h.Uid != 0 || h.Gid != 0 || h.Uname != "" || h.ModTime.Unix() != 0 || h.Mode&0o022 != 0 {
				t.Errorf("%s: %s is of %d:%d %q with mode %o, %v", p, h.Name, h.Uid, h.Gid, h.Uname, h.Mode, h.ModTime)
			}
		})
	}
	out, err := exec.Command(filepath.Join(dir, base+runtime.GOOS+"-"+runtime.GOARCH, "weir"), "version").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "weir devel") {
		t.Errorf("%v\n%s", err, out)
	}
	// macOS runs only what is signed on ARM; Go's linker signs.
	f, err := macho.Open(filepath.Join(dir, base+"darwin-arm64", "weir"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const codeSignature = 0x1d // LC_CODE_SIGNATURE of mach-o/loader.h
	if !slices.ContainsFunc(f.Loads, func(l macho.Load) bool { return f.ByteOrder.Uint32(l.Raw()) == codeSignature }) {
		t.Error("the binary for macOS on ARM is not signed")
	}
}

func prefixed(prefix string, names []string) (all []string) {
	for _, n := range names {
		all = append(all, prefix+n)
	}
	return all
}

// archivesOf are the URL and sum of each platform as they are to be.
func archivesOf(t *testing.T, dir string) map[string][2]string {
	t.Helper()
	all := map[string][2]string{}
	for _, p := range []string{"darwin-amd64", "darwin-arm64", "linux-amd64", "linux-arm64"} {
		data, err := os.ReadFile(filepath.Join(dir, base+p+".tar.gz"))
		if err != nil {
			t.Fatal(err)
		}
		all[p] = [2]string{"https://example.com/download/v0.0.0-devel/" + base + p + ".tar.gz", sum(data)}
	}
	return all
}

// brew is what of Homebrew a formula uses: it writes down what the formula says for a platform, and what it would install.
const brew = `require "json"
OS_NAME, CPU, FILE = ARGV
SAID = {installed: []}
class Place
  def initialize(name) = @name = name
  def install(what) = (what.is_a?(Hash) ? what.keys : [what]).each { |f| SAID[:installed] << f }
  def to_s = "bin"
end
class Formula
  class << self
    %i[desc homepage version license url sha256].each { |f| define_method(f) { |v| SAID[f] = v } }
    { macos: :OS_NAME, linux: :OS_NAME, intel: :CPU, arm: :CPU }.each do |name, of|
      define_method("on_#{name}") { |&block| instance_eval(&block) if Object.const_get(of) == name.to_s }
    end
    def test(&block) = define_method(:run_test, &block)
  end
  %i[bin bash_completion zsh_completion fish_completion].each { |f| define_method(f) { Place.new(f) } }
  def shell_output(command) = SAID[:tested] = command
  def assert_match(want, _) = SAID[:wanted] = want
end
load FILE
Weir.new.install
Weir.new.run_test
puts JSON.generate(SAID)
`

// TestFormula has Ruby run it, in the place of Homebrew, on each platform.
func TestFormula(t *testing.T) {
	dir := onDisk(t)
	if _, err := exec.LookPath("ruby"); err != nil {
		t.Fatal("ruby is missing: make test-release installs it")
	}
	for p, want := range archivesOf(t, dir) {
		goos, arch, _ := strings.Cut(p, "-")
		names := map[string]string{"darwin": "macos", "linux": "linux", "amd64": "intel", "arm64": "arm"}
		cmd := exec.Command("ruby", "-W", "-", names[goos], names[arch], filepath.Join(dir, "weir.rb"))
		cmd.Stdin = strings.NewReader(brew)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil || errs.Len() > 0 {
			t.Fatalf("%v\n%s", err, errs.String())
		}
		var said struct {
			Version, License, URL, SHA256, Tested, Wanted string
			Installed                                     []string
		}
		if err := json.Unmarshal(out, &said); err != nil {
			t.Fatal(err)
		}
		if said.URL != want[0] || said.SHA256 != want[1] || said.Version != "0.0.0-devel" || said.License != "Apache-2.0" ||
			said.Tested != "bin/weir version" || said.Wanted != "weir devel" {
			t.Errorf("%s: %+v, not %q", p, said, want)
		}
		if want := []string{"weir", "completions/weir.bash", "completions/_weir", "completions/weir.fish"}; !slices.Equal(said.Installed, want) {
			t.Errorf("%s: it installs %q", p, said.Installed)
		}
	}
}

// TestPlugin has krew itself judge the manifest, and install this machine's archive by it; kubectl finds what is in PATH as kubectl-NAME.
func TestPlugin(t *testing.T) {
	dir := onDisk(t)
	manifest := filepath.Join(dir, "weir.yaml")
	home := t.TempDir()
	krew := func(tool string, args ...string) {
		t.Helper()
		cmd := exec.Command("go", append([]string{"tool", tool}, args...)...)
		cmd.Env = append(os.Environ(), "KREW_ROOT="+home, "KREW_NO_UPGRADE_CHECK=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s %q: %v\n%s", tool, args, err, out)
		}
	}
	krew("validate-krew-manifest", "-skip-install", "-manifest", manifest)
	krew("krew", "install", "--manifest", manifest, "--archive", filepath.Join(dir, base+runtime.GOOS+"-"+runtime.GOARCH+".tar.gz"))
	out, err := exec.Command(filepath.Join(home, "bin", "kubectl-weir"), "version").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "weir devel") {
		t.Errorf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	for p, want := range archivesOf(t, dir) {
		goos, arch, _ := strings.Cut(p, "-")
		block := fmt.Sprintf("        os: %s\n        arch: %s\n    uri: %q\n    sha256: %s\n", goos, arch, want[0], want[1])
		if !strings.Contains(string(text), block) {
			t.Errorf("there is no\n%s in\n%s", block, text)
		}
	}
}

// TestReleaseIsCalledAsItsTag makes one of a tagged commit, and none of binaries of two commits.
func TestReleaseIsCalledAsItsTag(t *testing.T) {
	dir := t.TempDir()
	from := filepath.Join(dir, "source")
	if err := os.CopyFS(from, os.DirFS("testdata/small")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(from, "go.mod.txt"), filepath.Join(from, "go.mod")); err != nil {
		t.Fatal(err)
	}
	run := func(name string, args ...string) {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir = from
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "GIT_COMMITTER_DATE=2026-01-02T03:04:05Z", "GIT_CONFIG_GLOBAL=/dev/null")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s %q: %v\n%s", name, args, err, out)
		}
	}
	commit := func() {
		run("git", "add", "-A")
		run("git", "-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "--allow-empty", "-m", "a")
	}
	goBuild := func(to string) string {
		run("go", "build", "-trimpath", "-buildvcs=true", "-ldflags=-s -w", "-o", filepath.Join(dir, to), "./cmd/weir")
		return filepath.Join(dir, to)
	}
	run("git", "init", "-q")
	commit()
	before := goBuild("before")
	commit()
	run("git", "tag", "v1.2.3")
	tagged := goBuild("tagged")

	d := dist{tree: "../..", completions: filepath.Join(dir, "completions"), url: homepage, binaries: []string{tagged}}
	if err := os.Mkdir(d.completions, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range shells {
		if err := os.WriteFile(filepath.Join(d.completions, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filesOf(d, filepath.Join(dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(files["weir-v1.2.3-linux-amd64.tar.gz"]))
	if err != nil {
		t.Fatal(err)
	}
	each(t, z, func(h *tar.Header, _ []byte) {
		if want := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC); !h.ModTime.Equal(want) {
			t.Errorf("%s is of %v, the commit of %v", h.Name, h.ModTime, want)
		}
	})
	for file, want := range map[string]string{
		"weir.rb": `url "` + homepage + `/v1.2.3/weir-v1.2.3-linux-amd64.tar.gz"`, "weir.yaml": `version: "v1.2.3"`,
	} {
		if !bytes.Contains(files[file], []byte(want)) {
			t.Errorf("%s has no %q:\n%s", file, want, files[file])
		}
	}
	d.binaries = append(d.binaries, before)
	if err := d.write(filepath.Join(dir, "mixed")); err == nil || !strings.Contains(err.Error(), "build both from the same commit") {
		t.Errorf("binaries of two commits: %v", err)
	}
}

// TestOnlyWhatBelongsTogetherIsReleased gives binaries that are none of a release.
func TestOnlyWhatBelongsTogetherIsReleased(t *testing.T) {
	dir := t.TempDir()
	module := func(name, source string) string {
		from := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Join(from, "cmd", "weir"), 0o755); err != nil {
			t.Fatal(err)
		}
		for file, text := range map[string]string{"go.mod": "module example.com/" + name + "\n\ngo 1.26.0\n", "cmd/weir/main.go": source} {
			if err := os.WriteFile(filepath.Join(from, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return from
	}
	from := module("one", "package main\n\nfunc main() {}\n")
	linux, windows, whole := filepath.Join(dir, "linux"), filepath.Join(dir, "windows.exe"), filepath.Join(dir, "whole")
	for to, goos := range map[string]string{linux: "linux", windows: "windows"} {
		if err := strippedBuild(from, "weir", to, goos, "amd64"); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "build", "-C", from, "-o", whole, "./cmd/weir")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for want, binaries := range map[string][]string{
		"is not stripped":                        {whole},
		"no releases for windows":                {windows},
		"another binary of weir for linux/amd64": {linux, linux},
	} {
		err := dist{tree: "../..", binaries: binaries}.write(filepath.Join(dir, "out"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// TestImagesOfTheKustomization sets each form of a name, of one image or of both.
func TestImagesOfTheKustomization(t *testing.T) {
	b := &build{BuildInfo: &debug.BuildInfo{Path: "github.com/weirmesh/weir/cmd/weir"}}
	for _, c := range []struct{ image, proxy, want, wantProxy string }{
		{"", "", "  newName: localhost/weir\n  newTag: \"devel\"\n", "  newName: localhost/weir-proxy\n  newTag: \"devel\"\n"},
		{"registry.example:5000/team/weir:1.10", "", "  newName: registry.example:5000/team/weir\n  newTag: \"1.10\"\n",
			"  newName: registry.example:5000/team/weir-proxy\n  newTag: \"1.10\"\n"},
		{"weir:1", "slim@sha256:11", "  newName: weir\n  newTag: \"1\"\n", "  newName: slim\n  digest: sha256:11\n"},
		// No name follows from a digest: the controller's image serves, too.
		{"weir@sha256:00", "", "  newName: weir\n  digest: sha256:00\n", "  newName: weir\n  digest: sha256:00\n"},
		{"registry.example:5000/weir", "", "", ""},
		{"weir:1", "registry.example:5000/weir", "", ""},
	} {
		files, err := dist{tree: "../..", image: c.image, proxyImage: c.proxy}.kustomization(b)
		if c.want == "" {
			if err == nil || !strings.Contains(err.Error(), "neither a tag nor a digest") {
				t.Errorf("%+v: %v", c, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		want := "\nimages:\n- name: weir\n" + c.want + "- name: weir-proxy\n" + c.wantProxy + "replacements:\n"
		if main := files[slices.IndexFunc(files, func(f file) bool { return f.name == "kustomization.yaml" })]; !strings.Contains(string(main.data), want) {
			t.Errorf("%+v:\n%s", c, main.data)
		}
	}
}

// TestTheKustomizationIsComplete finds each file that it names beside it.
func TestTheKustomizationIsComplete(t *testing.T) {
	files, err := released()
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(files[base+"kustomization.tar.gz"]))
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	each(t, z, func(h *tar.Header, _ []byte) {
		if h.Typeflag == tar.TypeReg {
			have = append(have, filepath.Base(h.Name))
		}
	})
	entries, err := os.ReadDir("../manifests")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, e := range entries {
		want = append(want, e.Name())
	}
	if !slices.Equal(have, want) {
		t.Errorf("it has %q, the folder %q", have, want)
	}
}
