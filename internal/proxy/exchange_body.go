package proxy

import (
	"io"

	"github.com/weirmesh/weir/internal/http1"
)

// next is the client's next piece of the body, counted, copied and, as far as retain allows, kept for another attempt.
func (ex *exchange) next() ([]byte, error) {
	p, err := ex.client.next()
	if len(p) > 0 {
		ex.in += int64(len(p))
		if ex.tooLarge() {
			ex.touched = true
			return nil, failBodySize
		}
		ex.copyBody(p)
		ex.keepPiece(p)
	}
	if err == io.EOF {
		ex.ended = true
		ex.copyEnd(true, ex.requestTrailers())
	}
	return p, err
}

// tooLarge is true if more of the body has come than may.
func (ex *exchange) tooLarge() bool {
	most := ex.srv.opt.MaxBody
	return most > 0 && ex.in > most
}

// keepPiece appends p to what is kept.
func (ex *exchange) keepPiece(p []byte) {
	if ex.touched {
		return
	}
	if len(ex.keep) == 0 && len(ex.body)+len(p) <= ex.retain {
		ex.keep = append(ex.keep, ex.body...)
	}
	if len(ex.keep)+len(p) > ex.retain || !ex.mayKeep(len(ex.keep)+len(p)) {
		ex.touched = true
		return
	}
	ex.keep = append(ex.keep, p...)
}

// takeBody learns how much of the body is in memory.
func (ex *exchange) takeBody() {
	if ex.bodyTaken {
		return
	}
	ex.bodyTaken = true
	switch ex.req.body.Kind {
	case http1.BodyNone:
		ex.whole = true
	case http1.BodyChunked:
		if ex.body = ex.client.buffered(); ex.body != nil {
			ex.in += int64(len(ex.body))
			ex.whole, ex.ended = true, true
		}
	case http1.BodyLength:
		ex.body = ex.client.buffered()
		ex.in += int64(len(ex.body))
		if ex.whole = int64(len(ex.body)) == ex.req.body.Length; ex.whole {
			ex.req.expect100 = false
		}
	}
}
