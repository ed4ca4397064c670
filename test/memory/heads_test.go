//go:build linux

package memory_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// backend runs h.
func backend(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func hello(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body)
	io.WriteString(w, "hello")
}

// unfinished is the beginning of a head, of n bytes.
func unfinished(n int) string {
	var b strings.Builder
	b.WriteString("GET / HTTP/1.1\r\nHost: shop.example\r\n")
	for i := 0; b.Len() < n; i++ {
		line := fmt.Sprintf("X-%d: %s\r\n", i, strings.Repeat("a", 1000))
		b.WriteString(line[:min(len(line), n-b.Len())])
	}
	return b.String()
}

// swarm opens n connections with dial and has each do something. What fails is the attacker's loss. leave closes them.
func swarm(t *testing.T, n int, dial func(i int) (net.Conn, error), do func(i int, c net.Conn)) (leave func()) {
	t.Helper()
	var mu sync.Mutex
	var all []net.Conn
	leave = sync.OnceFunc(func() {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range all {
			c.Close()
		}
	})
	t.Cleanup(leave)
	var wg sync.WaitGroup
	const dialers = 32
	for d := range dialers {
		wg.Go(func() {
			for i := d; i < n; i += dialers {
				c, err := dial(i)
				if err != nil {
					continue
				}
				mu.Lock()
				all = append(all, c)
				mu.Unlock()
				c.SetDeadline(time.Now().Add(5 * time.Second)) // so that one whom nobody reads from does not hold up the others
				do(i, c)
				c.SetDeadline(time.Time{})
			}
		})
	}
	wg.Wait()
	return leave
}

// from dials from one of several addresses of this machine.
func from(i int, addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+i%8))}}
	return d.Dial("tcp", addr)
}

// attack is one against a weir that serves "shop" and others.
type attack struct {
	routes []route
	args   []string
	// run opens n connections and stays until leave.
	run func(t *testing.T, w *world, n int) (leave func())
	// few: the attack has too few connections to need more than others have left; else something must have been refused or ended.
	few bool
}

func (a attack) test(t *testing.T, n int) {
	if !full { // it mostly waits
		t.Parallel()
	}
	w := serve(t, append([]route{{name: "shop", address: backend(t, hello)}}, a.routes...), a.args...)
	others := w.visit("shop")
	before := w.resident()
	leave := a.run(t, w, n)
	drawn, pause := 0.0, 200*time.Millisecond
	if testing.Short() {
		pause = 30 * time.Millisecond
	}
	watch := func() {
		time.Sleep(pause)
		drawn = max(drawn, w.metric("weir_buffered_bytes"))
	}
	for range 10 { // nothing is awaited: the attack is to last
		watch()
	}
	relief := func() float64 { return w.metric("weir_buffered_ended_total") + w.metric("weir_buffered_refused_total") }
	for end := time.Now().Add(patience); !a.few && relief() == 0 && time.Now().Before(end); { // on a busy machine it takes longer
		watch()
	}
	t.Logf("resident %.1f MiB, before %.1f; drawn %.0f KiB of %.0f; ended %.0f; refused: mirror %.0f, head %.0f, retry %.0f, exchange %.0f; 503 or closed for overload %.0f",
		float64(w.resident())/(1<<20), float64(before)/(1<<20), drawn/1024, w.metric("weir_buffered_bytes_limit")/1024, w.metric("weir_buffered_ended_total"),
		w.metric("weir_buffered_refused_total", "mirror"), w.metric("weir_buffered_refused_total", "head"), w.metric("weir_buffered_refused_total", "retry"),
		w.metric("weir_buffered_refused_total", "exchange"), w.metric("weir_request_failures_total", "overload"))
	if most := w.metric("weir_buffered_bytes_limit"); most != limit/8 || drawn > most {
		t.Errorf("%.0f bytes are drawn, of %.0f", drawn, most)
	}
	if relief() == 0 && !a.few {
		t.Error("nothing was ended or refused")
	}
	others.end()
	leave()
	until(t, "all is given back", func() bool { return w.metric("weir_buffered_bytes") == 0 })
	if n := strings.Count(w.Stderr(), "memory limit for buffered data reached"); n > 1 {
		t.Errorf("it was logged %d times", n)
	}
	w.bounded()
}

// TestUnfinishedHeadsAreHeldInBoundedMemory: 63,000 bytes of a head each, in cleartext.
func TestUnfinishedHeadsAreHeldInBoundedMemory(t *testing.T) {
	head := unfinished(63_000)
	attack{run: func(t *testing.T, w *world, n int) func() {
		return swarm(t, n, func(i int) (net.Conn, error) { return from(i, w.addr) }, func(_ int, c net.Conn) { io.WriteString(c, head) })
	}}.test(t, sized(1000, 10_000))
}

// TestUnfinishedHeadsOverTLSAreHeldInBoundedMemory: the same over TLS.
func TestUnfinishedHeadsOverTLSAreHeldInBoundedMemory(t *testing.T) {
	head := unfinished(63_000)
	attack{run: func(t *testing.T, w *world, n int) func() {
		cache := tls.NewLRUClientSessionCache(1)
		return swarm(t, n, func(i int) (net.Conn, error) {
			c, err := from(i, w.tls)
			if err != nil {
				return nil, err
			}
			c.SetDeadline(time.Now().Add(patience))
			tc := tls.Client(c, &tls.Config{ServerName: "shop.example", InsecureSkipVerify: true, ClientSessionCache: cache})
			return tc, tc.Handshake()
		}, func(_ int, c net.Conn) { io.WriteString(c, head) })
	}}.test(t, sized(1000, 10_000))
}

// TestEndlessClientHellosAreHeldInBoundedMemory: ClientHellos of 64 KiB that never end.
func TestEndlessClientHellosAreHeldInBoundedMemory(t *testing.T) {
	var hello []byte
	message := append([]byte{1, 0, 0xff, 0xf0}, make([]byte, 0xfff0-1000)...)
	for len(message) > 0 {
		n := min(len(message), 16<<10)
		hello = append(append(hello, 22, 3, 1, byte(n>>8), byte(n)), message[:n]...)
		message = message[n:]
	}
	attack{run: func(t *testing.T, w *world, n int) func() {
		return swarm(t, n, func(i int) (net.Conn, error) { return from(i, w.tls) }, func(_ int, c net.Conn) { c.Write(hello) })
	}}.test(t, sized(1000, 10_000))
}

// TestSmallUnfinishedHeadsDoNotLockOthersOut: heads that need no memory of the budget take all places for connections, and lose them again.
func TestSmallUnfinishedHeadsDoNotLockOthersOut(t *testing.T) {
	attack{run: func(t *testing.T, w *world, n int) func() {
		return swarm(t, n, func(i int) (net.Conn, error) { return from(i, w.addr) }, func(_ int, c net.Conn) { io.WriteString(c, "GET / HTTP/1.1\r\n") })
	}}.test(t, sized(1500, 10_000))
}

// silent is a backend that takes connections, and what they send if it reads, and says nothing more than beginning.
func silent(t *testing.T, reads bool, beginning string) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var all []net.Conn
	t.Cleanup(func() {
		ln.Close()
		mu.Lock()
		defer mu.Unlock()
		for _, c := range all {
			c.Close()
		}
	})
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			all = append(all, c)
			mu.Unlock()
			go func() {
				io.WriteString(c, beginning)
				if reads {
					io.Copy(io.Discard, c)
				}
			}()
		}
	}()
	return ln.Addr().String()
}

// TestUnfinishedAnswersAreHeldInBoundedMemory: backends begin answers with heads of 64 KiB and do not end them.
func TestUnfinishedAnswersAreHeldInBoundedMemory(t *testing.T) {
	head := strings.Replace(unfinished(63_000), "GET / HTTP/1.1\r\nHost: shop.example\r\n", "HTTP/1.1 200 OK\r\n", 1)
	attack{
		routes: []route{{name: "slow", address: silent(t, true, head)}},
		args:   []string{"--max-in-flight", "2000"}, // more than suit the memory
		run: func(t *testing.T, w *world, n int) func() {
			return swarm(t, n, func(i int) (net.Conn, error) { return from(i, w.addr) }, func(_ int, c net.Conn) {
				io.WriteString(c, "GET / HTTP/1.1\r\nHost: slow.example\r\n\r\n")
			})
		},
	}.test(t, sized(800, 1000))
}

// TestBodiesForRetriesAreHeldInBoundedMemory: uploads of 64 KiB that a rule could send again, to a backend that does not answer.
func TestBodiesForRetriesAreHeldInBoundedMemory(t *testing.T) {
	attack{
		routes: []route{{name: "again", address: silent(t, true, ""), rule: "retry: {attempts: 3, codes: [503]}"}},
		run: func(t *testing.T, w *world, n int) func() {
			body := strings.Repeat("b", 60<<10)
			return swarm(t, n, func(i int) (net.Conn, error) { return from(i, w.addr) }, func(_ int, c net.Conn) {
				fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: again.example\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
			})
		},
		few: true, // requests in flight have their own bound
	}.test(t, 1000)
}

// TestCopiesToMirrorsThatHangAreHeldInBoundedMemory: bodies of 200 KiB, copied to services that read nothing.
func TestCopiesToMirrorsThatHangAreHeldInBoundedMemory(t *testing.T) {
	copies := 1000
	if testing.Short() {
		copies = 500 // still more than the process may have
	}
	var routes []route
	for i := range 4 {
		name := fmt.Sprintf("hang%d", i)
		routes = append(routes, route{name: name, address: silent(t, false, "")},
			route{name: fmt.Sprintf("copied%d", i), address: backend(t, hello), rule: "filters: [{type: RequestMirror, requestMirror: {backendRef: {name: " + name + ", port: 80}}}]"})
	}
	attack{
		routes: routes,
		run: func(t *testing.T, w *world, n int) func() {
			body := strings.Repeat("b", 200<<10)
			return swarm(t, n, func(i int) (net.Conn, error) { return from(i, w.addr) }, func(i int, c net.Conn) {
				fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: copied%d.example\r\nContent-Length: %d\r\n\r\n%s", i%4, len(body), body)
				http.ReadResponse(bufio.NewReader(c), nil)
			})
		},
	}.test(t, copies)
}

// TestAccessLogThatNobodyReadsIsHeldInBoundedMemory: a pipe, and requests with long targets.
func TestAccessLogThatNobodyReadsIsHeldInBoundedMemory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access.log")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	attack{
		args: []string{"--access-log", path},
		run: func(t *testing.T, w *world, n int) func() {
			target := strings.Repeat("t", 7000)
			return swarm(t, n, func(i int) (net.Conn, error) { return from(i, w.addr) }, func(i int, c net.Conn) {
				r := bufio.NewReader(c)
				for range 5 {
					fmt.Fprintf(c, "GET /%s HTTP/1.1\r\nHost: shop.example\r\n\r\n", target)
					resp, err := http.ReadResponse(r, nil)
					if err != nil {
						return
					}
					io.Copy(io.Discard, resp.Body)
				}
			})
		},
		few: true,
	}.test(t, 1000)
}
