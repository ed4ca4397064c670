package telemetry

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"unicode/utf8"
)

// parts takes a JSON text apart, a value at a time. It finds where values end and judges nothing in them: that does who
// reads them.
type parts struct {
	in    *bufio.Reader
	bytes []byte // of the value that was read last
}

// maxValue bounds the bytes of a value that is read as a whole. An edge with all buckets of durations has some 20 KB.
const maxValue = 256 << 10

// peek returns the next byte that is no white space, and leaves it.
func (p *parts) peek() (byte, error) {
	for {
		c, err := p.in.ReadByte()
		switch {
		case err != nil:
			return 0, err
		case c != ' ' && c != '\n' && c != '\t' && c != '\r':
			return c, p.in.UnreadByte()
		}
	}
}

func (p *parts) expect(want byte) error {
	got, err := p.peek()
	switch {
	case err != nil:
		return err
	case got != want:
		return fmt.Errorf("%q in place of %q", got, want)
	}
	_, err = p.in.Discard(1)
	return err
}

// members calls each for the members of an object or a list, each of which reads its own.
func (p *parts) members(begin, end byte, each func() error) error {
	if err := p.expect(begin); err != nil {
		return err
	}
	c, err := p.peek()
	if err != nil {
		return err
	}
	if c == end {
		_, err := p.in.Discard(1)
		return err
	}
	for {
		if err := each(); err != nil {
			return err
		}
		c, err := p.peek()
		if err != nil {
			return err
		}
		if c != ',' {
			return p.expect(end)
		}
		if _, err := p.in.Discard(1); err != nil {
			return err
		}
	}
}

func (p *parts) list(each func() error) error { return p.members('[', ']', each) }

// object calls each with the keys of an object, to read their values.
func (p *parts) object(each func(key string) error) error {
	return p.members('{', '}', func() error {
		var key string
		if err := p.into(&key); err != nil {
			return err
		}
		if err := p.expect(':'); err != nil {
			return err
		}
		return each(key)
	})
}

// into reads a value as json does.
func (p *parts) into(out any) error {
	b, err := p.value()
	if err != nil {
		return err
	}
	return json.Unmarshal(b, out)
}

// value reads a value, whose bytes stay until the next one is read.
func (p *parts) value() ([]byte, error) {
	p.bytes = p.bytes[:0]
	err := p.scan(func(b []byte) error {
		if len(p.bytes)+len(b) > maxValue {
			return fmt.Errorf("a value has more than %d bytes", maxValue)
		}
		p.bytes = append(p.bytes, b...)
		return nil
	})
	return p.bytes, err
}

// skip reads a value for nobody.
func (p *parts) skip() error { return p.scan(func([]byte) error { return nil }) }

// scan reads a value to its end, and gives its bytes to take.
func (p *parts) scan(take func([]byte) error) error {
	if _, err := p.peek(); err != nil {
		return err
	}
	depth, text, escaped := 0, false, false
	for read := 0; ; {
		if p.in.Buffered() == 0 {
			if _, err := p.in.Peek(1); err != nil {
				return err
			}
		}
		b, err := p.in.Peek(p.in.Buffered())
		if err != nil {
			return err
		}
		n, ended := 0, false
		for ; n < len(b) && !ended; n++ {
			c := b[n]
			switch {
			case escaped:
				escaped = false
			case text:
				escaped = c == '\\'
				if text = c != '"'; !text && depth == 0 {
					ended = true
				}
			case c == '"':
				text = true
			case c == '{' || c == '[':
				depth++
			case c == '}' || c == ']':
				if depth--; depth <= 0 {
					ended = true
				}
			}
			// A value that is no list, object or text ends before what follows it.
			if depth < 0 || depth == 0 && !text && !ended && (c == ',' || c == ':' || c == ' ' || c == '\n' || c == '\t' || c == '\r') {
				ended = true
				n--
			}
		}
		if read += n; ended && read == 0 {
			return fmt.Errorf("%q in place of a value", b[0])
		}
		if err := take(b[:n]); err != nil {
			return err
		}
		if _, err := p.in.Discard(n); err != nil || ended {
			return err
		}
	}
}

// cursor reads bytes from the front. Its methods report whether they could; what is left then is of no use.
type cursor struct{ b []byte }

func (c *cursor) accept(text string) bool {
	if len(c.b) < len(text) || string(c.b[:len(text)]) != text {
		return false
	}
	c.b = c.b[len(text):]
	return true
}

// space passes over white space.
func (c *cursor) space() *cursor {
	for len(c.b) > 0 && (c.b[0] == ' ' || c.b[0] == '\n' || c.b[0] == '\t' || c.b[0] == '\r') {
		c.b = c.b[1:]
	}
	return c
}

// token reads a byte after white space.
func (c *cursor) token(want byte) bool {
	if c.space(); len(c.b) == 0 || c.b[0] != want {
		return false
	}
	c.b = c.b[1:]
	return true
}

// number reads a whole number that is not negative.
func (c *cursor) number(out *uint64) bool {
	var n uint64
	i := 0
	for ; i < len(c.b) && c.b[i] >= '0' && c.b[i] <= '9'; i++ {
		digit := uint64(c.b[i] - '0')
		if n > (math.MaxUint64-digit)/10 {
			return false
		}
		n = 10*n + digit
	}
	if i == 0 || i > 1 && c.b[0] == '0' {
		return false
	}
	*out, c.b = n, c.b[i:]
	return true
}

// text reads a string without escapes.
func (c *cursor) text(out *string) bool {
	if !c.accept(`"`) {
		return false
	}
	n := bytes.IndexByte(c.b, '"')
	if n < 0 {
		return false
	}
	s := c.b[:n]
	if bytes.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == '\\' }) || !utf8.Valid(s) {
		return false
	}
	*out, c.b = string(s), c.b[n+1:]
	return true
}

// side reads a side, and the comma after it.
func (c *cursor) side(out *Side) bool {
	if !c.accept("{") {
		return false
	}
	first := true
	for _, part := range []struct {
		key   string
		value *string
	}{{`"kind":`, &out.Kind}, {`"namespace":`, &out.Namespace}, {`"name":`, &out.Name}} {
		key := part.key
		if !first {
			key = "," + key
		}
		if c.accept(key) {
			if first = false; !c.text(part.value) {
				return false
			}
		}
	}
	return c.accept("},")
}
