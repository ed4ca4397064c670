package weir_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirmesh/weir/test/weirtest"
)

func TestMain(m *testing.M) { weirtest.Main(m) }

// block is a fenced block of a page.
type block struct {
	line           int
	language, text string
}

// blocks returns the fenced blocks of a part of a page, which begins with a heading and ends with the next one; of the whole page if
// the heading is empty.
func blocks(t *testing.T, page, heading string) []block {
	t.Helper()
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var out []block
	var open *block
	inside := heading == ""
	for i, l := range strings.Split(string(data), "\n") {
		fence := strings.HasPrefix(l, "```")
		switch {
		case open == nil && heading != "" && strings.HasPrefix(l, "## "):
			inside = l == heading
		case fence && open == nil:
			open = &block{line: i + 1, language: l[3:]}
		case fence:
			if inside {
				out = append(out, *open)
			}
			open = nil
		case open != nil:
			open.text += l + "\n"
		}
	}
	if len(out) == 0 {
		t.Fatalf("%s: no blocks under %q", page, heading)
	}
	return out
}

const tutorial = "docs/tutorial.md"

// TestTutorialDoesWhatItSays runs the tutorial in one shell: sh blocks in order, yaml blocks saved under the name in
// their first line, output blocks compared with what the block before printed ("..." stands for anything).
func TestTutorialDoesWhatItSays(t *testing.T) {
	dir, bin := t.TempDir(), t.TempDir()
	weirtest.Script(t, bin)
	var ports weirtest.Ports
	var script strings.Builder
	var outputs []block
	expected := map[int]block{} // by the number of the sh block that prints it
	commands := 0
	for i, b := range blocks(t, tutorial, "") {
		text := ports.Replace(t, b.text)
		switch b.language {
		case "sh":
			commands++
			fmt.Fprintf(&script, "echo '=== %d'\n%s", commands, text)
			outputs = append(outputs, b)
		case "yaml":
			file, ok := strings.CutPrefix(strings.SplitN(text, "\n", 2)[0], "# ")
			if !ok {
				t.Fatalf(tutorial+":%d: the first line of a yaml block names its file", b.line)
			}
			fmt.Fprintf(&script, "cat > %s.new <<'END_OF_FILE'\n%sEND_OF_FILE\nmv %[1]s.new %[1]s\n", file, text)
		case "output":
			if i == 0 {
				t.Fatalf(tutorial+":%d: output of what?", b.line)
			}
			b.text = text
			expected[commands] = b
		default:
			t.Fatalf(tutorial+":%d: a block that cannot be run: %q", b.line, b.language)
		}
	}

	got := strings.Split(runScript(t, dir, script.String(),
		"PATH="+bin+string(filepath.ListSeparator)+os.Getenv("PATH"),
		"XDG_STATE_HOME="+t.TempDir(),
		fmt.Sprintf("WEIR_ADMIN=127.0.0.1:%d", ports.Of(t, 15000))), "=== ")
	for n := 1; n <= commands; n++ {
		if n >= len(got) {
			t.Fatalf(tutorial+":%d: not reached", outputs[n-1].line)
		}
		_, printed, _ := strings.Cut(got[n], "\n")
		want, ok := expected[n]
		if !ok && printed != "" {
			t.Errorf(tutorial+":%d: printed, though no output is shown:\n%s", outputs[n-1].line, printed)
		}
		if ok && !pattern(want.text).MatchString(printed) {
			t.Errorf(tutorial+":%d: printed\n%s\nwant\n%s", want.line, printed, want.text)
		}
	}
}

// pattern matches the text, "..." standing for anything.
func pattern(text string) *regexp.Regexp {
	return regexp.MustCompile(`\A(?s:` + strings.ReplaceAll(regexp.QuoteMeta(text), `\.\.\.`, `.*?`) + `)\z`)
}

// runScript runs bash and returns what it printed; everything it started ends with it.
func runScript(t *testing.T, dir, script string, env ...string) string {
	t.Helper()
	cmd := exec.Command("bash", "-c", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = 5 * time.Second
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	group := cmd.Process.Pid
	timer := time.AfterFunc(2*time.Minute, func() { _ = syscall.Kill(-group, syscall.SIGKILL) })
	err := cmd.Wait()
	timer.Stop()
	_ = syscall.Kill(-group, syscall.SIGKILL) // what the tutorial left running, if it stopped half way
	if err != nil {
		t.Errorf("the tutorial's shell: %v", err)
	}
	if stderr.Len() > 0 {
		t.Errorf("printed to stderr:\n%s", stderr.String())
	}
	return out.String()
}

var link = regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)

func TestLinksBetweenPagesLead(t *testing.T) {
	pages, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(pages, "README.md", "CONTRIBUTING.md", "CHANGELOG.md") {
		data, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(data), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), m[1])); err != nil {
				t.Errorf("%s: the link to %s leads nowhere", page, m[1])
			}
		}
	}
}

var (
	ran    = regexp.MustCompile(`(?m)^go run \./(\S+)`)
	made   = regexp.MustCompile("(?m)(?:^|`)make ([a-z0-9-]+)")
	target = regexp.MustCompile(`(?m)^([a-z0-9-]+):`)
)

// TestREADMEsCommandsAreThere holds that what the README has people run is in the tree.
func TestREADMEsCommandsAreThere(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	programs := ran.FindAllSubmatch(readme, -1)
	if len(programs) == 0 {
		t.Error("the README runs no program")
	}
	for _, m := range programs {
		if _, err := os.Stat(filepath.Join(string(m[1]), "main.go")); err != nil {
			t.Errorf("README.md: %s: %v", m[0], err)
		}
	}
	targets := map[string]bool{}
	for _, m := range target.FindAllSubmatch(makefile, -1) {
		targets[string(m[1])] = true
	}
	for _, m := range made.FindAllSubmatch(readme, -1) {
		if !targets[string(m[1])] {
			t.Errorf("README.md: the Makefile has no target %s", m[1])
		}
	}
}
