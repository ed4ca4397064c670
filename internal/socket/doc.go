// Package socket uses sockets by their descriptors: listening, accepting in batches, connections that the runtime's
// poller does not know before something has to wait (Conn), non-blocking reads and writes within the callbacks of
// syscall.RawConn, peeking, and the system's information about a connection. proxy, upstream and http2 use it. It knows
// nothing of them, or of HTTP. On other systems than Linux it does what the library can.
package socket
