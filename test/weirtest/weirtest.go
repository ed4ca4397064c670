// Package weirtest runs weir as a process of its own for tests. The test binary itself stands in for weir, so nothing
// has to be built and the race detector sees both sides.
package weirtest

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirmesh/weir/internal/cli"
	"github.com/weirmesh/weir/test/freeport"
)

// standIn makes the test binary behave as weir.
const standIn = "WEIRTEST_STAND_IN"

// patience is how long anything may take before a test fails; it decides nothing else.
const patience = 30 * time.Second

// Main is for TestMain: it runs weir if this process is to stand in for it, else the tests, and then checks that no
// goroutine is left.
func Main(m *testing.M) { MainOf(cli.Program{}, m) }

// MainOf is Main with other front ends.
func MainOf(weir cli.Program, m *testing.M) {
	beWeir(weir)
	goleak.VerifyTestMain(m)
}

// StandIn is for a TestMain with more to do than Main: it does not return if this process is to stand in for weir.
func StandIn() { beWeir(cli.Program{}) }

func beWeir(weir cli.Program) {
	if os.Getenv(standIn) != "" {
		os.Exit(weir.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
}

// Command is "weir args...", not yet started.
func Command(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), standIn+"=1")
	return cmd
}

// Script writes an executable "weir" into dir, for shells with dir in their PATH.
func Script(t *testing.T, dir string) {
	t.Helper()
	self, err := filepath.Abs(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("#!/bin/sh\n%s=1 exec %s \"$@\"\n", standIn, self)
	if err := os.WriteFile(filepath.Join(dir, "weir"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
}

// Path is an executable "weir", for what wants the path of one. Unlike one that a test builds, Go knows what it consists of, and keeps no result
// of another for it.
func Path(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	Script(t, dir)
	return filepath.Join(dir, "weir")
}

// Tool is a folder with programs of others, which are built if this machine's cache lacks them. build gives the command that writes them to a
// folder; what it depends on must be in key.
func Tool(t *testing.T, key string, build func(dir string) *exec.Cmd) (dir string) {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	sum := sha256.Sum256([]byte(key + " " + runtime.Version()))
	dir = filepath.Join(cache, "weir", "tools", fmt.Sprintf("%x", sum[:8]))
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	partial, err := os.MkdirTemp(filepath.Dir(dir), "partial-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(partial)
	cmd := build(partial)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	// Another process may have been quicker.
	if err := os.Rename(partial, dir); err != nil && !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
	return dir
}

// Process is a running weir that logs JSON to stderr.
type Process struct {
	t    *testing.T
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended and all its output was read
	err  error         // valid after done
	out  lockedBuffer

	mu    sync.Mutex
	lines []map[string]any
	raw   bytes.Buffer
	news  chan struct{} // closed and replaced at each line
}

// Start runs weir; the test's end stops it.
func Start(t *testing.T, args ...string) *Process {
	t.Helper()
	p := &Process{t: t, cmd: Command(args...), done: make(chan struct{}), news: make(chan struct{})}
	p.cmd.Env = append(p.cmd.Env, "XDG_STATE_HOME="+t.TempDir()) // nothing of a test stays in the user's home
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stdout = &p.out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		scanner := bufio.NewScanner(stderr)
		scanner.Buffer(nil, 1<<20)
		for scanner.Scan() {
			p.add(scanner.Bytes())
		}
		p.err = p.cmd.Wait()
		p.add(nil)
	}()
	t.Cleanup(func() {
		select {
		case <-p.done:
		default:
			_ = p.cmd.Process.Kill()
			<-p.done
		}
		if t.Failed() {
			t.Logf("weir %s\nstderr:\n%s\nstdout:\n%s", strings.Join(args, " "), p.Stderr(), p.Stdout())
		}
	})
	return p
}

// Run serves paths ("weir run") with an admin endpoint on a free port and returns when traffic is served.
func Run(t *testing.T, args ...string) *Process {
	t.Helper()
	p := Start(t, append([]string{"run", "--log-format", "json", "--admin", "127.0.0.1:0"}, args...)...)
	p.WaitLog("serving")
	return p
}

func (p *Process) add(line []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if line != nil {
		p.raw.Write(line)
		p.raw.WriteByte('\n')
		var fields map[string]any
		if json.Unmarshal(line, &fields) == nil {
			p.lines = append(p.lines, fields)
		}
	}
	close(p.news)
	p.news = make(chan struct{})
}

// WaitLog returns the first log line with the message for which all of the conditions hold, waiting for it if need be.
func (p *Process) WaitLog(message string, conditions ...func(map[string]any) bool) map[string]any {
	p.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	ended := false
	for {
		p.mu.Lock()
		lines, news := p.lines, p.news
		p.mu.Unlock()
		for _, l := range lines {
			if l["msg"] == message && all(conditions, l) {
				return l
			}
		}
		if ended {
			p.t.Fatalf("weir ended (%v) without logging %q", p.err, message)
		}
		select {
		case <-news:
		case <-p.done:
			ended = true
		case <-deadline.C:
			p.t.Fatalf("weir did not log %q", message)
		}
	}
}

func all(conditions []func(map[string]any) bool, line map[string]any) bool {
	for _, c := range conditions {
		if !c(line) {
			return false
		}
	}
	return true
}

// Is is a condition on a field of a log line.
func Is(field string, value any) func(map[string]any) bool {
	return func(l map[string]any) bool { return fmt.Sprint(l[field]) == fmt.Sprint(value) }
}

// Admin is the URL of the admin endpoint, ending in a slash.
func (p *Process) Admin() string {
	p.t.Helper()
	return p.WaitLog("serving")["admin"].(string)
}

// Pid is the process's number.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Signal sends a signal.
func (p *Process) Signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// Wait waits for the end and returns the exit code, -1 for a signal.
func (p *Process) Wait() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		p.t.Fatal("weir did not end")
	}
	return p.cmd.ProcessState.ExitCode()
}

// Stop ends weir with SIGTERM and expects it to end well.
func (p *Process) Stop() {
	p.t.Helper()
	p.Signal(syscall.SIGTERM)
	if code := p.Wait(); code != 0 {
		p.t.Errorf("weir ended with %d after SIGTERM, want 0", code)
	}
}

// Stdout is what weir has printed so far.
func (p *Process) Stdout() string { return p.out.String() }

// Stderr is what weir has logged so far.
func (p *Process) Stderr() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.raw.String()
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// FreePort is a port that nobody uses, and that nobody else is given.
func FreePort(t *testing.T) int {
	t.Helper()
	port, err := freeport.Take()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// Ports gives every port that examples and the tutorial use another, free one, the same each time. The zero value is
// usable.
type Ports struct{ given map[string]int }

var examplePort = regexp.MustCompile(`\b(80[80]\d|8443|90\d\d|15000|5432|6379)\b`)

// Of returns the port to use instead of one that an example names.
func (p *Ports) Of(t *testing.T, port int) int {
	t.Helper()
	name := strconv.Itoa(port)
	if p.given == nil {
		p.given = map[string]int{}
	}
	if p.given[name] == 0 {
		p.given[name] = FreePort(t)
	}
	return p.given[name]
}

// Replace replaces the ports in a text.
func (p *Ports) Replace(t *testing.T, text string) string {
	t.Helper()
	return examplePort.ReplaceAllStringFunc(text, func(s string) string {
		port, _ := strconv.Atoi(s)
		return strconv.Itoa(p.Of(t, port))
	})
}

// Copy copies a folder of manifests to a temporary one with the ports replaced.
func (p *Ports) Copy(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if filepath.Ext(path) == ".yaml" {
			data = []byte(p.Replace(t, string(data)))
		}
		return os.WriteFile(filepath.Join(to, filepath.Base(path)), data, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	return to
}
