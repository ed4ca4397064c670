package proxy

import (
	"errors"
	"io"
	"time"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/http2"
	"github.com/weirmesh/weir/internal/upstream"
)

// uploadGrace is how long an upload may go on once the answer is complete: enough for one whose last bytes are under way.
const uploadGrace = 50 * time.Millisecond

// upload sends a request's body while the answer is awaited and relayed. It runs in a goroutine of its own, one at a time.
type upload struct {
	conn   *upstream.Conn // where it goes, or
	stream *http2.Stream
	rest   []byte // what of exchange.body comes first, on a stream

	run     func()     // the goroutine
	done    chan error // its result
	running bool
	stopped bool  // it did not come to its end
	failed  error // the client's failure
	buf     []byte
}

// startUpload sends the rest of the body. The goroutine ends with the body, with what it is sent to, or with stopUpload.
func (ex *exchange) startUpload() {
	u := &ex.upload
	if u.done == nil {
		u.done = make(chan error, 1)
		u.run = func() {
			if u.stream != nil {
				u.done <- ex.runUploadHTTP2(u.stream)
			} else {
				u.done <- ex.runUpload(u.conn)
			}
		}
	}
	u.running, u.stopped = true, false
	go u.run()
}

// abort makes sending fail.
func (u *upload) abort() {
	if u.stream != nil {
		u.stream.Abort()
	} else {
		u.conn.Abort()
	}
}

// runUpload returns the client's failure, after it has aborted c, or nil; failing to write is for the reading side to judge.
func (ex *exchange) runUpload(c *upstream.Conn) error {
	chunked := ex.req.body.Kind == http1.BodyChunked
	limit := ex.srv.opt.StreamTimeout
	buf := ex.upload.buf[:0]
	defer func() { ex.upload.buf = buf[:0] }()
	for {
		p, err := ex.next()
		if err == io.EOF {
			if chunked {
				buf = http1.AppendLastChunk(buf[:0], ex.requestTrailers())
				if _, err := c.Write(buf); err != nil {
					return errWrite
				}
			}
			return nil
		}
		if err != nil {
			c.Abort()
			return err
		}
		if chunked {
			// Chunks that are here already go together.
			buf = http1.AppendChunk(buf[:0], p)
			for len(buf) < joinBody && ex.client.ready() {
				p, err = ex.next()
				if err != nil {
					break // comes again
				}
				buf = http1.AppendChunk(buf, p)
			}
			p = buf
		}
		c.WriteBy(time.Now().Add(limit), limit/4)
		if _, err := c.Write(p); err != nil {
			return errWrite
		}
	}
}

// runUploadHTTP2 is runUpload over a stream.
func (ex *exchange) runUploadHTTP2(s *http2.Stream) error {
	u := &ex.upload
	buf := u.buf[:0]
	defer func() { u.buf = buf[:0] }()
	if len(u.rest) > 0 {
		if ex.whole {
			return sendFailure(s.Finish(nil, u.rest, ex.requestTrailers()))
		}
		if err := s.Send(u.rest, false); err != nil {
			return errWrite
		}
	}
	for {
		p, err := ex.next()
		if err == nil && ex.client.ready() {
			// What is here already goes together.
			buf = append(buf[:0], p...)
			for err == nil && len(buf) < joinBody && ex.client.ready() {
				p, err = ex.next()
				buf = append(buf, p...)
			}
			p = buf
		}
		switch {
		case err == io.EOF:
			return sendFailure(s.Finish(nil, p, ex.requestTrailers()))
		case err != nil:
			s.Abort()
			return err
		}
		if err := s.Send(p, false); err != nil {
			return errWrite
		}
	}
}

func sendFailure(err error) error {
	if err != nil {
		return errWrite
	}
	return nil
}

// errWrite: the endpoint took no more.
var errWrite = errors.New("the endpoint does not take the request")

// reading is true while another goroutine may read the client's body.
func (ex *exchange) reading() bool {
	return ex.upload.running
}

// pollUpload takes notice of an upload that has ended.
func (ex *exchange) pollUpload() {
	if !ex.upload.running {
		return
	}
	select {
	case err := <-ex.upload.done:
		ex.uploaded(err)
	default:
	}
}

// stopUpload ends an upload that runs; it returns the client's failure, if that ended it before.
func (ex *exchange) stopUpload() error {
	u := &ex.upload
	if ex.pollUpload(); u.running {
		ex.client.interrupt()
		u.abort()
		ex.uploaded(<-u.done)
	}
	return u.failed
}

// endUpload lets an upload end after the answer has, or stops it.
func (ex *exchange) endUpload() {
	t := time.NewTimer(uploadGrace)
	defer t.Stop()
	select {
	case err := <-ex.upload.done:
		ex.uploaded(err)
	case <-t.C:
		ex.stopUpload()
		ex.upload.stopped = true
	}
}

func (ex *exchange) uploaded(err error) {
	u := &ex.upload
	u.running = false
	u.conn, u.stream, u.rest = nil, nil, nil
	u.stopped = err != nil
	if err != nil && err != errWrite && err != failInterrupted {
		u.failed = err
	}
}
