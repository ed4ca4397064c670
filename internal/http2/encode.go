package http2

import (
	"hash/maphash"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/net/http2/hpack"

	"github.com/weirmesh/weir/internal/http1"
)

// encoderTable is the largest dynamic table of an encoder (RFC 7541 §4.2), even if the peer allows more.
const encoderTable = 4096

// encoder writes header blocks (RFC 7541). A field enters the dynamic table when it was sent twice in a short time. So
// values that are new in each message cost no memory, and do not displace those that are repeated. Nothing is
// allocated, except for new entries of the table.
//
// The library's encoder keeps every string that it is given, and looks each up in four maps.
type encoder struct {
	entries []tableEntry // a ring: the newest is entries[(added-1)&mask]
	added   uint32       // entries added since ever
	count   uint32       // entries there are
	size    int          // in the unit of RFC 7541 §4.1
	limit   int          // of size

	update   bool // the peer must be told of limit
	smallest int  // the smallest limit since the peer was told

	names  [encoderIndex]uint32 // by hash: number of the newest entry with the name, counted from 1
	fields [encoderIndex]uint32 // with name and value
	seen   [encoderIndex]uint32 // hashes of fields that were not in the table when they were sent
	seed   maphash.Seed
	name   []byte // lower case

	// heads and tails are where the fields of the last head and the last trailers were found, by their places: the next are often the same.
	heads, tails [encoderPlaces]foundAt
	places       []foundAt // for the rest of this block
}

const (
	encoderIndex  = 128 // entries of a hash index, a power of two
	encoderRing   = 64  // entries of the table, a power of two
	encoderPlaces = 24
)

// foundAt is where a field is in the tables: the number of an entry, counted from 1, or with foundStatic the index in the static one; 0: nowhere.
type foundAt uint32

const foundStatic foundAt = 1 << 31

type tableEntry struct{ name, value string }

func (e *tableEntry) size() int { return len(e.name) + len(e.value) + 32 }

// staticField is the static table (RFC 7541 Appendix A), from 1, taken from the library's decoder. staticNames and
// staticFields are the first index of a name, and of a field with a value.
var (
	staticField  [62]hpack.HeaderField
	staticNames  = map[string]uint32{}
	staticFields = map[tableEntry]uint32{}
)

func init() {
	i := uint32(0)
	dec := hpack.NewDecoder(0, func(f hpack.HeaderField) {
		staticField[i] = f
		if _, ok := staticNames[f.Name]; !ok {
			staticNames[f.Name] = i
		}
		if f.Value != "" {
			staticFields[tableEntry{f.Name, f.Value}] = i
		}
	})
	for i = 1; i < uint32(len(staticField)); i++ {
		if _, err := dec.Write([]byte{0x80 | byte(i)}); err != nil {
			panic(err)
		}
	}
}

func (e *encoder) init() {
	e.entries = make([]tableEntry, encoderRing)
	e.limit = encoderTable
	e.seed = maphash.MakeSeed()
}

// setLimit follows the peer's SETTINGS_HEADER_TABLE_SIZE.
func (e *encoder) setLimit(n uint32) {
	limit := int(min(n, encoderTable))
	if !e.update {
		e.smallest = e.limit
	}
	e.smallest = min(e.smallest, limit)
	if limit != e.limit || e.smallest != limit {
		e.update = true
	}
	e.limit = limit
	e.evict(0)
}

// evict makes room for an entry of that size.
func (e *encoder) evict(size int) {
	for e.count > 0 && (e.size+size > e.limit || e.count == encoderRing) {
		old := &e.entries[(e.added-e.count)&(encoderRing-1)]
		e.size -= old.size()
		*old = tableEntry{}
		e.count--
	}
}

// begin starts a block. places are where the fields of the last block were found, which are tried first.
func (e *encoder) begin(dst []byte, places *[encoderPlaces]foundAt) []byte {
	e.places = places[:]
	if e.update {
		e.update = false
		if e.smallest < e.limit {
			// The limit was smaller in the meantime. The table is emptied: the library's decoder only accepts a second
			// update then.
			e.evict(e.limit + 1)
			dst = appendInt(dst, 0x20, 5, 0)
		}
		dst = appendInt(dst, 0x20, 5, uint64(e.limit))
	}
	return dst
}

// status appends :status.
func (e *encoder) status(dst []byte, status int) []byte {
	switch status {
	case 200:
		return append(dst, 0x80|8)
	case 204:
		return append(dst, 0x80|9)
	case 206:
		return append(dst, 0x80|10)
	case 304:
		return append(dst, 0x80|11)
	case 400:
		return append(dst, 0x80|12)
	case 404:
		return append(dst, 0x80|13)
	case 500:
		return append(dst, 0x80|14)
	}
	// 08: literal, not indexed, name of index 8.
	return append(dst, 8, 3, byte('0'+status/100), byte('0'+status/10%10), byte('0'+status%10))
}

// length appends content-length, which is index 28, not indexed.
func (e *encoder) length(dst []byte, n int64) []byte {
	dst = append(dst, 0x0f, 28-15, 0)
	mark := len(dst)
	dst = strconv.AppendInt(dst, n, 10)
	dst[mark-1] = byte(len(dst) - mark)
	return dst
}

// Kinds of literals (RFC 7541 §6.2.2, §6.2.3).
const (
	notIndexed   = 0
	neverIndexed = 0x10
)

// rarely reports whether a field's value is hardly ever repeated on the connection, or must not be kept in a table
// whose size may leak it (RFC 7541 §7.1.3): it is never put there, nor looked for. index is the name's in the static
// table, 0 if it is not there.
func rarely(name string) (is bool, index uint32, kind byte) {
	switch len(name) {
	case 3:
		return name == "age", 21, notIndexed
	case 4:
		return name == "etag", 34, notIndexed
	case 6:
		return name == "cookie", 32, neverIndexed
	case 10:
		return name == "set-cookie", 55, neverIndexed
	case 12:
		return name == "x-request-id", 0, notIndexed
	case 13:
		return name == "authorization", 23, neverIndexed
	}
	return false, 0, 0
}

// field appends a field, whose name may be in any case.
func (e *encoder) field(dst []byte, name, value string) []byte {
	var at *foundAt
	if len(e.places) > 0 {
		at = &e.places[0]
		e.places = e.places[1:]
		if index := e.again(*at, name, value); index != 0 {
			return appendInt(dst, 0x80, 7, uint64(index))
		}
	}
	low := e.name[:0]
	for i := 0; i < len(name); i++ {
		c := name[i]
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		low = append(low, c)
	}
	e.name = low
	dst, found := e.lower(dst, unsafe.String(unsafe.SliceData(low), len(low)), value)
	if at != nil {
		*at = found
	}
	return dst
}

// again is the index of the field if it is still there, else 0.
func (e *encoder) again(at foundAt, name, value string) uint32 {
	if i := uint32(at &^ foundStatic); at >= foundStatic && i < uint32(len(staticField)) {
		if f := &staticField[i]; f.Value == value && http1.EqualFold(f.Name, name) {
			return i
		}
	} else if e.lives(uint32(at)) {
		if t := &e.entries[(at-1)&(encoderRing-1)]; t.value == value && http1.EqualFold(t.name, name) {
			return e.index(uint32(at))
		}
	}
	return 0
}

// lower appends a field whose name is in lower case, and tells where it was found.
func (e *encoder) lower(dst []byte, name, value string) ([]byte, foundAt) {
	if is, index, kind := rarely(name); is {
		return appendLiteral(dst, kind, index, name, value), 0
	}
	nameHash := uint32(maphash.String(e.seed, name))
	fieldHash := nameHash*0x9e3779b1 ^ uint32(maphash.String(e.seed, value))
	for _, n := range places(&e.fields, fieldHash) {
		if e.lives(*n) {
			if t := &e.entries[(*n-1)&(encoderRing-1)]; t.value == value && t.name == name {
				return appendInt(dst, 0x80, 7, uint64(e.index(*n))), foundAt(*n)
			}
		}
	}
	index := staticNames[name]
	for _, n := range places(&e.names, nameHash) {
		if e.lives(*n) && e.entries[(*n-1)&(encoderRing-1)].name == name {
			index = e.index(*n)
			break
		}
	}
	if index != 0 && index < uint32(len(staticField)) {
		if i, ok := staticFields[tableEntry{name, value}]; ok {
			return appendInt(dst, 0x80, 7, uint64(i)), foundStatic | foundAt(i)
		}
	}
	size := len(name) + len(value) + 32
	if size <= e.limit/4 {
		seen := places(&e.seen, fieldHash)
		s := seen[0]
		if *s != fieldHash && *s != 0 {
			s = seen[1]
		}
		if *s == fieldHash {
			*s = 0
			dst = appendInt(dst, 0x40, 6, uint64(index))
			if index == 0 {
				dst = appendHuffman(dst, name)
			}
			dst = appendHuffman(dst, value)
			e.add(name, value, nameHash, fieldHash)
			return dst, foundAt(e.added)
		}
		*s = fieldHash
	}
	return appendLiteral(dst, notIndexed, index, name, value), 0
}

// appendLiteral appends a field that is not to enter the table, with its name if index is 0.
func appendLiteral(dst []byte, kind byte, index uint32, name, value string) []byte {
	dst = appendInt(dst, kind, 4, uint64(index))
	if index == 0 {
		dst = appendString(dst, name)
	}
	return appendString(dst, value)
}

// lives reports whether the entry of that number, counted from 1, is in the table.
func (e *encoder) lives(n uint32) bool { return n != 0 && e.added-n < e.count }

// index is where the peer has it.
func (e *encoder) index(n uint32) uint32 { return uint32(len(staticField)) + e.added - n }

func (e *encoder) add(name, value string, nameHash, fieldHash uint32) {
	var both strings.Builder
	both.Grow(len(name) + len(value))
	both.WriteString(name)
	both.WriteString(value)
	t := tableEntry{both.String()[:len(name)], both.String()[len(name):]}
	e.evict(t.size())
	e.entries[e.added&(encoderRing-1)] = t
	e.added++
	e.count++
	e.size += t.size()
	e.note(&e.names, nameHash)
	e.note(&e.fields, fieldHash)
}

// places are the two slots of a hash index where the entry for a hash may be. With one slot, two fields of all requests
// would often displace each other.
func places(index *[encoderIndex]uint32, hash uint32) [2]*uint32 {
	return [2]*uint32{&index[hash%encoderIndex], &index[(hash^1)%encoderIndex]}
}

// note enters the newest entry, in place of one that no longer lives or is older.
func (e *encoder) note(index *[encoderIndex]uint32, hash uint32) {
	p := places(index, hash)
	if e.lives(*p[0]) && (!e.lives(*p[1]) || e.added-*p[1] > e.added-*p[0]) {
		p[0] = p[1]
	}
	*p[0] = e.added
}

// appendInt is RFC 7541 §5.1 with the first byte's other bits.
func appendInt(dst []byte, first byte, bits uint, n uint64) []byte {
	most := uint64(1)<<bits - 1
	if n < most {
		return append(dst, first|byte(n))
	}
	dst = append(dst, first|byte(most))
	for n -= most; n >= 0x80; n >>= 7 {
		dst = append(dst, byte(n)|0x80)
	}
	return append(dst, byte(n))
}

// appendString is a string literal as it stands (RFC 7541 §5.2).
func appendString(dst []byte, s string) []byte {
	return append(appendInt(dst, 0, 7, uint64(len(s))), s...)
}

// appendHuffman appends a string literal in its shorter form. It is worth the work for strings that enter the table.
func appendHuffman(dst []byte, s string) []byte {
	n := hpack.HuffmanEncodeLength(s)
	if n >= uint64(len(s)) {
		return appendString(dst, s)
	}
	return hpack.AppendHuffmanString(appendInt(dst, 0x80, 7, n), s)
}

// request appends the block of a request's head.
func (e *encoder) request(dst []byte, h *Head) []byte {
	dst = e.begin(dst, &e.heads)
	dst = e.field(dst, ":method", h.Method)
	if h.Scheme != "" {
		dst = e.field(dst, ":scheme", h.Scheme)
	}
	if h.Authority != "" {
		dst = e.field(dst, ":authority", h.Authority)
	}
	if h.Path != "" {
		dst = e.field(dst, ":path", h.Path)
	}
	return e.rest(dst, h.Fields, h.Body)
}

// response appends the block of an answer's head.
func (e *encoder) response(dst []byte, h *Head) []byte {
	return e.rest(e.status(e.begin(dst, &e.heads), h.Status), h.Fields, h.Body)
}

// trailers appends the block of trailers.
func (e *encoder) trailers(dst []byte, fields []http1.Field) []byte {
	return e.rest(e.begin(dst, &e.tails), fields, http1.Body{})
}

func (e *encoder) rest(dst []byte, fields []http1.Field, body http1.Body) []byte {
	for i := range fields {
		dst = e.field(dst, fields[i].Name, fields[i].Value)
	}
	if body.Kind == http1.BodyLength {
		dst = e.length(dst, body.Length)
	}
	return dst
}
