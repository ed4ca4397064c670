package http2

import "github.com/weirmesh/weir/internal/http1"

// Head is the head of a request or an answer.
type Head struct {
	// Method, Scheme, Authority and Path are the request's pseudo-fields; Authority is empty if it was missing.
	Method, Scheme, Authority, Path string
	// Status is the answer's; 1xx is an interim one.
	Status int
	// Fields are the other fields, in order, without Connection and similar ones (RFC 9113 §8.2.2). Received ones have
	// names in lower case, known ones with their ID, and cookies joined to one field. Fields to send may have names in
	// any case; values must be valid, and Content-Length is left out, since it is written from Body.
	Fields []http1.Field
	// Body: BodyNone ends the message with the head. BodyLength has its length announced. BodyChunked is a body of
	// unknown length. The answer to HEAD has no body, but may announce the length of the body that GET would have: see
	// Stream.Answer.
	Body http1.Body
	// TooLarge: the decoded fields are over a bound and were left out.
	TooLarge bool

	text []byte // memory of the strings of a request's head
}

// empty is a head for another message, with the memory of h.
func (h *Head) empty() Head {
	clear(h.Fields)
	next := Head{Fields: h.Fields[:0]}
	if cap(h.text) <= keepText {
		next.text = h.text[:0]
	}
	return next
}

// keepText is the largest memory for strings that a head takes along.
const keepText = 8 << 10
