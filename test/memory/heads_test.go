//go:build linux

package memory_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
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

// swarm opens n connections with dial, has each do something, and closes them with the test. What fails is the attacker's loss.
func swarm(t *testing.T, n int, dial func(i int) (net.Conn, error), do func(i int, c net.Conn)) {
	t.Helper()
	var mu sync.Mutex
	var all []net.Conn
	t.Cleanup(func() {
		for _, c := range all {
			c.Close()
		}
	})
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
				c.SetDeadline(time.Now().Add(patience))
				do(i, c)
			}
		})
	}
	wg.Wait()
}

// from dials from one of several addresses of this machine.
func from(i int, addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+i%8))}}
	return d.Dial("tcp", addr)
}

func TestUnfinishedHeadsOfManyClientsAreHeldInBoundedMemory(t *testing.T) {
	w := serve(t, []route{{name: "shop", address: backend(t, hello)}})
	others := w.visit("shop")
	head := unfinished(63_000)
	swarm(t, sized(1000, 10_000), func(i int) (net.Conn, error) { return from(i, w.addr) }, func(_ int, c net.Conn) { io.WriteString(c, head) })
	time.Sleep(3 * time.Second) // nothing is awaited: the attack is to last
	others.end()
	w.bounded()
	w.Stop()
}
