// Package proxy is the clients' side of the data plane. It binds the listeners of a configuration, accepts connections,
// sets up TLS, and speaks HTTP/1.1 and HTTP/2. It hands each request to an exchange (see that package). A connection or
// a stream is the exchange's Client: it reads the body and writes the answer. Package proxy itself relays connections
// to TCP and TLS listeners. Where nobody says what connections carry, it finds out: detect.go by their first bytes, contest.go
// by who speaks first.
//
// It prepares a configuration when it is applied and publishes it through one atomic pointer. It refuses overload,
// bounds the memory for data that cannot be passed on yet, and drains removed ports. conn_state.go holds the state
// machine of a connection's life.
//
// It decides nothing about routes (see routing), keeps no connections to endpoints (see upstream) and parses no bytes
// (see http1 and clienthello).
package proxy
