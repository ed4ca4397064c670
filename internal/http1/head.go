package http1

import (
	"encoding/binary"
	"math"
	"math/bits"
	"unsafe"
)

// A word of eight bytes at a time.
const ones, lows, highs = 0x0101010101010101, 0x7f7f7f7f7f7f7f7f, 0x8080808080808080

func le64(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

// load is le64 of the eight bytes at p+i, which the caller knows to be there.
func load(p unsafe.Pointer, i int) uint64 { return le64((*[8]byte)(unsafe.Add(p, i))[:]) }

// Connection options, as bits.
const (
	optionClose = 1 << iota
	optionKeepAlive
	optionUpgrade
	optionOther
)

// meta is the meaning of a head's fields for the connection and the framing, gathered while they are read.
type meta struct {
	host       string
	upgrade    string
	lengthText string
	length     int64 // -1: no Content-Length
	upgrades   int
	codings    int // members of Transfer-Encoding
	chunked    int // how many of them are "chunked"
	chunkedEnd bool
	badCoding  bool
	hasHost    bool
	expect100  bool
	// expectOther: something else is expected.
	expectOther bool
	options     uint8
}

// parseFields reads field lines from b[i:] up to the empty line. next is the position after it, or 0 if b ends before.
// A nil m reads a trailer section, whose fields have no meaning for the message.
func (m *meta) parseFields(b []byte, i int, fields []Field, limit int) (_ []Field, next int, _ fault) {
	for {
		if i >= len(b) {
			return fields, 0, faultNone
		}
		if b[i] == '\r' {
			if i+1 >= len(b) {
				return fields, 0, faultNone
			}
			if b[i+1] != '\n' {
				return fields, 0, faultBareCR
			}
			return fields, i + 2, faultNone
		}
		if len(fields) == limit {
			return fields, 0, faultFields
		}

		start := i
		seen := uint8(0)
		for i < len(b) && class[b[i]]&classToken != 0 {
			seen |= class[b[i]]
			i++
		}
		if i == len(b) {
			return fields, 0, faultNone
		}
		if b[i] != ':' || i == start {
			return fields, 0, nameFault(b, start, i)
		}
		name := str(b, start, i)
		id := FieldIrregular
		if seen&classIrregular == 0 {
			id = identify(name)
		}

		i++
		for i < len(b) && (b[i] == ' ' || b[i] == '\t') {
			i++
		}
		start = i
		i = textEnd(b, i)
		if i+1 >= len(b) {
			if i < len(b) && b[i] != '\r' {
				return fields, 0, valueFault(b[i])
			}
			return fields, 0, faultNone
		}
		if b[i] != '\r' || b[i+1] != '\n' {
			return fields, 0, valueFault(b[i])
		}
		end := i
		for end > start && (b[end-1] == ' ' || b[end-1] == '\t') {
			end--
		}
		i += 2

		if len(fields) < cap(fields) {
			fields = fields[:len(fields)+1]
		} else {
			fields = append(fields, Field{})
		}
		field := &fields[len(fields)-1]
		field.Name, field.Value, field.ID = name, str(b, start, end), id
		if m != nil && field.ID != FieldOther {
			keep, f := m.note(field)
			if f != faultNone {
				return fields, 0, f
			}
			if !keep {
				fields = fields[:len(fields)-1]
			}
		}
	}
}

// textEnd finds the first byte from i on that may not be in a field value, or len(b).
func textEnd(b []byte, i int) int {
	p := unsafe.Pointer(unsafe.SliceData(b))
	for i+8 <= len(b) {
		x := load(p, i)
		// Zero only if all bytes are from 0x20 to 0x7E, as they nearly always are.
		if ((x-0x20*ones)|(x+ones))&highs == 0 {
			i += 8
			continue
		}
		hit := notText(x)
		if hit == 0 {
			i += 8
			continue
		}
		i += bits.TrailingZeros64(hit) / 8
		if b[i] != '\t' {
			return i
		}
		i++
	}
	for i < len(b) && class[b[i]]&classText != 0 {
		i++
	}
	return i
}

// notText sets bit 7 of each byte that is below 0x20 or 0x7F.
func notText(x uint64) uint64 {
	low := x & lows
	return (^(low + 0x60*ones) | (low + ones)) &^ x & highs
}

func nameFault(b []byte, start, i int) fault {
	space := b[i] == ' ' || b[i] == '\t'
	switch {
	case space && i == start:
		return faultFold
	case space:
		return faultSpaceBeforeColon
	case b[i] == '\n' && i == start:
		return faultBareLF
	}
	return faultFieldName
}

func valueFault(c byte) fault {
	switch c {
	case '\r':
		return faultBareCR
	case '\n':
		return faultBareLF
	}
	return faultFieldValue
}

// note records the meaning of a known field. keep is false for a field line that only repeats another, and for a
// Trailer that announces a field that trailers may not contain.
func (m *meta) note(f *Field) (keep bool, _ fault) {
	switch f.ID {
	case FieldHost:
		if m.hasHost {
			return false, faultHostDuplicate
		}
		if !ValidAuthority(f.Value) {
			return false, faultHost
		}
		m.hasHost, m.host = true, f.Value
	case FieldConnection:
		m.noteOptions(f.Value)
	case FieldContentLength:
		if m.length >= 0 {
			if m.lengthText != f.Value {
				return false, faultLengthConflict
			}
			return false, faultNone
		}
		n, ok := parseLength(f.Value)
		if !ok {
			return false, faultLength
		}
		m.length, m.lengthText = n, f.Value
	case FieldTransferEncoding:
		m.noteCodings(f.Value)
	case FieldUpgrade:
		m.upgrade = f.Value
		m.upgrades++
	case FieldExpect:
		m.noteExpectations(f.Value)
	case FieldTrailer:
		return !AnnouncesForbidden(f.Value), faultNone
	}
	return true, faultNone
}

func (m *meta) noteOptions(list string) {
	for more := true; more; {
		var option string
		option, list, more = nextMember(list)
		switch {
		case option == "":
		case EqualFold(option, "keep-alive"):
			m.options |= optionKeepAlive
		case EqualFold(option, "close"):
			m.options |= optionClose
		case EqualFold(option, "upgrade"):
			m.options |= optionUpgrade
		case !Identify(option).HopByHop():
			m.options |= optionOther
		}
	}
}

func (m *meta) noteExpectations(list string) {
	proceed, other := Expectations(list)
	m.expect100 = m.expect100 || proceed
	m.expectOther = m.expectOther || other
}

// Expectations reads the value of an Expect field: whether it has 100-continue, and whether it has anything else (RFC 9110 §10.1.1).
func Expectations(list string) (proceed, other bool) {
	for more := true; more; {
		var expectation string
		expectation, list, more = nextMember(list)
		switch {
		case expectation == "":
		case EqualFold(expectation, "100-continue"):
			proceed = true
		default:
			other = true
		}
	}
	return proceed, other
}

func (m *meta) noteCodings(list string) {
	for more := true; more; {
		var coding string
		coding, list, more = nextMember(list)
		m.codings++
		m.chunkedEnd = EqualFold(coding, "chunked")
		if m.chunkedEnd {
			m.chunked++
		}
		if coding == "" {
			m.badCoding = true
		}
	}
}

// framing is RFC 9112 §6.3 as far as requests and responses agree.
func (m *meta) framing(minor int) (Body, fault) {
	if m.codings > 0 {
		switch {
		case minor == 0:
			return Body{}, faultCodingVersion
		case m.length >= 0:
			return Body{}, faultLengthAndCoding
		case m.badCoding || !m.chunkedEnd || m.chunked > 1:
			return Body{}, faultCodingInvalid
		case m.codings > 1:
			return Body{}, faultCodingUnsupported
		}
		return Body{Kind: BodyChunked}, faultNone
	}
	if m.length >= 0 {
		return Body{Kind: BodyLength, Length: m.length}, faultNone
	}
	return Body{}, faultNone
}

func (m *meta) keepAlive(minor int) bool {
	if m.options&optionClose != 0 {
		return false
	}
	return minor == 1 || m.options&optionKeepAlive != 0
}

func parseLength(s string) (int64, bool) {
	if s == "" {
		return 0, false
	}
	var n int64
	for i := 0; i < len(s); i++ {
		d := int64(s[i]) - '0'
		if d < 0 || d > 9 || n > (math.MaxInt64-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	return n, true
}
