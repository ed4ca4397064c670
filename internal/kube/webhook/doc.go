// Package webhook is what API servers call of the controller: one server over TLS, and the keeper of the certificates by
// which they trust it, in custom resource definitions (conversion) and in APIServices (aggregated APIs).
//
// It knows nothing of what is asked: kube/conversion and kube/aggregated have handlers. The controller runs the server
// in every replica and Bundles in the leader.
package webhook
