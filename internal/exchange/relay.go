package exchange

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/upstream"
)

// spliceMost is how much is spliced between two checks of deadlines.
const spliceMost = 16 << 20

// relay forwards the answer.
func (ex *Exchange) relay() error {
	c := &ex.call
	if ex.resp.Status == http.StatusSwitchingProtocols || ex.req.Method == http.MethodConnect && ex.resp.Status < 300 {
		ex.from.Client.Unwatch()
		err := ex.tunnel(c.Detach())
		ex.heardMore()
		return err
	}
	err := ex.head()
	if err == nil && ex.resp.Body.Kind != http1.BodyNone {
		err = ex.relayBody()
	}
	if err != nil {
		cerr := ex.stopUpload()
		stayed := ex.from.Client.Unwatch()
		var f *Failure
		switch {
		case cerr != nil:
		case errors.As(err, &f):
			cerr = f
		case !stayed:
			cerr = failClientClosed
		default:
			c.Blame(err)
			cerr = ex.brokenAnswer(err)
		}
		c.Close()
		return cerr
	}
	if !ex.upload.running && !c.Request.HTTP2 {
		// The connection becomes free before the client has its answer, so the next exchange may already use it.
		ex.endCall()
		return ex.from.Client.End(ex.answerTrailers())
	}
	err = ex.from.Client.End(ex.answerTrailers())
	if ex.pollUpload(); ex.upload.running {
		ex.endUpload()
	}
	ex.endCall()
	return err
}

// answerTrailers returns the trailers after the answer's body, as the client gets them.
func (ex *Exchange) answerTrailers() []http1.Field { return ex.sentTrailers(ex.call.Trailers()) }

// endCall ends the call, whose upload has ended.
func (ex *Exchange) endCall() {
	ex.from.Client.Unwatch()
	ex.call.Close()
}

// relayBody forwards the answer's body. It leaves the end of the answer to its caller.
func (ex *Exchange) relayBody() error {
	c := &ex.call
	// Over HTTP/2 the body of a short answer follows at once, so head and body go out together.
	short := c.Request.HTTP2 && ex.resp.Body.Kind == http1.BodyLength && ex.resp.Body.Length <= Gather
	var since time.Time
	for first := true; ; first = false {
		ready := c.Ready()
		if !ready && !short {
			if to, ok := ex.from.Client.(Splicer); ok && to.Splices() && c.Splices() {
				return ex.splice(to)
			}
			if err := ex.from.Client.Flush(); err != nil {
				return err
			}
		}
		short = false
		p, err := c.Next()
		// The bytes in memory were read earlier. Over HTTP/2 that is known only for the bytes that came with the head.
		if !ready || len(p) > 0 && c.Request.HTTP2 && !first {
			ex.heardMore()
		}
		switch err {
		case nil:
			since = time.Time{}
			if len(p) > 0 {
				if err := ex.write(p); err != nil {
					return err
				}
			}
		case io.EOF:
			return nil
		case upstream.ErrTimeout:
			if err := ex.stillWaiting(&since, ex.pipe.StreamTimeout); err != nil {
				return err
			}
		default:
			return err
		}
	}
}

// splice moves the rest of a body between two sockets without copying it through the process.
func (ex *Exchange) splice(to Splicer) error {
	if err := ex.from.Client.Flush(); err != nil {
		return err
	}
	c := &ex.call
	to.BeginSplice()
	defer to.EndSplice()
	var since time.Time
	for c.Left() > 0 {
		n, err := to.Splice(c, spliceMost)
		ex.out += n
		ex.heardMore()
		switch {
		case n > 0 && (err == nil || err == upstream.ErrTimeout):
			since = time.Time{}
			if ex.expired() {
				return ex.attempt.expired
			}
		case err == nil:
			return io.ErrUnexpectedEOF
		case err == upstream.ErrTimeout:
			if err := ex.stillWaiting(&since, ex.pipe.StreamTimeout); err != nil {
				return err
			}
		default:
			return err
		}
	}
	return nil
}

// write sends the client a piece of the answer's body.
func (ex *Exchange) write(p []byte) error {
	ex.out += int64(len(p))
	return ex.from.Client.Write(p)
}
