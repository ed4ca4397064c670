// Package http1 is HTTP/1.1 on the wire (RFC 9112): a strict parser of request and response heads that works in place,
// incremental decoding of the chunked coding, and serialisers that append to a caller's buffer.
//
// It is not a server and not a client: it does no I/O, keeps no buffers of bodies and decides nothing about a message.
// The proxy and the connections to endpoints use it.
//
// Every string and slice that a parser returns aliases the bytes it was given, and is valid until those bytes are
// overwritten. It accepts nothing that another strict parser could read differently: line ends are CRLF only, there is
// no line folding, and framing is unambiguous (RFC 9112 §11).
package http1
