package http2

import (
	"strings"

	"github.com/weirmesh/weir/internal/http1"
)

// decoderTable is the dynamic table's size, the default of SETTINGS_HEADER_TABLE_SIZE.
const decoderTable = 4096

// blockKind is the kind of a header block.
type blockKind uint8

const (
	blockRequest blockKind = iota
	blockResponse
	blockTrailers
	// blockDropped is decoded for the sake of the tables only.
	blockDropped
)

// Pseudo-fields, as bits.
const (
	pseudoMethod = 1 << iota
	pseudoScheme
	pseudoAuthority
	pseudoPath
	pseudoStatus
)

// decoder reads header blocks into fields. The strings never change, and those of tables are shared. Strings of a
// request that are in no table are written to Head.text, and end with the head.
//
// The library's decoder knows only names and values: each field of its tables would have to be checked again with every
// block.
type decoder struct {
	table     decoderState
	quiet     bool // fields are not emitted, for the sake of the table only
	max       int  // of size
	maxFields int

	kind     blockKind
	head     *Head
	fields   []http1.Field
	size     int
	pseudo   uint8
	regular  bool // a field that is not pseudo has come
	tooLarge bool
	bad      string // the malformed part
	length   int64  // of Content-Length, -1 if there is none
	cookie   int    // index of the first Cookie field, -1 if there is none
	crumbs   int    // Cookie fields
	text     []byte // a string being decoded
}

func (d *decoder) init(cfg *Config) {
	d.max, d.maxFields = cfg.MaxHeader, cfg.MaxFields
	d.table.limit = decoderTable
}

// read decodes a whole block of the kind. Head is filled for requests and responses; fields appends to head's, or to trailers. An error breaks the
// connection, since the tables do not agree any more.
func (d *decoder) read(block []byte, kind blockKind, head *Head, fields []http1.Field) error {
	d.kind, d.head, d.fields = kind, head, fields
	d.size, d.pseudo, d.regular, d.tooLarge, d.bad = 0, 0, false, false, ""
	d.length, d.cookie, d.crumbs = -1, -1, 0
	d.quiet = kind == blockDropped
	if err := d.unpack(block); err != nil {
		return err
	}
	if d.crumbs > 1 {
		d.joinCookies()
	}
	if d.bad == "" && !d.tooLarge {
		d.finish()
	}
	return nil
}

// finish judges the block as a whole (RFC 9113 §8.3).
func (d *decoder) finish() {
	switch d.kind {
	case blockRequest:
		h := d.head
		switch {
		case h.Method == "":
			d.bad = "missing :method"
		case h.Method == "CONNECT":
			if d.pseudo != pseudoMethod|pseudoAuthority {
				d.bad = "CONNECT has :scheme or :path, or no :authority"
			}
		case h.Scheme == "" || h.Path == "":
			d.bad = "missing :scheme or :path"
		}
	case blockResponse:
		if d.pseudo != pseudoStatus {
			d.bad = "missing :status"
		}
	}
}

// emit takes one field.
func (d *decoder) emit(f *codedField) {
	if d.quiet {
		return
	}
	d.size += f.size()
	if d.size > d.max || len(d.fields) >= d.maxFields && f.name != namePseudo {
		d.tooLarge, d.quiet = true, true
		return
	}
	if d.bad != "" {
		return
	}
	switch {
	case f.name == nameEmpty:
		d.bad = "empty field name"
		return
	case f.badValue:
		d.bad = "invalid field value"
		return
	case f.name == namePseudo:
		d.setPseudo(f.Name, f.Value)
		return
	}
	d.regular = true
	if f.name == nameBad {
		d.bad = "invalid field name"
		return
	}
	switch f.ID {
	case http1.FieldOther:
		if f.Name == "cookie" {
			if d.crumbs++; d.crumbs == 1 {
				d.cookie = len(d.fields)
			}
		}
	case http1.FieldConnection, http1.FieldKeepAlive, http1.FieldProxyConnection, http1.FieldTransferEncoding, http1.FieldUpgrade:
		d.bad = "connection-specific field (RFC 9113 §8.2.2)"
		return
	case http1.FieldTE:
		if d.kind == blockRequest && f.Value != "trailers" {
			d.bad = "TE must be trailers (RFC 9113 §8.2.2)"
			return
		}
	case http1.FieldContentLength:
		if d.kind == blockTrailers {
			break
		}
		n, ok := parseLength(f.Value)
		if !ok || d.length >= 0 && d.length != n {
			d.bad = "invalid or repeated Content-Length"
			return
		}
		if d.length >= 0 {
			return
		}
		d.length = n
	case http1.FieldTrailer:
		if http1.AnnouncesForbidden(f.Value) {
			return // the announced trailer is not passed on either
		}
	}
	d.fields = append(d.fields, f.Field)
}

func (d *decoder) setPseudo(name, value string) {
	var bit uint8
	var place *string
	if d.kind == blockRequest {
		switch name {
		case ":method":
			bit, place = pseudoMethod, &d.head.Method
		case ":scheme":
			bit, place = pseudoScheme, &d.head.Scheme
		case ":authority":
			bit, place = pseudoAuthority, &d.head.Authority
		case ":path":
			bit, place = pseudoPath, &d.head.Path
		}
	} else if d.kind == blockResponse && name == ":status" {
		bit = pseudoStatus
		if len(value) != 3 || !digits(value) || value[0] == '0' {
			d.bad = "invalid :status"
			return
		}
		d.head.Status = int(value[0]-'0')*100 + int(value[1]-'0')*10 + int(value[2]-'0')
	}
	switch {
	case bit == 0:
		d.bad = "unknown pseudo-header field (RFC 9113 §8.3)"
	case d.regular:
		d.bad = "pseudo-header field after a regular field (RFC 9113 §8.3)"
	case d.pseudo&bit != 0:
		d.bad = "repeated pseudo-header field (RFC 9113 §8.3)"
	case place != nil:
		*place = value
	}
	d.pseudo |= bit
}

// joinCookies makes one field of the crumbs (RFC 9113 §8.2.3).
func (d *decoder) joinCookies() {
	var all strings.Builder
	out := d.fields[:d.cookie]
	for i, f := range d.fields[d.cookie:] {
		if f.Name != "cookie" {
			out = append(out, f)
			continue
		}
		if i == 0 {
			out = append(out, f)
		}
		if f.Value == "" {
			continue
		}
		if all.Len() > 0 {
			all.WriteString("; ")
		}
		all.WriteString(f.Value)
	}
	out[d.cookie].Value = all.String()
	d.fields = out
}

// nameBytes are the bytes of field names: tokens in lower case.
var nameBytes = func() (t [256]bool) {
	for c := range t {
		t[c] = http1.ValidToken(string([]byte{byte(c)})) && !('A' <= c && c <= 'Z')
	}
	return t
}()

func validName(s string) bool {
	for i := 0; i < len(s); i++ {
		if !nameBytes[s[i]] {
			return false
		}
	}
	return true
}

func digits(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// parseLength reads a Content-Length of up to 18 digits.
func parseLength(s string) (n int64, ok bool) {
	if len(s) > 18 || !digits(s) {
		return 0, false
	}
	for i := 0; i < len(s); i++ {
		n = n*10 + int64(s[i]-'0')
	}
	return n, true
}
