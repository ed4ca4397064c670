package http1

// ChunkReader decodes the chunked coding (RFC 9112 §7.1) as it arrives. It holds nothing but its state and the trailer section, so
// the caller's buffer may be of any size. The zero value is ready; Reset makes it ready for the next body.
type ChunkReader struct {
	state uint8
}

// Next consumes the first n bytes of buf. data, if not empty, is the next part of the body and aliases buf. n is 0 only for an empty buf
// or an error; as long as done is false, go on with buf[n:], reading more when it is empty. With done the body has ended, the trailer
// section included, and what follows in buf belongs to the next message. data may come together with done, never with an error.
// An error is an *Error with Status 400.
func (c *ChunkReader) Next(buf []byte) (data []byte, n int, done bool, err error) {
	panic("http1: not yet")
}

// Trailers are the trailer fields once Next reported done, valid until Reset. Those that RFC 9110 §6.5.1 forbids there are left out.
func (c *ChunkReader) Trailers() []Field { panic("http1: not yet") }

// Reset forgets the last body.
func (c *ChunkReader) Reset() { panic("http1: not yet") }
