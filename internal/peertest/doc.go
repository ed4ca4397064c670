// Package peertest has the other sides of the data plane's connections, for tests: services that answer, refuse, keep silent or cut what they send as
// a test wants it, over HTTP/1.1, HTTP/2 and TLS, an authority for their certificates, and a log of what a program says. Whatever it starts ends with the test.
package peertest
