// Package workload gives pods their identities. A Source beside the pod makes keys, has certificates signed, and renews
// them; the keys leave it for nobody. An Issuer beside the authority decides what a certificate says, from what it
// attested itself: of a request only the key counts. How requests get from one to the other is the callers'.
package workload
