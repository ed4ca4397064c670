package http1

// Error is the reason why a message was refused. For a request it is the client's fault, and Status is the 4xx, or 501,
// to answer before closing the connection. For a response it is the endpoint's fault, and Status is 502.
type Error struct {
	Status int
	// Reason is a stable snake_case word.
	Reason string
	// Detail is a sentence for a person. It never quotes the message.
	Detail string
}

func (e *Error) Error() string { return "http1: " + e.Reason + ": " + e.Detail }

// fault indexes the errors there are; an error costs no allocation.
type fault uint8

const (
	faultNone fault = iota
	faultBareCR
	faultBareLF
	faultChunkEnd
	faultChunkExtension
	faultChunkOverhead
	faultChunkSize
	faultCodingInvalid
	faultCodingUnsupported
	faultCodingVersion
	faultConnectBody
	faultExpectation
	faultFieldName
	faultFieldValue
	faultFields
	faultFold
	faultHead
	faultHost
	faultHostDuplicate
	faultHostMismatch
	faultHostMissing
	faultLength
	faultLengthAndCoding
	faultLengthConflict
	faultLine
	faultMethod
	faultSpaceBeforeColon
	faultStatus
	faultTarget
	faultTargetForm
	faultTrailer
	faultVersion
	faultVersionUnsupported
	faults // how many there are
)

var requestErrors = [faults]*Error{
	faultBareCR:            {400, "bare_cr", "carriage return without line feed (RFC 9112 §2.2)"},
	faultBareLF:            {400, "bare_lf", "line feed without carriage return (RFC 9112 §2.2)"},
	faultChunkEnd:          {400, "invalid_chunk_end", "a chunk is not followed by CRLF (RFC 9112 §7.1)"},
	faultChunkExtension:    {400, "invalid_chunk_extension", "a chunk extension is malformed or too long (RFC 9112 §7.1.1)"},
	faultChunkOverhead:     {400, "excessive_chunk_overhead", "too much chunk framing for too little data"},
	faultChunkSize:         {400, "invalid_chunk_size", "a chunk size is not 1 to 15 hexadecimal digits (RFC 9112 §7.1)"},
	faultCodingInvalid:     {400, "invalid_transfer_encoding", "Transfer-Encoding must end in a single chunked (RFC 9112 §6.1)"},
	faultCodingUnsupported: {501, "unsupported_transfer_encoding", "a transfer coding other than chunked is not implemented (RFC 9112 §6.1)"},
	faultCodingVersion:     {400, "transfer_encoding_in_http10", "Transfer-Encoding in an HTTP/1.0 message (RFC 9112 §6.1)"},
	faultConnectBody:       {400, "connect_with_body", "a CONNECT request has no content (RFC 9110 §9.3.6)"},
	faultExpectation:       {417, "unknown_expectation", "unsupported Expect, only 100-continue is supported (RFC 9110 §10.1.1)"},
	faultFieldName:         {400, "invalid_field_name", "a field name is not a token followed by a colon (RFC 9112 §5)"},
	faultFieldValue:        {400, "invalid_field_value", "a field value contains a control byte (RFC 9110 §5.5)"},
	faultFields:            {431, "too_many_fields", "the head has too many field lines"},
	faultFold:              {400, "folded_field", "folded field line (RFC 9112 §5.2)"},
	faultHead:              {431, "head_too_large", "the head is too large"},
	faultHost:              {400, "invalid_host", "malformed host: want a name or an address, with an optional port (RFC 9112 §3.2)"},
	faultHostDuplicate:     {400, "duplicate_host", "more than one Host field (RFC 9112 §3.2)"},
	faultHostMismatch:      {400, "host_mismatch", "the Host field differs from the host of the request target (RFC 9112 §3.2.2)"},
	faultHostMissing:       {400, "missing_host", "missing Host field (RFC 9112 §3.2)"},
	faultLength:            {400, "invalid_content_length", "Content-Length is not a decimal number in range (RFC 9112 §6.3)"},
	faultLengthAndCoding:   {400, "content_length_and_transfer_encoding", "both Content-Length and Transfer-Encoding are present (RFC 9112 §6.1)"},
	faultLengthConflict:    {400, "conflicting_content_length", "Content-Length has different values (RFC 9112 §6.3)"},
	faultLine:              {414, "request_line_too_long", "the request line is too long"},
	faultMethod:            {400, "invalid_method", "malformed method: want upper-case letters and one space (RFC 9112 §3)"},
	faultSpaceBeforeColon:  {400, "space_before_colon", "whitespace between a field name and its colon (RFC 9112 §5.1)"},
	faultStatus:            {400, "invalid_status_line", "malformed status line (RFC 9112 §4)"},
	faultTarget:            {400, "invalid_target", "invalid byte in the request target, or no space and version after it (RFC 9112 §3.2)"},
	faultTargetForm:        {400, "invalid_target_form", "the request target does not fit the method (RFC 9112 §3.2)"},
	faultTrailer:           {400, "trailer_too_large", "the trailer section is too large"},
	faultVersion:           {400, "invalid_version", "malformed version (RFC 9112 §2.3)"},
	faultVersionUnsupported: {400, "unsupported_version",
		"unsupported version, neither HTTP/1.0 nor HTTP/1.1 (RFC 9112 §2.3)"},
}

var responseErrors = func() (t [faults]*Error) {
	for i, e := range requestErrors {
		if e != nil {
			c := *e
			c.Status = 502
			t[i] = &c
		}
	}
	t[faultLine] = &Error{502, "status_line_too_long", "the status line is too long"}
	return t
}()
