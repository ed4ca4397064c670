//go:build linux

package faults_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirmesh/weir/test/weirtest"
)

// Rotation, by hand and by logrotate, loses no line and tears none.
func TestRotatedAccessLogLosesNothing(t *testing.T) {
	together(t)
	addr := backend(t, hello)
	dir := t.TempDir()
	path := filepath.Join(dir, "access.log")
	w := serve(t, []route{{name: "shop", address: addr}}, "--access-log", path)
	h := w.visit("shop", 4, time.Millisecond)
	lines := func() int { return int(w.metric("weir_requests_total")) }
	progress := func() {
		n := lines()
		until(t, "there are further requests", func() bool { return lines() > n+50 })
	}
	for i := range 5 {
		progress()
		if err := os.Rename(path, fmt.Sprintf("%s.%d", path, 100+i)); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			w.Signal(syscall.SIGUSR1)
		}
		until(t, "there is a new file", func() bool { _, err := os.Stat(path); return err == nil })
	}
	logrotate, err := exec.LookPath("logrotate")
	if err != nil {
		logrotate = "/usr/sbin/logrotate"
	}
	config := filepath.Join(dir, "logrotate.conf")
	if err := os.WriteFile(config, []byte(path+" {\n  rotate 50\n  size 1\n  missingok\n  nocompress\n  nocreate\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		progress()
		if out, err := exec.Command(logrotate, "-s", filepath.Join(dir, "state"), "-f", config).CombinedOutput(); err != nil {
			t.Fatalf("logrotate: %v\n%s", err, out)
		}
	}
	progress()
	n, _ := h.end(t)
	if lost := w.metric("weir_access_log_dropped_records_total"); lost != 0 {
		t.Errorf("%v lines were dropped", lost)
	}
	w.Stop()
	files, err := filepath.Glob(path + "*")
	if err != nil || len(files) != 11 {
		t.Errorf("files %q, %v; want the log and ten old ones", files, err)
	}
	got := 0
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); got++ {
			if !json.Valid(s.Bytes()) {
				t.Errorf("%s: %q", f, s.Text())
			}
		}
	}
	if got != n {
		t.Errorf("%d lines of %d requests", got, n)
	}
}

// A disk that is full costs lines, which are counted, and nothing else; when it has room again, so has the log.
func TestDiskIsFull(t *testing.T) {
	together(t)
	addr := backend(t, hello)
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Skipf("no small file system can be mounted (not root?): %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	path := filepath.Join(dir, "access.log")
	w := serve(t, []route{{name: "shop", address: addr}}, "--access-log", path)
	h := w.visit("shop", 4, time.Millisecond)
	until(t, "lines are written", func() bool { i, err := os.Stat(path); return err == nil && i.Size() > 1000 })
	filler := filepath.Join(dir, "filler")
	if f, err := os.Create(filler); err != nil {
		t.Fatal(err)
	} else if _, err := io.Copy(f, zeros{}); err == nil || f.Close() != nil {
		t.Fatal("the disk is not full")
	}
	const begun, ended = "access log cannot be written, its records are dropped", "access log is written again"
	w.WaitLog(begun)
	before := w.metric("process_resident_memory_bytes")
	until(t, "lines are counted as lost", func() bool { return w.metric("weir_access_log_dropped_records_total") > 500 })
	t.Logf("memory %.1f MB when the disk was full, %.1f MB after %v lost lines", before/1e6, w.metric("process_resident_memory_bytes")/1e6,
		w.metric("weir_access_log_dropped_records_total"))
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	w.WaitLog(ended)
	n, _ := h.end(t)
	lost := int(w.metric("weir_access_log_dropped_records_total"))
	w.Stop()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	whole, torn := 0, 0
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		if json.Valid(s.Bytes()) {
			whole++
		} else {
			torn++
		}
	}
	if whole+lost != n || torn > 1 {
		t.Errorf("%d lines and %d lost ones of %d requests, %d torn", whole, lost, n, torn)
	}
	for _, message := range []string{begun, ended} {
		if n := strings.Count(w.Stderr(), message); n != 1 {
			t.Errorf("%d times %q", n, message)
		}
	}
}

func TestAccessLogToAFullDevice(t *testing.T) {
	together(t)
	addr := backend(t, hello)
	w := serve(t, []route{{name: "shop", address: addr}}, "--access-log", "/dev/full")
	h := w.visit("shop", 4, time.Millisecond)
	until(t, "lines are lost", func() bool { return w.metric("weir_access_log_dropped_records_total") > 500 })
	h.end(t)
	if n := strings.Count(w.Stderr(), "access log cannot be written"); n != 1 {
		t.Errorf("the log says it %d times", n)
	}
	w.Signal(syscall.SIGTERM)
	if code := w.Wait(); code != 1 {
		t.Errorf("weir ended with %d, want 1: the log's end was lost", code)
	}
}

// Nobody reads stderr, and then it is closed: requests go on, also those of which the log would tell.
func TestNobodyReadsStderr(t *testing.T) {
	together(t)
	w := &world{t: t, dir: t.TempDir(), addr: fmt.Sprintf("127.0.0.1:%d", weirtest.FreePort(t))}
	w.write([]route{{name: "shop", address: backend(t, hello)}, {name: "gone", address: "127.0.0.1:1"}})
	admin := fmt.Sprintf("127.0.0.1:%d", weirtest.FreePort(t))
	cmd := weirtest.Command("run", "--log-level", "debug", "--log-format", "json", "--admin", admin, w.dir)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { cmd.Process.Kill() })
	until(t, "weir serves", func() bool {
		out, err := exec.Command("curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "http://"+admin+"/readyz").Output()
		return err == nil && string(out) == "200"
	})
	h := w.visit("shop", 2, 5*time.Millisecond)
	lost := func() bool {
		out, err := exec.Command("curl", "-s", "http://"+admin+"/metrics").Output()
		return err == nil && strings.Contains(string(out), "\nweir_log_dropped_lines_total ") &&
			!strings.Contains(string(out), "\nweir_log_dropped_lines_total 0\n")
	}
	c := dial(t, "127.0.0.1", w.addr)
	r := bufio.NewReader(c)
	until(t, "lines are lost", func() bool {
		for range 500 {
			if err := exchange(c, r, "gone"); err == nil || !strings.Contains(err.Error(), "status 502") {
				t.Fatalf("a backend that is gone: %v", err)
			}
		}
		return lost()
	})
	stderr.Close()
	for range 500 {
		if err := exchange(c, r, "gone"); err == nil || !strings.Contains(err.Error(), "status 502") {
			t.Fatalf("stderr is closed: %v", err)
		}
	}
	h.end(t)
	select {
	case err := <-ended:
		t.Fatalf("weir ended: %v", err)
	default:
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("weir ended with %v", err)
	}
}
