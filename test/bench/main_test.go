//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/weirmesh/weir/test/weirtest"
)

// TestMain also is the binary whose subcommands the harness starts, and weir.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "backend", "load", "grpcload", "handshakes", "idle", "reverseproxy":
			if err := command(os.Args[1:]); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
	weirtest.Main(m)
}

// newBench is a harness with a running backend. Both processors are the same one: nothing is measured here.
func newBench(t *testing.T) *bench {
	t.Helper()
	runtime.LockOSThread() // children are killed when the thread that started them ends
	b := &bench{
		ctx: t.Context(), dir: t.TempDir(), conns: 8, rounds: 1, duration: 200 * time.Millisecond, log: io.Discard,
		peers: allPeers, proxyCPU: firstCPU(t), loadCPU: firstCPU(t),
	}
	t.Cleanup(func() {
		b.stopAll()
		runtime.UnlockOSThread()
	})
	var err error
	if b.certificate, err = newCertificate(b.dir); err != nil {
		t.Fatal(err)
	}
	if b.trust, err = newTrust(b.dir); err != nil {
		t.Fatal(err)
	}
	if b.backends, err = b.startBackend(); err != nil {
		t.Fatal(err)
	}
	// The context of the test ends before its cleanup, and tools may still run then.
	b.ctx = context.WithoutCancel(b.ctx)
	return b
}
