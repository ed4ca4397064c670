package proxy

import (
	"bufio"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/model"
)

// switching runs a backend that changes to an echo protocol, which says goodbye when the client has ended its side.
func switching(t testing.TB, heads chan string) string {
	return rawBackend(t, func(c net.Conn) {
		r := bufio.NewReader(c)
		h, err := rawHead(r)
		if err != nil {
			return
		}
		heads <- h
		if strings.HasPrefix(h, "CONNECT") {
			io.WriteString(c, "HTTP/1.1 200 Connected\r\n\r\n")
		} else {
			io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\nX-Out: 1\r\n\r\nhello ")
		}
		io.Copy(c, r)
		io.WriteString(c, " bye")
	})
}

const upgradeRequest = "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: echo\r\nSec-WebSocket-Key: x\r\n\r\n"

func TestUpgradeIsTunnelledWithHalfClose(t *testing.T) {
	for name, secured := range map[string]bool{"cleartext": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			heads := make(chan string, 1)
			cfg := plain(switching(t, heads))
			var k *talk
			if secured {
				pool := secure(t, cfg, "a.example")
				k = newTLSTalk(t, serve(t, cfg).addr(), pool, "a.example")
			} else {
				k = newTalk(t, serve(t, cfg).addr())
			}
			k.send(upgradeRequest + "early ")
			head, err := rawHead(k.r)
			if want := "HTTP/1.1 101 Switching Protocols\r\nX-Out: 1\r\nVia: 1.1 weir\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"; head != want || err != nil {
				t.Fatalf("head %q, %v", head, err)
			}
			if h := <-heads; !strings.HasSuffix(h, "Connection: Upgrade\r\nUpgrade: echo\r\n\r\n") || !strings.Contains(h, "Sec-WebSocket-Key: x\r\n") {
				t.Errorf("backend got %q", h)
			}
			big := strings.Repeat("0123456789", 30000)
			sent := make(chan error, 1)
			go func() {
				_, err := io.WriteString(k.Conn, big)
				if err == nil {
					err = k.Conn.(interface{ CloseWrite() error }).CloseWrite()
				}
				sent <- err
			}()
			got, err := io.ReadAll(k.r)
			if err != nil || string(got) != "hello early "+big+" bye" {
				t.Errorf("%d bytes, %v", len(got), err)
			}
			if err := <-sent; err != nil {
				t.Error(err)
			}
		})
	}
}

func TestRefusedUpgradeIsAnOrdinaryAnswer(t *testing.T) {
	addr, _ := wire(t, "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
	s := serve(t, plain(addr))
	k := newTalk(t, s.addr())
	for range 2 {
		k.send(upgradeRequest)
		if resp, body := k.answer("GET"); resp.StatusCode != 403 || body != "no" {
			t.Errorf("status %d, body %q", resp.StatusCode, body)
		}
	}
}

func TestSilentTunnelIsClosed(t *testing.T) {
	s := serve(t, plain(switching(t, make(chan string, 1))), func(o *Options) { o.StreamTimeout = 50 * time.Millisecond })
	k := newTalk(t, s.addr())
	k.send(upgradeRequest)
	rawHead(k.r)
	if rest, err := io.ReadAll(k.r); err != nil && !strings.Contains(err.Error(), "reset") {
		t.Errorf("%q, %v", rest, err)
	}
}

func TestTunnelEndsWithItsBackend(t *testing.T) {
	addr := rawBackend(t, func(c net.Conn) {
		rawHead(bufio.NewReader(c))
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nlast words")
	})
	s := serve(t, plain(addr))
	k := newTalk(t, s.addr())
	k.send(upgradeRequest)
	rawHead(k.r)
	if got, err := io.ReadAll(k.r); string(got) != "last words" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	k.Close()
}

func TestCONNECTNeedsAMatchOfItsMethod(t *testing.T) {
	heads := make(chan string, 1)
	cfg := plain(switching(t, heads))
	s := serve(t, cfg)
	k := newTalk(t, s.addr())
	k.send("CONNECT db.example:5432 HTTP/1.1\r\nHost: db.example:5432\r\n\r\n")
	if resp, _ := k.answer("GET"); resp.StatusCode != 405 || resp.Header.Get("Allow") == "" {
		t.Errorf("status %d", resp.StatusCode)
	}
	cfg = plain(cfg.Services[0].Endpoints[0].Address)
	cfg.Routes[0].Rules[0].Matches = append(cfg.Routes[0].Rules[0].Matches,
		model.Match{Path: model.PathMatch{Type: model.Prefix, Value: "/"}, Method: "CONNECT"})
	if err := s.Apply(cfg); err != nil {
		t.Fatal(err)
	}
	k = newTalk(t, s.addr())
	k.send("CONNECT db.example:5432 HTTP/1.1\r\nHost: db.example:5432\r\n\r\n")
	if head, err := rawHead(k.r); head != "HTTP/1.1 200 Connected\r\nVia: 1.1 weir\r\n\r\n" || err != nil {
		t.Fatalf("%q, %v", head, err)
	}
	if h := <-heads; !strings.HasPrefix(h, "CONNECT db.example:5432 HTTP/1.1\r\nHost: db.example:5432\r\n") {
		t.Errorf("backend got %q", h)
	}
	k.send("ping")
	k.Conn.(*net.TCPConn).CloseWrite()
	if got, err := io.ReadAll(k.r); string(got) != "ping bye" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}
