// Package clientaddr finds out who a connection or a request comes from if there are proxies in front: which addresses
// are trusted (Trust), what they write in header fields (Walk), and headers of the PROXY protocol, read (Scanner,
// ParseHeader) and written (AppendHeader).
//
// It opens no connection and reads none. The data plane uses it at its listeners and towards its endpoints.
package clientaddr
