// Package socket reads and writes non-blocking sockets by their descriptors, within the callbacks of syscall.RawConn, for the connections of
// proxy, upstream and http2.
package socket
