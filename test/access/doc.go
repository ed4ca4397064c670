// Package access attacks the access control of a sidecar: a corpus of ways around a rule, each of which is sent to a
// running "weir run --as" over TLS, as the bytes that it is. Behind the sidecar is a recorder. Whatever it receives must be
// permitted, however common servers read it.
package access
