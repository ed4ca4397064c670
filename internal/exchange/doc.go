// Package exchange carries one request, from its head to the end of its answer, through one pipeline: route, access,
// filters, pick, forward, answer, record. Both protocols enter the pipeline with the same Request, so everything behind
// a client's connection is written once.
//
// The package sees the client only as a Client, which reads the body and writes the answer, and as a Peer: address,
// scheme, and the name and identity from a TLS handshake. Exchanges share a Pipeline. Each begins with a Snapshot and
// keeps it to its end. On the plain path an exchange allocates nothing.
//
// A Connection is the same for one relayed connection, whose bytes nobody reads: route, access, pick, connect, record. The
// access stage is one for both.
//
// The package does not decide about routes (see routing), keep connections (see proxy for clients', upstream for
// endpoints') or make copies (see mirror). The proxy uses it, and Preview shows "weir explain" what an exchange would
// do.
package exchange
