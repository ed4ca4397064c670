package cli_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/weirmesh/weir/test/size"
	"github.com/weirmesh/weir/test/weirtest"
)

// freshLoad sends requests, each over a connection of its own, until stop is called, which returns how many there were and what went wrong first.
func (w *world) freshLoad() (stop func() (sent int64, first any)) {
	ctx, cancel := context.WithCancel(context.Background())
	var sent atomic.Int64
	var first atomic.Value
	var load sync.WaitGroup
	for range size.Of(2, 4) {
		load.Go(func() {
			for ctx.Err() == nil {
				if got := w.fresh(); got != "blue" {
					first.CompareAndSwap(nil, got)
				}
				sent.Add(1)
			}
		})
	}
	return func() (int64, any) {
		cancel()
		load.Wait()
		return sent.Load(), first.Load()
	}
}

// fresh is get over a connection of its own.
func (w *world) fresh() string {
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", w.port))
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	answer, err := io.ReadAll(conn)
	if err != nil {
		return err.Error()
	}
	return string(answer[strings.LastIndexByte(string(answer), '\n')+1:])
}

func TestHandoverLosesNoConnection(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	socket := filepath.Join(t.TempDir(), "handover")
	w.run("--handover", socket)
	stop := w.freshLoad()
	admin := w.weir.Admin()
	for range size.Of(1, 3) {
		old := w.weir
		w.run("--handover", socket)
		old.WaitLog("another process has taken over")
		if code := old.Wait(); code != 0 {
			t.Errorf("the older process ended with %d, want 0", code)
		}
		if w.weir.Admin() != admin {
			t.Errorf("the admin endpoint moved from %s to %s", admin, w.weir.Admin())
		}
		if status, _ := w.admin("readyz"); status != http.StatusOK {
			t.Errorf("/readyz of the newer process: %d, want 200", status)
		}
	}
	sent, first := stop()
	if first != nil || sent == 0 {
		t.Errorf("of %d requests some failed, the first with %q", sent, first)
	}
	w.weir.Stop()
}

func TestFailedHandoverLeavesTheOlderProcessServing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	socket := filepath.Join(t.TempDir(), "handover")
	w.run("--handover", socket)
	stop := w.freshLoad()

	// One that asks for the sockets and goes away.
	visitor, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	visitor.Close()
	w.weir.WaitLog("the process that was taking over did not start serving")

	// One that has the sockets and cannot serve: its own port is taken.
	taken, err := net.Listen("tcp", fmt.Sprintf(":%d", weirtest.FreePort(t)))
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	other := *w
	other.dir, other.port = t.TempDir(), taken.Addr().(*net.TCPAddr).Port
	other.write("services.yaml", w.services())
	other.write("route.yaml", other.route("green"))
	failed := weirtest.Start(t, "run", "--admin", "127.0.0.1:0", "--handover", socket, other.dir)
	if code := failed.Wait(); code != 1 {
		t.Errorf("a process whose port is taken ended with %d, want 1", code)
	}
	waitUntil(t, func() bool {
		return strings.Count(w.weir.Stderr(), "the process that was taking over did not start serving") == 2
	})
	if sent, first := stop(); first != nil || sent == 0 {
		t.Errorf("of %d requests some failed, the first with %q", sent, first)
	}
	w.weir.Stop()

	// The socket of one that has ended is no obstacle.
	w.run("--handover", socket)
	w.weir.Stop()
}

func TestHandoverPassesManyPorts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var gateways strings.Builder
	ports := map[int]bool{w.port: true}
	for len(ports) < 130 {
		port := weirtest.FreePort(t)
		if ports[port] {
			continue
		}
		ports[port] = true
		fmt.Fprintf(&gateways, "---\napiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: g%d}\nspec: {gatewayClassName: weir, listeners: [{name: http, port: %[1]d, protocol: HTTP}]}\n", port)
	}
	w.write("gateways.yaml", gateways.String())
	socket := filepath.Join(t.TempDir(), "handover")
	w.run("--handover", socket)
	old := w.weir
	w.run("--handover", socket)
	old.WaitLog("another process has taken over", weirtest.Is("sockets", len(ports)+1)) // and the admin endpoint
	if code := old.Wait(); code != 0 {
		t.Errorf("the older process ended with %d, want 0", code)
	}
	for port := range ports {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
	w.weir.Stop()
}

func TestDrainDelayServesWhileNotReady(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run("--drain-delay", "10m")
	w.weir.Signal(syscall.SIGTERM)
	w.weir.WaitLog("not ready, draining soon")
	if status, _ := w.admin("readyz"); status != http.StatusServiceUnavailable {
		t.Errorf("/readyz: %d, want 503", status)
	}
	if got := w.fresh(); got != "blue" {
		t.Errorf("a new connection: %q, want blue", got)
	}
	w.write("route.yaml", w.route("green"))
	w.weir.WaitLog("configuration applied", weirtest.Is("generation", 2))
	if got := w.fresh(); got != "green" {
		t.Errorf("after a reload: %q, want green", got)
	}
	w.weir.Signal(syscall.SIGTERM)
	if code := w.weir.Wait(); code != -1 {
		t.Errorf("exit code %d, want an end by the second signal", code)
	}

	w.write("route.yaml", w.route("blue"))
	w.run("--drain-delay", "1ms")
	w.weir.Stop()
}
