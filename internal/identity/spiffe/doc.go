// Package spiffe judges SPIFFE IDs and the X.509 certificates that prove them, X.509-SVIDs. It is pure: it makes no
// certificate, opens no connection and reads no file. The proxy and its upstream ask it during handshakes.
//
// It follows the SPIFFE standards "SPIFFE-ID" and "X509-SVID". Where they leave a choice, it is strict.
package spiffe
