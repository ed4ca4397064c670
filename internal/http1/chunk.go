package http1

import (
	"bytes"
	"slices"
)

const (
	maxSizeDigits = 15 // a chunk size below 2^60
	// maxExtensions bounds one size line. maxOverhead bounds the framing of a body, in proportion to its data:
	// otherwise a client could make a proxy read gigabytes for a few bytes of data.
	maxExtensions    = 256
	maxOverhead      = 8 << 10
	maxTrailer       = 8 << 10
	maxTrailerFields = 64
)

// States of a ChunkReader: what comes next.
const (
	chunkSizeStart    = iota // the first digit
	chunkSize                // further digits, or the end of the size
	chunkBeforeExt           // whitespace, ";"
	chunkExtName0            // whitespace, the first byte of an extension's name
	chunkExtName             // further bytes of the name, or its end
	chunkExtNameEnd          // whitespace, "=", ";"
	chunkExtValue0           // whitespace, a token or a quoted string
	chunkExtValue            // further bytes of the token, or its end
	chunkExtQuoted           // inside a quoted string
	chunkExtEscape           // after a backslash in it
	chunkExtQuotedEnd        // behind the closing quote
	chunkSizeLF              // the LF of the size line
	chunkData
	chunkDataCR
	chunkDataLF
	chunkTrailer0 // CR of the empty line, or the first trailer line
	chunkEndLF
	chunkTrailer // trailer lines, gathered in section
	chunkDone
)

// ChunkReader decodes the chunked coding (RFC 9112 §7.1) as it arrives. It only holds its state and the trailer
// section, so the caller's buffer may be of any size. The zero value is ready; Reset prepares it for the next body.
type ChunkReader struct {
	left     int64 // of the size being read, then of the chunk's data
	overhead int64
	digits   int
	lineLen  int
	lineAt   int // in section: where the incomplete line starts
	state    uint8
	fault    fault
	section  []byte
	trailers []Field
}

// Next consumes the first n bytes of buf. data, if not empty, is the next part of the body and aliases buf. n is 0 only
// for an empty buf or an error. While done is false, call Next again with buf[n:], after reading more if it is empty.
// If done is true, the body has ended, including the trailer section, and the rest of buf belongs to the next message.
// data may come together with done, never with an error. An error is an *Error with Status 400; in a response it is the
// endpoint's fault.
func (c *ChunkReader) Next(buf []byte) (data []byte, n int, done bool, err error) {
	i := 0
	for i < len(buf) && c.fault == faultNone {
		b := buf[i]
		switch c.state {
		case chunkData:
			if data != nil {
				return data, i, false, nil
			}
			k := len(buf) - i
			if int64(k) >= c.left {
				k = int(c.left)
				c.state = chunkDataCR
			}
			c.left -= int64(k)
			data = buf[i : i+k : i+k]
			i += k
			continue
		case chunkDataCR:
			c.expect(b, '\r', chunkDataLF, faultChunkEnd)
		case chunkDataLF:
			c.expect(b, '\n', chunkSizeStart, faultChunkEnd)
		case chunkSizeStart, chunkSize:
			c.size(b)
		case chunkSizeLF:
			if b != '\n' {
				c.fault = faultBareCR
			} else {
				c.endSize()
			}
		case chunkTrailer0:
			if b == '\r' {
				c.state = chunkEndLF
				break
			}
			c.state = chunkTrailer
			continue
		case chunkEndLF:
			c.expect(b, '\n', chunkDone, faultBareCR)
		case chunkTrailer:
			if data != nil {
				// A fault in the trailer section must find the caller without data.
				return data, i, false, nil
			}
			i += c.gather(buf[i:])
			continue
		case chunkDone:
			return data, i, true, nil
		default:
			c.extension(b)
		}
		if c.fault != faultNone {
			break
		}
		i++
	}
	if c.fault != faultNone {
		if data != nil {
			// The caller gets the data now and comes back with the offending byte.
			c.fault = faultNone
			return data, i, false, nil
		}
		return nil, 0, false, requestErrors[c.fault]
	}
	return data, i, c.state == chunkDone, nil
}

// Trailers are the trailer fields once Next returned done, valid until Reset. Fields that RFC 9110 §6.5.1 forbids there
// are left out.
func (c *ChunkReader) Trailers() []Field { return c.trailers }

// Reset forgets the last body.
func (c *ChunkReader) Reset() {
	*c = ChunkReader{section: c.section[:0], trailers: c.trailers[:0]}
}

func (c *ChunkReader) expect(b, want byte, next uint8, f fault) {
	if b != want {
		c.fault = f
		return
	}
	c.state = next
}

// size reads a byte of the chunk size, or the byte that ends it. A refused byte does not change the state.
func (c *ChunkReader) size(b byte) {
	if class[b]&classHex == 0 {
		if c.state == chunkSizeStart {
			c.fault = faultChunkSize
			return
		}
		c.lineLen = c.digits
		c.endToken(b, chunkBeforeExt, faultChunkSize)
		return
	}
	if c.digits == maxSizeDigits {
		c.fault = faultChunkSize
		return
	}
	d := b - '0'
	if d > 9 {
		d = b | 0x20 - 'a' + 10
	}
	c.left = c.left<<4 | int64(d)
	c.digits++
	c.state = chunkSize
}

// endToken continues after a size, a name, a token or a quoted string. b is the first byte after it.
func (c *ChunkReader) endToken(b byte, space uint8, f fault) {
	switch b {
	case ' ', '\t':
		c.state = space
	case ';':
		c.state = chunkExtName0
	case '\r':
		c.state = chunkSizeLF
	case '\n':
		c.fault = faultBareLF
	default:
		c.fault = f
	}
}

// extension reads a byte of the chunk extensions: *( BWS ";" BWS name [ BWS "=" BWS ( token / quoted-string ) ] ).
func (c *ChunkReader) extension(b byte) {
	if c.lineLen >= maxExtensions {
		c.fault = faultChunkExtension
		return
	}
	space := b == ' ' || b == '\t'
	token := class[b]&classToken != 0
	switch state := c.state; {
	case state == chunkExtQuoted && b == '"':
		c.state = chunkExtQuotedEnd
	case state == chunkExtQuoted && b == '\\':
		c.state = chunkExtEscape
	case state == chunkExtQuoted || state == chunkExtEscape:
		if class[b]&classText == 0 {
			c.fault = faultChunkExtension
			return
		}
		c.state = chunkExtQuoted
	case (state == chunkBeforeExt || state == chunkExtName0 || state == chunkExtNameEnd || state == chunkExtValue0) && space:
	case (state == chunkBeforeExt || state == chunkExtNameEnd) && b == ';':
		c.state = chunkExtName0
	case (state == chunkExtName || state == chunkExtNameEnd) && b == '=':
		c.state = chunkExtValue0
	case (state == chunkExtName0 || state == chunkExtName) && token:
		c.state = chunkExtName
	case (state == chunkExtValue0 || state == chunkExtValue) && token:
		c.state = chunkExtValue
	case state == chunkExtValue0 && b == '"':
		c.state = chunkExtQuoted
	case state == chunkExtName:
		c.endToken(b, chunkExtNameEnd, faultChunkExtension)
	case state == chunkExtValue || state == chunkExtQuotedEnd:
		c.endToken(b, chunkBeforeExt, faultChunkExtension)
	default:
		c.fault = faultChunkExtension
	}
	if c.fault == faultNone {
		c.lineLen++
	}
}

// endSize continues after a size line.
func (c *ChunkReader) endSize() {
	overhead := c.overhead + int64(c.lineLen) + 4
	overhead -= min(overhead, 16+2*min(c.left, 1<<20))
	if overhead > maxOverhead {
		c.fault = faultChunkOverhead
		return
	}
	c.overhead = overhead
	c.digits = 0
	c.state = chunkData
	if c.left == 0 {
		c.state = chunkTrailer0
	}
}

// gather copies one line, or the part of it that has arrived, to the section. If the line is empty, it parses the
// section.
func (c *ChunkReader) gather(buf []byte) int {
	n := bytes.IndexByte(buf, '\n') + 1
	whole := n > 0
	if !whole {
		n = len(buf)
	}
	if len(c.section)+n > maxTrailer {
		c.fault = faultTrailer
		return 0
	}
	c.section = append(c.section, buf[:n]...)
	if !whole {
		return n
	}
	line := c.section[c.lineAt:]
	c.lineAt = len(c.section)
	if len(line) < 2 || line[len(line)-2] != '\r' {
		c.fault = faultBareLF
		return 0
	}
	if len(line) > 2 {
		return n
	}
	c.trailers, _, c.fault = (*meta)(nil).parseFields(c.section, 0, c.trailers[:0], maxTrailerFields)
	if c.fault != faultNone {
		return 0
	}
	c.trailers = slices.DeleteFunc(c.trailers, func(f Field) bool { return ForbiddenInTrailer(&f) })
	c.state = chunkDone
	return n
}

// AnnouncesForbidden reports whether Trailer, a list of names of trailer fields, has a name that is not passed on.
func AnnouncesForbidden(list string) bool {
	for more := true; more; {
		var f Field
		f.Name, list, more = nextMember(list)
		if f.ID = Identify(f.Name); ForbiddenInTrailer(&f) {
			return true
		}
	}
	return false
}

// ForbiddenInTrailer reports whether a field, whose ID is set, is not passed on as a trailer. These are the fields of
// RFC 9110 §6.5.1: framing, routing, request modifiers, authentication, control data of the response, and fields that
// are needed to process the content. So are the fields by which a proxy describes the origin of a request, and fields
// that a backend that makes variables of names may take for one of these.
func ForbiddenInTrailer(f *Field) bool {
	if f.ID == FieldIrregular {
		// The name that it may be taken for.
		var buf [longestKnown]byte
		name := regular(f.Name, &buf)
		f = &Field{Name: name, ID: identify(name)}
	}
	if Vouched(f) {
		return true
	}
	const known = hopByHop | notRemovable | 1<<FieldContentType | 1<<FieldDate | 1<<FieldExpect | 1<<FieldLocation |
		1<<FieldTrailer | 1<<FieldVary
	if known&(1<<f.ID) != 0 {
		return true
	}
	if beginsWith(f.Name, "if-") || beginsWith(f.Name, "x-forwarded-") || beginsWith(f.Name, "weir-") || beginsWith(f.Name, "weir_") {
		return true
	}
	for _, name := range trailerForbidden {
		if EqualFold(f.Name, name) {
			return true
		}
	}
	return false
}

var trailerForbidden = []string{"age", "authorization", "cache-control", "content-encoding", "content-location", "content-range", "cookie",
	"expires", "max-forwards", "pragma", "range", "realm", "retry-after", "set-cookie", "warning", "www-authenticate"}
