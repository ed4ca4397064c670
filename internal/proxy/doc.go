// Package proxy is the data plane: it binds the listeners of a configuration, speaks HTTP/1.1 and HTTP/2 to clients, and
// carries each request through one pipeline: route, filters, pick, forward, respond.
//
// A request and its answer are an exchange. Both protocols enter the pipeline with the same message, so everything
// behind the listener is written once. What a configuration needs is prepared when it is applied and published through
// one atomic pointer, which an exchange loads once; on the plain HTTP/1.1 path an exchange then allocates nothing.
//
// It decides nothing about routes (see routing), keeps no connections to endpoints (see upstream) and parses no bytes
// (see http1).
package proxy
