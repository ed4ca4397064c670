package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/peertest"
)

const (
	mostOnDisk   = 19_000_000
	mostResident = 20_000_000
	mostPrivate  = 10_000_000
)

// TestBinaryIsSmall builds the program as it is released, runs it beside a control plane that is away, and looks at what it takes.
func TestBinaryIsSmall(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "weir-proxy")
	build := exec.Command("go", "build", "-trimpath", "-tags", "grpcnotrace", "-ldflags", "-s -w", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	info, err := os.Stat(program)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > mostOnDisk {
		t.Errorf("the binary has %d bytes, want at most %d", info.Size(), mostOnDisk)
	}
	if runtime.GOOS != "linux" {
		t.Skip("what a process takes is read from /proc, which Linux has")
	}

	for _, args := range [][]string{
		{"--gateway", "shop/edge"},
		{"sidecar", "--pod-namespace", "shop", "--pod-name", "cart-1", "--pod-ips", "127.0.0.1"},
	} {
		t.Run(args[0], func(t *testing.T) { runsSmall(t, program, info.Size(), args...) })
	}
}

// runsSmall runs the program beside a control plane that is away.
func runsSmall(t *testing.T, program string, size int64, args ...string) {
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, append(args, "--controller", "127.0.0.1:1", "--admin", "127.0.0.1:0",
		"--ca-file", filepath.Join(dir, "none"), "--token-file", filepath.Join(dir, "none"), "--log-level", "debug")...)
	cmd.Cancel = func() error { return cmd.Process.Kill() }
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// It has tried to reach the control plane by then.
	lines, tried := bufio.NewScanner(log), false
	for !tried && lines.Scan() {
		tried = strings.Contains(lines.Text(), "no configuration from the control plane")
	}
	if !tried {
		t.Fatal("it never tried to reach the control plane")
	}
	resident, private := peertest.Memory(t, cmd.Process.Pid)
	t.Logf("binary %d KiB, resident %d KiB, private %d KiB", size>>10, resident>>10, private>>10)
	if resident > mostResident || private > mostPrivate {
		t.Errorf("resident %d bytes, private %d, want at most %d and %d", resident, private, mostResident, mostPrivate)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, log)
	if err := cmd.Wait(); err != nil {
		t.Errorf("after an interrupt: %v", err)
	}
}

func TestCommandLine(t *testing.T) {
	t.Setenv("WEIR_MAX_HOPS", "many")
	for _, x := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--help"}, 0, "--controller"},
		{[]string{"--version"}, 0, "weir "},
		{[]string{"--gatewai", "a/b"}, 2, "unknown flag: --gatewai"},
		{[]string{"redirect", "--help"}, 0, "--skip-inbound-ports"},
		{[]string{"redirect", "--dry-run", "--skip-inbound-ports", "22"}, 0, "tcp dport 22 accept"},
		{[]string{"redirect", "--dry-run", "--skip-users", "root"}, 2, `--skip-users "root": this is no user`},
		{[]string{"extra"}, 2, `unexpected argument "extra"`},
		{nil, 2, `WEIR_MAX_HOPS="many"`},
		{[]string{"--max-hops", "3"}, 2, `--gateway "": want NAMESPACE/NAME`},
		{[]string{"proxy", "--max-hops", "3", "--gateway", "a/b"}, 2, `--controller "": want HOST:PORT`},
		{[]string{"sidecar", "--help"}, 0, "--pod-ips"},
		{[]string{"sidecar", "--max-hops", "3", "--pod-namespace", "a"}, 2, `--pod-namespace "a" and --pod-name "": want both`},
		{[]string{"sidecar", "--max-hops", "3", "--reach", "any"}, 2, "unknown flag: --reach"},
	} {
		var out bytes.Buffer
		if code := run(x.args, &out, &out); code != x.code || !strings.Contains(out.String(), x.want) {
			t.Errorf("%q: exit code %d, want %d with %q: %s", x.args, code, x.code, x.want, out.String())
		}
	}
}

// TestPortInUseEndsIt holds that what fails at the start is told, with the exit code of a failure.
func TestPortInUseEndsIt(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() { _ = http.Serve(l, http.NotFoundHandler()) }()
	var out bytes.Buffer
	if code := run([]string{"--gateway", "a/b", "--controller", "127.0.0.1:1", "--admin", l.Addr().String()}, &out, &out); code != 1 || !strings.Contains(out.String(), "admin endpoint") {
		t.Errorf("exit code %d: %s", code, out.String())
	}
}
