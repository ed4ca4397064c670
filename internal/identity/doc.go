// Package identity is the certificate authority of a control plane: it makes one, signs server certificates with it,
// and replaces it before it expires, in time for everyone to trust the new one first.
//
// It keeps nothing and reads no clock: its users store the result of Authority.Secret and pass the time.
package identity
