//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// debian names the package of each command.
var debian = map[string]string{
	"nginx": "nginx", "haproxy": "haproxy", "wrk": "wrk", "h2load": "nghttp2-client", "taskset": "util-linux",
}

// lookPath also looks where Debian puts daemons, which is not in everybody's PATH.
func lookPath(command string) (string, error) {
	if path, err := exec.LookPath(command); err == nil {
		return path, nil
	}
	return exec.LookPath(filepath.Join("/usr/sbin", command))
}

// install installs from Debian what is absent of the peers, and of the tools if they are wanted.
func (b *bench) install(tools bool) error {
	commands := []string{"taskset"}
	if tools {
		commands = append(commands, "wrk", "h2load")
	}
	for _, peer := range b.peers {
		if _, ok := debian[peer]; ok {
			commands = append(commands, peer)
		}
	}
	var packages []string
	for _, c := range commands {
		if _, err := lookPath(c); err != nil {
			packages = append(packages, debian[c])
		}
	}
	if len(packages) == 0 {
		return nil
	}
	apt, err := exec.LookPath("apt-get")
	if err != nil || os.Getuid() != 0 {
		return fmt.Errorf("missing: %s; install them, or run this as root on Debian", strings.Join(packages, " "))
	}
	fmt.Fprintln(b.log, "installing", strings.Join(packages, " "))
	for _, args := range [][]string{{"update"}, append([]string{"install", "-y", "--no-install-recommends"}, packages...)} {
		cmd := exec.Command(apt, args...)
		// Daemons of the packages must not start: their ports are none of ours.
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get %s: %w\n%s", args[0], err, out)
		}
	}
	return nil
}

// build builds weir from the module that holds the working directory.
func (b *bench) build() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	path := filepath.Join(b.dir, "weir")
	cmd := exec.Command("go", "build", "-trimpath", "-o", path, "./cmd/weir")
	cmd.Dir = filepath.Dir(strings.TrimSpace(string(out)))
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build weir: %w\n%s", err, out)
	}
	return path, nil
}

var numbers = regexp.MustCompile(`[0-9]+\.[0-9]+[^\s,/]*`)

// readVersions notes what is compared, for the report.
func (b *bench) readVersions(tools bool) {
	for _, c := range []struct{ name, flag string }{{"nginx", "-v"}, {"haproxy", "-v"}, {"wrk", "-v"}, {"h2load", "--version"}} {
		if slices.Contains(allPeers, c.name) && !slices.Contains(b.peers, c.name) || !tools && !slices.Contains(allPeers, c.name) {
			continue
		}
		path, err := lookPath(c.name)
		if err != nil {
			continue
		}
		out, err := exec.Command(path, c.flag).CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) { // wrk -v exits with 1
			continue
		}
		b.versions = append(b.versions, c.name+" "+numbers.FindString(string(out)))
	}
}

// machine says on what was measured.
func machine() string {
	model := "unknown processor"
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if _, after, ok := strings.Cut(string(text), "model name"); ok {
			line, _, _ := strings.Cut(after, "\n")
			model = strings.TrimSpace(strings.TrimLeft(line, "\t :"))
		}
	}
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	release, _, _ := strings.Cut(strings.TrimSpace(string(kernel)), "-")
	return fmt.Sprintf("%s, %d processors, Linux %s", model, runtime.NumCPU(), release)
}
