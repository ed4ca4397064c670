package proxy

import (
	"net/http"
	"unsafe"

	"github.com/weirmesh/weir/internal/exchange"
	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/http2"
)

func (s *stream) Inform(status int, fields []http1.Field) error {
	if status == http.StatusContinue {
		if s.continued.Swap(true) {
			return nil
		}
	}
	if err := s.s.Answer(&http2.Head{Status: status, Fields: fields}, nil, false); err != nil {
		return exchange.WriteFailure(err)
	}
	return nil
}

// Begin implements exchange.Client.
func (s *stream) Begin(a *exchange.Answer) error {
	h := &s.head
	h.Status, h.Body = a.Status, a.Body
	size := 0
	for i := range a.Fields {
		size += len(a.Fields[i].Name) + len(a.Fields[i].Value)
	}
	if cap(s.text) < size {
		if size > headFree {
			if !(clientMemory{s.conn}).Draw(size, true) {
				return exchange.FailAnswerRoom
			}
			s.drawn = size
		}
		s.text = make([]byte, 0, max(size, 1<<10))
	}
	text, fields := s.text[:0], h.Fields[:0]
	for i := range a.Fields {
		f := &a.Fields[i]
		n, v := len(text), len(text)+len(f.Name)
		text = append(append(text, f.Name...), f.Value...)
		fields = append(fields, http1.Field{Name: alias(text[n:v]), Value: alias(text[v:])})
	}
	s.text, h.Fields = text, fields
	s.noOut = a.Body.Kind == http1.BodyNone || s.req.Method == http.MethodHead
	if a.Refusal && !s.noOut && s.s.Shut() {
		s.noOut, h.Body = true, http1.Body{}
	}
	s.begun, s.out = true, s.out[:0]
	s.answering.Store(true)
	return nil
}

// headFree is how many bytes of an answer's head a stream keeps without drawing: as many as the endpoint's side does.
const headFree = 16 << 10

// dropText frees the strings of a large head, once they are sent or not needed any more.
func (s *stream) dropText() {
	if s.drawn > 0 {
		clear(s.head.Fields)
		s.head.Fields, s.text = s.head.Fields[:0], nil
		clientMemory{s.conn}.Give(s.drawn)
		s.drawn = 0
	}
}

// alias is b as a string, without a copy.
func alias(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

func (s *stream) Write(p []byte) error {
	if s.noOut || len(p) == 0 {
		return nil
	}
	if len(p) <= exchange.Gather/2 {
		if s.out = append(s.out, p...); len(s.out) < exchange.Gather {
			return nil
		}
		return s.Flush()
	}
	if err := s.Flush(); err != nil {
		return err
	}
	return s.wrote(s.s.Send(p, false))
}

func (s *stream) Flush() error {
	var err error
	switch {
	case s.begun && !s.sent:
		err = s.sendHead(s.out)
	case len(s.out) > 0:
		err = s.s.Send(s.out, false)
	}
	s.out = s.out[:0]
	return s.wrote(err)
}

// sendHead sends the head, and p behind it as soon as the client gives room. A large head is not kept until then.
func (s *stream) sendHead(p []byte) error {
	var rest []byte
	if s.drawn > 0 {
		p, rest = nil, p
	}
	err := s.s.Answer(&s.head, p, false)
	if s.sent = err != http2.ErrNoMemory; err != nil {
		return err
	}
	if s.dropText(); len(rest) == 0 {
		return nil
	}
	return s.s.Send(rest, false)
}

func (s *stream) End(trailers []http1.Field) error {
	var head *http2.Head
	switch {
	case s.sent:
	case s.drawn > 0 && len(s.out) > 0:
		if err := s.sendHead(nil); err != nil {
			return s.wrote(err)
		}
	default:
		s.sent = true
		head = &s.head
	}
	err := s.s.Finish(head, s.out, trailers)
	if head != nil && err == http2.ErrNoMemory {
		s.sent = false
	}
	s.out = s.out[:0]
	return s.wrote(err)
}

func (s *stream) wrote(err error) error {
	if err == http2.ErrNoMemory {
		return exchange.FailAnswerRoom
	}
	if err != nil {
		return exchange.WriteFailure(err)
	}
	return nil
}

func (s *stream) Retract() bool {
	if s.sent {
		return false
	}
	s.begun, s.out = false, s.out[:0]
	s.dropText()
	return true
}

func (s *stream) Abort() { s.s.Reset(http2.InternalError) }
