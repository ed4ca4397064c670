package proxy

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/weirmesh/weir/internal/exchange"
	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/http2"
	"github.com/weirmesh/weir/internal/telemetry"
)

// takeBody notes what is known about the body. A body that has completely arrived has a known length.
func (s *stream) takeBody() {
	q := s.req
	switch q.Body.Kind {
	case http1.BodyNone:
		switch q.Method {
		case http.MethodPost, http.MethodPut, http.MethodPatch:
			q.Body = http1.Body{Kind: http1.BodyLength} // RFC 9110 §8.6
		}
		return
	}
	if b, ok := s.s.Whole(); ok {
		s.whole = b
		if s.whole == nil {
			s.whole = []byte{}
		}
		if !q.GRPC { // gRPC goes over HTTP/2 and announces no lengths
			q.Body = http1.Body{Kind: http1.BodyLength, Length: int64(len(b))}
		}
	}
}

func (s *stream) Buffered() []byte {
	s.taken = s.whole != nil
	return s.whole
}

func (s *stream) Ready() bool { return s.err != nil || s.s.Ready() }

func (s *stream) Next() ([]byte, error) {
	if s.err != nil {
		return nil, s.err
	}
	if s.whole != nil && !s.taken {
		s.taken = true
		return s.whole, nil
	}
	p, err := s.await()
	if err != nil {
		s.err = streamBodyFailure(err)
		return nil, s.err
	}
	s.arrived.Store(true)
	return p, nil
}

// await waits for the next piece of the body, as long as the client's pace allows.
func (s *stream) await() ([]byte, error) {
	if s.s.Ready() {
		return s.s.Next(time.Time{})
	}
	m := s.conn.srv.minPace
	start := time.Now()
	latest := start.Add(s.conn.srv.opt.StreamTimeout)
	if s.req.GRPC {
		return s.s.Next(latest) // a gRPC body is never due, see bodyDue
	}
	_, held := s.s.Arrived()
	for {
		limit := latest.Sub(start)
		due := m.Rate > 0 && s.bodyDue()
		if due {
			if limit = s.pace.Left(m, limit); limit <= 0 {
				return nil, http2.ErrTimeout
			}
		}
		if m.Rate > 0 {
			limit = min(limit, m.LookAfter()) // the body may become due, or stop being due
		}
		p, err := s.s.Next(start.Add(limit))
		now := time.Now()
		came, still := s.s.Arrived()
		if due && s.bodyDue() {
			s.pace.Waited(m, now.Sub(start)-(still-held), came-s.came)
		}
		s.came = came
		if err != http2.ErrTimeout || !now.Before(latest) {
			return p, err
		}
		start, held = now, still
	}
}

// bodyDue is true while the client must send its body without pauses; see conn.bodyDue.
func (s *stream) bodyDue() bool {
	q := s.req
	return !q.GRPC && !s.WaitsToBegin() && (q.Body.Kind == http1.BodyLength || !s.answering.Load())
}

// streamBodyFailure is why reading a stream's body ended. It returns io.EOF unchanged.
func streamBodyFailure(err error) error {
	var se *http2.StreamError
	switch {
	case err == io.EOF:
		return err
	case err == http2.ErrInterrupted:
		return exchange.FailInterrupted
	case errors.As(err, &se) && !se.Remote:
		return &exchange.Failure{Reason: telemetry.BadBody, Detail: se.Detail, Err: err}
	}
	return exchange.BodyFailure(err)
}

func (s *stream) Trailers() []http1.Field { return s.s.Trailers() }

func (s *stream) Interrupt() { s.s.Pause() }

func (s *stream) Resume() {
	s.s.Resume()
	if s.err == exchange.FailInterrupted {
		s.err = nil
	}
}
