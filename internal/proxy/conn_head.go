package proxy

import (
	"bytes"
	"io"
	"sync"
	"time"

	"github.com/weirmesh/weir/internal/exchange"
	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/upstream"
)

// work is the memory that an exchange needs.
type work struct {
	req  http1.Request
	ex   exchange.Exchange
	rbuf []byte
	r, n int // rbuf[r:n] was read and not consumed
	out  []byte
}

var workPool = sync.Pool{New: func() any { return &work{rbuf: make([]byte, readSize)} }}

// nextRequest waits for a request and reads its head into w.req. It returns false when the connection must be closed.
func (c *conn) nextRequest() bool {
	if (c.w == nil || c.w.r == c.w.n) && !c.idle() || c.opaque {
		return false
	}
	w := c.w
	if c.is(stateServing) {
		c.become(stateHead) // it came with the previous one
	}
	if c.parsed > 0 {
		c.begins = w.r
		w.r += c.parsed
		c.parsed = 0
		return true
	}
	slow := false
	for {
		if buf := w.rbuf[w.r:w.n]; len(buf) > 0 && (c.detects == known || c.detect()) {
			if c.either && c.first && buf[0] == recordHandshake {
				return false // turnsToTLS
			}
			if c.first && c.tls == nil && isPreface(buf) {
				if len(buf) >= len(http2Preface) {
					if slow && !c.headCame() {
						return false
					}
					c.serveHTTP2(append([]byte(nil), buf[len(http2Preface):]...), true)
					return false
				}
			} else {
				n, err := w.req.Parse(buf, c.srv.opt.Limits)
				if err != nil {
					f := exchange.ParseFailure(err)
					if c.first && foreign(buf) {
						f = exchange.FailForeign
					}
					c.refuse(f)
					return false
				}
				if n > 0 && slow && !c.headDone() {
					c.refuse(failHeadRoom)
					return false
				}
				if n > 0 {
					c.begins = w.r
					w.r += n
					return true
				}
			}
		}
		if c.opaque {
			return false
		}
		if !slow {
			slow = true
			c.now = time.Now()
			c.readUntil(c.now.Add(c.srv.opt.HeaderTimeout), 0)
			c.headBegun(c.now)
		}
		if !c.makeRoom() {
			c.refuse(failHeadRoom)
			return false
		}
		n, err := c.nc.Read(w.rbuf[w.n:])
		w.n += n
		if n == 0 && err != nil {
			switch {
			case c.detects != known:
				c.opaque = !c.toldToEnd() && (err == io.EOF || upstream.IsTimeout(err)) // no request, as it goes on
			case upstream.IsTimeout(err) && c.toldToEnd():
				c.refuse(failHeadRoom)
			case upstream.IsTimeout(err) && w.r < w.n:
				c.refuse(exchange.FailHeadTime)
			}
			return false
		}
	}
}

// foreign is true for a first line that is not HTTP: three words of upper-case letters, of which the last is no
// version. Its sender may have sent it as a preface (RFC 9113 §3.4). It would not understand an HTTP/1.1 answer either.
func foreign(b []byte) bool {
	line, _, whole := bytes.Cut(b, []byte("\r\n"))
	words := bytes.Split(line, []byte(" "))
	if !whole || len(words) != 3 || len(words[1]) == 0 || bytes.HasPrefix(words[2], []byte("HTTP/")) {
		return false
	}
	for _, c := range line {
		if c != ' ' && (c < 'A' || c > 'Z') {
			return false // a malformed request gets an answer
		}
	}
	return true
}

// makeRoom enlarges the read buffer for an incomplete head. It returns false if there is no memory for that.
func (c *conn) makeRoom() bool {
	w := c.w
	if w.r > 0 {
		w.n = copy(w.rbuf, w.rbuf[w.r:w.n])
		w.r = 0
	}
	return w.n < len(w.rbuf) || c.growHead()
}

func putWork(w *work) {
	if len(w.rbuf) != readSize {
		freeHead(w.rbuf)
		w.rbuf = make([]byte, readSize)
	}
	if cap(w.out) > keepSize {
		w.out = nil
	}
	w.ex.Shrink()
	w.r, w.n = 0, 0
	workPool.Put(w)
}
