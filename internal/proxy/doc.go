// Package proxy is the data plane's clients: it binds the listeners of a configuration, accepts connections, sets TLS up, and speaks HTTP/1.1 and HTTP/2.
// Each request it hands to an exchange (see that package), as whose Client a connection or a stream reads the body and writes the answer. Connections to
// TCP listeners it relays itself.
//
// It also says when: what a configuration needs is prepared when it is applied and published through one atomic pointer; overload is refused, memory for
// what cannot be passed on is bounded, and ports that are gone are drained. A connection's life is a written state machine (conn_state.go).
//
// It decides nothing about routes (see routing), keeps no connections to endpoints (see upstream) and parses no bytes (see http1).
package proxy
