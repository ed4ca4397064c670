package http1

// Limits bound a head. Zero fields mean the defaults.
type Limits struct {
	// Line is the longest first line in bytes, with its CRLF: beyond it a request is answered 414. Default 8 KiB.
	Line int
	// Head is the longest head in bytes: beyond it 431. Default 64 KiB.
	Head int
	// Fields is the largest number of field lines: beyond it 431. Default 128.
	Fields int
}

const (
	DefaultLine   = 8 << 10
	DefaultHead   = 64 << 10
	DefaultFields = 128
)

// Error is why a message was refused. For a request it is the client's fault and Status is the 4xx or 5xx to answer before
// closing the connection; for a response it is the endpoint's fault and Status is 502.
type Error struct {
	Status int
	// Reason is a stable snake_case word.
	Reason string
	// Detail is a sentence for a person. It never quotes the message.
	Detail string
}

func (e *Error) Error() string { return "http1: " + e.Reason + ": " + e.Detail }

// BodyKind is how a body is framed.
type BodyKind uint8

const (
	// BodyNone: the message has no body.
	BodyNone BodyKind = iota
	// BodyLength: Content-Length was given (it may be 0).
	BodyLength
	// BodyChunked: the chunked coding; see ChunkReader.
	BodyChunked
	// BodyUntilClose: a response that ends with its connection.
	BodyUntilClose
)

// Body is the framing of a message's body (RFC 9112 §6.3). It is the truth; a message is forwarded with framing fields written from
// it, not with those that were received.
type Body struct {
	Kind BodyKind
	// Length is set for BodyLength.
	Length int64
}

// Form is the form of a request target (RFC 9112 §3.2).
type Form uint8

const (
	// FormOrigin is "/path?query".
	FormOrigin Form = iota
	// FormAbsolute is "http://authority/path?query".
	FormAbsolute
	// FormAuthority is "host:port", with CONNECT only.
	FormAuthority
	// FormAsterisk is "*", with OPTIONS only.
	FormAsterisk
)

// Request is a parsed request head. It is meant to be reused: Parse allocates nothing once Fields has grown.
type Request struct {
	Method string
	// Target is the request target as received.
	Target string
	Form   Form
	// Path is the raw path of Target. It starts with "/", except that it is "*" for FormAsterisk (and for OPTIONS with an
	// absolute form that has neither path nor query, RFC 9112 §3.2.4) and empty for FormAuthority. Each "%" in it begins a valid
	// escape.
	Path string
	// Query is what follows "?"; HasQuery tells an empty query from none.
	Query    string
	HasQuery bool
	// Scheme is "http" or "https" in lower case for FormAbsolute, else empty.
	Scheme string
	// Authority is "host" or "host:port": of the target if it has one, else the Host field. Empty only for HTTP/1.0 without Host.
	Authority string
	// Minor is 0 or 1: HTTP/1.0 or HTTP/1.1.
	Minor int
	// Fields are all field lines in order. A repeated, identical Content-Length occurs once.
	Fields []Field
	Body   Body
	// KeepAlive: the client lets the connection serve another request after this one.
	KeepAlive bool
	// Expect100: the client waits for 100 (Continue) before it sends the body.
	Expect100 bool
	// NamedHops: the Connection field names fields other than those known by FieldID.HopByHop; see HopByHop.
	NamedHops bool
	// Upgrade is the value of the Upgrade field when Connection lists it and the version is 1.1, else empty.
	Upgrade string

	scan scanner
}

// Parse reads a head at the beginning of buf: n is its length, and the body, if any, follows at buf[n:]. With n 0 and no error more
// bytes are needed: call again with the same bytes and more behind them (they may have moved). Waiting costs time linear in the bytes, however few
// arrive at once. An error is an *Error. One empty line before the request line is skipped (RFC 9112 §2.2).
func (r *Request) Parse(buf []byte, lim Limits) (n int, err error) { panic("http1: not yet") }

// Reset forgets a partly read head and the last result. Parse after a success or an error needs none.
func (r *Request) Reset() { panic("http1: not yet") }

// Get gives the value of the first field called name, without regard to case.
func (r *Request) Get(name string) (value string, ok bool) { return Get(r.Fields, name) }

// Response is a parsed response head. It is meant to be reused like Request.
type Response struct {
	// Status is 100 to 599.
	Status int
	// Reason is the reason phrase, possibly empty.
	Reason string
	// Minor is 0 or 1.
	Minor int
	// Fields are all field lines in order. A repeated, identical Content-Length occurs once. In an answer with BodyNone to HEAD or with
	// status 304, Content-Length tells what the body would be and may be forwarded; in 1xx and 204 it is removed, like Transfer-Encoding.
	Fields []Field
	Body   Body
	// KeepAlive: the connection may serve another request once the body is read.
	KeepAlive bool
	// NamedHops is as in Request.
	NamedHops bool
	// Upgrade is the value of the Upgrade field of a 101 answer that lists it in Connection, else empty.
	Upgrade string

	scan scanner
}

// Parse reads a head at the beginning of buf like Request.Parse. requestMethod is the method of the request that is answered: it
// decides with the status whether there is a body (RFC 9112 §6.3). Answers with a 1xx status other than 101 are followed by another head.
func (r *Response) Parse(buf []byte, lim Limits, requestMethod string) (n int, err error) {
	panic("http1: not yet")
}

// Reset forgets a partly read head and the last result.
func (r *Response) Reset() { panic("http1: not yet") }

// Get gives the value of the first field called name, without regard to case.
func (r *Response) Get(name string) (value string, ok bool) { return Get(r.Fields, name) }

type scanner struct{}
