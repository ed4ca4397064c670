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
	FieldXForwardedFor
	FieldXForwardedHost
	FieldXForwardedProto
	FieldXRequestID
)

// Identify gives the FieldID of a valid field name, in any case.
func Identify(name string) FieldID { panic("http1: not yet") }

// HopByHop reports whether the field is meant for one connection only and is never forwarded as received: Connection,
// HTTP2-Settings, Keep-Alive, Proxy-Authenticate, Proxy-Authorization, Proxy-Connection, TE, Transfer-Encoding, Upgrade
// (RFC 9110 §7.6.1, §11.7). Content-Length and Trailer are not among them; a proxy that re-serialises writes the first anew
// from Body.
func (id FieldID) HopByHop() bool { panic("http1: not yet") }

// HopByHop reports whether f, one of fields, must not be forwarded: by its ID, or because a Connection field among fields
// names it. Host, Content-Length and the fields a proxy vouches for (X-Forwarded-*, Forwarded, Via) cannot be removed by naming them.
// Request.NamedHops and Response.NamedHops tell whether more than the ID has to be looked at.
func HopByHop(f *Field, fields []Field) bool { panic("http1: not yet") }

// ConnectionListed reports whether a Connection field among fields lists the option name, without regard to case.
func ConnectionListed(fields []Field, name string) bool { panic("http1: not yet") }

// Get gives the value of the first field called name, without regard to case.
func Get(fields []Field, name string) (value string, ok bool) { panic("http1: not yet") }

// GetID gives the value of the first field with that ID.
func GetID(fields []Field, id FieldID) (value string, ok bool) { panic("http1: not yet") }

// EqualFold compares without regard to the case of ASCII letters.
func EqualFold(a, b string) bool { panic("http1: not yet") }

// HasToken reports whether value, a comma-separated list (RFC 9110 §5.6.1), has the member token, without regard to case.
func HasToken(value, token string) bool { panic("http1: not yet") }

// ValidToken reports whether s is a token (RFC 9110 §5.6.2).
func ValidToken(s string) bool { panic("http1: not yet") }

// ValidFieldName reports whether s may be the name of a field.
func ValidFieldName(s string) bool { return ValidToken(s) }

// ValidFieldValue reports whether s may be the value of a field: no control bytes but HTAB, and no whitespace around it
// (RFC 9110 §5.5; bytes above 0x7F are allowed).
func ValidFieldValue(s string) bool { panic("http1: not yet") }

// ValidAuthority reports whether s is "host", "host:port", "[v6]" or "[v6]:port" without user information. A host is made of
// letters, digits and "-._~": narrower than RFC 3986, wide enough for every DNS name.
func ValidAuthority(s string) bool { panic("http1: not yet") }
