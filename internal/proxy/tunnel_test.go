package proxy

import (
	"bufio"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/peertest"
	"github.com/weirmesh/weir/internal/telemetry"
)

// switching runs a backend that switches to an echo protocol. When the client has closed its sending side, the backend
// says goodbye.
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
			protocol := "echo"
			if strings.Contains(h, "websocket") {
				protocol = "websocket"
			}
			io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+protocol+"\r\nX-Out: 1\r\n\r\nhello ")
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

func TestOnlyProtocolsThatWereAskedForAreTunnelled(t *testing.T) {
	const get = "GET / HTTP/1.1\r\nHost: a\r\n"
	for _, test := range []struct {
		name, asked, answer string
		tunnel              bool
	}{
		{"the one", "Connection: Upgrade\r\nUpgrade: echo\r\n", "Connection: Upgrade\r\nUpgrade: echo\r\n", true},
		{"in another case", "Connection: upgrade\r\nUpgrade: WebSocket\r\n", "Connection: upgrade\r\nUpgrade: websocket\r\n", true},
		{"one of several", "Connection: Upgrade\r\nUpgrade: foo, echo/2, bar\r\n", "Connection: Upgrade\r\nUpgrade: echo/2\r\n", true},
		{"two of several", "Connection: Upgrade\r\nUpgrade: foo, echo, bar\r\n", "Connection: Upgrade\r\nUpgrade: bar , foo\r\n", true},
		{"another", "Connection: Upgrade\r\nUpgrade: echo\r\n", "Connection: Upgrade\r\nUpgrade: other\r\n", false},
		{"one and another", "Connection: Upgrade\r\nUpgrade: echo\r\n", "Connection: Upgrade\r\nUpgrade: echo, other\r\n", false},
		{"another version", "Connection: Upgrade\r\nUpgrade: echo/1\r\n", "Connection: Upgrade\r\nUpgrade: echo/2\r\n", false},
		{"a part of it", "Connection: Upgrade\r\nUpgrade: echo\r\n", "Connection: Upgrade\r\nUpgrade: ech\r\n", false},
		{"more than it", "Connection: Upgrade\r\nUpgrade: echo\r\n", "Connection: Upgrade\r\nUpgrade: echoo\r\n", false},
		{"none", "Connection: Upgrade\r\nUpgrade: echo\r\n", "Connection: Upgrade\r\n", false},
		{"an empty one", "Connection: Upgrade\r\nUpgrade: echo\r\n", "Connection: Upgrade\r\nUpgrade:\r\n", false},
		{"a list of nothing", "Connection: Upgrade\r\nUpgrade: echo\r\n", "Connection: Upgrade\r\nUpgrade: ,,\r\n", false},
		{"in two lines", "Connection: Upgrade\r\nUpgrade: echo\r\n", "Connection: Upgrade\r\nUpgrade: echo\r\nUpgrade: other\r\n", false},
		{"not listed in Connection", "Connection: Upgrade\r\nUpgrade: echo\r\n", "Upgrade: echo\r\n", false},
		{"unasked", "", "Connection: Upgrade\r\nUpgrade: echo\r\n", false},
		{"unasked and unnamed", "", "", false},
		{"asked for without Connection", "Upgrade: echo\r\n", "Connection: Upgrade\r\nUpgrade: echo\r\n", false},
		{"asked for in HTTP/2", "Connection: Upgrade\r\nUpgrade: h2c\r\n", "Connection: Upgrade\r\nUpgrade: h2c\r\n", false},
		{"asked for with content", "Connection: Upgrade\r\nUpgrade: echo\r\nContent-Length: 0\r\n", "Connection: Upgrade\r\nUpgrade: echo\r\n", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			ended := make(chan struct{}, 10)
			s := serve(t, plain(peertest.Raw(t, func(_ int, c net.Conn) {
				r := bufio.NewReader(c)
				if _, err := rawHead(r); err == nil {
					io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\n"+test.answer+"\r\nsecret")
					io.Copy(io.Discard, r)
					ended <- struct{}{}
				}
			})))
			k := newTalk(t, s.addr())
			k.send(get + test.asked + "\r\n")
			head, err := rawHead(k.r)
			if err != nil {
				t.Fatal(err)
			}
			want := "HTTP/1.1 502 "
			if test.tunnel {
				want = "HTTP/1.1 101 "
			}
			if !strings.HasPrefix(head, want) {
				k.Close()
				t.Fatalf("answered %q, want %s", head, want)
			}
			if test.tunnel {
				k.Close()
			}
			<-ended // the backend's connection
			if test.tunnel {
				return
			}
			k.Close()
			if s.failures(telemetry.MalformedResponse) != 1 {
				t.Error("not counted")
			}
		})
	}
}

func TestNothingIsTunnelledToHTTP2Clients(t *testing.T) {
	addr, _ := wire(t, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	s := serve(t, plain(addr))
	resp, err := h2cClient(t).Get("http://" + s.addr())
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 502 {
		t.Errorf("status %d", resp.StatusCode)
	}
}
