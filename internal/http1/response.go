package http1

// Response is a parsed response head. It is meant to be reused like Request.
type Response struct {
	// Status is 100 to 599.
	Status int
	// Reason is the reason phrase, possibly empty.
	Reason string
	// Minor is 0 or 1.
	Minor int
	// Fields are all field lines in order. A repeated, identical Content-Length occurs once. In an answer to HEAD or
	// with status 304 (BodyNone), Content-Length is the length that the body would have, and may be forwarded. In 1xx,
	// 204 and answers to CONNECT that open a tunnel it is removed, like Transfer-Encoding.
	Fields []Field
	Body   Body
	// KeepAlive: the connection may serve another request once the body is read.
	KeepAlive bool
	// NamedHops is as in Request.
	NamedHops bool
	// Upgrade is the value of the Upgrade field of a 101 answer that lists it in Connection, else empty.
	Upgrade string

	head head
}

// Parse reads a head at the beginning of buf like Request.Parse. requestMethod is the method of the request; with the
// status it decides whether there is a body (RFC 9112 §6.3). Answers with a 1xx status other than 101 are followed by
// another head. After any error the connection is unusable.
func (r *Response) Parse(buf []byte, lim Limits, requestMethod string) (n int, err error) {
	lim.fill()
	if !r.head.scan.ready(buf, &lim) {
		return 0, nil
	}
	n, f := r.parse(buf, &lim, requestMethod)
	return r.head.settle(n, f, &responseErrors)
}

// Reset forgets a partly read head and the last result; it keeps the memory of Fields.
func (r *Response) Reset() { *r = Response{Fields: r.Fields[:0]} }

func (r *Response) parse(buf []byte, lim *Limits, requestMethod string) (int, fault) {
	w := buf[:min(len(buf), lim.Head)]
	line := w[:min(len(w), lim.Line)]
	i, f := r.parseLine(line)
	if f != faultNone {
		return 0, f
	}
	if i == 0 {
		return 0, lim.unended(w, line)
	}
	if r.Fields, i, f = r.head.rest(w, i, r.Fields, lim); i == 0 {
		return 0, f
	}
	return i, r.finish(requestMethod)
}

// parseLine reads the status line and returns its length; 0 means that it is incomplete. Without a reason phrase, the
// space after the status code may be missing: many endpoints send it so, and no parser reads it differently.
func (r *Response) parseLine(b []byte) (int, fault) {
	const pattern = "HTTP/1.d ddd"
	for i := 0; i < len(pattern); i++ {
		if i == len(b) {
			return 0, faultNone
		}
		if c := b[i]; pattern[i] == 'd' {
			if c < '0' || c > '9' {
				return 0, faultStatus
			}
		} else if c != pattern[i] {
			return 0, faultStatus
		}
	}
	if b[7] > '1' {
		return 0, faultVersionUnsupported
	}
	r.Minor = int(b[7] - '0')
	r.Status = int(b[9]-'0')*100 + int(b[10]-'0')*10 + int(b[11]-'0')
	if r.Status < 100 || r.Status > 599 {
		return 0, faultStatus
	}
	i := len(pattern)
	start := i
	if i < len(b) && b[i] == ' ' {
		start = i + 1
		i = textEnd(b, start)
	}
	if i < len(b) && b[i] != '\r' {
		if b[i] == '\n' {
			return 0, faultBareLF
		}
		return 0, faultStatus
	}
	if i+1 >= len(b) {
		return 0, faultNone
	}
	if b[i+1] != '\n' {
		return 0, faultBareCR
	}
	r.Reason = str(b, start, i)
	return i + 2, faultNone
}

func (r *Response) finish(requestMethod string) fault {
	m := &r.head.meta
	body, f := m.framing(r.Minor)
	if f != faultNone {
		return f
	}
	r.KeepAlive = m.keepAlive(r.Minor)
	r.NamedHops = m.options&optionOther != 0
	r.Upgrade = ""
	tunnel := requestMethod == "CONNECT" && r.Status/100 == 2
	switch {
	case r.Status/100 == 1 || r.Status == 204 || tunnel:
		// A body announced here is a fault that leaves the connection in doubt (RFC 9112 §6.1, RFC 9110 §8.6).
		if body.Kind == BodyChunked || body.Length > 0 || tunnel {
			r.KeepAlive = false
		}
		if body.Kind != BodyNone {
			r.dropFraming()
		}
		if r.Status == 101 {
			r.KeepAlive = false
			if m.options&optionUpgrade != 0 && m.upgrades == 1 {
				r.Upgrade = m.upgrade
			}
		}
		r.Body = Body{}
	case r.Status == 304 || requestMethod == "HEAD":
		r.Body = Body{}
	case body.Kind == BodyNone:
		r.Body = Body{Kind: BodyUntilClose}
		r.KeepAlive = false
	default:
		r.Body = body
	}
	return faultNone
}

func (r *Response) dropFraming() {
	kept := r.Fields[:0]
	for _, f := range r.Fields {
		if f.ID != FieldContentLength && f.ID != FieldTransferEncoding {
			kept = append(kept, f)
		}
	}
	r.Fields = kept
}
