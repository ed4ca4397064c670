package process

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"sync"
	"testing"
)

// TestAdminEndpointServesOthersBesideACrowd has one address that opens connections and says nothing.
func TestAdminEndpointServesOthersBesideACrowd(t *testing.T) {
	a, err := ListenAdmin(net.Listen, "127.0.0.1:0", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { Text(w, http.StatusOK, "ok\n") }))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	address := a.Listener.Addr().String()
	var wait sync.WaitGroup
	held := make(chan net.Conn, 2*adminConnections)
	for range 16 {
		wait.Go(func() {
			for range 2 * adminConnections / 16 {
				if c, err := net.Dial("tcp", address); err == nil {
					held <- c
				}
			}
		})
	}
	wait.Wait()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	c, err := d.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	if r, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || r.StatusCode != http.StatusOK {
		t.Errorf("%v %v", r, err)
	}
	c.Close()
	close(held)
	for c := range held {
		c.Close()
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestAdminListenerKeepsItsBooks lets connections in up to the bounds, and others when those have gone.
func TestAdminListenerKeepsItsBooks(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := Bounded(l)
	defer b.Close()
	for range 3 {
		var in []net.Conn
		for range adminPerAddress {
			c, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			s, err := b.Accept()
			if err != nil {
				t.Fatal(err)
			}
			in = append(in, s)
		}
		address := in[0].RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
		if b.enter(address) {
			t.Fatal("one more is let in")
		}
		for _, c := range in {
			c.Close()
			c.Close()
		}
		if b.all != 0 || len(b.from) != 0 {
			t.Fatalf("%d connections of %d addresses are left", b.all, len(b.from))
		}
	}
}
