package exchange

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/weirmesh/weir/internal/http1"
)

// RequestIDs says which requests are given an id.
type RequestIDs uint8

const (
	// RequestIDsOff: none; what a client sends passes.
	RequestIDsOff RequestIDs = iota
	// RequestIDsMissing: those that have none, or none that can be used (see validID). Where a listener has trusted proxies, only they may bring one.
	RequestIDsMissing
	// RequestIDsTrusted: all but those with an id of a trusted proxy.
	RequestIDsTrusted
)

// idField is where ids are.
type idField struct {
	ids    RequestIDs
	name   string
	id     http1.FieldID
	answer bool // answers bear them too
}

func newIDField(o *Options) idField {
	return idField{o.RequestIDs, o.RequestIDField, http1.Identify(o.RequestIDField), o.AnswerRequestID && o.RequestIDs != RequestIDsOff}
}

// is says whether the field, whose ID is set, is that of ids.
func (i *idField) is(f *http1.Field) bool {
	return f.ID == i.id && (i.id != http1.FieldOther || len(f.Name) == len(i.name) && http1.EqualFold(f.Name, i.name))
}

func (i *idField) field(id string) http1.Field {
	return http1.Field{Name: i.name, Value: id, ID: i.id}
}

// requestID is what a request is known by.
type requestID struct {
	text    string
	known   bool // text and made are filled in
	made    bool // by this proxy
	guarded bool // the listener has trusted proxies
}

// identify gives the request's id, and whether it was made here; "" if it has none and is to have none.
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

// maxID is the longest id of somebody else that is kept.
const maxID = 128

// validID says whether somebody else's id can be kept: 1 to 128 visible ASCII characters, without quotes, backslashes and commas, which mean something
// in logs and lists.
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

// appendUUID appends the UUID of version 4 (RFC 9562 §5.4) of random numbers. Those of math/rand/v2 are ChaCha8's, seeded by the system, and each
// thread has its own: nobody can tell the next, and nobody waits.
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

// impersonatesID says whether an irregular field may be taken for that of ids, which the proxy answers for.
func (ex *Exchange) impersonatesID(f *http1.Field) bool {
	i := &ex.pipe.requestID
	return i.ids != RequestIDsOff && f.ID == http1.FieldIrregular && http1.SameVariable(f.Name, i.name)
}

// tellID lets an answer bear the request's id, if that is wanted, in place of one that the backend gave it.
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
