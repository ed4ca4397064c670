package access

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// stream is a request of HTTP/2: its fields one a line, "--" and the trailers behind them.
type stream string

// ways2 are those over HTTP/2, each with the streams of one connection.
type way2 struct {
	category string
	streams  []stream
	most     int
}

func (w *way2) name() string { return fmt.Sprintf("HTTP/2 %s %.160q", w.category, w.streams) }

// usual are the pseudo-fields of a request.
func usual(method, path string, more ...string) stream {
	return stream(strings.Join(append([]string{":method " + method, ":scheme https", ":authority cart", ":path " + path}, more...), "\n"))
}

// clear is the way for a connection without TLS: the schemes change places.
func (w *way2) clear() *way2 {
	out := *w
	out.streams = nil
	for _, s := range w.streams {
		out.streams = append(out.streams, stream(strings.NewReplacer("\n:scheme https\n", "\n:scheme http\n", "\n:scheme http\n", "\n:scheme https\n").Replace(string(s))))
	}
	return &out
}

func ways2() (all []way2) {
	one := func(category string, streams ...stream) {
		for _, s := range streams {
			all = append(all, way2{category, []stream{s}, 1})
		}
	}
	for category, list := range targets {
		for _, target := range list {
			method := "GET"
			if strings.HasPrefix(target, "/upload") {
				method = "POST"
			}
			one(category, usual(method, target, "x-team a"))
		}
	}
	for _, m := range []string{"get", "DELETE", "PUT", "CONNECT", "TRACE", "HEAD", "OPTIONS", "", "GET /admin", "GET\r\n", "PRI", "GET\x00"} {
		one("methods", usual(m, "/public/a"), usual(m, "/admin"))
	}
	one("pseudo-fields",
		":method GET\n:method DELETE\n:scheme https\n:authority cart\n:path /public/a", ":method GET\n:scheme https\n:authority cart\n:path /public/a\n:path /admin", ":method GET\n:scheme https\n:authority cart\n:path /admin\n:path /public/a",
		":method GET\n:scheme https\n:authority cart\n:authority evil\n:path /public/a", ":method GET\n:scheme https\n:authority cart", ":scheme https\n:authority cart\n:path /public/a", ":method GET\n:authority cart\n:path /public/a", ":method GET\n:scheme https\n:path /public/a", ":method GET\n:scheme https\n:authority cart\n:path public/a",
		":method GET\n:scheme https\n:authority cart\n:path ", ":method GET\n:scheme https\n:authority cart\n:path *", ":method GET\n:scheme https\n:authority cart\nx y\n:path /public/a", ":method CONNECT\n:authority cart:8080", ":method CONNECT\n:authority 127.0.0.1:8081", ":method CONNECT\n:protocol websocket\n:scheme https\n:authority cart\n:path /public/a",
		":method CONNECT\n:protocol websocket\n:scheme https\n:authority cart\n:path /admin", ":method CONNECT\n:protocol connect-udp\n:scheme https\n:authority cart\n:path /public/a", ":method GET\n:protocol websocket\n:scheme https\n:authority cart\n:path /public/a", ":method GET\n:scheme https\n:authority cart\n:path /public/a\n:status 200", ":method GET\n:scheme http\n:authority cart\n:path /admin",
		":method GET\n:scheme https://cart/public/a?\n:authority cart\n:path /admin", ":METHOD GET\n:scheme https\n:authority cart\n:path /public/a", ":method GET\n:scheme https\n:authority cart/public/a?\n:path /admin", ":method GET\n:scheme https\n:authority user@cart\n:path /public/a", ":method GET\n:scheme https\n:authority cart\n:path /public/a HTTP/1.1\r\nX: y", ":method GET\n:scheme https\n:authority cart\n:path /public/a\n:x y")
	for _, f := range []string{"host evil", "host cart\nhost evil", "x-team a\nx-team c", "x-team a, c", "x_team a", "x-team a\nx_team c", "X-Team a", "x-team a\nconnection x-team", "connection close", "transfer-encoding chunked", "content-length 5", "content-length 0\ncontent-length 5", "upgrade websocket", "upgrade h2c\nhttp2-settings x", "te chunked", "x-team a\r\nx: y", "x-team a\x00", "x-team  a", "x team a",
		"x-team: a", "proxy-connection x", "keep-alive x", "x-http-method-override DELETE", "x-original-url /admin", "x-forwarded-client-cert URI=spiffe://cluster.local/ns/shop/sa/admin", "x-team a\n--\nx-team c", "x-team a\n--\nx_team c", "x-team a\n--\n:path /admin", "x-team a\n--\nhost evil", "--\nx-team a", "x-team a\n--\nconnection x-team", "x-team a\n--\ncontent-length 4", "x-team a\n--\ntransfer-encoding chunked"} {
		one("fields", usual("GET", "/team/x", f), usual("POST", "/upload", f))
	}
	for _, bad := range []stream{usual("GET", "/admin"), usual("DELETE", "/public/a"), usual("GET", "/team/x", "x-team c"), usual("GET", "/public/../admin")} {
		mixed := way2{"mixed", nil, 20}
		for i := range 40 {
			if i%2 == 0 {
				mixed.streams = append(mixed.streams, usual("GET", fmt.Sprintf("/public/%d", i)))
			} else {
				mixed.streams = append(mixed.streams, bad)
			}
		}
		all = append(all, mixed)
	}
	return all
}

// send sends the streams as frames and reads until all of them have ended, or the connection has.
func (w *way2) send(c net.Conn) error {
	var out bytes.Buffer
	out.WriteString(http2.ClientPreface)
	f := http2.NewFramer(&out, c)
	f.AllowIllegalWrites = true
	if err := f.WriteSettings(); err != nil {
		return err
	}
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	open := map[uint32]bool{}
	for i, s := range w.streams {
		id := uint32(2*i + 1)
		open[id] = true
		fields, trailers, has := strings.Cut(string(s), "\n--\n")
		put := func(lines string, end bool) error {
			block.Reset()
			for line := range strings.SplitSeq(lines, "\n") {
				colon := strings.HasPrefix(line, ":")
				name, value, _ := strings.Cut(strings.TrimPrefix(line, ":"), " ")
				if colon {
					name = ":" + name
				}
				if line != "" {
					_ = e.WriteField(hpack.HeaderField{Name: name, Value: value})
				}
			}
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: end})
		}
		if err := put(fields, !has); err != nil {
			return err
		}
		if has {
			if err := f.WriteData(id, false, []byte("body")); err != nil {
				return err
			}
			if err := put(trailers, true); err != nil {
				return err
			}
		}
	}
	if _, err := c.Write(out.Bytes()); err != nil {
		return nil // it was closed before, which is an answer
	}
	f.AllowIllegalReads = true
	for len(open) > 0 {
		frame, err := f.ReadFrame()
		if err == io.EOF || err != nil && !isTimeout(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%d streams stay open: %w", len(open), err)
		}
		switch x := frame.(type) {
		case *http2.HeadersFrame:
			if x.StreamEnded() {
				delete(open, x.StreamID)
			}
		case *http2.DataFrame:
			if x.StreamEnded() {
				delete(open, x.StreamID)
			}
		case *http2.RSTStreamFrame:
			delete(open, x.StreamID)
		}
	}
	return nil
}
