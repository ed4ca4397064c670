package proxy

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"testing"

	"github.com/weirmesh/weir/internal/telemetry"
)

// TestRootsDotInNames checks that a trailing dot does not change a name. Clients leave the dot out of SNI, as they
// must, and send it in Host.
func TestRootsDotInNames(t *testing.T) {
	addr, _ := wire(t, okResponse)
	cfg, pool := twoNames(t, addr)
	s := serve(t, cfg)
	for _, name := range []string{"one.example", "two.example"} {
		for _, host := range []string{name, name + ".", name + ".:443"} {
			k := newTLSTalk(t, s.addr(), pool, name+".") // crypto/tls leaves the dot out
			k.send("GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n")
			if resp, _ := k.answer("GET"); resp.StatusCode != 200 {
				t.Errorf("name %s., host %s: status %d", name, host, resp.StatusCode)
			}
			k.Close()
		}
	}
}

// TestServerNameWithTheRootsDotIsRefused sends a server name in SNI that RFC 6066 §3 forbids. The handshake fails with
// an alert, no other certificate is presented, and other clients do not notice.
func TestServerNameWithTheRootsDotIsRefused(t *testing.T) {
	addr, _ := wire(t, okResponse)
	cfg, pool := twoNames(t, addr)
	s := serve(t, cfg)
	for _, version := range bothVersions {
		hello := helloFor(t, "two.examplex", version)
		before := bytes.Count(hello, []byte("two.examplex"))
		hello = bytes.Replace(hello, []byte("two.examplex"), []byte("two.example."), 1)
		if before != 1 {
			t.Fatalf("the name is %d times in the hello", before)
		}
		c := dial(t, s.addr())
		if _, err := c.Write(hello); err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(c)
		// An alert record with a fatal alert (RFC 8446 §6).
		if err != nil || len(answer) != 7 || answer[0] != 21 || answer[5] != 2 {
			t.Errorf("version %x: answered % x, %v; want a fatal alert and the end", version, answer, err)
		}
		k := newTLSTalk(t, s.addr(), pool, "two.example")
		k.send("GET / HTTP/1.1\r\nHost: two.example\r\n\r\n")
		if resp, _ := k.answer("GET"); resp.StatusCode != 200 {
			t.Errorf("status %d", resp.StatusCode)
		}
		k.Close()
	}
	if n := s.failures(telemetry.ClientTLS); n != uint64(len(bothVersions)) {
		t.Errorf("%d failures are counted, want %d", n, len(bothVersions))
	}
}

// helloFor is the first record that a client sends.
func helloFor(t *testing.T, name string, version uint16) []byte {
	t.Helper()
	client, server := net.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- tls.Client(client, &tls.Config{ServerName: name, MinVersion: version, MaxVersion: version}).Handshake()
	}()
	head := make([]byte, 5)
	if _, err := io.ReadFull(server, head); err != nil {
		t.Fatal(err)
	}
	hello := append(head, make([]byte, int(head[3])<<8|int(head[4]))...)
	if _, err := io.ReadFull(server, hello[5:]); err != nil {
		t.Fatal(err)
	}
	server.Close()
	<-done // no answer comes
	return hello
}
