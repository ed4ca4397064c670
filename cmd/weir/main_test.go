package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// mostOnDisk is in bytes.
const mostOnDisk = 67_000_000

// TestBinaryIsSmall builds the program as "make build" does.
func TestBinaryIsSmall(t *testing.T) {
	flags := []string{"-trimpath", "-tags", "grpcnotrace", "-ldflags=-w"}
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"BUILD := CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=auto -tags grpcnotrace\n", "\t$(BUILD) -ldflags=-w -o bin/ ./cmd/weir ./cmd/weir-proxy\n",
	} {
		if !strings.Contains(string(makefile), line) {
			t.Errorf("the Makefile builds in another way than %q: change this test with it", line)
		}
	}
	program := filepath.Join(t.TempDir(), "weir")
	build := exec.Command("go", append(append([]string{"build"}, flags...), "-o", program, ".")...)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	info, err := os.Stat(program)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes", info.Size())
	if info.Size() > mostOnDisk {
		t.Errorf("the binary has %d bytes, want at most %d", info.Size(), mostOnDisk)
	}
}
