// Package identity is the certificate authority of a control plane: it makes one, signs server certificates with it, and
// replaces it before it ends, in time for everybody to trust the new one first.
//
// It keeps nothing and reads no clock: whoever uses it stores what Authority.Secret returns and says what time it is.
package identity
