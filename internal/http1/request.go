package http1

import "unsafe"

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

// Request is a parsed request head. Reuse it: Parse allocates nothing once Fields has grown.
type Request struct {
	// Method is made of upper-case letters, "-" and "_".
	Method string
	// Target is the request target as received: printable ASCII without "#".
	Target string
	Form   Form
	// Path is the raw path of Target. It starts with "/", with two exceptions: it is "*" for FormAsterisk (and for
	// OPTIONS with an absolute form that has neither path nor query, RFC 9112 §3.2.4), and empty for FormAuthority.
	// Each "%" in it begins a valid escape.
	Path string
	// Query is the text after "?"; HasQuery distinguishes an empty query from none.
	Query    string
	HasQuery bool
	// Scheme is "http" or "https" in lower case for FormAbsolute, else empty.
	Scheme string
	// Authority is "host" or "host:port" (see ValidAuthority): of the target if it has one, else the Host field. Empty only for
	// HTTP/1.0 without Host.
	Authority string
	// Minor is 0 or 1: HTTP/1.0 or HTTP/1.1.
	Minor int
	// Fields are all field lines in order. A repeated, identical Content-Length occurs once; a Trailer that announces fields that a trailer
	// section may not hold (RFC 9110 §6.5.1) is left out.
	Fields []Field
	Body   Body
	// KeepAlive: the client allows another request on the connection after this one. It is never true for CONNECT:
	// bytes after a refused CONNECT may have been meant for the tunnel.
	KeepAlive bool
	// Expect100: the client waits for 100 (Continue) before it sends the body. Without content there is nothing to wait for, whatever Expect says
	// (RFC 9110 §10.1.1).
	Expect100 bool
	// NamedHops: the Connection field names other fields than those that FieldID.HopByHop knows; see HopByHop.
	NamedHops bool
	// Upgrade is the value of the Upgrade field when Connection lists it and the version is 1.1, else empty.
	Upgrade string

	// Unescaped: Path or Query may hold bytes that RFC 3986 allows there as escapes only; see AppendEscaped.
	Unescaped bool

	head head
}

// Parse reads a head at the beginning of buf: n is its length, and the body, if any, follows at buf[n:]. With n 0 and no
// error more bytes are needed: call again with the same bytes and more behind them (they may have moved). Waiting costs time
// linear in the bytes, however few arrive at once. An error is an *Error. One empty line before the request line is skipped
// (RFC 9112 §2.2).
func (r *Request) Parse(buf []byte, lim Limits) (n int, err error) {
	lim.fill()
	if !r.head.scan.ready(buf, &lim) {
		return 0, nil
	}
	n, f := r.parse(buf, &lim)
	return r.head.settle(n, f, &requestErrors)
}

// Reset drops a partly read head and the last result, and keeps the memory of Fields. It is not needed before Parse
// after a success or an error.
func (r *Request) Reset() { *r = Request{Fields: r.Fields[:0]} }

func (r *Request) parse(buf []byte, lim *Limits) (int, fault) {
	w := buf[:min(len(buf), lim.Head)]
	start := 0
	if len(w) > 0 && w[0] == '\r' {
		if len(w) < 2 {
			return 0, faultNone
		}
		if w[1] != '\n' {
			return 0, faultBareCR
		}
		start = 2
	}
	line := w[:min(len(w), start+lim.Line)]
	i, f := r.parseLine(line, start)
	if f != faultNone {
		return 0, f
	}
	if i == 0 {
		return 0, lim.unended(w, line[start:])
	}
	if r.Fields, i, f = r.head.rest(w, i, r.Fields, lim); i == 0 {
		return 0, f
	}
	return i, r.finish()
}

const (
	version11 = uint64('H') | 'T'<<8 | 'T'<<16 | 'P'<<24 | '/'<<32 | '1'<<40 | '.'<<48 | '1'<<56
)

// parseLine reads the request line; 0 means that it is incomplete.
func (r *Request) parseLine(b []byte, i int) (int, fault) {
	start := i
	for i < len(b) && class[b[i]]&classMethod != 0 {
		i++
	}
	if i == len(b) {
		return 0, faultNone
	}
	if b[i] != ' ' || i == start {
		return 0, faultMethod
	}
	r.Method, r.Unescaped = str(b, start, i), false

	i++
	start = i
	query := 0
	for {
		for i < len(b) && class[b[i]]&classTarget != 0 {
			i++
		}
		if i == len(b) {
			return 0, faultNone
		}
		c := b[i]
		if c == ' ' {
			break
		}
		switch c {
		case '?':
			if query == 0 {
				query = i
			}
		case '%':
			if i+1 < len(b) && class[b[i+1]]&classHex == 0 || i+2 < len(b) && class[b[i+2]]&classHex == 0 {
				// A query may hold a stray "%"; in a path it would be read in different ways.
				if query == 0 {
					return 0, faultTarget
				}
				r.Unescaped = true
			} else if i+2 >= len(b) {
				return 0, faultNone
			}
		default:
			if class[c]&classUnescaped == 0 {
				return 0, faultTarget
			}
			r.Unescaped = true
		}
		i++
	}
	if i == start {
		return 0, faultTarget
	}
	target, end := start, i

	i++
	if len(b)-i >= 10 && b[i+8] == '\r' && b[i+9] == '\n' && le64(b[i:]) == version11 {
		r.Minor = 1
	} else if minor, f := slowVersion(b[i:]); f != faultNone || minor < 0 {
		return 0, f
	} else {
		r.Minor = minor
	}
	r.Target = str(b, target, end)
	r.Path, r.Query, r.HasQuery = r.Target, "", false
	if query != 0 {
		r.Path, r.Query, r.HasQuery = str(b, target, query), str(b, query+1, end), true
	}
	return i + 10, r.splitTarget()
}

// slowVersion reads "HTTP/1.x" CRLF byte by byte; -1 means that it is incomplete.
func slowVersion(b []byte) (minor int, f fault) {
	const pattern = "HTTP/d.d\r\n"
	for i := 0; i < len(pattern); i++ {
		if i == len(b) {
			return -1, faultNone
		}
		if c := b[i]; pattern[i] == 'd' {
			if c < '0' || c > '9' {
				return 0, faultVersion
			}
		} else if c != pattern[i] {
			return 0, faultVersion
		}
		if i == 7 && (b[5] != '1' || b[7] > '1') {
			return 0, faultVersionUnsupported
		}
	}
	return int(b[7] - '0'), faultNone
}

// splitTarget determines the form of the target and splits an absolute one.
func (r *Request) splitTarget() fault {
	r.Scheme, r.Authority = "", ""
	switch {
	case r.Method == "CONNECT":
		if _, port, ok := splitAuthority(r.Target); !ok || port == "" {
			return faultTargetForm
		}
		r.Form, r.Path, r.Authority, r.Unescaped = FormAuthority, "", r.Target, false
	case r.Target[0] == '/':
		r.Form = FormOrigin
	case r.Target == "*":
		if r.Method != "OPTIONS" {
			return faultTargetForm
		}
		r.Form = FormAsterisk
	default:
		r.Form = FormAbsolute
		rest := r.Path
		switch {
		case len(rest) >= 7 && EqualFold(rest[:7], "http://"):
			r.Scheme, rest = "http", rest[7:]
		case len(rest) >= 8 && EqualFold(rest[:8], "https://"):
			r.Scheme, rest = "https", rest[8:]
		default:
			return faultTargetForm
		}
		end := 0
		for end < len(rest) && rest[end] != '/' {
			end++
		}
		r.Authority, r.Path = rest[:end], rest[end:]
		if !ValidAuthority(r.Authority) {
			return faultHost
		}
		if r.Path == "" {
			r.Path = "/"
			if r.Method == "OPTIONS" && !r.HasQuery {
				r.Path = "*"
			}
		}
	}
	return faultNone
}

// finish draws the conclusions from all fields together.
func (r *Request) finish() fault {
	m := &r.head.meta
	if !m.hasHost {
		if r.Minor == 1 {
			return faultHostMissing
		}
	} else if r.Authority == "" {
		r.Authority = m.host
	} else if !sameAuthority(r.Authority, m.host, r.Scheme) {
		return faultHostMismatch
	}

	body, f := m.framing(r.Minor)
	if f != faultNone {
		return f
	}
	if m.expectOther && r.Minor == 1 {
		return faultExpectation
	}
	if r.Form == FormAuthority && (body.Kind == BodyChunked || body.Length > 0) {
		return faultConnectBody
	}
	r.Body = body
	r.KeepAlive = m.keepAlive(r.Minor) && r.Form != FormAuthority
	r.Expect100 = m.expect100 && r.Minor == 1 && body.Content()
	r.NamedHops = m.options&optionOther != 0
	r.Upgrade = ""
	if m.options&optionUpgrade != 0 && m.upgrades == 1 && r.Minor == 1 {
		r.Upgrade = m.upgrade
	}
	return faultNone
}

// sameAuthority compares the authority of a target with the Host field; a port may be left out where it is the scheme's.
func sameAuthority(a, b, scheme string) bool {
	if EqualFold(a, b) {
		return true
	}
	hostA, portA, _ := splitAuthority(a)
	hostB, portB, _ := splitAuthority(b)
	usual := "80"
	if scheme == "https" {
		usual = "443"
	}
	if portA == "" {
		portA = usual
	}
	if portB == "" {
		portB = usual
	}
	return scheme != "" && EqualFold(hostA, hostB) && portA == portB
}

// str aliases b[i:j], which the caller knows to be within b.
func str(b []byte, i, j int) string {
	return unsafe.String((*byte)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(b)), i)), j-i)
}
