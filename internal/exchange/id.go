package exchange

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/weirmesh/weir/internal/http1"
)

// RequestIDs selects the requests that get an id.
type RequestIDs uint8

const (
	// RequestIDsOff selects none; the client's field passes unchanged.
	RequestIDsOff RequestIDs = iota
	// RequestIDsMissing selects requests without a usable id (see validID). Where a listener has trusted proxies, only
	// they may bring an id.
	RequestIDsMissing
	// RequestIDsTrusted selects all requests except those with an id from a trusted proxy.
	RequestIDsTrusted
)

// idField is the field that carries ids.
type idField struct {
	ids    RequestIDs
	name   string
	id     http1.FieldID
	answer bool // answers bear them too
}

func newIDField(o *Options) idField {
	return idField{o.RequestIDs, o.RequestIDField, http1.Identify(o.RequestIDField), o.AnswerRequestID && o.RequestIDs != RequestIDsOff}
}

// is reports whether the field, whose ID is set, is the id field.
func (i *idField) is(f *http1.Field) bool {
	return f.ID == i.id && (i.id != http1.FieldOther || len(f.Name) == len(i.name) && http1.EqualFold(f.Name, i.name))
}

func (i *idField) field(id string) http1.Field {
	return http1.Field{Name: i.name, Value: id, ID: i.id}
}

// requestID is the request's id.
type requestID struct {
	text    string
	known   bool // text and made are filled in
	made    bool // by this proxy
	guarded bool // the listener has trusted proxies
}

// identify returns the request's id, and whether the proxy made it. The id is "" if the request has none and gets none.
func (ex *Exchange) identify() (id string, made bool) {
	if d := &ex.id; !d.known {
		d.known = true
		ex.findID()
	}
	return ex.id.text, ex.id.made
}

func (ex *Exchange) findID() {
	r, i, d := &ex.req, &ex.pipe.requestID, &ex.id
	lines := 0
	for k := range r.Fields {
		f := &r.Fields[k]
		if !i.is(f) || r.NamedHops && http1.HopByHop(f, r.Fields) {
			continue
		}
		if lines++; lines == 1 {
			d.text = f.Value
		}
	}
	if i.ids == RequestIDsOff || lines == 1 && (ex.reported != nil || i.ids == RequestIDsMissing && !d.guarded) && validID(d.text) {
		return
	}
	mark := len(ex.scratch)
	ex.scratch = appendUUID(ex.scratch, rand.Uint64(), rand.Uint64())
	d.text, d.made = ex.text(mark), true
}

// maxID is the longest id from outside that the proxy keeps.
const maxID = 128

// validID reports whether an id from outside can be kept: 1 to 128 visible ASCII characters, without quotes,
// backslashes and commas, which have a meaning in logs and lists.
func validID(s string) bool {
	if s == "" || len(s) > maxID {
		return false
	}
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || c == '"' || c == '\\' || c == ',' {
			return false
		}
	}
	return true
}

// appendUUID appends a UUID of version 4 (RFC 9562 §5.4) made of random numbers. math/rand/v2 generates them with
// ChaCha8, seeded by the system, and each thread has its own generator. So the next number is not predictable, and no
// caller waits.
func appendUUID(b []byte, high, low uint64) []byte {
	const digits = "0123456789abcdef"
	var raw [16]byte
	binary.BigEndian.PutUint64(raw[:], high&^0xf000|0x4000)
	binary.BigEndian.PutUint64(raw[8:], low&^(3<<62)|1<<63)
	var out [36]byte
	at := 0
	for i, c := range raw {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			out[at] = '-'
			at++
		}
		out[at], out[at+1] = digits[c>>4], digits[c&15]
		at += 2
	}
	return append(b, out[:]...)
}

// impersonatesID reports whether a backend may confuse an irregular field with the id field, which the proxy is
// responsible for.
func (ex *Exchange) impersonatesID(f *http1.Field) bool {
	i := &ex.pipe.requestID
	return i.ids != RequestIDsOff && f.ID == http1.FieldIrregular && http1.SameVariable(f.Name, i.name)
}

// tellID puts the request's id on an answer, if configured, and replaces one from the backend.
func (ex *Exchange) tellID(fields []http1.Field) []http1.Field {
	i := &ex.pipe.requestID
	if !i.answer {
		return fields
	}
	n := 0
	for k := range fields {
		if f := &fields[k]; !i.is(f) {
			if n != k {
				fields[n] = *f
			}
			n++
		}
	}
	id, _ := ex.identify()
	return append(fields[:n], i.field(id))
}
