//go:build linux

package memory_test

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// peer is a client of HTTP/2 that does not read unless it is told to.
type peer struct {
	f   *http2.Framer
	out bytes.Buffer
	c   net.Conn
	id  uint32
}

// speak begins with HTTP/2 on a connection, with room for answers.
func speak(c net.Conn) *peer {
	p := &peer{c: c, id: 1}
	p.f = http2.NewFramer(&p.out, nil)
	p.out.WriteString(http2.ClientPreface)
	p.f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	p.f.WriteWindowUpdate(0, 1<<30)
	p.f.WriteSettingsAck()
	p.flush()
	return p
}

func (p *peer) flush() {
	p.c.Write(p.out.Bytes())
	p.out.Reset()
}

// block is a header block with size bytes of fields.
func block(method, name string, size int) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for _, f := range [][2]string{{":method", method}, {":scheme", "http"}, {":path", "/"}, {":authority", name + ".example"}} {
		e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	for i := 0; i*3000 < size; i++ {
		e.WriteField(hpack.HeaderField{Name: "x-" + strconv.Itoa(i), Value: strings.Repeat("~", min(3000, size-i*3000)), Sensitive: true}) // in no table, and not shorter
	}
	return b.Bytes()
}

// open begins a stream whose body is to come, or not.
func (p *peer) open(block []byte, end bool) (id uint32) {
	id = p.id
	p.id += 2
	n := min(len(block), 16<<10)
	p.f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block[:n], EndStream: end, EndHeaders: n == len(block)})
	for block = block[n:]; len(block) > 0; block = block[n:] {
		n = min(len(block), 16<<10)
		p.f.WriteContinuation(id, n == len(block), block[:n])
	}
	p.flush()
	return id
}

// TestUnfinishedHeaderBlocksAreHeldInBoundedMemory: CONTINUATION up to the limit of a header block, and no end.
func TestUnfinishedHeaderBlocksAreHeldInBoundedMemory(t *testing.T) {
	piece := make([]byte, 15<<10)
	attack{run: func(t *testing.T, w *world, n int) func() {
		return swarm(t, n, func(i int) (net.Conn, error) { return from(i, w.addr) }, func(_ int, c net.Conn) {
			p := speak(c)
			p.f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: piece})
			for range 3 {
				p.f.WriteContinuation(1, false, piece)
			}
			p.flush()
		})
	}}.test(t, sized(1000, 10_000))
}

// TestUnfinishedFramesAreHeldInBoundedMemory: the beginning of a frame, and no end.
func TestUnfinishedFramesAreHeldInBoundedMemory(t *testing.T) {
	attack{run: func(t *testing.T, w *world, n int) func() {
		return swarm(t, n, func(i int) (net.Conn, error) { return from(i, w.addr) }, func(_ int, c net.Conn) {
			p := speak(c)
			io.WriteString(c, "\x00\x40\x00\x00\x00\x00\x00\x00\x01..........")
			p.flush()
		})
	}}.test(t, sized(1000, 10_000))
}

// TestHeadsOfManyStreamsAreHeldInBoundedMemory: many streams with 60 KB of fields each, to a backend that does not answer.
func TestHeadsOfManyStreamsAreHeldInBoundedMemory(t *testing.T) {
	b := block("GET", "slow", 60_000)
	attack{
		routes: []route{{name: "slow", address: silent(t, true, "")}},
		args:   []string{"--max-in-flight", "4000"}, // more than suit the memory
		run: func(t *testing.T, w *world, n int) func() {
			return swarm(t, n, func(i int) (net.Conn, error) { return from(i, w.addr) }, func(_ int, c net.Conn) {
				p := speak(c)
				for range 50 {
					p.open(b, true)
				}
			})
		},
	}.test(t, sized(100, 1000))
}

// TestBodiesThatBackendsDoNotTakeAreHeldInBoundedMemory: the windows of connections full of bodies.
func TestBodiesThatBackendsDoNotTakeAreHeldInBoundedMemory(t *testing.T) {
	b := block("POST", "stuck", 0)
	data := make([]byte, 16<<10)
	attack{
		routes: []route{{name: "stuck", address: silent(t, false, ""), protocol: "kubernetes.io/h2c"}},
		args:   []string{"--max-in-flight", "4000"},
		run: func(t *testing.T, w *world, n int) func() {
			return swarm(t, n, func(i int) (net.Conn, error) { return from(i, w.addr) }, func(_ int, c net.Conn) {
				p := speak(c)
				for range 4 {
					id := p.open(b, false)
					for range 15 {
						p.f.WriteData(id, false, data)
					}
					p.flush()
				}
			})
		},
	}.test(t, sized(200, 1000))
}

// large answers with a body of 1 MB.
func large(w http.ResponseWriter, r *http.Request) {
	b := make([]byte, 64<<10)
	w.Header().Set("Content-Length", strconv.Itoa(16*len(b)))
	for range 16 {
		if _, err := w.Write(b); err != nil {
			return
		}
	}
}

// TestAnswersThatClientsDoNotReadAreHeldInBoundedMemory: one client has a hundred streams on each connection, and reads
// nothing. Several that come at once may have all places before they have their parts of them.
func TestAnswersThatClientsDoNotReadAreHeldInBoundedMemory(t *testing.T) {
	b := block("GET", "large", 0)
	attack{
		routes: []route{{name: "large", address: backend(t, large)}},
		run: func(t *testing.T, w *world, n int) func() {
			return swarm(t, n, func(int) (net.Conn, error) {
				c, err := from(0, w.addr)
				if err == nil {
					c.(*net.TCPConn).SetReadBuffer(4 << 10)
				}
				return c, err
			}, func(_ int, c net.Conn) {
				p := speak(c)
				for range 100 {
					p.open(b, true)
				}
			})
		},
		few: true, // what waits to be written makes the exchanges wait
	}.test(t, sized(100, 500))
}

// TestAnswersOverHTTP2ThatClientsDoNotReadAreHeldInBoundedMemory: a backend of HTTP/2 gives more than its clients, of HTTP/1.1, take.
func TestAnswersOverHTTP2ThatClientsDoNotReadAreHeldInBoundedMemory(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(large))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	attack{
		routes: []route{{name: "large", address: s.Listener.Addr().String(), protocol: "kubernetes.io/h2c"}},
		args:   []string{"--max-in-flight", "1000"},
		run: func(t *testing.T, w *world, n int) func() {
			return swarm(t, n, func(i int) (net.Conn, error) {
				c, err := from(i, w.addr)
				if err == nil {
					c.(*net.TCPConn).SetReadBuffer(4 << 10)
				}
				return c, err
			}, func(_ int, c net.Conn) { io.WriteString(c, "GET / HTTP/1.1\r\nHost: large.example\r\n\r\n") })
		},
	}.test(t, sized(400, 800))
}

// headed answers with 60 KB of fields and a body.
func headed(w http.ResponseWriter, r *http.Request) {
	for i := range 20 {
		w.Header().Set("X-"+strconv.Itoa(i), strings.Repeat("~", 3000))
	}
	w.Write(make([]byte, 1000))
}

// TestHeadsOfAnswersThatClientsDoNotTakeAreHeldInBoundedMemory: large heads to clients that give no window for the
// bodies behind them, and read nothing or all of it.
func TestHeadsOfAnswersThatClientsDoNotTakeAreHeldInBoundedMemory(t *testing.T) {
	for name, reads := range map[string]bool{"read": true, "unread": false} {
		t.Run(name, func(t *testing.T) {
			b := block("GET", "headed", 0)
			attack{
				routes: []route{{name: "headed", address: backend(t, headed)}},
				args:   []string{"--max-in-flight", "1000"},
				run: func(t *testing.T, w *world, n int) func() {
					return swarm(t, n, func(i int) (net.Conn, error) {
						c, err := from(i, w.addr)
						if err == nil && !reads {
							c.(*net.TCPConn).SetReadBuffer(4 << 10)
						}
						return c, err
					}, func(_ int, c net.Conn) {
						p := &peer{c: c, id: 1}
						p.f = http2.NewFramer(&p.out, nil)
						p.out.WriteString(http2.ClientPreface)
						p.f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
						p.f.WriteSettingsAck()
						p.flush()
						for range 20 {
							p.open(b, true)
						}
						if reads {
							go io.Copy(io.Discard, c) // until leave
						}
					})
				},
			}.test(t, sized(200, 500))
		})
	}
}
