//go:build linux

package faults_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Ten thousand slow clients (a thousand or 300 in the bounded forms): a third send heads byte by byte, a third bodies, a third nothing at all after a first
// request. Weir's memory stays within 200 MB of what it was, and others are served.
func TestSlowClientsCostLittle(t *testing.T) {
	together(t)
	n := sized(300, 1000, 10_000)
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	// This process holds an end of each client's connection, and of each upload the backend's; so does weir.
	if most := (int(limit.Max) - 2000) * 3 / 4; n > most {
		t.Logf("%d instead of %d clients, as there are %d descriptors", most, n, limit.Max)
		n = most
	}
	addr := backend(t, hello)
	w := serve(t, []route{{name: "shop", address: addr}},
		"--max-connections", "30000", "--max-in-flight", "30000", "--header-timeout", "10m", "--min-body-rate", "1", "--body-grace", "10m")
	pause := time.Duration(sized(300, 2000, 8000)) * time.Millisecond
	alone := w.visit("shop", 8, 2*time.Millisecond)
	time.Sleep(pause)
	aloneN, alone99 := alone.end(t)
	before := w.metric("process_resident_memory_bytes")

	conns := make([]net.Conn, n)
	var wg sync.WaitGroup
	const dialers = 16
	for d := range dialers {
		wg.Go(func() {
			for i := d; i < n; i += dialers {
				c := dial(t, fmt.Sprintf("127.0.0.%d", 2+i%8), w.addr)
				conns[i] = c
				switch i % 3 {
				case 0:
					io.WriteString(c, "GET / HTTP/1.1\r\nHost: shop.example\r\nX-Slow: ")
				case 1:
					io.WriteString(c, "POST / HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 1000\r\n\r\n")
				case 2:
					io.WriteString(c, "GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n")
				}
			}
		})
	}
	wg.Wait()
	until(t, "all are connected", func() bool { return w.metric("weir_connections_open") >= float64(n) })
	stop := make(chan struct{})
	wg.Go(func() {
		// A byte of each every five seconds, one after the other, as of clients that know nothing of each other.
		const steps = 500
		for step := 0; ; step = (step + 1) % steps {
			for i := step; i < n; i += steps {
				if i%3 != 2 {
					conns[i].Write([]byte("a"))
				}
			}
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Second / steps):
			}
		}
	})
	among := w.visit("shop", 8, 2*time.Millisecond)
	time.Sleep(pause)
	amongN, among99 := among.end(t)
	after := w.metric("process_resident_memory_bytes")
	open := w.metric("weir_connections_open")
	close(stop)
	wg.Wait()
	t.Logf("%d slow clients: memory %.1f MB, then %.1f MB: %.1f KB each", n, before/1e6, after/1e6, (after-before)/1e3/float64(n))
	t.Logf("healthy clients: 99%% within %v of %d requests alone, within %v of %d among them: %.2f times", alone99, aloneN, among99, amongN,
		float64(among99)/float64(alone99))
	most := 200e6
	if raceEnabled {
		most *= 4 // 14 KB of a client are about 200
	}
	if after > before+most {
		t.Errorf("memory grew from %.1f MB to %.1f MB", before/1e6, after/1e6)
	}
	if open < float64(n) {
		t.Errorf("only %v connections were open at the end: the clients were not slow enough to show anything", open)
	}
	for _, c := range conns {
		c.Close()
	}
	until(t, "all are gone", func() bool { return w.metric("weir_connections_open") < 20 })
	w.Stop()
}

// The attacks of slowhttptest end by themselves, each in its way, while others are served.
func TestSlowhttptest(t *testing.T) {
	together(t)
	tool, err := exec.LookPath("slowhttptest")
	if err != nil {
		t.Fatal("slowhttptest is not installed: make setup")
	}
	addr := backend(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/large" {
			io.CopyN(w, zeros{}, 6<<20)
		}
		io.WriteString(w, "hello")
	})
	conns, seconds := strconv.Itoa(sized(50, 200, 2000)), strconv.Itoa(sized(6, 12, 12))
	for _, attack := range []struct {
		name string
		args []string
		path string
		// reason is what the clients are blamed for; "" is nothing: they are served.
		reason string
	}{
		{"slow headers", []string{"-H", "-i", "1", "-x", "10"}, "/", "client_timeout"},
		{"slow body", []string{"-B", "-i", "1", "-x", "10", "-s", "8192"}, "/", "client_timeout"},
		{"slow read", []string{"-X", "-w", "512", "-y", "1024", "-n", "2", "-z", "32", "-k", "1"}, "/large", "client_timeout"},
		{"range", []string{"-R", "-a", "5", "-b", "3000"}, "/", ""},
	} {
		t.Run(attack.name, func(t *testing.T) {
			together(t)
			w := serve(t, []route{{name: "shop", address: addr}}, "--header-timeout", "3s", "--body-grace", "2s", "--min-body-rate", "1000")
			h := w.visit("shop", 4, 5*time.Millisecond)
			args := append(attack.args, "-c", conns, "-r", conns, "-l", seconds, "-p", "5", "-u", "http://shop.example"+attack.path, "-d", w.addr)
			out, err := exec.Command(tool, args...).CombinedOutput()
			if _, ok := err.(*exec.ExitError); err != nil && !ok {
				t.Fatal(err)
			}
			if text := string(out); !strings.Contains(text, "service available:") {
				t.Fatalf("slowhttptest says nothing of the service:\n%.2000s", text)
			}
			n, p99 := h.end(t)
			until(t, "its connections are gone", func() bool { return w.metric("weir_connections_open") < 10 })
			reasons := w.metric("weir_request_failures_total", `reason="client_timeout"`)
			memory := w.metric("process_resident_memory_bytes")
			t.Logf("%s clients: %v timed out, memory %.1f MB; others: %d requests, 99%% within %v", conns, reasons, memory/1e6, n, p99)
			if attack.reason != "" && reasons == 0 {
				t.Error("no client was too slow")
			}
			for _, blamed := range []string{"connect_failed", "backend_reset", "backend_timeout", "malformed_response", "internal"} {
				if got := w.metric("weir_request_failures_total", fmt.Sprintf("reason=%q", blamed)); got != 0 {
					t.Errorf("%v times %s", got, blamed)
				}
			}
			w.Stop()
		})
	}
}
