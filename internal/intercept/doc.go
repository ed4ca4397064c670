// Package intercept divides connections that a redirect brought to one socket, whatever port their clients meant, among
// listeners of those ports. For who accepts from such a listener it is a socket of its own.
package intercept
