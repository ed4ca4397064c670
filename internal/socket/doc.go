// Package socket is what is done with sockets by their descriptors: opening those that clients come to, for connections or datagrams (Bound),
// accepting in batches, connections that the runtime's poller does not know before something has to wait (Conn), non-blocking reads and writes
// within the callbacks of syscall.RawConn, looks that take nothing, and what the system knows of a connection. It is for proxy, upstream, http2 and
// process, and knows nothing of HTTP nor of them. Elsewhere than on Linux it does what the library can.
package socket
