// Package exchange carries one request, from its head to the end of its answer, through one pipeline: route, access, filters, pick, forward, answer,
// record. Both protocols enter it with the same Request, so that everything behind a client's connection is written once.
//
// It sees the client only as a Client, which reads the body and writes the answer, and as a Peer: address, scheme, the name and the identity of a TLS
// handshake. What exchanges share is their Pipeline; what they go by is a Snapshot, which each is begun with and keeps. On the plain path an exchange
// allocates nothing.
//
// It decides nothing about routes (see routing), keeps no connections (see proxy for clients', upstream for endpoints') and makes no copies (see mirror).
// The proxy uses it, and Preview shows what it would do to "weir explain".
package exchange
