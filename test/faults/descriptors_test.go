//go:build linux

package faults_test

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Descriptors run out under connections that are not served, some of them idle: clients that are there go on, the admin endpoint answers, a reload is
// applied, the log says it once; and when there are some again, so are new clients.
func TestDescriptorsRunOut(t *testing.T) {
	together(t)
	addr := backend(t, hello)
	routes := []route{{name: "shop", address: addr}}
	w := serve(t, routes, "--header-timeout", "1m")
	h := w.visit("shop", 4, 5*time.Millisecond)
	until(t, "the clients are served", func() bool { return w.metric("weir_requests_total") > 50 })

	few := uint64(w.metric("process_open_fds")) + 40
	if err := unix.Prlimit(w.Pid(), unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: few, Max: few}, nil); err != nil {
		t.Fatal(err)
	}
	var greedy []net.Conn
	for i := range 300 {
		c := dial(t, "127.0.0.2", w.addr)
		greedy = append(greedy, c)
		if i%2 == 0 {
			io.WriteString(c, "GET / HTTP/1.1\r\nHost: shop.example\r\n")
		}
	}
	const begun, ended = "out of file descriptors: new clients wait, connections to endpoints fail; raise the limit (ulimit -n) or lower the load",
		"file descriptors available again"
	w.WaitLog(begun)
	cpu := w.metric("process_cpu_seconds_total")
	start := time.Now()
	w.write(append(routes, route{name: "cart", address: addr}))
	until(t, "the reload is applied", func() bool { return w.metric("weir_config_generation") == 2 })
	time.Sleep(time.Second)
	t.Logf("%.0f%% of a processor meanwhile", 100*(w.metric("process_cpu_seconds_total")-cpu)/time.Since(start).Seconds())
	for _, c := range greedy {
		c.Close()
	}
	w.WaitLog(ended)
	for _, name := range []string{"shop", "cart"} {
		if status, body, err := w.get(name, "/"); status != 200 || err != nil {
			t.Errorf("%s: status %d, %q, %v", name, status, body, err)
		}
	}
	n, p99 := h.end(t)
	t.Logf("clients that were there: %d requests, 99%% within %v", n, p99)
	if n := strings.Count(w.Stderr(), begun); n != 1 {
		t.Errorf("the log says %d times that descriptors ran out", n)
	}
	for _, blamed := range []string{"connect_failed", "backend_reset"} {
		if n := w.reasons("shop")[blamed]; n != 0 {
			t.Errorf("the backend is blamed %d times: %s", n, blamed)
		}
	}
	w.Stop()
}

// Connections to backends that cannot be made for want of descriptors are no fault of the backend.
func TestNoDescriptorForABackend(t *testing.T) {
	together(t)
	addr := backend(t, hello)
	w := serve(t, []route{{name: "shop", address: addr}})
	c := dial(t, "127.0.0.1", w.addr)
	until(t, "weir has the connection", func() bool { return w.metric("weir_connections_open") == 1 })
	// Below what is open: the kernel gives no further one, not even those that are held back.
	if err := unix.Prlimit(w.Pid(), unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 5, Max: 20000}, nil); err != nil {
		t.Fatal(err)
	}
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n")
	c.SetDeadline(time.Now().Add(patience))
	answer, err := io.ReadAll(c)
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 503 ") || !strings.Contains(string(answer), "overload: ") {
		t.Errorf("%q, %v", answer, err)
	}
	if err := unix.Prlimit(w.Pid(), unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 20000, Max: 20000}, nil); err != nil {
		t.Fatal(err)
	}
	if status, body, err := w.get("shop", "/"); status != 200 {
		t.Errorf("status %d, %q, %v", status, body, err)
	}
	if got := w.reasons("shop"); got["overload"] != 1 || len(got) != 1 {
		t.Errorf("%v", got)
	}
	w.Stop()
}
