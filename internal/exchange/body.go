package exchange

import (
	"io"

	"github.com/weirmesh/weir/internal/budget"
	"github.com/weirmesh/weir/internal/http1"
)

// content is the request's body: what is known about it, and the bytes kept for another attempt.
type content struct {
	body      []byte // known part of a body of known length
	whole     bool   // the bytes kept are the whole body
	bodyTaken bool   // body was filled in
	touched   bool   // next returns the client's next piece of the body. It counts and copies the piece, and keeps it for another attempt as far as retain allows.
	ended     bool   // the client's body was read to its end
	retain    int    // how much of the body may be kept for another attempt
	keep      []byte // a body kept for retries
	kept      int    // how much memory was drawn for it
}

// next returns the client's next piece of the body. It counts and copies the piece, and keeps it for another attempt as
// far as retain allows.
func (ex *Exchange) next() ([]byte, error) {
	p, err := ex.read()
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

// tooLarge reports whether the body exceeds its limit.
func (ex *Exchange) tooLarge() bool {
	most := ex.pipe.MaxBody
	return most > 0 && ex.in > most
}

// keepPiece appends p to the bytes kept.
func (ex *Exchange) keepPiece(p []byte) {
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

// takeBody determines how much of the body is in memory.
func (ex *Exchange) takeBody() {
	if ex.bodyTaken {
		return
	}
	ex.bodyTaken = true
	switch ex.req.Body.Kind {
	case http1.BodyNone:
		ex.whole = true
	case http1.BodyChunked:
		if ex.body = ex.from.Client.Buffered(); ex.body != nil {
			ex.in += int64(len(ex.body))
			ex.whole, ex.ended = true, true
		}
	case http1.BodyLength:
		ex.body = ex.from.Client.Buffered()
		ex.in += int64(len(ex.body))
		if ex.whole = int64(len(ex.body)) == ex.req.Body.Length; ex.whole {
			ex.req.Expect100 = false
		}
	}
}

// keepFree is how much of a body an exchange keeps for another attempt without drawing from the memory budget: every
// exchange has that much anyway.
const keepFree, keepStep = 8 << 10, 16 << 10

// mayKeep reports whether n bytes of the body may be kept for another attempt.
func (ex *Exchange) mayKeep(n int) bool {
	for n > keepFree+ex.kept {
		if b := ex.pipe.around.Memory; !b.Draw(budget.Retry, keepStep) {
			b.Refuse(budget.Retry)
			return false
		}
		ex.kept += keepStep
	}
	return true
}

// giveBack returns the memory drawn for the body.
func (ex *Exchange) giveBack() {
	if ex.kept > 0 {
		ex.pipe.around.Memory.Give(int64(ex.kept))
		ex.kept = 0
	}
}
