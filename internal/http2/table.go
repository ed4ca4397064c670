package http2

import (
	"errors"
	"unsafe"

	"golang.org/x/net/http2/hpack"

	"github.com/weirmesh/weir/internal/http1"
)

// codedField is a field of a header block with its properties. Fields of tables are examined once, however often they
// are used.
type codedField struct {
	http1.Field
	name     nameKind
	badValue bool
}

// nameKind is the kind of a field's name. The zero value is a valid name in lower case.
type nameKind uint8

const (
	nameValid nameKind = iota
	namePseudo
	nameEmpty
	nameBad
)

func (f *codedField) setName(name string) {
	f.Name, f.ID = name, 0
	switch {
	case name == "":
		f.name = nameEmpty
	case name[0] == ':':
		f.name = namePseudo
	case !validName(name):
		f.name = nameBad
	default:
		f.name, f.ID = nameValid, http1.Identify(name)
	}
}

func (f *codedField) setValue(value string) {
	f.Value = value
	f.badValue = !http1.ValidFieldValue(value)
}

// size is RFC 7541 §4.1's.
func (f *codedField) size() int { return len(f.Name) + len(f.Value) + 32 }

// codedStatic is staticField.
var codedStatic [len(staticField)]codedField

func init() {
	for i := range codedStatic {
		codedStatic[i].setName(staticField[i].Name)
		codedStatic[i].setValue(staticField[i].Value)
	}
}

// Errors of a block that breaks the connection, since the tables do not agree any more.
var (
	errTruncated = errors.New("truncated header block")
	errInteger   = errors.New("integer too large in a header block")
	errIndex     = errors.New("header block with an invalid table index")
	errUpdate    = errors.New("header block with an invalid table size update")
)

// decoderState is the dynamic table of a decoder (RFC 7541 §2.3.2).
type decoderState struct {
	entries     []codedField // the newest is last
	used, limit int          // of size
}

// at is the entry of that index in both tables, nil if there is none. It is valid until the next add.
func (t *decoderState) at(index uint64) *codedField {
	if index < uint64(len(codedStatic)) {
		if index == 0 {
			return nil
		}
		return &codedStatic[index]
	}
	if index -= uint64(len(codedStatic)); index >= uint64(len(t.entries)) {
		return nil
	}
	return &t.entries[len(t.entries)-1-int(index)]
}

// evict makes room for an entry of that size; one that is larger than the table empties it.
func (t *decoderState) evict(size int) {
	n := 0
	for n < len(t.entries) && t.used+size > t.limit {
		t.used -= t.entries[n].size()
		n++
	}
	if n > 0 {
		left := copy(t.entries, t.entries[n:])
		clear(t.entries[left:])
		t.entries = t.entries[:left]
	}
}

func (t *decoderState) add(f *codedField) {
	size := f.size()
	if t.evict(size); size <= t.limit {
		t.entries = append(t.entries, *f)
		t.used += size
	}
}

// unpack reads the representations of a block (RFC 7541 §6) and has each field emitted.
func (d *decoder) unpack(b []byte) (err error) {
	var n uint64
	for first := true; len(b) > 0; {
		kind := b[0]
		switch {
		case kind&0x80 != 0:
			if n, b, err = readInt(b, 7); err != nil {
				return err
			}
			f := d.table.at(n)
			if f == nil {
				return errIndex
			}
			d.emit(f)
		case kind&0xe0 == 0x20:
			if n, b, err = readInt(b, 5); err != nil {
				return err
			}
			if !first || n > decoderTable {
				return errUpdate
			}
			d.table.limit = int(n)
			d.table.evict(0)
			continue
		default:
			if b, err = d.literal(b, kind&0x40 != 0); err != nil {
				return err
			}
		}
		first = false
	}
	return nil
}

// literal reads a field that is not in the tables as a whole; keep puts it there.
func (d *decoder) literal(b []byte, keep bool) ([]byte, error) {
	bits := uint(4)
	if keep {
		bits = 6
	}
	n, b, err := readInt(b, bits)
	if err != nil {
		return nil, err
	}
	wanted := keep || !d.quiet
	var f codedField
	if n > 0 {
		named := d.table.at(n)
		if named == nil {
			return nil, errIndex
		}
		f.Name, f.ID, f.name = named.Name, named.ID, named.name
	} else {
		var name string
		if name, b, err = d.readString(b, wanted, keep); err != nil {
			return nil, err
		}
		f.setName(name)
	}
	value, b, err := d.readString(b, wanted, keep)
	if err != nil || !wanted {
		return b, err
	}
	f.setValue(value)
	if keep {
		d.table.add(&f)
	}
	d.emit(&f)
	return b, nil
}

// readInt is RFC 7541 §5.1.
func readInt(b []byte, bits uint) (n uint64, rest []byte, err error) {
	if len(b) == 0 {
		return 0, nil, errTruncated
	}
	most := byte(1)<<bits - 1
	if n = uint64(b[0] & most); n < uint64(most) {
		return n, b[1:], nil
	}
	for i, c := range b[1:] {
		if i >= 5 {
			return 0, nil, errInteger
		}
		n += uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			return n, b[i+2:], nil
		}
	}
	return 0, nil, errTruncated
}

// readString is RFC 7541 §5.2. An unwanted string is only skipped. A string that is not kept in the table is written to
// the head, if that is a request's.
func (d *decoder) readString(b []byte, wanted, keep bool) (s string, rest []byte, err error) {
	if len(b) == 0 {
		return "", nil, errTruncated
	}
	huffman := b[0]&0x80 != 0
	n, b, err := readInt(b, 7)
	switch {
	case err != nil:
		return "", nil, err
	case n > uint64(d.max):
		return "", nil, hpack.ErrStringLength
	case n > uint64(len(b)):
		return "", nil, errTruncated
	}
	coded, rest := b[:n], b[n:]
	if !wanted {
		return "", rest, nil
	}
	text := &d.text
	toHead := d.kind == blockRequest && !keep
	if toHead {
		text = &d.head.text
	} else {
		d.text = d.text[:0]
	}
	mark := len(*text)
	if huffman {
		var ok bool
		if *text, ok = appendHuffmanDecoded(*text, coded); !ok {
			return "", nil, hpack.ErrInvalidHuffman
		}
	} else {
		*text = append(*text, coded...)
	}
	decoded := (*text)[mark:]
	switch {
	case len(decoded) > d.max:
		err = hpack.ErrStringLength
	case toHead:
		s = unsafe.String(unsafe.SliceData(decoded), len(decoded))
	default:
		s = string(decoded)
	}
	return s, rest, err
}
