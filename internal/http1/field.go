package http1

// Field is a field line. Name is as received; Value is without the whitespace around it. Both alias the parsed bytes.
type Field struct {
	Name, Value string
	// ID is set by the parsers. Fields made by hand may leave it zero, or use Identify.
	ID FieldID
}

// FieldID recognises the fields that a proxy acts on, so that it need not compare names. Zero is every other field.
type FieldID uint8

const (
	FieldOther FieldID = iota
	FieldAccessControlRequestHeaders
	FieldAccessControlRequestMethod
	FieldConnection
	FieldContentLength
	FieldContentType
	FieldDate
	FieldExpect
	FieldForwarded
	FieldHost
	FieldHTTP2Settings
	FieldKeepAlive
	FieldLocation
	FieldOrigin
	FieldProxyAuthenticate
	FieldProxyAuthorization
	FieldProxyConnection
	FieldServer
	FieldTE
	FieldTrailer
	FieldTransferEncoding
	FieldUpgrade
	FieldUserAgent
	FieldVary
	FieldVia
	FieldWeirMirrored
	FieldWeirUndelivered
	FieldWeirVia
	FieldXForwardedFor
	FieldXForwardedHost
	FieldXForwardedPort
	FieldXForwardedProto
	FieldXRealIP
	FieldXRequestID
	fieldIDs // how many there are

	// FieldIrregular is a field whose name has other characters than letters, digits and hyphens, such as "X_User". Backends that make variables
	// of names may take it for another one: see SameVariable.
	FieldIrregular FieldID = 63
)

var fieldNames = [fieldIDs]string{
	FieldAccessControlRequestHeaders: "access-control-request-headers",
	FieldAccessControlRequestMethod:  "access-control-request-method",
	FieldConnection:                  "connection",
	FieldContentLength:               "content-length",
	FieldContentType:                 "content-type",
	FieldDate:                        "date",
	FieldExpect:                      "expect",
	FieldForwarded:                   "forwarded",
	FieldHost:                        "host",
	FieldHTTP2Settings:               "http2-settings",
	FieldKeepAlive:                   "keep-alive",
	FieldLocation:                    "location",
	FieldOrigin:                      "origin",
	FieldProxyAuthenticate:           "proxy-authenticate",
	FieldProxyAuthorization:          "proxy-authorization",
	FieldProxyConnection:             "proxy-connection",
	FieldServer:                      "server",
	FieldTE:                          "te",
	FieldTrailer:                     "trailer",
	FieldTransferEncoding:            "transfer-encoding",
	FieldUpgrade:                     "upgrade",
	FieldUserAgent:                   "user-agent",
	FieldVary:                        "vary",
	FieldVia:                         "via",
	FieldWeirMirrored:                "weir-mirrored",
	FieldWeirUndelivered:             "weir-undelivered",
	FieldWeirVia:                     "weir-via",
	FieldXForwardedFor:               "x-forwarded-for",
	FieldXForwardedHost:              "x-forwarded-host",
	FieldXForwardedPort:              "x-forwarded-port",
	FieldXForwardedProto:             "x-forwarded-proto",
	FieldXRealIP:                     "x-real-ip",
	FieldXRequestID:                  "x-request-id",
}

// known holds, by length, the folded first and last bytes of each name: two comparisons settle names of up to 16 bytes.
type known struct {
	first, last uint64
	id          FieldID
}

const longestKnown = 31

var knownByLength = func() (t [longestKnown + 1][]known) {
	for id, name := range fieldNames {
		if name != "" {
			first, last := foldedEnds(name)
			t[len(name)] = append(t[len(name)], known{first, last, FieldID(id)})
		}
	}
	return t
}()

// foldedEnds returns the first and last bytes of a name with bit 5 set. This folds the letters of a token, and does not
// confuse them with the hyphens and digits of the known names.
func foldedEnds(s string) (first, last uint64) {
	const fold = 0x2020202020202020
	if n := len(s); n >= 8 {
		return load64(s, 0) | fold, load64(s, n-8) | fold
	} else if n >= 4 {
		return uint64(load32(s, 0)) | fold, uint64(load32(s, n-4)) | fold
	} else if n > 0 {
		return uint64(s[0])<<16 | uint64(s[n/2])<<8 | uint64(s[n-1]) | fold, 0
	}
	return 0, 0
}

func load64(s string, i int) uint64 {
	s = s[i : i+8]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

func load32(s string, i int) uint32 {
	s = s[i : i+4]
	return uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16 | uint32(s[3])<<24
}

// Identify gives the FieldID of a valid field name, in any case.
func Identify(name string) FieldID {
	for i := 0; i < len(name); i++ {
		if class[name[i]]&classIrregular != 0 {
			return FieldIrregular
		}
	}
	return identify(name)
}

// identify is Identify for a name without irregular characters.
func identify(name string) FieldID {
	if len(name) > longestKnown {
		return FieldOther
	}
	candidates := knownByLength[len(name)]
	if len(candidates) == 0 {
		return FieldOther
	}
	first, last := foldedEnds(name)
	for i := range candidates {
		if c := &candidates[i]; c.first == first && c.last == last {
			if len(name) > 16 && !EqualFold(name, fieldNames[c.id]) {
				continue
			}
			return c.id
		}
	}
	return FieldOther
}

// Properties of a field, as bits by FieldID.
const (
	hopByHop uint64 = 1<<FieldConnection | 1<<FieldHTTP2Settings | 1<<FieldKeepAlive | 1<<FieldProxyAuthenticate |
		1<<FieldProxyAuthorization | 1<<FieldProxyConnection | 1<<FieldTE | 1<<FieldTransferEncoding | 1<<FieldUpgrade |
		1<<FieldWeirUndelivered
	// notRemovable cannot be removed by naming them in Connection, or a client could blind the endpoint.
	notRemovable uint64 = 1<<FieldContentLength | 1<<FieldForwarded | 1<<FieldHost | 1<<FieldVia | 1<<FieldXForwardedFor |
		1<<FieldXForwardedHost | 1<<FieldXForwardedPort | 1<<FieldXForwardedProto | 1<<FieldXRealIP | 1<<FieldWeirVia
)

// SameVariable reports whether two field names become the same variable in backends that turn names into variables as
// CGI does (RFC 3875 §4.1.18): case is ignored, and all characters except letters and digits are equal. CGI itself maps
// only "-" to "_"; Apache httpd and lighttpd map every such character, PHP maps ".".
func SameVariable(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := 0; i < len(a); i++ {
		if variableByte[a[i]] != variableByte[b[i]] {
			return false
		}
	}
	return true
}

var variableByte = func() (t [256]byte) {
	for c := range t {
		switch b := byte(c); {
		case 'A' <= b && b <= 'Z':
			t[c] = b
		case 'a' <= b && b <= 'z':
			t[c] = b - 'a' + 'A'
		case '0' <= b && b <= '9':
			t[c] = b
		default:
			t[c] = '_'
		}
	}
	return t
}()

// regular returns an irregular name with hyphens in place of its irregular characters, or "" if it is longer than any
// name of interest.
func regular(name string, buf *[longestKnown]byte) string {
	if len(name) > len(buf) {
		return ""
	}
	for i := range name {
		if buf[i] = name[i]; class[name[i]]&classIrregular != 0 {
			buf[i] = '-'
		}
	}
	return str(buf[:], 0, len(name))
}

// Vouched reports whether a proxy uses a field, whose ID is set, to describe the origin or the handling of a request:
// Forwarded, Via, X-Real-IP, X-Forwarded-*, Weir-*. It is also true for fields that a backend that makes variables of
// names may take for one of these.
func Vouched(f *Field) bool {
	const known = 1<<FieldForwarded | 1<<FieldVia | 1<<FieldXForwardedFor | 1<<FieldXForwardedHost | 1<<FieldXForwardedProto |
		1<<FieldWeirMirrored | 1<<FieldWeirVia
	const prefix = "x-forwarded-"
	switch {
	case f.ID == FieldOther || f.ID == FieldIrregular:
		return len(f.Name) > len(prefix) && SameVariable(f.Name[:len(prefix)], prefix) || SameVariable(f.Name, "x-real-ip") ||
			f.ID == FieldIrregular && (SameVariable(f.Name, "weir-via") || SameVariable(f.Name, "weir-mirrored"))
	}
	return known&(1<<f.ID) != 0
}

// Impersonates reports whether a backend that makes variables of names may take an irregular field for one that frames
// messages, belongs to the connection, or is Vouched: such as Content_Length, Transfer.Encoding, X_Forwarded_For.
func Impersonates(f *Field) bool {
	if f.ID != FieldIrregular {
		return false
	}
	if Vouched(f) {
		return true
	}
	var buf [longestKnown]byte
	id := identify(regular(f.Name, &buf))
	return (hopByHop|notRemovable|1<<FieldTrailer|1<<FieldExpect)&(1<<id) != 0
}

// HopByHop reports whether the field is meant for one connection only and is never forwarded as received: Connection,
// HTTP2-Settings, Keep-Alive, Proxy-Authenticate, Proxy-Authorization, Proxy-Connection, TE, Transfer-Encoding, Upgrade
// (RFC 9110 §7.6.1, §11.7), and Weir-Undelivered, which tells a proxy of the same mesh that the request reached nobody. Content-Length and Trailer are not among them; a proxy that re-serialises writes the first anew
// from Body.
func (id FieldID) HopByHop() bool { return hopByHop&(1<<id) != 0 }

// HopByHop reports whether f, one of fields, must not be forwarded: by its ID, or because a Connection field among
// fields names it. Host, Content-Length and the fields of proxies (X-Forwarded-*, X-Real-IP, Forwarded, Via) cannot be
// removed by naming them. Request.NamedHops and Response.NamedHops report whether the ID alone is not sufficient.
func HopByHop(f *Field, fields []Field) bool {
	id := f.ID
	if id == FieldOther {
		id = Identify(f.Name)
	}
	if id.HopByHop() {
		return true
	}
	return notRemovable&(1<<id) == 0 && !beginsWith(f.Name, "x-forwarded-") && ConnectionListed(fields, f.Name)
}

// beginsWith reports whether a name is longer than a lower-case prefix and begins with it, without regard to case.
func beginsWith(name, prefix string) bool {
	return len(name) > len(prefix) && EqualFold(name[:len(prefix)], prefix)
}

// ConnectionListed reports whether a Connection field among fields lists the option name, without regard to case.
func ConnectionListed(fields []Field, name string) bool {
	for i := range fields {
		f := &fields[i]
		if (f.ID == FieldConnection || f.ID == FieldOther && EqualFold(f.Name, "connection")) && HasToken(f.Value, name) {
			return true
		}
	}
	return false
}

// GetID gives the value of the first field with that ID.
func GetID(fields []Field, id FieldID) (value string, ok bool) {
	for i := range fields {
		if fields[i].ID == id {
			return fields[i].Value, true
		}
	}
	return "", false
}
