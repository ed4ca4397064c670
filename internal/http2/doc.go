// Package http2 is HTTP/2 (RFC 9113) on the wire, for both roles: one connection with its streams, flow control, header
// compression, bounds and orderly end. Frame types, the writing of control frames and Huffman coding come from
// golang.org/x/net/http2 and its hpack; its server and transport are not used.
//
// It knows nothing of exchanges, routing, pools or metrics: proxy serves clients' streams with it, upstream opens
// streams to endpoints. A request or an answer is a Head, whose fields are valid and end to end, then pieces of a body,
// then trailers.
//
// The goroutine that calls Conn.Run reads. Every sender appends to the connection's output and writes it, unless
// another goroutine already does: frames of many streams are sent in one write.
package http2
