package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// block is a fenced block of a page.
type block struct {
	language, text string
	line           int
}

// blocks returns the fenced blocks of a page, in their order.
func blocks(page string) (all []block) {
	var in *block
	for i, line := range strings.Split(page, "\n") {
		switch fence, ok := strings.CutPrefix(line, "```"); {
		case ok && in == nil:
			in = &block{language: fence, line: i + 2}
		case ok:
			all, in = append(all, *in), nil
		case in != nil:
			in.text += line + "\n"
		}
	}
	return all
}

// Whatever differs from run to run, and how it is written to be compared.
var changing = []struct {
	what *regexp.Regexp
	by   string
}{
	{regexp.MustCompile(`-[a-f0-9]{7,10}(-[a-z0-9]{5})?\b`), "-HASH"},
	{regexp.MustCompile(`\b\d+(\.\d+)?(ms|s|m|h|d)\b`), "AGE"},
	{regexp.MustCompile(`\b20\d\d-\d\d-\d\d \d\d:\d\dZ`), "DATE"},
	{regexp.MustCompile(`\b10\.\d+\.\d+\.\d+\b`), "ADDRESS"},
	{regexp.MustCompile(` +`), " "},
}

func comparable(line string) string {
	for _, c := range changing {
		line = c.what.ReplaceAllString(line, c.by)
	}
	return strings.TrimSpace(line)
}

// fits reports whether an output has the lines of a page, one after the other. A line "..." stands for any lines.
func fits(output, page string) bool {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	skip := false
	for _, want := range strings.Split(strings.TrimSpace(page), "\n") {
		if want == "..." {
			skip = true
			continue
		}
		for skip && len(lines) > 0 && comparable(lines[0]) != comparable(want) {
			lines = lines[1:]
		}
		if len(lines) == 0 || comparable(lines[0]) != comparable(want) {
			return false
		}
		lines, skip = lines[1:], false
	}
	return skip || len(lines) == 0
}

func TestOutputsFitPages(t *testing.T) {
	for _, c := range []struct {
		output, page string
		want         bool
	}{
		{"a\nb", "a\nb", true}, {"a\nb", "a", false}, {"a", "a\nb", false}, {"a\nb\nc", "a\n...", true}, {"a\nb\nc", "...\nc", true}, {"a\nb\nc", "...\nb", false},
		{"web-85d4c64dfd-8jhzm  Running, 40s old", "web-664c5c8d8b-kq7dn Running, 3d old", true}, {" 80 v1", " 81 v1", false}, {"until 2026-11-30 15:20Z at 10.0.0.7:80", "until 2027-01-02 03:04Z at 10.244.0.12:80", true}, {"a", "...\nb", false}, {"", "a", false},
	} {
		if got := fits(c.output, c.page); got != c.want {
			t.Errorf("%q fits %q: %t", c.output, c.page, got)
		}
	}
}

// TestTheTutorialOfRolloutsIsTrue follows the page word by word.
func TestTheTutorialOfRolloutsIsTrue(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("each of its steps waits for the share that is measured: over two minutes")
	}
	followPage(t, "docs/tutorial-rollouts.md", 8)
}

// TestTheTutorialOfTheMeshIsTrue follows the page word by word.
func TestTheTutorialOfTheMeshIsTrue(t *testing.T) {
	if testing.Short() {
		t.Skip("for the full size")
	}
	// No parallel test: the page counts all sidecars of the cluster.
	followPage(t, "docs/tutorial-mesh.md", 8)
}

// followPage does what a page says: files are saved as they are written, commands are run in one shell's environment, and what they
// say is what the page says, at the latest after a while. The page has at least so many blocks of commands.
func followPage(t *testing.T, name string, least int) {
	page, err := os.ReadFile(filepath.Join(top, name))
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	bin := filepath.Join(folder, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	deploy, err := filepath.Abs(filepath.Join(top, "deploy"))
	if err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"bin/weir": os.Getenv("WEIR_PROGRAM"), "bin/kubectl-weir": "weir", "deploy": deploy} {
		if err := os.Symlink(to, filepath.Join(folder, link)); err != nil {
			t.Fatal(err)
		}
	}
	variables := "" // what earlier commands have set
	run := func(script string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "timeout", "150", "bash", "-euo", "pipefail", "-c", variables+script)
		cmd.Dir = folder
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	done := 0
	all := blocks(string(page))
	for i, b := range all {
		switch b.language {
		case "yaml":
			name, rest, _ := strings.Cut(strings.TrimPrefix(b.text, "# "), "\n")
			if err := os.WriteFile(filepath.Join(folder, name), []byte(rest), 0o600); err != nil {
				t.Fatal(err)
			}
		case "sh":
			done++
			want := ""
			if i+1 < len(all) && all[i+1].language == "output" {
				want = all[i+1].text
			}
			if err := follows(run, b.text, want); err != nil {
				t.Fatalf("%s:%d: %v", name, b.line, err)
			}
			for _, line := range assigns.FindAllString(b.text, -1) {
				variables += line + "\n"
			}
		}
	}
	if done < least {
		t.Errorf("the page has %d blocks of commands", done)
	}
}

// looks are commands that change nothing, so that they may be run over and over; assigns are those that set a variable.
var (
	looks   = regexp.MustCompile(`^(curl|for i in|kubectl -n \S+ (get|logs)|kubectl weir rollout (get|status)|weir (status|explain|access))\b`)
	assigns = regexp.MustCompile(`(?m)^[A-Z]+=.*$`)
)

// follows runs a block of commands. If it is to say something, its last commands, as far as they only look, are run until they do: an
// address that was given a moment ago may not be reached yet.
func follows(run func(string) (string, error), script, want string) error {
	lines := strings.Split(strings.TrimSpace(script), "\n")
	first := len(lines)
	for first > 0 && looks.MatchString(lines[first-1]) {
		first--
	}
	if want == "" || first == len(lines) {
		out, err := run(script)
		if err == nil && want != "" && !fits(out, want) {
			err = fmt.Errorf("the page says\n%s\nand it is", want)
		}
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
	if out, err := run(strings.Join(lines[:first], "\n")); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	again := strings.Join(append(assigns.FindAllString(script, -1), lines[first:]...), "\n")
	for end := time.Now().Add(patience); ; time.Sleep(time.Second) {
		out, err := run(again)
		if err == nil && fits(out, want) {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%v: the page says\n%s\nand it is\n%s", err, want, out)
		}
	}
}
